import json

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried
from scipy import stats
from scipy.stats import binom

from layerdag.errors import UsageError
from layerdag.surrogates.scoring import (
    EVALUATED,
    SCORES,
    Calibration,
    Predictions,
    SurrogateScores,
    by_group,
    evaluation,
    scores,
)


def calibration(errors: list[float], log: bool = False) -> Calibration:
    return Calibration(log, np.sort(np.array(errors)))


def test_intervals_stay_below_the_error_of_their_level_and_widen_with_the_spread():
    found = calibration([float(i) for i in range(1, 20)])
    # Rank ceil(20 * .9) = 18 of 19 graphs.
    one = found.around(np.array([100.0]), np.ones(1), 0.9)
    assert (one.low_B[0], one.value_B[0], one.high_B[0]) == (82.0, 100.0, 118.0)
    assert found.around(np.array([100.0]), np.ones(1), 0.5).high_B[0] == 110.0
    target_S = np.array([10.0] * 9)
    found = Calibration.measure(target_S, target_S * 2, np.ones(9))
    assert found is not None
    one = found.around(np.array([6.0]), np.ones(1), 0.9)
    np.testing.assert_allclose([one.low_B[0], one.high_B[0]], [3.0, 12.0])
    spread_S = np.array([1.0, 4.0] * 5)
    found = Calibration.measure(np.zeros(10), spread_S * 2, spread_S)
    assert found is not None
    one = found.around(np.zeros(2), np.array([1.0, 4.0]), 0.9)
    np.testing.assert_allclose(one.high_B, [2.0, 8.0])


def test_fewer_graphs_than_an_interval_needs_give_no_calibration():
    assert Calibration.measure(np.ones(8), np.ones(8), np.ones(8)) is None
    assert Calibration.measure(np.ones(9), np.ones(9), np.ones(9)) is not None


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, 90.0])
def test_a_level_that_is_no_fraction_is_refused(level):
    with pytest.raises(UsageError, match="give a fraction"):
        calibration([1.0] * 9).around(np.zeros(1), np.ones(1), level)


def test_a_level_that_the_graphs_do_not_suffice_for_is_refused_with_the_highest():
    with pytest.raises(UsageError, match=r"more than the 9 graphs.*at most 0\.9000"):
        calibration([1.0] * 9).around(np.zeros(1), np.ones(1), 0.95)
    assert calibration([1.0] * 9).highest_level == pytest.approx(0.9)


def test_it_comes_back_from_plain_data():
    found = calibration([3.0, 1.0, 2.0, *[4.0] * 6], log=True)
    back = Calibration.from_dict(found.to_dict())
    assert back is not None
    assert back.log
    assert back.error_S.tolist() == found.error_S.tolist()


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"log": True, "errors": "many"},
        {"log": True, "errors": [1.0] * 8},
        {"log": True, "errors": [-1.0] * 9},
        {"log": True, "errors": [float("nan")] * 9},
        {"log": True, "errors": [[1.0]] * 9},
    ],
)
def test_what_is_no_calibration_is_none(data):
    assert Calibration.from_dict(data) is None


@given(st.integers(0, 2**31), st.sampled_from([20, 50, 105]), st.sampled_from([0.5, 0.8, 0.9]))
@tried(20)
def test_intervals_hold_at_least_the_wanted_fraction_on_average(seed, size, level):
    """Over many draws of calibration graphs, whatever the distribution of errors."""
    rng = np.random.default_rng(seed)
    held, tried_graphs = 0, 0
    for _ in range(100):
        target = rng.standard_t(2, size + 20)
        found = Calibration.measure(target[:size], np.zeros(size), np.ones(size))
        assert found is not None
        one = found.around(np.zeros(20), np.ones(20), level)
        held += int(((one.low_B <= target[size:]) & (target[size:] <= one.high_B)).sum())
        tried_graphs += 20
    # Graphs of one draw share a calibration, so the count varies more than a binomial one.
    assert held >= binom.ppf(1e-12, tried_graphs, level) - 0.02 * tried_graphs
    assert held / tried_graphs <= level + 1 / size + 0.06


def intervals(value_B: np.ndarray, factor: float, level: float = 0.9) -> Predictions:
    return Predictions(value_B, value_B / factor, value_B * factor, level)


@pytest.fixture
def found(rng: np.random.Generator) -> SurrogateScores:
    target_B = np.exp(rng.normal(size=80))
    predicted_B = target_B * np.exp(0.3 * rng.normal(size=80))
    return evaluation("label", target_B, predicted_B, [intervals(predicted_B, np.exp(0.3))])


def test_every_score_has_an_interval_around_it(found):
    assert list(found.scores) == [score.name for score in EVALUATED]
    for score in found.scores.values():
        assert score.interval is not None
        assert score.interval.low <= score.value <= score.interval.high
        assert score.interval.high - score.interval.low > 0


def test_scores_of_reports_are_the_first_and_stay():
    assert EVALUATED[: len(SCORES)] == SCORES
    assert [score.name for score in EVALUATED[len(SCORES) :]] == ["within_10_percent"]


def test_predictions_within_a_tenth_are_counted():
    target_B = np.array([100.0, 100.0, 100.0, -10.0, 0.0])
    predicted_B = np.array([110.0, 89.0, 95.0, -10.5, 0.1])
    found = evaluation("label", target_B, predicted_B)
    assert found.scores["within_10_percent"].value == pytest.approx(3 / 5)


def test_coverage_counts_targets_inside_and_tells_the_factor():
    target_B = np.array([1.0, 2.0, 4.0, 100.0])
    predicted_B = np.array([1.0, 2.0, 4.0, 10.0])
    (one,) = evaluation("label", target_B, predicted_B, [intervals(predicted_B, 2.0)]).coverage
    assert one.covered == pytest.approx(0.75)
    assert one.interval.low < 0.75 < one.interval.high
    assert (one.width, one.is_factor) == (4.0, True)


def test_targets_of_either_sign_have_widths_in_their_unit():
    value_B = np.array([-1.0, 1.0])
    one = Predictions(value_B, value_B - 1.5, value_B + 1.5, 0.5)
    (coverage,) = evaluation("label", value_B, value_B, [one]).coverage
    assert (coverage.width, coverage.is_factor) == (3.0, False)


def test_groups_are_scored_alone_and_small_ones_left_out():
    target_B = np.arange(1.0, 17.0)
    predicted_B = np.concatenate([target_B[:8], target_B[8:] * 3])
    group_B = ["good"] * 8 + ["bad"] * 5 + ["rare"] * 3
    whole = evaluation("label", target_B, predicted_B, [intervals(predicted_B, 2.0)])
    found = by_group(whole, group_B, target_B, predicted_B, [intervals(predicted_B, 2.0)])
    assert found.groups is not None
    assert list(found.groups) == ["bad", "good"]
    assert found.groups["good"].scores["mape"].value == 0
    assert found.groups["bad"].scores["mape"].value == pytest.approx(2.0)
    assert [found.groups[name].coverage[0].covered for name in ("good", "bad")] == [1.0, 0.0]
    assert found.scores == whole.scores


def test_an_evaluation_is_plain_data_and_repeats(found):
    written = json.loads(json.dumps(found.to_dict()))
    assert written["scores"]["mape"]["value"] == found.scores["mape"].value
    value_B = np.arange(-5.0, 6.0)
    undefined = evaluation("label", value_B, value_B).to_dict()["scores"]["pearson_log"]
    assert undefined == {"value": None, "interval": None}
    first, second = (evaluation("label", value_B + 9, value_B[::-1] + 9) for _ in range(2))
    assert first == second


def test_scores_equal_those_of_scipy_with_ties(rng):
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


def test_weights_count_like_repeated_graphs(rng):
    target_B, predicted_B = rng.random(6), rng.random(6)
    weights_B = np.array([2, 0, 1, 1, 0, 2])
    weighted = scores(target_B, predicted_B, weights_B[None].astype(float))
    repeated = scores(np.repeat(target_B, weights_B), np.repeat(predicted_B, weights_B))
    for name in ("pearson", "kendall", "mae", "mape"):
        assert weighted[name][0] == pytest.approx(repeated[name][0])


def test_logarithms_need_positive_numbers():
    found = scores(np.array([1.0, 2.0, 3.0]), np.array([-1.0, 2.0, 3.0]))
    assert np.isnan(found["pearson_log"][0])
    assert np.isfinite(found["pearson"][0])


def test_a_constant_prediction_has_no_correlation(rng):
    found = scores(rng.random(9), np.ones(9))
    assert np.isnan([found[name][0] for name in ("pearson", "spearman", "kendall")]).all()
    assert np.isfinite(found["mae"][0])


pairs_of = st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=2, max_size=12)


@given(pairs_of, st.floats(0.1, 10), st.floats(-5, 5))
@tried(25)
def test_correlations_do_not_see_scale_and_shift_of_predictions(pairs, scale, shift):
    x, y = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    plain, moved = scores(x, y), scores(x, scale * y + shift)
    turned = scores(x, -y)
    for name in ("pearson", "spearman", "kendall"):
        np.testing.assert_allclose(moved[name], plain[name], atol=1e-9)
        np.testing.assert_allclose(turned[name], -plain[name], atol=1e-9)


def test_relative_errors_leave_out_targets_of_0_and_no_weight_is_no_score():
    target, predicted = np.array([0.0, 2.0, -4.0]), np.array([5.0, 3.0, -5.0])
    found = scores(target, predicted, np.array([[1.0, 1.0, 1.0], [7.0, 1.0, 3.0]]))
    np.testing.assert_allclose(found["mape"], [(0.5 + 0.25) / 2, (0.5 + 3 * 0.25) / 4])
    np.testing.assert_allclose(found["mae"], [(5 + 1 + 1) / 3, (35 + 1 + 3) / 11])
    found = scores(np.array([1.0, 2.0]), np.array([1.0, 3.0]), np.zeros((1, 2)))
    assert all(np.isnan(values[0]) for values in found.values())
