"""A classifier of nodes: what it sees, what it finds, on which graphs it is judged."""

import numpy as np
import pytest
import torch
from letters import graph

from layerdag.evaluation import GraphSet, SimilarityRow, compare
from layerdag.evaluation.metrics import AttributeView, Goal
from layerdag.evaluation.metrics.local import NodeClassifier, _node_classifier as module, node_rows
from layerdag.graph import DAG, random_dag

METRIC = NodeClassifier("node_classifier", "area", Goal.MINIMIZE, upper=1.0)
VIEWS = (AttributeView("op"), AttributeView("size", ordered=True))


def graphs(seed: int, count: int = 12, codes: int = 4) -> list[DAG]:
    rng = np.random.default_rng(seed)
    return [random_dag(rng, [3, 4, 4, 3], [codes, 6]) for _ in range(count)]


def row(train: list[DAG], test: list[DAG], made: list[DAG], seed: int = 0) -> SimilarityRow:
    return compare(train, test, made, VIEWS, metrics=[METRIC], seed=seed, replicates=20).rows[0]


def test_graphs_of_one_source_are_indistinguishable() -> None:
    found = row(graphs(0), graphs(1), graphs(2))
    for result in (found.generated, found.reference):
        assert result.value == pytest.approx(0.5, abs=0.1)
        assert result.interval.low < result.value < result.interval.high


def test_the_more_nodes_are_changed_the_better_they_are_told_apart() -> None:
    areas = []
    for fraction in (0.0, 0.4, 1.0):
        rng = np.random.default_rng(3)
        made = [with_new_sizes(dag, fraction, rng) for dag in graphs(2)]
        areas.append(row(graphs(0), graphs(1), made).generated.value)
    assert areas == sorted(areas)
    assert areas[0] < 0.6
    assert areas[-1] > 0.95


def with_new_sizes(dag: DAG, fraction: float, rng: np.random.Generator) -> DAG:
    """The graph with sizes on some nodes that real ones never have."""
    x_NA = dag.x_NA.clone()
    x_NA[torch.from_numpy(rng.random(dag.num_nodes) < fraction), 1] = 7
    return DAG.build(x_NA, dag.edge_index_2E)


def test_no_graph_is_on_both_sides() -> None:
    # Every graph has a size of its own: whoever has seen a graph knows its nodes, others do not.
    def marked(seed: int, first: int) -> list[DAG]:
        return [with_size(dag, first + 2 * at) for at, dag in enumerate(graphs(seed))]

    assert row(graphs(0), marked(1, 0), marked(2, 1)).generated.value < 0.75


def with_size(dag: DAG, size: int) -> DAG:
    x_NA = dag.x_NA.clone()
    x_NA[:, 1] = size
    return DAG.build(x_NA, dag.edge_index_2E)


def test_rows_hold_operator_first_parent_degrees_and_numbers() -> None:
    # d (3) has parents a (0, layer 0), c and b (layer 1): of the latest, that of the least code.
    dag = graph("acbd", [(0, 1), (0, 2), (0, 3), (1, 3), (2, 3)])
    sized = DAG.build(
        torch.cat([dag.x_NA, torch.tensor([[2], [0], [1], [5]])], dim=1),
        dag.edge_index_2E,
        u_NA=torch.tensor([[0.0, 0.5], [0.0, 0.0], [0.0, 0.25], [0.0, 0.0]]),
    )
    rows = node_rows(GraphSet.of([sized]), [1])
    assert rows.features_NF.tolist() == [
        [0, -1, 0, 3, 2.5],
        [2, 0, 1, 1, 0.0],
        [1, 0, 1, 1, 1.25],
        [3, 1, 3, 0, 5.0],
    ]


def test_equal_seeds_give_equal_areas_also_of_drawn_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NODES", 80)
    sets = graphs(0), graphs(1), graphs(2)
    first, second, other = row(*sets), row(*sets), row(*sets, seed=1)
    assert first.generated == second.generated
    assert first.generated.value != other.generated.value
    assert 0.2 < first.generated.value < 0.8


def test_with_fewer_than_four_graphs_there_is_no_area() -> None:
    assert "at least 4 graphs" in row(graphs(0), graphs(1), graphs(2, count=3)).generated.error
