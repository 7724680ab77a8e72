from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from raw_graphs import chain
from tiny_checkpoints import chain_checkpoint

import layerdag as ld
from layerdag.errors import UsageError
from layerdag.evaluation import GraphSet
from layerdag.evaluation.metrics import DEFAULT_METRICS, NEIGHBORHOOD_METRICS, Goal, GraphMean


@dataclass(frozen=True)
class Ends(GraphMean):
    """Number of nodes without a child."""

    def values(self, graphs: GraphSet) -> np.ndarray:
        return np.bincount(graphs.graph_N[graphs.out_degree_N == 0], minlength=graphs.num_graphs)


GRAPHS = [chain(f"g{i}", "abcab"[: 2 + i % 4], label=1.0 + i) for i in range(24)]
DATA = ld.GraphDataset.build("chains", "flow", {"train": GRAPHS[:16], "test": GRAPHS[16:]})


def test_data_sets_and_samples_are_taken_as_they_are(tmp_path: Path) -> None:
    samples = ld.sample(chain_checkpoint(tmp_path), num=6, max_nodes=6, best_of=1)
    report = ld.compare(DATA, DATA, samples, replicates=3)
    assert (report.train, report.test, report.generated) == (16, 8, 6)
    lists = ld.compare(DATA.graphs["train"], DATA.graphs["test"], samples, replicates=3)
    assert str(lists) == str(report)


def test_a_data_set_and_samples_are_enough(tmp_path: Path) -> None:
    samples = ld.sample(chain_checkpoint(tmp_path), num=6, max_nodes=6, best_of=1)
    report = ld.compare(DATA, samples, replicates=3)
    assert report.to_dict() == ld.compare(DATA, DATA, samples, replicates=3).to_dict()
    with pytest.raises(UsageError, match="split into training and test graphs"):
        ld.compare(GRAPHS, samples)


def test_metrics_are_chosen_and_ones_own_are_computed() -> None:
    neighborhoods = ld.compare(DATA, DATA, metrics=NEIGHBORHOOD_METRICS)
    assert [row.metric for row in neighborhoods.rows] == list(NEIGHBORHOOD_METRICS)
    assert neighborhoods.row("neighborhood_novelty:3").generated.value == 0.0
    ends = Ends("ends", "nodes without a child", Goal.MATCH_REAL, unit="nodes")
    report = ld.compare(DATA, GRAPHS[:4], metrics=[*DEFAULT_METRICS, ends], replicates=2)
    assert len(report.rows) == 1 + len(ld.compare(DATA, GRAPHS[:4], replicates=2).rows)
    assert report.row("ends").generated.value == 1.0
    assert "ends" in str(report).splitlines()[-1]


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
