"""Similarity by depth tells where along their layers samples leave the real graphs."""

import numpy as np
import pytest
import torch

from layerdag.errors import UsageError
from layerdag.evaluation import compare, compare_by_depth
from layerdag.evaluation.metrics import AttributeView
from layerdag.graph import DAG, random_dag

ATTRIBUTES = (AttributeView("op"), AttributeView("size", ordered=True))


def graphs(rng: np.random.Generator, widths: list[int], count: int = 40) -> list[DAG]:
    """Random graphs with layers of about these widths, their kinds drawn anew."""
    return [
        random_dag(rng, (rng.integers(0, 2, len(widths)) + widths).tolist(), [5, 4])
        for _ in range(count)
    ]


def test_samples_that_widen_at_their_end_are_far_there_and_near_before(
    rng: np.random.Generator,
) -> None:
    even, widening = [3] * 10, [3] * 8 + [9] * 2
    rows = compare_by_depth(
        graphs(rng, even), graphs(rng, even), graphs(rng, widening), ATTRIBUTES, replicates=2
    )
    ratio = [next(r.ratio for r in row.rows if r.metric.name == "width") for row in rows]
    assert len(ratio) == 5
    assert ratio[4] > 5 * max(ratio[:3])
    assert (rows[0].begin, rows[4].end) == (0.0, 1.0)


def test_kinds_that_drift_show_in_the_stretch_where_they_do(rng: np.random.Generator) -> None:
    def drifted(dag: DAG) -> DAG:
        x_NA = dag.x_NA.clone()
        x_NA[dag.num_nodes * 4 // 5 :, 0] = 0
        return DAG.build(x_NA, dag.edge_index_2E)

    train, test = graphs(rng, [4] * 10), graphs(rng, [4] * 10)
    made = [drifted(dag) for dag in graphs(rng, [4] * 10)]
    rows = compare_by_depth(train, test, made, ATTRIBUTES, replicates=2)
    distance = [row.rows[-1].generated.value for row in rows]
    assert distance[4] > 0.6
    assert max(distance[:4]) < 0.3


def test_one_stretch_is_the_whole_graph(rng: np.random.Generator) -> None:
    sets = [graphs(rng, [2, 5, 3]) for _ in range(3)]
    (whole,) = compare_by_depth(*sets, ATTRIBUTES, depth_bins=1, replicates=2)
    report = compare(*sets, ATTRIBUTES, replicates=2)
    assert whole.nodes == sum(dag.num_nodes for dag in sets[2])
    assert [row.metric.name for row in whole.rows] == [
        "width",
        "in_degree",
        "out_degree",
        "attribute:op",
    ]
    for row in whole.rows:
        assert row.ratio == pytest.approx(report.row(row.metric.name).ratio)


def test_stretches_hold_every_node_once_and_may_be_empty(rng: np.random.Generator) -> None:
    flat = [DAG.build(torch.zeros(3, 2, dtype=torch.int64), torch.zeros(2, 0, dtype=torch.int64))]
    rows = compare_by_depth(graphs(rng, [2] * 7), graphs(rng, [2] * 7), flat * 4, ATTRIBUTES)
    assert [row.nodes for row in rows] == [12, 0, 0, 0, 0]
    assert rows[4].mean_ratio is None
    assert all(row.generated.error for row in rows[4].rows)


def test_no_stretch_at_all_is_refused(rng: np.random.Generator) -> None:
    few = graphs(rng, [2, 2], count=3)
    with pytest.raises(UsageError, match="at least one depth bin, found 0"):
        compare_by_depth(few, few, few, ATTRIBUTES, depth_bins=0)


def test_views_that_are_not_those_of_the_graphs_are_refused(rng: np.random.Generator) -> None:
    few = graphs(rng, [2, 2], count=3)
    with pytest.raises(UsageError, match="1 attributes are named but the graphs have 2"):
        compare_by_depth(few, few, few, ATTRIBUTES[:1])
