"""A classifier of nodes: what it sees, what it finds, on which graphs it is judged."""

import numpy as np
import pytest
import torch
from letters import graph
from random_graphs import random_dag

from layerdag.dag.dag import DAG
from layerdag.dag.graph_set import GraphSet
from layerdag.errors import DataError
from layerdag.evaluation.metrics import classifiers as module
from layerdag.evaluation.metrics.base import AttributeView, Comparison, Goal, SimilarityRow
from layerdag.evaluation.metrics.classifiers import (
    CLASSIFIER_METRIC,
    MAX_PAIRS,
    NodeClassifier,
    classifier_bound,
    connected_pairs,
    node_rows,
)
from layerdag.evaluation.metrics.kernels import KERNEL_METRICS
from layerdag.evaluation.similarity import compare

METRIC = NodeClassifier("node_classifier", "area", Goal.MINIMIZE, upper=1.0)
VIEWS = (AttributeView("op"), AttributeView("size", ordered=True))


def graphs(seed: int, count: int = 12, codes: int = 4) -> list[DAG]:
    rng = np.random.default_rng(seed)
    return [random_dag(rng, [3, 4, 4, 3], [codes, 6]) for _ in range(count)]


def row(train: list[DAG], test: list[DAG], made: list[DAG], seed: int = 0) -> SimilarityRow:
    return compare(train, test, made, VIEWS, metrics=[METRIC], seed=seed, replicates=20).rows[0]


def test_graphs_of_one_source_are_indistinguishable():
    found = row(graphs(0), graphs(1), graphs(2))
    for result in (found.generated, found.reference):
        assert result.value == pytest.approx(0.5, abs=0.1)
        assert result.interval.low < result.value < result.interval.high


def test_the_more_nodes_are_changed_the_better_they_are_told_apart():
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


def test_no_graph_is_on_both_sides():
    # Every graph has a size of its own: whoever has seen a graph knows its nodes, others do not.
    def marked(seed: int, first: int) -> list[DAG]:
        return [with_size(dag, first + 2 * at) for at, dag in enumerate(graphs(seed))]

    assert row(graphs(0), marked(1, 0), marked(2, 1)).generated.value < 0.75


def with_size(dag: DAG, size: int) -> DAG:
    x_NA = dag.x_NA.clone()
    x_NA[:, 1] = size
    return DAG.build(x_NA, dag.edge_index_2E)


def test_rows_hold_operator_first_parent_degrees_and_numbers():
    # d (3) has parents a (0, layer 0), c and b (layer 1): of the latest, that of the least code.
    dag = graph("acbd", [(0, 1), (0, 2), (0, 3), (1, 3), (2, 3)])
    sized = DAG.build(
        torch.cat([dag.x_NA, torch.tensor([[2], [0], [1], [5]])], dim=1),
        dag.edge_index_2E,
        u_NA=torch.tensor([[0.0, 0.5], [0.0, 0.0], [0.0, 0.25], [0.0, 0.0]]),
    )
    features_NF, _ = node_rows(GraphSet.from_dags([sized]), [1])
    assert features_NF.tolist() == [
        [0, -1, 0, 3, 2.5],
        [2, 0, 1, 1, 0.0],
        [1, 0, 1, 1, 1.25],
        [3, 1, 3, 0, 5.0],
    ]


def test_equal_seeds_give_equal_areas_also_of_drawn_nodes(monkeypatch):
    monkeypatch.setattr(module, "MAX_NODES", 80)
    sets = graphs(0), graphs(1), graphs(2)
    first, second, other = row(*sets), row(*sets), row(*sets, seed=1)
    assert first.generated == second.generated
    assert first.generated.value != other.generated.value
    assert 0.2 < first.generated.value < 0.8


def test_with_fewer_than_four_graphs_there_is_no_area():
    assert "at least 4 graphs" in row(graphs(0), graphs(1), graphs(2, count=3)).generated.error


def _normal(rng: np.random.Generator, shift: float, count: int = 200) -> dict[str, np.ndarray]:
    told = rng.normal(0, 1, (count, 3))
    told[:, 0] += shift
    return {"noise": rng.normal(0, 1, (count, 3)), "shifted": told}


def test_alike_sets_have_bound_zero(rng):
    draws_R, _ = classifier_bound(_normal(rng, 0.0), _normal(rng, 0.0), seed=0, replicates=20)
    assert draws_R[0] < 0.15
    assert draws_R.shape == (21,)


def test_the_bound_stays_below_the_jensen_shannon_distance(rng):
    # Two unit normals 2 apart: the Jensen-Shannon distance (base 2) by quadrature.
    x = np.linspace(-8, 10, 20_001)
    p, q = (np.exp(-((x - m) ** 2) / 2) / np.sqrt(2 * np.pi) for m in (0, 2))
    mean = (p + q) / 2
    divergence = np.sum(p * np.log2(p / mean) + q * np.log2(q / mean)) / 2 * (x[1] - x[0])
    sets = _normal(rng, 0.0, 800), _normal(rng, 2.0, 800)
    draws_R, by_descriptor = classifier_bound(*sets, seed=0, replicates=50)
    value, error = draws_R[0], draws_R[1:].std()
    assert value == pytest.approx(np.sqrt(divergence), abs=0.1)
    assert value < np.sqrt(divergence) + 3 * error
    # The descriptor that tells them apart was chosen.
    assert by_descriptor["shifted"] == value
    assert by_descriptor["noise"] < 0.2


def test_too_few_graphs_are_refused(rng):
    with pytest.raises(DataError, match="at least 8 graphs"):
        classifier_bound(_normal(rng, 0.0, 5), _normal(rng, 0.0), seed=0, replicates=1)


@pytest.mark.parametrize("widest", [3, 9])
def test_as_a_metric_it_stands_beside_that_of_training_graphs(widest, rng):
    def graphs(most: int) -> GraphSet:
        widths = rng.integers(1, most + 1, (40, 4))
        return GraphSet.from_dags([random_dag(rng, width.tolist(), [3]) for width in widths])

    row = CLASSIFIER_METRIC.compute(Comparison(graphs(3), graphs(3), graphs(widest), replicates=20))
    assert row.reference.value < 0.45
    assert (row.generated.value > 0.6) == (widest == 9)
    names = {metric.name for metric in KERNEL_METRICS}
    assert row.generated.breakdown.keys() == names | {"edge_bigrams"}
    assert row.generated.value in row.generated.breakdown.values()
    assert row.generated.interval is not None
    assert (
        0 <= row.generated.interval.low <= row.generated.value <= row.generated.interval.high <= 1
    )
    assert (row.ratio, row.ratio_interval, row.matched) == (None, None, None)


def _pairs(*edges: tuple[int, int]) -> GraphSet:
    """Return one graph with an edge between nodes of their own for each pair of attributes."""
    x_NA = torch.tensor([code for edge in edges for code in edge])[:, None]
    return GraphSet.from_dags([DAG.build(x_NA, torch.arange(2 * len(edges)).reshape(-1, 2).T)])


def test_pairs_that_no_real_graph_has_share_a_column():
    train, test, made = (
        _pairs((0, 1), (0, 1), (2, 1)),
        _pairs((2, 1)),
        _pairs((1, 0), (2, 1), (9, 9)),
    )
    real, held_out, generated = connected_pairs((train, test, made))
    np.testing.assert_allclose(real, [[2 / 3, 1 / 3, 0]])
    np.testing.assert_allclose(held_out, [[0, 1, 0]])
    np.testing.assert_allclose(generated, [[0, 1 / 3, 2 / 3]])


def test_graphs_without_edges_have_no_pairs_and_columns_are_bounded():
    bare = GraphSet.from_dags([DAG.build(torch.zeros(2, 1, dtype=torch.int64), _no_edges())])
    many = _pairs(*((code, code + 1) for code in range(MAX_PAIRS + 40)))
    found = connected_pairs((many, bare, many))
    assert found[0].shape == (1, MAX_PAIRS + 1)
    assert found[0][0, -1] == pytest.approx(40 / (MAX_PAIRS + 40))
    assert not found[1].any()


def _no_edges() -> torch.Tensor:
    return torch.zeros(2, 0, dtype=torch.int64)


def test_operators_at_wrong_places_are_seen(rng):
    # Chains that count up, and chains of the same operators in random order.
    edges = torch.stack([torch.arange(11), torch.arange(11) + 1])

    def chains(is_shuffled: bool) -> GraphSet:
        orders = [rng.permutation(12) if is_shuffled else np.arange(12) for _ in range(40)]
        return GraphSet.from_dags([DAG.build(torch.from_numpy(o)[:, None], edges) for o in orders])

    row = CLASSIFIER_METRIC.compute(
        Comparison(chains(False), chains(False), chains(True), replicates=2)
    )
    assert row.reference.value < 0.2
    assert row.generated.value > 0.9
    assert row.generated.breakdown["edge_bigrams"] > 0.9
