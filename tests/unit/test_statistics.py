"""Correlations and AUROC are those of scipy and of counting pairs; what is not defined is NaN."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from layerdag.statistics import Interval, auroc, kendall, pearson, resampled_wins, spearman

PAIRS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=3, max_size=9)


@given(PAIRS, st.integers(0, 99))
def test_correlations_are_those_of_scipy_on_items_that_count_so_often(pairs, seed):
    x_B, y_B = np.array(pairs, dtype=float).T
    weights_RB = np.random.default_rng(seed).integers(0, 3, (4, x_B.size)).astype(float)
    weights_RB[0] = 1
    tau_R = kendall(x_B[None], y_B[None], weights_RB)
    np.testing.assert_allclose(kendall(*np.tile([[x_B], [y_B]], (4, 1)), weights_RB), tau_R)
    for weight_B, tau, r in zip(weights_RB, tau_R, pearson(x_B, y_B, weights_RB), strict=True):
        x, y = (np.repeat(value_B, weight_B.astype(int)) for value_B in (x_B, y_B))
        defined = x.size and np.ptp(x) and np.ptp(y)
        assert tau == pytest.approx(
            stats.kendalltau(x, y).statistic if defined else np.nan, nan_ok=True
        )
        assert r == pytest.approx(
            stats.pearsonr(x, y).statistic if defined else np.nan, nan_ok=True
        )


def test_ranks_are_correlated_and_rounding_orders_nothing():
    x_B, y_B = np.array([1.0, 1.0 + 1e-12, 2.0]), np.array([2.0, 1.0, 3.0])
    ones_RB = np.ones((1, 3))
    assert spearman(x_B, y_B, ones_RB)[0] == pytest.approx(stats.spearmanr(x_B, y_B).statistic)
    expected = stats.kendalltau([1, 1, 2], [2, 1, 3]).statistic
    assert kendall(x_B[None], y_B[None], ones_RB, 1e-9)[0] == pytest.approx(expected)


@given(st.lists(st.integers(0, 4), min_size=1), st.lists(st.integers(0, 4), min_size=1))
def test_an_auroc_counts_pairs(members, others):
    member_T, other_H = np.array(members), np.array(others)
    wins = resampled_wins(
        member_T, other_H, np.ones((1, member_T.size)), np.ones((1, other_H.size))
    )
    assert auroc(member_T, other_H) == pytest.approx(wins[0] / (member_T.size * other_H.size))


def test_the_exact_interval_is_that_of_scipy():
    for found in range(11):
        exact = stats.binomtest(found, 10).proportion_ci(0.95, "exact")
        interval = Interval.clopper_pearson(found / 10, 10)
        assert (interval.low, interval.high) == pytest.approx((exact.low, exact.high))
