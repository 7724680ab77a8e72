"""Counts of nodes by depth are those of all nodes at once, however graphs come."""

import numpy as np
import pytest

from layerdag.evaluation.rules import DepthCounts, StructureTally, check_structure
from layerdag.graph import DAG, GraphSizes, GraphStatistics, random_dag


@pytest.fixture
def dags(rng: np.random.Generator) -> list[DAG]:
    return [random_dag(rng, rng.integers(1, 5, 1 + i % 6).tolist(), [3, 2]) for i in range(20)]


@pytest.mark.parametrize("at_once", [1, 3, 20])
def test_structure_is_the_same_however_graphs_come(dags: list[DAG], at_once: int) -> None:
    training = GraphStatistics.measure(dags[:3], GraphSizes(attributes=(3, 2)))
    tally = StructureTally(training)
    for first in range(0, len(dags), at_once):
        valid_B = tally.add(dags[first : first + at_once])
    found, known = tally.report(), check_structure(dags, training)
    assert found.findings == known.findings
    assert len(known.findings) > 0
    assert found.pass_rate == known.pass_rate
    assert [vars(row) for row in found.by_depth] == [vars(row) for row in known.by_depth]
    assert found.valid_B.tolist() == known.valid_B.tolist()
    assert found.valid_B[-len(valid_B) :].tolist() == valid_B.tolist()


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_bins_end_at_the_quantiles_of_the_nodes(dags: list[DAG], rows: int) -> None:
    layer_N = np.concatenate([dag.layer_N.numpy() for dag in dags])
    counts = DepthCounts(rows)
    counts.add(layer_N, {"layer-consistent": layer_N % 2 == 1})
    found = list(counts.rows())

    cuts = np.quantile(layer_N, np.linspace(0, 1, rows + 1)[1:], method="higher")
    assert [row.last_layer for row in found] == np.unique(cuts).tolist()
    for row in found:
        inside_N = layer_N[(layer_N >= row.first_layer) & (layer_N <= row.last_layer)]
        assert (row.nodes, row.consistent) == (inside_N.size, 1 - (inside_N % 2 == 1).mean())
        assert row.seen is None
