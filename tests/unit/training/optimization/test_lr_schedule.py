import pytest

from layerdag.training.optimization import rate_factor
from layerdag.training.optimization._lr_schedule import FLOOR


def test_warm_up_rises_linearly_and_stays():
    factors = [rate_factor("constant", step, 3, 0.0) for step in range(6)]
    assert factors == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_cosine_falls_to_the_floor():
    assert rate_factor("cosine", 100, 0, 0.0) == 1.0
    assert rate_factor("cosine", 100, 0, 0.5) == pytest.approx((1 + FLOOR) / 2)
    assert rate_factor("cosine", 100, 0, 1.0) == pytest.approx(FLOOR)
