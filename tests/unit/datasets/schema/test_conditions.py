import math

import pytest

from layerdag.datasets.schema._conditions import NumericCondition


@pytest.mark.parametrize("unknown", [math.inf, -math.inf, math.nan])
def test_values_that_are_not_finite_do_not_enter_the_scale(unknown: float) -> None:
    known = [1.0, 2.0, 4.0, 5.0]
    fitted = NumericCondition.fit("label", [known[0], unknown, *known[1:]])
    assert fitted == NumericCondition.fit("label", known)
    assert (fitted.mean, fitted.log) == (3.0, False)
    assert fitted.std == pytest.approx(math.sqrt(2.5))


def test_values_over_several_orders_are_scaled_by_their_logarithm() -> None:
    fitted = NumericCondition.fit("label", [1.0, math.e**2, math.e**4])
    assert fitted.log
    assert fitted.mean == pytest.approx(2.0)
    assert fitted.std == pytest.approx(math.sqrt(8 / 3))
    assert fitted.encode(math.e**4) == pytest.approx(2 / math.sqrt(8 / 3))
    assert fitted.decode(fitted.encode(7.0)) == pytest.approx(7.0)


def test_a_condition_without_known_values_encodes_numbers_as_they_are() -> None:
    fitted = NumericCondition.fit("label", [math.nan])
    assert fitted.encode(2.5) == 2.5
    assert math.isnan(fitted.encode(None))
