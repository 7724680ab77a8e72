import json

import numpy as np
import pytest

from layerdag.surrogates import EVALUATED, SCORES, Evaluation, Predictions, evaluation
from layerdag.surrogates._evaluation import by_group


def intervals(value_B: np.ndarray, factor: float, level: float = 0.9) -> Predictions:
    return Predictions(value_B, value_B / factor, value_B * factor, level)


@pytest.fixture
def found(rng: np.random.Generator) -> Evaluation:
    target_B = np.exp(rng.normal(size=80))
    predicted_B = target_B * np.exp(0.3 * rng.normal(size=80))
    return evaluation("label", target_B, predicted_B, [intervals(predicted_B, np.exp(0.3))])


def test_every_score_has_an_interval_around_it(found: Evaluation) -> None:
    assert list(found.scores) == [score.name for score in EVALUATED]
    for score in found.scores.values():
        assert score.interval is not None
        assert score.interval.low <= score.value <= score.interval.high
        assert score.interval.high - score.interval.low > 0


def test_scores_of_reports_are_the_first_and_stay() -> None:
    assert EVALUATED[: len(SCORES)] == SCORES
    assert [score.name for score in EVALUATED[len(SCORES) :]] == ["within_10_percent"]


def test_predictions_within_a_tenth_are_counted() -> None:
    target_B = np.array([100.0, 100.0, 100.0, -10.0, 0.0])
    predicted_B = np.array([110.0, 89.0, 95.0, -10.5, 0.1])
    found = evaluation("label", target_B, predicted_B)
    assert found.scores["within_10_percent"].value == pytest.approx(3 / 5)


def test_coverage_counts_targets_inside_and_tells_the_factor() -> None:
    target_B = np.array([1.0, 2.0, 4.0, 100.0])
    predicted_B = np.array([1.0, 2.0, 4.0, 10.0])
    (one,) = evaluation("label", target_B, predicted_B, [intervals(predicted_B, 2.0)]).coverage
    assert one.covered == pytest.approx(0.75)
    assert one.interval.low < 0.75 < one.interval.high
    assert (one.width, one.is_factor) == (4.0, True)


def test_targets_of_either_sign_have_widths_in_their_unit() -> None:
    value_B = np.array([-1.0, 1.0])
    one = Predictions(value_B, value_B - 1.5, value_B + 1.5, 0.5)
    (coverage,) = evaluation("label", value_B, value_B, [one]).coverage
    assert (coverage.width, coverage.is_factor) == (3.0, False)


def test_groups_are_scored_alone_and_small_ones_left_out() -> None:
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


def test_an_evaluation_is_plain_data_and_repeats(found: Evaluation) -> None:
    written = json.loads(json.dumps(found.to_dict()))
    assert written["scores"]["mape"]["value"] == found.scores["mape"].value
    value_B = np.arange(-5.0, 6.0)
    undefined = evaluation("label", value_B, value_B).to_dict()["scores"]["pearson_log"]
    assert undefined == {"value": None, "interval": None}
    first, second = (evaluation("label", value_B + 9, value_B[::-1] + 9) for _ in range(2))
    assert first == second
