"""Samples that come some at a time are audited as those that are held together."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from raw_graphs import chain
from tiny_checkpoints import chain_checkpoint

import layerdag as ld
from layerdag.dag.dag import DAG
from layerdag.datasets.advice import too_few_held_out
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.encoding import encoded
from layerdag.errors import UsageError
from layerdag.graph.attributed_graph import write_json
from layerdag.privacy.auditing import audit_of
from layerdag.statistics import MARGIN, chance_half_width
from layerdag.training.checkpoint import save_checkpoint

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


def test_every_figure_of_all_samples_is_that_of_samples_in_memory():
    streamed, known = audit_of(DATA, Once(), most_held=20), audit_of(DATA, MADE)

    assert (streamed.held, known.held) == (20, None)
    assert streamed.structure.to_dict().keys() == known.structure.to_dict().keys()
    assert streamed.structure.pass_rate == known.structure.pass_rate
    assert streamed.structure.by_depth != ()
    assert (streamed.novelty, streamed.copies) == (known.novelty, known.copies)
    assert streamed.leaks.samples == known.leaks.samples == len(MADE)
    assert streamed.leaks.nearness == known.leaks.nearness
    of_all = [attack for attack in streamed.leaks.attacks if attack.sampled is None]
    assert of_all == [a for a in known.leaks.attacks if a.name in {b.name for b in of_all}]
    assert len(of_all) >= 3


def test_the_text_says_which_figures_looked_at_a_part():
    lines = str(audit_of(DATA, Once(), most_held=20)).splitlines()
    assert any("looked at 20 of the 24 samples, drawn at random (seed 0)" in line for line in lines)
    start = lines.index("attack reconstruction (an AUROC of 0.5 is chance)")
    assert lines[start + 1].startswith("      20 samples")
    start = lines.index("attack nearest_sample (an AUROC of 0.5 is chance)")
    assert lines[start + 1].startswith("      24 samples")


def test_nothing_is_attacked_where_nothing_is_held_out():
    data = ld.GraphDataset.build("chains", "flow", {"train": GRAPHS[:12]})
    found = audit_of(data, MADE[:3], most_held=2)
    assert (found.leaks, found.held, found.novelty.graphs) == (None, 2, 3)


AUDIT_GRAPHS = GRAPHS[:24]
AUDIT_DATA = ld.GraphDataset.build(
    "chains",
    "flow",
    {"train": AUDIT_GRAPHS[:12], "val": AUDIT_GRAPHS[12:18], "test": AUDIT_GRAPHS[18:]},
)


def test_the_weights_are_attacked_with_the_conditions_they_know(tmp_path):
    settings = ld.TrainSettings(max_steps=1, evaluate_every=1)
    named = [
        chain(g.name, "".join(g.categories["kind"]), **g.conditions, size=1.0) for g in AUDIT_GRAPHS
    ]
    data = ld.GraphDataset.build(
        "chains", "flow", {"train": named[:12], "val": named[12:18], "test": named[18:]}
    )
    checkpoint = ld.train(data.conditioned_on(["label"]), settings=settings, width=32, depth=1)
    weights = ld.audit(ld.sample(checkpoint, num=3, max_nodes=6), data, checkpoint).weights
    assert all(0 <= attack.auc <= 1 for attack in weights)
    assert "likelihood" in weights[0].name


def test_a_checkpoint_of_another_split_is_refused(tmp_path):
    checkpoint = chain_checkpoint(tmp_path)
    with pytest.raises(UsageError, match="split"):
        ld.audit(ld.sample(checkpoint, num=2, max_nodes=6), AUDIT_DATA, checkpoint)


def written(folder: Path, split: object) -> Path:
    """Write training graphs as ``layerdag sample`` writes samples."""
    folder.mkdir()
    entries = []
    for graph in AUDIT_GRAPHS[:6]:
        write_json(folder / f"{graph.name}.json", graph)
        entries.append({"name": graph.name, "file": f"{graph.name}.json", "conditions": {}})
    (folder / "manifest.json").write_text(json.dumps({"samples": entries, "split": split}))
    return folder


def test_a_folder_of_samples_is_audited_unless_it_is_of_another_split(tmp_path):
    found = ld.audit(written(tmp_path / "same", AUDIT_DATA.split.to_dict()), AUDIT_DATA)
    assert (found.novelty.graphs, found.novelty.copied) == (6, 1.0)
    assert "tells training graphs apart" in str(found) or "too few graphs to tell" in str(found)
    other = {**AUDIT_DATA.split.to_dict(), "test": "0" * 32}
    with pytest.raises(UsageError, match="the test graphs differ"):
        ld.audit(str(written(tmp_path / "other", other)), AUDIT_DATA)


def test_without_held_out_graphs_copies_are_counted_and_nothing_else(tmp_path):
    alone = ld.GraphDataset.build("chains", "flow", {"train": AUDIT_GRAPHS[:12]})
    found = ld.audit(AUDIT_GRAPHS[:4], alone, chain_checkpoint_of(alone, tmp_path))
    assert (found.held_out, found.leaks, found.weights) == (0, None, ())
    assert (found.neighborhoods, found.local) == ((), ())
    assert not found.passes
    assert found.novelty.copied == 1.0
    assert "no graph is held out" in found.advice
    assert found.advice in str(found)


def test_local_structure_is_told_of_valid_samples_beside_that_of_held_out_graphs():
    made = encoded(AUDIT_GRAPHS[:6], AUDIT_DATA.schema)
    ring = DAG.build(torch.zeros((2, 1), dtype=torch.int64), torch.tensor([[0, 1], [1, 0]]))
    found = audit_of(AUDIT_DATA, [*made, ring])
    assert found.structure.valid_B.tolist() == [True] * 6 + [False]
    rows = {row.metric.name: row for row in found.local}
    assert rows["path_novelty:2"].generated.value == 0.0
    assert "step_without_gradient" not in rows
    head = next(i for i, line in enumerate(str(found).splitlines()) if "local structure" in line)
    shown = [line.split()[0] for line in str(found).splitlines()[head + 1 : head + 5]]
    assert shown == ["type_hashes", "path_novelty:2", "path_novelty:3", "path_novelty:4"]
    assert audit_of(AUDIT_DATA, [ring]).local == ()


def chain_checkpoint_of(data: ld.GraphDataset, folder: Path) -> Path:
    """Return the folder of an untrained checkpoint that was split as ``data``."""
    loaded = chain_checkpoint(folder)
    meta = replace(loaded.meta, split=data.split)
    contents = (loaded.spec, loaded.model.state_dict(), dict(loaded.schema), {}, meta)
    save_checkpoint(folder / "same", *contents)
    return folder / "same"


def dataset(train: int, val: int, test: int) -> GraphDataset:
    graph = chain("g", "ab")
    parts = {"train": [graph] * train, "val": [graph] * val, "test": [graph] * test}
    return GraphDataset.build("toy", "flow", parts)


def test_few_held_out_graphs_are_told_with_the_number_needed_and_what_to_do():
    advice = too_few_held_out(dataset(26, 3, 3))
    assert advice is not None
    assert "6 graphs are held out (validation and test) beside 26 for training" in advice
    assert "held-out graphs are needed" in advice
    assert "column 'split'" in advice
    assert "data.held_out" in advice


def test_nothing_held_out_is_told():
    advice = too_few_held_out(dataset(5, 0, 0))
    assert advice is not None
    assert "no graph is held out" in advice


def test_enough_held_out_graphs_need_no_advice():
    assert too_few_held_out(dataset(751, 105, 151)) is None


@pytest.mark.parametrize(("train", "held_out"), [(10, 2), (50, 20), (200, 60)])
def test_the_advice_names_the_area_from_which_an_attack_shows(train, held_out):
    advice = too_few_held_out(dataset(train, held_out // 2, held_out - held_out // 2))
    assert advice is not None
    half = chance_half_width(train, held_out)
    assert f"only above an AUROC of {0.5 + half:.2f}, and about" in advice
    wanted = int(advice.split("and about ")[1].split(" held-out")[0].replace(",", ""))
    # With so many on both sides an interval around chance is narrow enough, with a tenth it is not.
    assert wanted > held_out
    assert chance_half_width(wanted, wanted // 10) > MARGIN
