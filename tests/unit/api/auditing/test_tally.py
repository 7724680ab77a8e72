"""Samples that come some at a time are audited as those that are held together."""

from collections.abc import Iterator

from raw_graphs import chain

import layerdag as ld
from layerdag.api import audit_of
from layerdag.api.auditing import AuditTally
from layerdag.datasets import encoded
from layerdag.graph import DAG

GRAPHS = [chain(f"g{i}", "abcab"[: 2 + i % 4] * (1 + i // 4), label=1.0 + i) for i in range(30)]
DATA = ld.GraphDataset.build(
    "chains", "flow", {"train": GRAPHS[:12], "val": GRAPHS[12:15], "test": GRAPHS[15:18]}
)
MADE = encoded(GRAPHS[6:], DATA.schema)


class Once:
    """Samples that cannot be indexed, as those on the disk."""

    def __len__(self) -> int:
        return len(MADE)

    def __iter__(self) -> Iterator[DAG]:
        return iter(MADE)


def test_every_figure_of_all_samples_is_that_of_samples_in_memory() -> None:
    streamed, known = audit_of(DATA, Once(), most_held=20), audit_of(DATA, MADE)

    assert (streamed.held, known.held) == (20, None)
    assert streamed.structure.to_dict().keys() == known.structure.to_dict().keys()
    assert streamed.structure.pass_rate == known.structure.pass_rate
    assert streamed.structure.by_depth != ()
    assert (streamed.novelty, streamed.copies) == (known.novelty, known.copies)
    assert streamed.leaks[-1].samples == known.leaks[-1].samples == len(MADE)
    assert streamed.leaks[-1].nearness == known.leaks[-1].nearness
    of_all = [attack for attack in streamed.leaks[-1].attacks if attack.sampled is None]
    assert of_all == [a for a in known.leaks[-1].attacks if a.name in {b.name for b in of_all}]
    assert len(of_all) >= 3


def test_the_text_says_which_figures_looked_at_a_part() -> None:
    lines = str(audit_of(DATA, Once(), most_held=20)).splitlines()
    assert any("looked at 20 of the 24 samples, drawn at random (seed 0)" in line for line in lines)
    start = lines.index("attack reconstruction (an area of 0.5 is chance)")
    assert lines[start + 1].startswith("      20 samples")
    assert not lines[start + 2].startswith("      24 samples")
    start = lines.index("attack nearest_sample (an area of 0.5 is chance)")
    assert lines[start + 2].startswith("      24 samples")


def test_nothing_is_attacked_where_nothing_is_held_out() -> None:
    data = ld.GraphDataset.build("chains", "flow", {"train": GRAPHS[:12]})
    tally = AuditTally(data, 3, most=2)
    tally.add(MADE[:3])
    assert tally.leaks() == ()
    assert len(tally.held) == 2
