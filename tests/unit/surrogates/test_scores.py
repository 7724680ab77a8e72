import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried
from scipy import stats

from layerdag.surrogates import SCORES, scores


def test_scores_equal_those_of_scipy_with_ties(rng: np.random.Generator) -> None:
    target_B = rng.integers(1, 8, 50).astype(float)
    predicted_B = target_B + rng.integers(0, 4, 50)
    found = {name: float(draws_R[0]) for name, draws_R in scores(target_B, predicted_B).items()}
    assert found["pearson"] == pytest.approx(stats.pearsonr(target_B, predicted_B).statistic)
    logs = np.log(target_B), np.log(predicted_B)
    assert found["pearson_log"] == pytest.approx(stats.pearsonr(*logs).statistic)
    assert found["spearman"] == pytest.approx(stats.spearmanr(target_B, predicted_B).statistic)
    assert found["kendall"] == pytest.approx(stats.kendalltau(target_B, predicted_B).statistic)
    assert found["mae"] == pytest.approx(np.abs(target_B - predicted_B).mean())
    assert found["mape"] == pytest.approx((np.abs(target_B - predicted_B) / target_B).mean())
    assert set(found) == {metric.name for metric in SCORES}


def test_weights_count_like_repeated_graphs(rng: np.random.Generator) -> None:
    target_B, predicted_B = rng.random(6), rng.random(6)
    weights_B = np.array([2, 0, 1, 1, 0, 2])
    weighted = scores(target_B, predicted_B, weights_B[None].astype(float))
    repeated = scores(np.repeat(target_B, weights_B), np.repeat(predicted_B, weights_B))
    for name in ("pearson", "kendall", "mae", "mape"):
        assert weighted[name][0] == pytest.approx(repeated[name][0])


def test_correlations_do_not_depend_on_the_unit(rng: np.random.Generator) -> None:
    target_B, predicted_B = rng.random(30), rng.random(30)
    small = scores(target_B * 1e-9, predicted_B * 1e-9)
    assert small["pearson"][0] == pytest.approx(scores(target_B, predicted_B)["pearson"][0])


def test_logarithms_need_positive_numbers() -> None:
    found = scores(np.array([1.0, 2.0, 3.0]), np.array([-1.0, 2.0, 3.0]))
    assert np.isnan(found["pearson_log"][0])
    assert np.isfinite(found["pearson"][0])


def test_a_constant_prediction_has_no_correlation(rng: np.random.Generator) -> None:
    found = scores(rng.random(9), np.ones(9))
    assert np.isnan([found[name][0] for name in ("pearson", "spearman", "kendall")]).all()
    assert np.isfinite(found["mae"][0])


def slow_pearson(x: list[float], y: list[float]) -> float:
    """Return the correlation by its definition, one graph after the other."""
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    cross = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    spread_x = sum((a - mean_x) ** 2 for a in x)
    spread_y = sum((b - mean_y) ** 2 for b in y)
    return cross / (spread_x * spread_y) ** 0.5


def slow_kendall(x: list[float], y: list[float]) -> float:
    """Return Kendall's tau-b by looking at every pair."""
    agree = ties_x = ties_y = pairs = 0
    for i, j in itertools.combinations(range(len(x)), 2):
        a, b = np.sign(x[i] - x[j]), np.sign(y[i] - y[j])
        agree += int(a * b)
        ties_x += int(a == 0)
        ties_y += int(b == 0)
        pairs += 1
    return agree / ((pairs - ties_x) * (pairs - ties_y)) ** 0.5


pairs_of = st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=2, max_size=12)


@given(pairs_of)
@tried(40)
def test_correlations_are_those_of_their_definitions(pairs):
    x, y = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    found = scores(x, y)
    if len(set(x)) == 1 or len(set(y)) == 1:
        assert np.isnan([found["pearson"][0], found["kendall"][0]]).all()
        return
    assert found["pearson"][0] == pytest.approx(slow_pearson(x.tolist(), y.tolist()))
    assert found["kendall"][0] == pytest.approx(slow_kendall(x.tolist(), y.tolist()))
    assert -1 - 1e-12 <= found["spearman"][0] <= 1 + 1e-12


@given(pairs_of, st.floats(0.1, 10), st.floats(-5, 5))
@tried(25)
def test_correlations_do_not_see_scale_and_shift_of_predictions(pairs, scale, shift):
    x, y = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    plain, moved = scores(x, y), scores(x, scale * y + shift)
    turned = scores(x, -y)
    for name in ("pearson", "spearman", "kendall"):
        np.testing.assert_allclose(moved[name], plain[name], atol=1e-9)
        np.testing.assert_allclose(turned[name], -plain[name], atol=1e-9)


def test_relative_errors_leave_out_targets_of_0_and_their_weight() -> None:
    target, predicted = np.array([0.0, 2.0, -4.0]), np.array([5.0, 3.0, -5.0])
    found = scores(target, predicted, np.array([[1.0, 1.0, 1.0], [7.0, 1.0, 3.0]]))
    np.testing.assert_allclose(found["mape"], [(0.5 + 0.25) / 2, (0.5 + 3 * 0.25) / 4])
    np.testing.assert_allclose(found["mae"], [(5 + 1 + 1) / 3, (35 + 1 + 3) / 11])


def test_no_weight_is_no_score() -> None:
    found = scores(np.array([1.0, 2.0]), np.array([1.0, 3.0]), np.zeros((1, 2)))
    assert all(np.isnan(values[0]) for values in found.values())


def test_correlations_are_maximized_and_errors_minimized() -> None:
    goals = {score.name: score.goal.name for score in SCORES}
    assert {name for name, goal in goals.items() if goal == "MINIMIZE"} == {"mae", "mape"}
    assert all(
        (score.lower, score.upper) == (-1.0, 1.0)
        for score in SCORES
        if goals[score.name] == "MAXIMIZE"
    )
