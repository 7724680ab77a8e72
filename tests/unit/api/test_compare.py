from pathlib import Path

import pytest
from raw_graphs import chain
from tiny_checkpoints import chain_checkpoint

import layerdag as ld
from layerdag.errors import UsageError

GRAPHS = [chain(f"g{i}", "abcab"[: 2 + i % 4], label=1.0 + i) for i in range(24)]
DATA = ld.GraphDataset.build("chains", "flow", {"train": GRAPHS[:16], "test": GRAPHS[16:]})


def test_data_sets_and_samples_are_taken_as_they_are(tmp_path: Path) -> None:
    samples = ld.sample(chain_checkpoint(tmp_path), num=6)
    report = ld.compare(DATA, DATA, samples, replicates=3)
    assert (report.train, report.test, report.generated) == (16, 8, 6)
    lists = ld.compare(DATA.graphs["train"], DATA.graphs["test"], samples, replicates=3)
    assert str(lists) == str(report)


def test_codes_of_another_schema_are_compared_by_their_words() -> None:
    zabc = [chain("z", "z"), *GRAPHS]
    other = ld.GraphDataset.build("other", "flow", {"train": zabc, "test": GRAPHS})
    assert other.schema.attributes != DATA.schema.attributes
    report = ld.compare(other, other, DATA, replicates=2)
    assert report.row("attribute:kind").generated.value == pytest.approx(
        ld.compare(other, other, GRAPHS[:16], replicates=2).row("attribute:kind").generated.value
    )


def test_bare_graphs_alone_do_not_tell_what_their_codes_mean() -> None:
    dags = DATA.graphs["train"]
    with pytest.raises(UsageError, match="None of the sets has a schema"):
        ld.compare(dags, dags, dags)
