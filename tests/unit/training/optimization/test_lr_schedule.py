import pytest
from hypothesis import given, strategies as st
from laws import tried

from layerdag.training import LearningRateSchedule
from layerdag.training.optimization import learning_rate_factor
from layerdag.training.optimization._lr_schedule import FLOOR


def test_warm_up_rises_linearly_and_stays():
    factors = [
        learning_rate_factor(LearningRateSchedule("constant", 3), step, 0.0) for step in range(6)
    ]
    assert factors == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_cosine_falls_to_the_floor():
    cosine = LearningRateSchedule("cosine", 0)
    assert learning_rate_factor(cosine, 100, 0.0) == 1.0
    assert learning_rate_factor(cosine, 100, 0.5) == pytest.approx((1 + FLOOR) / 2)
    assert learning_rate_factor(cosine, 100, 1.0) == pytest.approx(FLOOR)


@given(
    st.sampled_from(["constant", "cosine"]),
    st.integers(0, 500),
    st.integers(0, 100),
    st.floats(0, 2),
)
@tried(40)
def test_the_factor_is_positive_at_most_1_and_falls_with_progress(shape, step, warmup, progress):
    schedule = LearningRateSchedule(shape, warmup)
    factor = learning_rate_factor(schedule, step, progress)
    assert 0 < factor <= 1
    assert learning_rate_factor(schedule, step, progress + 0.1) <= factor + 1e-12
    assert learning_rate_factor(schedule, step + 1, progress) >= factor
    if step >= warmup:
        # After the warm-up nothing depends on the step itself.
        assert learning_rate_factor(schedule, step + 50, progress) == factor
    if progress >= 1 and shape == "cosine" and step >= warmup:
        assert factor == pytest.approx(FLOOR)
