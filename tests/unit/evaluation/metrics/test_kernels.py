"""Random embeddings see structure and attributes, and nothing else."""

import math

import numpy as np
import pytest
import torch
from random_graphs import random_dag

from layerdag.dag.dag import DAG
from layerdag.dag.graph_set import GraphSet
from layerdag.errors import DataError
from layerdag.evaluation.metrics.base import Comparison
from layerdag.evaluation.metrics.kernels import (
    KERNEL_METRICS,
    MANIFOLD_METRICS,
    KernelMetric,
    discrepancies,
    manifold_scores,
    random_embeddings,
)

WIDTH = 4 * 35 + 2


def graphs(rng: np.random.Generator, count: int) -> list[DAG]:
    return [random_dag(rng, rng.integers(1, 5, 5).tolist(), [4, 3]) for _ in range(count)]


def embedded(real: list[DAG], *others: list[DAG], seed: int = 0) -> list[np.ndarray]:
    return random_embeddings([GraphSet.from_dags(dags) for dags in (real, real, *others)], seed)


def relabeled(rng: np.random.Generator, dag: DAG) -> DAG:
    return dag.permuted(torch.from_numpy(rng.permutation(dag.num_nodes)))


def reversed_edges(rng: np.random.Generator, dag: DAG) -> DAG:
    del rng
    return DAG.build(dag.x_NA, dag.edge_index_2E.flip(0))


def moved_attribute(rng: np.random.Generator, dag: DAG) -> DAG:
    x_NA = dag.x_NA.clone()
    x_NA[:, 1] = (x_NA[:, 1] + 1) % 3
    del rng
    return DAG.build(x_NA, dag.edge_index_2E)


def without_an_edge(rng: np.random.Generator, dag: DAG) -> DAG:
    del rng
    return DAG.build(dag.x_NA, dag.edge_index_2E[:, 1:])


def test_one_row_per_graph_and_the_same_for_the_same_seed(rng):
    real, made = graphs(rng, 6), graphs(rng, 4)
    first, again, other = (embedded(real, made, seed=seed) for seed in (0, 0, 1))
    assert [one.shape for one in first] == [(6, WIDTH), (6, WIDTH), (4, WIDTH)]
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.allclose(first[2], other[2])
    np.testing.assert_array_equal(first[0], first[1])


def test_the_order_of_nodes_does_not_matter(rng):
    real = graphs(rng, 8)
    *_, plain, shuffled = embedded(real, real, [relabeled(rng, dag) for dag in real])
    np.testing.assert_allclose(plain, shuffled, atol=1e-9)


@pytest.mark.parametrize("change", [reversed_edges, moved_attribute, without_an_edge])
def test_every_change_of_a_graph_is_seen(change, rng):
    real = graphs(rng, 8)
    *_, plain, changed = embedded(real, real, [change(rng, dag) for dag in real])
    assert (np.abs(plain - changed).max(axis=1) > 1e-3).all()


def test_columns_are_standardized_by_the_real_graphs(rng):
    train, test, made = (GraphSet.from_dags(graphs(rng, 30)) for _ in range(3))
    one, other, _ = random_embeddings([train, test, made])
    real = np.concatenate([one, other]) * np.sqrt(WIDTH)
    np.testing.assert_allclose(real.mean(axis=0), 0, atol=1e-9)
    spread = real.std(axis=0)
    assert np.logical_or(np.isclose(spread, 1), spread < 1).all()
    assert np.isclose(spread, 1).mean() > 0.9


def test_outliers_lower_precision_and_collapse_lowers_recall(rng):
    real = rng.normal(size=(200, 2))
    half_outside = np.concatenate([rng.normal(size=(100, 2)), rng.normal(50, 1, size=(100, 2))])
    outside = manifold_scores(real, half_outside)
    assert outside["precision"] == pytest.approx(0.5, abs=0.05)
    collapsed = manifold_scores(real, real[:1] + rng.normal(0, 1e-3, size=(200, 2)))
    assert collapsed["precision"] > 0.9
    assert collapsed["recall"] < 0.1
    assert collapsed["coverage"] < 0.2


def test_too_few_graphs_are_refused(rng):
    with pytest.raises(DataError, match="more graphs than 5"):
        manifold_scores(rng.normal(size=(5, 2)), rng.normal(size=(9, 2)))


def test_scores_are_counts_of_balls():
    # On a line, the ball of a point reaches to its fifth neighbor: 5 at the ends of 0 ... 5.
    real, other = np.arange(6.0)[:, None], np.array([[0.0], [1], [2], [3], [4], [100]])
    found = manifold_scores(real, other)
    assert found["precision"] == pytest.approx(5 / 6)
    assert found["recall"] == 1.0
    # The balls of 0 ... 5 reach 5, 4, 3, 3, 4 and 5 far.
    inside = sum(abs(y - x) <= r for x, r in enumerate([5, 4, 3, 3, 4, 5]) for y in range(5))
    assert found["density"] == pytest.approx(inside / 6 / 5)
    assert found["coverage"] == 1.0


def test_as_metrics_they_stand_beside_as_many_training_graphs(rng):
    def graphs(count: int) -> GraphSet:
        return GraphSet.from_dags(
            [random_dag(rng, rng.integers(1, 4, 4).tolist(), [3]) for _ in range(count)]
        )

    sets = Comparison(graphs(30), graphs(20), graphs(8))
    _, test, generated = random_embeddings(sets.sets)
    found = manifold_scores(test, generated)
    for metric in MANIFOLD_METRICS:
        row = metric.compute(sets)
        assert row.generated.value == found[metric.name]
        assert metric.lower <= row.reference.value <= metric.upper
        assert (row.generated.interval, row.ratio, row.matched) == (None, None, None)
    whole = Comparison(sets.train, sets.test, sets.train)
    for metric in MANIFOLD_METRICS:
        row = metric.compute(whole)
        # Every subset of as many training graphs is the training set.
        assert row.reference.value == pytest.approx(row.generated.value)


BY_NAME = {metric.name: metric for metric in KERNEL_METRICS}


def plain_mmd(x: np.ndarray, y: np.ndarray, scale: float, diagonal: bool = True) -> float:
    """MMD^2 as the papers write it."""

    def mean(left: np.ndarray, right: np.ndarray, same: bool) -> float:
        terms = [
            math.exp(-float(((a - b) ** 2).sum()) / (2 * scale**2))
            for i, a in enumerate(left)
            for j, b in enumerate(right)
            if diagonal or not same or i != j
        ]
        return sum(terms) / len(terms)

    return mean(x, x, True) - 2 * mean(x, y, False) + mean(y, y, True)


def ones(*sizes: int) -> list[np.ndarray]:
    return [np.ones((1, size)) for size in sizes]


def test_both_estimates_are_the_sums_of_the_definition(rng):
    train, test, made = (rng.normal(shift, 1, (n, 3)) for shift, n in ((0, 6), (0.2, 5), (1, 4)))
    (made_R, of_made), (train_R, of_train) = discrepancies([train, test, made], ones(6, 5, 4))
    apart = sorted(math.dist(a, b) for a in train for b in test)
    scale = of_made["bandwidth"]
    assert scale == of_train["bandwidth"] == pytest.approx((apart[14] + apart[15]) / 2)
    assert made_R[0] == pytest.approx(plain_mmd(made, test, scale))
    assert train_R[0] == pytest.approx(plain_mmd(train, test, scale))
    assert of_made["unbiased"] == pytest.approx(plain_mmd(made, test, scale, False))
    assert of_train["unbiased"] == pytest.approx(plain_mmd(train, test, scale, False))


def test_weights_count_graphs_as_often_as_they_say(rng):
    train, test, made = (rng.normal(0, 1, (3, 2)) for _ in range(3))
    weights = [np.array([[1, 1, 1]]), np.array([[2, 0, 1]]), np.array([[0, 1, 3]])]
    weights = [w.astype(float) for w in weights]
    (made_R, of_made), (train_R, _) = discrepancies([train, test, made], weights)
    scale = of_made["bandwidth"]
    drawn_test, drawn_made = test[[0, 0, 2]], made[[1, 2, 2, 2]]
    assert made_R[0] == pytest.approx(plain_mmd(drawn_made, drawn_test, scale))
    assert train_R[0] == pytest.approx(plain_mmd(train, drawn_test, scale))


def bandwidth(*vectors: np.ndarray) -> float:
    (_, extra), _ = discrepancies(vectors, ones(*map(len, vectors)))
    return extra["bandwidth"]


def test_where_most_real_graphs_are_alike_the_scale_is_the_mean_distance():
    alike = np.zeros((5, 1))
    other = np.array([[0.0]] * 4 + [[10.0]])
    assert bandwidth(alike, other, other) == pytest.approx(2.0)
    with pytest.raises(DataError, match="no scale to compare on"):
        bandwidth(alike, alike, other)


def test_blocks_of_pairs_change_nothing(rng, monkeypatch):
    sets = [rng.normal(shift, 1, (40, 3)) for shift in (0, 0.1, 0.5)]
    weights = [np.concatenate([np.ones((1, 40)), rng.poisson(1, (6, 40)) + 0.0]) for _ in sets]
    whole = discrepancies(sets, weights)
    monkeypatch.setattr("layerdag.evaluation.metrics.kernels._PAIRS_AT_ONCE", 300)
    for (some_R, some), (all_R, of_all) in zip(discrepancies(sets, weights), whole, strict=True):
        np.testing.assert_allclose(some_R, all_R, atol=1e-12)
        assert some == pytest.approx(of_all)


def test_of_many_graphs_the_bandwidth_is_that_of_some(monkeypatch):
    x_BF = np.arange(90.0)[:, None]
    whole = bandwidth(x_BF, x_BF, x_BF)
    monkeypatch.setattr("layerdag.evaluation.metrics.kernels.MAX_FOR_BANDWIDTH", 30)
    some = bandwidth(x_BF, x_BF, x_BF)
    assert some != whole
    assert some == pytest.approx(whole, rel=0.05)


def comparison(*sets: list[DAG]) -> Comparison:
    return Comparison(*(GraphSet.from_dags(dags) for dags in sets), replicates=10)


def layered_graphs(rng: np.random.Generator, count: int, codes: int = 4) -> list[DAG]:
    return [random_dag(rng, rng.integers(1, 5, 5).tolist(), [codes]) for _ in range(count)]


@pytest.mark.parametrize("name", BY_NAME)
def test_a_row_has_bandwidth_and_unbiased_estimate_in_its_breakdown(name, rng):
    sets = comparison(layered_graphs(rng, 9), layered_graphs(rng, 8), layered_graphs(rng, 7))
    row = BY_NAME[name].compute(sets)
    assert row.metric is BY_NAME[name]
    assert row.generated.breakdown.keys() == {"bandwidth", "unbiased"}
    assert row.generated.breakdown["bandwidth"] == row.reference.breakdown["bandwidth"] > 0
    assert row.generated.breakdown["unbiased"] < row.generated.value
    assert row.is_distance


@pytest.mark.parametrize(
    ("name", "feels"),
    [("mmd:first_attribute", True), ("mmd:embedding", True), ("mmd:sizes", False)],
)
def test_only_kernels_of_attributes_see_other_operators(name, feels, rng):
    real, drawn = layered_graphs(rng, 20), layered_graphs(rng, 20)
    renamed = [DAG.build(torch.zeros_like(dag.x_NA), dag.edge_index_2E) for dag in drawn]
    plain, other = (
        BY_NAME[name].compute(comparison(real, real, made)).generated.value
        for made in (drawn, renamed)
    )
    assert (other > 2 * plain) if feels else (other == plain)


def test_one_vector_function_is_asked_once_per_comparison(rng):
    calls = []

    def vectors(of: Comparison) -> list[np.ndarray]:
        calls.append(of)
        return [graphs.nodes_B[:, None].astype(float) for graphs in of.sets]

    own = [KernelMetric(name, "sizes", BY_NAME["mmd:sizes"].goal, vectors=vectors) for name in "ab"]
    sets = comparison(layered_graphs(rng, 5), layered_graphs(rng, 5), layered_graphs(rng, 5))
    first, second = (metric.compute(sets) for metric in own)
    assert first.generated.value == second.generated.value
    assert len(calls) == 1
