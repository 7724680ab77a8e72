from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import ks_2samp, wasserstein_distance

from layerdag.evaluation.metrics import (
    aligned_histograms,
    bootstrap_weights,
    kolmogorov_smirnov,
    total_variation,
    wasserstein_1,
)
from layerdag.evaluation.metrics._histograms import distinct


def test_distances_equal_those_of_scipy(rng: np.random.Generator) -> None:
    values = [rng.integers(0, 20, 200), rng.integers(5, 40, 300)]
    graphs = [np.arange(200) // 10, np.arange(300) // 10]
    first, second = aligned_histograms(values, graphs, [20, 30])
    support = first.support_K
    w1 = wasserstein_1(first.pooled(), second.pooled(), support)
    ks = kolmogorov_smirnov(first.pooled(), second.pooled(), support)
    assert w1[0] == pytest.approx(wasserstein_distance(*values))
    assert ks[0] == pytest.approx(ks_2samp(*values).statistic)


@pytest.mark.parametrize("spread", [lambda x: x**2, lambda x: 0.25 * x**3 - 7])
def test_distances_equal_those_of_scipy_where_values_lie_far_apart(
    rng: np.random.Generator, spread: Callable[[np.ndarray], np.ndarray]
) -> None:
    values = [spread(rng.integers(0, 12, 150)), spread(rng.integers(3, 15, 100))]
    first, second = aligned_histograms(values, [np.zeros(150, int), np.zeros(100, int)], [1, 1])
    w1 = wasserstein_1(first.pooled(), second.pooled(), first.support_K)
    ks = kolmogorov_smirnov(first.pooled(), second.pooled(), first.support_K)
    assert w1[0] == pytest.approx(wasserstein_distance(*values))
    assert ks[0] == pytest.approx(ks_2samp(*values).statistic)


def test_total_variation_is_half_the_absolute_difference() -> None:
    first, second = aligned_histograms(
        [np.array([7, 7, 9]), np.array([9, 11, 11])], [np.zeros(3, int)] * 2, [1, 1]
    )
    assert first.support_K.tolist() == [7, 9, 11]
    assert total_variation(first.pooled(), second.pooled(), first.support_K)[0] == pytest.approx(
        2 / 3
    )


def test_weights_pool_like_repeating_graphs() -> None:
    (histograms,) = aligned_histograms([np.array([1, 2, 2])], [np.array([0, 1, 1])], [3])
    # graph 2 is empty; drawing graph 0 twice and graph 1 once gives values 1 1 2 2
    pooled = histograms.pooled(np.array([[2.0, 1.0, 0.0]]))
    np.testing.assert_allclose(pooled, [[0.5, 0.5]])
    np.testing.assert_allclose(histograms.by_graph(), [[1, 0], [0, 1], [0, 0]])


def test_bootstrap_draws_as_many_graphs_as_there_are(rng: np.random.Generator) -> None:
    assert (bootstrap_weights(rng, 5, 17).sum(axis=1) == 17).all()


@pytest.mark.parametrize(
    "values",
    [
        [np.array([5, -3, 5, 900]), np.array([7, -3])],
        [np.array([(4 << 31) | 9, (1 << 31) | 11, 9]), np.array([(1 << 31) | 11, (4 << 31) | 8])],
        [np.array([(1 << 60) + 1, 4]), np.array([(1 << 60) + 1, (1 << 50)])],
        [np.array([0.5, 0.25, 0.5]), np.array([2, 1])],
        [np.array([], dtype=np.int64), np.array([3, 3, 1])],
    ],
    ids=["numbers", "pairs", "far apart", "fractions", "nothing"],
)
def test_distinct_values_are_those_that_sorting_finds(values: list[np.ndarray]) -> None:
    support_K, codes = distinct(values)
    assert support_K.tolist() == np.unique(np.concatenate(values)).tolist()
    for code, value in zip(codes, values, strict=True):
        assert support_K[code].tolist() == value.tolist()


def test_many_values_are_counted_as_few_are(rng: np.random.Generator) -> None:
    value, graph = rng.integers(0, 50, 400), np.sort(rng.integers(0, 30, 400))
    few, many = value % 5, np.concatenate([value, [4000]])
    for values, graphs in ((few, graph), (many, np.concatenate([graph, [29]]))):
        (found,) = aligned_histograms([values], [graphs], [30])
        wanted = [
            [((values == v) & (graphs == g)).sum() for v in found.support_K] for g in range(30)
        ]
        assert found.counts_BK.toarray().tolist() == wanted
