import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried
from scipy.stats import binom

from layerdag.errors import UsageError
from layerdag.surrogates import Calibration


def calibration(errors: list[float], log: bool = False) -> Calibration:
    return Calibration(log, np.sort(np.array(errors)))


def test_an_interval_is_as_wide_as_the_error_that_the_level_stays_below() -> None:
    found = calibration([float(i) for i in range(1, 20)])
    # Rank ceil(20 * .9) = 18 of 19 graphs.
    one = found.around(np.array([100.0]), np.ones(1), 0.9)
    assert (one.low_B[0], one.value_B[0], one.high_B[0]) == (82.0, 100.0, 118.0)
    assert found.around(np.array([100.0]), np.ones(1), 0.5).high_B[0] == 110.0


def test_positive_targets_have_factors() -> None:
    target_S = np.array([10.0] * 9)
    found = Calibration.measure(target_S, target_S * 2, np.ones(9))
    assert found is not None
    one = found.around(np.array([6.0]), np.ones(1), 0.9)
    np.testing.assert_allclose([one.low_B[0], one.high_B[0]], [3.0, 12.0])


def test_intervals_widen_with_the_spread_of_the_model() -> None:
    spread_S = np.array([1.0, 4.0] * 5)
    found = Calibration.measure(np.zeros(10), spread_S * 2, spread_S)
    assert found is not None
    one = found.around(np.zeros(2), np.array([1.0, 4.0]), 0.9)
    np.testing.assert_allclose(one.high_B, [2.0, 8.0])


def test_fewer_graphs_than_an_interval_needs_give_no_calibration() -> None:
    assert Calibration.measure(np.ones(8), np.ones(8), np.ones(8)) is None
    assert Calibration.measure(np.ones(9), np.ones(9), np.ones(9)) is not None


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, 90.0])
def test_a_level_that_is_no_fraction_is_refused(level: float) -> None:
    with pytest.raises(UsageError, match="give a fraction"):
        calibration([1.0] * 9).around(np.zeros(1), np.ones(1), level)


def test_a_level_that_the_graphs_do_not_suffice_for_is_refused_with_the_highest() -> None:
    with pytest.raises(UsageError, match=r"more than the 9 graphs.*at most 0\.9000"):
        calibration([1.0] * 9).around(np.zeros(1), np.ones(1), 0.95)
    assert calibration([1.0] * 9).highest_level == pytest.approx(0.9)


def test_it_comes_back_from_plain_data() -> None:
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
def test_what_is_no_calibration_is_none(data: object) -> None:
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
