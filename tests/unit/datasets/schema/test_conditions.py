import math

import numpy as np
import pytest

from layerdag.datasets.schema._conditions import NumericCondition


@pytest.mark.parametrize("unknown", [math.inf, -math.inf, math.nan])
def test_values_that_are_not_finite_do_not_enter_the_scale(unknown: float) -> None:
    known = [1.0, 2.0, 4.0, 5.0]
    fitted = NumericCondition.fit("label", [known[0], unknown, *known[1:]])
    assert fitted == NumericCondition.fit("label", known)
    assert (fitted.mean, fitted.log) == (3.0, False)
    assert fitted.std == 1.58


def test_values_over_several_orders_are_scaled_by_their_logarithm() -> None:
    fitted = NumericCondition.fit("label", [1.0, math.e**2, math.e**4])
    assert fitted.log
    assert fitted.mean == pytest.approx(2.0)
    assert fitted.std == 1.63
    assert fitted.encode(math.e**4) == pytest.approx(2 / 1.63)
    assert fitted.decode(fitted.encode(7.0)) == pytest.approx(7.0)


def test_a_condition_without_known_values_encodes_numbers_as_they_are() -> None:
    fitted = NumericCondition.fit("label", [math.nan])
    assert fitted.encode(2.5) == 2.5
    assert math.isnan(fitted.encode(None))


def test_the_range_is_what_five_graphs_reach_and_no_quantile_names_a_graph() -> None:
    values = np.concatenate([np.arange(100.0, 200.0), [1e9, 0.001]])
    fitted = NumericCondition.fit("label", values.tolist())
    assert fitted.draw_range() == (103.0, 196.0)
    assert len(fitted.quantiles) == 20
    assert NumericCondition.fit("label", [1.0, 2.0, 7.0]).quantiles == (2.0,)


def test_scale_and_quantiles_are_rounded(rng: np.random.Generator) -> None:
    fitted = NumericCondition.fit("label", rng.normal(123456.0, 2.0, 300).tolist())
    assert fitted.std == float(f"{fitted.std:.3g}")
    assert round(fitted.mean, 2) == pytest.approx(fitted.mean, abs=1e-9)
    assert fitted.encode(123456.0) == pytest.approx(0, abs=0.3)
    assert all(quantile == float(f"{quantile:.3g}") for quantile in fitted.quantiles)
