import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried

from layerdag.errors import UsageError
from layerdag.surrogates.families import REACH, TargetScale


def test_positive_targets_are_standardized_in_the_logarithm() -> None:
    target_B = np.array([1.0, 10.0, 100.0])
    scale = TargetScale.fit(target_B)
    assert scale.log
    standard_B = scale.standardize(target_B)
    assert standard_B.mean() == pytest.approx(0, abs=1e-12)
    assert standard_B.std() == pytest.approx(1)
    np.testing.assert_allclose(scale.restore(standard_B), target_B)


def test_targets_of_either_sign_stay_linear() -> None:
    target_B = np.array([-3.0, 0.0, 3.0])
    scale = TargetScale.fit(target_B)
    assert not scale.log
    np.testing.assert_allclose(scale.restore(scale.standardize(target_B)), target_B)


def test_predictions_reach_only_a_little_beyond_the_training_targets() -> None:
    scale = TargetScale.fit(np.array([-1.0, 1.0]))
    assert scale.restore(np.array([50.0]))[0] == pytest.approx(1 + REACH)


@pytest.mark.parametrize("target", [[1.0], [1.0, float("nan")]])
def test_too_few_or_missing_targets_are_refused(target: list[float]) -> None:
    with pytest.raises(UsageError, match="at least two graphs with finite targets"):
        TargetScale.fit(np.array(target))


numbers = st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=2, max_size=20)


@given(numbers, st.booleans())
@tried(40)
def test_training_targets_come_back_from_their_standardized_form(values, positive):
    target_B = np.abs(np.array(values)) + 1e-3 if positive else np.array(values)
    scale = TargetScale.fit(target_B)
    standard_B = scale.standardize(target_B)
    np.testing.assert_allclose(scale.restore(standard_B), target_B, rtol=1e-6, atol=1e-6)
    assert scale.low <= standard_B.min() + 1e-9
    assert scale.high >= standard_B.max() - 1e-9


@given(numbers, st.floats(-100, 100), st.floats(0, 50))
@tried(25)
def test_restoring_never_turns_the_order_round(values, standard, step):
    scale = TargetScale.fit(np.array(values))
    low, high = scale.restore(np.array([standard, standard + step]))
    assert low <= high


def test_equal_targets_have_a_scale_too() -> None:
    scale = TargetScale.fit(np.array([3.0, 3.0]))
    assert scale.restore(scale.standardize(np.array([3.0])))[0] == pytest.approx(3.0)


def test_a_target_of_0_among_positive_ones_is_linear_and_logarithms_take_no_0() -> None:
    assert not TargetScale.fit(np.array([0.0, 1.0])).log
    scale = TargetScale.fit(np.array([1.0, 10.0]))
    assert np.isfinite(scale.standardize(np.array([0.0]))[0])


def test_the_complaint_counts_graphs_and_missing_targets() -> None:
    with pytest.raises(UsageError, match="found 3 graphs of which 2 have none; label the graphs"):
        TargetScale.fit(np.array([1.0, np.nan, np.inf]))
