"""Maximum mean discrepancy against sums written out, and as a metric."""

import math

import numpy as np
import pytest
import torch

from layerdag.errors import DataError
from layerdag.evaluation import GraphSet, _pair_distances
from layerdag.evaluation.metrics import (
    KERNEL_METRICS,
    Comparison,
    KernelMetric,
    _mmd,
    discrepancy,
)
from layerdag.graph import DAG, random_dag

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


def test_both_estimates_are_the_sums_of_the_definition(rng: np.random.Generator) -> None:
    train, test, made = (rng.normal(shift, 1, (n, 3)) for shift, n in ((0, 6), (0.2, 5), (1, 4)))
    found = discrepancy([train, test, made], ones(6, 5, 4))
    apart = sorted(math.dist(a, b) for a in train for b in test)
    assert found.bandwidth == pytest.approx((apart[14] + apart[15]) / 2)
    scale = found.bandwidth
    assert found.generated_R[0] == pytest.approx(plain_mmd(made, test, scale))
    assert found.reference_R[0] == pytest.approx(plain_mmd(train, test, scale))
    assert found.generated_unbiased == pytest.approx(plain_mmd(made, test, scale, False))
    assert found.reference_unbiased == pytest.approx(plain_mmd(train, test, scale, False))


def test_weights_count_graphs_as_often_as_they_say(rng: np.random.Generator) -> None:
    train, test, made = (rng.normal(0, 1, (3, 2)) for _ in range(3))
    weights = [np.array([[1, 1, 1]]), np.array([[2, 0, 1]]), np.array([[0, 1, 3]])]
    found = discrepancy([train, test, made], [w.astype(float) for w in weights])
    drawn_test, drawn_made = test[[0, 0, 2]], made[[1, 2, 2, 2]]
    assert found.generated_R[0] == pytest.approx(plain_mmd(drawn_made, drawn_test, found.bandwidth))
    assert found.reference_R[0] == pytest.approx(plain_mmd(train, drawn_test, found.bandwidth))


def test_the_biased_estimate_is_never_negative_and_the_unbiased_one_is_around_0() -> None:
    rng = np.random.default_rng(4)
    unbiased = []
    for _ in range(60):
        sets = [rng.normal(0, 1, (8, 2)) for _ in range(3)]
        found = discrepancy(sets, ones(8, 8, 8))
        assert found.generated_R[0] >= 0
        unbiased.append(found.generated_unbiased)
    assert min(unbiased) < 0
    assert abs(np.mean(unbiased)) < 3 * np.std(unbiased) / math.sqrt(60)


def test_where_most_real_graphs_are_alike_the_scale_is_the_mean_distance() -> None:
    alike = np.zeros((5, 1))
    other = np.array([[0.0]] * 4 + [[10.0]])
    assert discrepancy([alike, other, other], ones(5, 5, 5)).bandwidth == pytest.approx(2.0)
    with pytest.raises(DataError, match="no scale to compare on"):
        discrepancy([alike, alike, other], ones(5, 5, 5))


def test_many_graphs_are_weighed_as_few_are(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = [rng.normal(shift, 1, (40, 3)) for shift in (0, 0.1, 0.5)]
    weights = [np.concatenate([np.ones((1, 40)), rng.poisson(1, (6, 40)) + 0.0]) for _ in sets]
    weights = [np.concatenate([one, one[:1]]) for one in weights]
    few = discrepancy(sets, weights)
    monkeypatch.setattr(_mmd, "_MANY_GRAPHS", 8)
    monkeypatch.setattr(_pair_distances, "_BLOCK", 300)
    many = discrepancy(sets, weights)
    assert many.generated_R[[0, -1]] == pytest.approx(few.generated_R[[0, -1]], rel=1e-12)
    np.testing.assert_allclose(many.generated_R, few.generated_R, atol=1e-7)
    np.testing.assert_allclose(many.reference_R, few.reference_R, atol=1e-7)
    assert many.generated_unbiased == pytest.approx(few.generated_unbiased)


def test_of_many_graphs_the_bandwidth_is_that_of_some(monkeypatch: pytest.MonkeyPatch) -> None:
    x_BF = np.arange(90.0)[:, None]
    whole = discrepancy([x_BF, x_BF, x_BF], ones(90, 90, 90)).bandwidth
    monkeypatch.setattr(_mmd, "MOST_FOR_BANDWIDTH", 30)
    some = discrepancy([x_BF, x_BF, x_BF], ones(90, 90, 90)).bandwidth
    assert some != whole
    assert some == pytest.approx(whole, rel=0.05)


def comparison(*sets: list[DAG]) -> Comparison:
    return Comparison(*(GraphSet.of(dags) for dags in sets), replicates=10)


def graphs(rng: np.random.Generator, count: int, codes: int = 4) -> list[DAG]:
    return [random_dag(rng, rng.integers(1, 5, 5).tolist(), [codes]) for _ in range(count)]


@pytest.mark.parametrize("name", BY_NAME)
def test_a_row_has_bandwidth_and_unbiased_estimate_in_its_breakdown(
    name: str, rng: np.random.Generator
) -> None:
    sets = comparison(graphs(rng, 9), graphs(rng, 8), graphs(rng, 7))
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
def test_only_kernels_of_attributes_see_other_operators(
    name: str, feels: bool, rng: np.random.Generator
) -> None:
    real, drawn = graphs(rng, 20), graphs(rng, 20)
    renamed = [DAG.build(torch.zeros_like(dag.x_NA), dag.edge_index_2E) for dag in drawn]
    plain, other = (
        BY_NAME[name].compute(comparison(real, real, made)).generated.value
        for made in (drawn, renamed)
    )
    assert (other > 2 * plain) if feels else (other == plain)


def test_one_vector_function_is_asked_once_per_comparison(rng: np.random.Generator) -> None:
    calls = []

    def vectors(of: Comparison) -> list[np.ndarray]:
        calls.append(of)
        return [graphs.nodes_B[:, None].astype(float) for graphs in of.sets]

    own = [KernelMetric(name, "sizes", BY_NAME["mmd:sizes"].goal, vectors=vectors) for name in "ab"]
    sets = comparison(graphs(rng, 5), graphs(rng, 5), graphs(rng, 5))
    first, second = (metric.compute(sets) for metric in own)
    assert first.generated.value == second.generated.value
    assert len(calls) == 1
