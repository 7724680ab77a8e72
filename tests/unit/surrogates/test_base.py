import numpy as np
import pytest

from layerdag.errors import UsageError
from layerdag.surrogates._base import REACH, TargetScale


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
