"""Ticks and places of an axis."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried

from layerdag.report.charts import Axis, tick_text


def axis(low: float, high: float, log: bool) -> Axis:
    """Return an axis of 256 pixels that begins at 34."""
    return Axis(low, high, log, 34, 290)


@tried(40)
@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_of_a_linear_axis_are_round_and_inside(low: float, span: float) -> None:
    ticks = axis(low, low + span, False).ticks()
    assert 2 <= len(ticks) <= 7
    assert all(low - 1e-6 * span <= tick <= low + span * (1 + 1e-6) for tick in ticks)
    gaps = np.diff(ticks)
    assert np.allclose(gaps, gaps[0])
    digits = f"{gaps[0]:.3e}"
    assert digits[:5] in ("1.000", "2.000", "5.000")


@tried(40)
@given(st.floats(1e-6, 1e6), st.floats(1.01, 1e9))
def test_ticks_of_a_logarithmic_axis_are_round_and_inside(low: float, factor: float) -> None:
    ticks = axis(low, low * factor, True).ticks()
    assert len(ticks) <= 12
    assert ticks == sorted(ticks)
    # An even step of a range of less than a decade may lie a rounding error beyond it.
    assert all(low * (1 - 1e-3) <= tick <= low * factor * (1 + 1e-3) for tick in ticks)


@pytest.mark.parametrize(
    ("low", "high", "log", "expected"),
    [
        (0, 10, False, [0, 2, 4, 6, 8, 10]),
        (0, 3, False, [0, 1, 2, 3]),
        (-1, 1, False, [-1, -0.5, 0, 0.5, 1]),
        (-2, -1, False, [-2, -1.8, -1.6, -1.4, -1.2, -1]),
        (1, 1000, True, [1, 10, 100, 1000]),
        (1, 50, True, [1, 2, 5, 10, 20, 50]),
        (20, 90, True, [20, 50]),
    ],
)
def test_ticks_by_hand(low: float, high: float, log: bool, expected: list[float]) -> None:
    assert axis(float(low), float(high), log).ticks() == pytest.approx(expected)


def test_places_on_the_axis_are_even_in_value_or_in_its_logarithm() -> None:
    assert axis(0.0, 10.0, False).x(np.array([0.0, 5.0, 10.0])).tolist() == [34, 162, 290]
    assert axis(1.0, 100.0, True).x(np.array([0.0, 1.0, 10.0, 100.0])).tolist() == [
        34,
        34,
        162,
        290,
    ]


def test_bins_are_equally_wide_on_the_axis() -> None:
    assert axis(0.0, 8.0, False).edges(4).tolist() == [0, 2, 4, 6, 8]
    assert axis(1.0, 10_000.0, True).edges(2).tolist() == pytest.approx([1, 100, 10_000])


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0, "0"), (1200.0, "1,200"), (0.25, "0.25"), (1e7, "1.0e+07")]
)
def test_whole_numbers_have_no_decimals(value: float, shown: str) -> None:
    assert tick_text(value) == shown
