import pytest
from hypothesis import given, strategies as st

from layerdag.statistics import Interval
from layerdag.viz.numbers import interval, number, percent, percents


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [
        (None, 3, "—"),
        (float("nan"), 3, "—"),
        (float("inf"), 3, "—"),
        (0.0, 3, "0"),
        (1.23456, 3, "1.23"),
        (12345.6, 3, "12,346"),
        (0.00123456, 3, "0.00123"),
        (1.2e-7, 3, "1.20e-07"),
        (-2.5, 3, "-2.50"),
        (0.001, 3, "0.00100"),  # the ends of the plain notation
        (0.00099999, 3, "1.00e-03"),
        (999_999.0, 3, "999,999"),
        (1e6, 3, "1.00e+06"),
        (-1234.5, 2, "-1,234"),
        (0.5, 1, "0.5"),
    ],
)
def test_numbers_have_few_significant_digits(value, digits, shown):
    assert number(value, digits) == shown
    assert digits != 3 or number(value) == shown


def test_nearly_all_is_never_shown_as_all():
    assert percent(1.0) == "100%"
    assert percent(0.99999) == "99.9%"
    assert percent(0.0) == "0%"
    assert percent(0.00001) == "0.1%"
    assert percent(None) == "—"


@given(st.floats(0, 1, exclude_min=True, exclude_max=True))
def test_a_percentage_is_within_a_twentieth_and_never_all_or_none(fraction):
    shown = percent(fraction)
    assert shown not in ("0%", "100%", "0.0%", "100.0%")
    assert abs(float(shown.removesuffix("%")) - min(max(100 * fraction, 0.1), 99.9)) <= 0.051


def test_an_interval_stands_in_brackets():
    assert interval(Interval(0.5, 2.0)) == "[0.50, 2.0]"
    assert interval(None) == ""
    assert percents(Interval(0.062, 1.0)) == "[6%, 100%]"
