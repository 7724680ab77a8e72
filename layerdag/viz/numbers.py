"""Numbers as text: a few significant digits, percentages, intervals in brackets."""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from layerdag.statistics import Interval


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with ``digits`` significant digits, "—" for none."""
    if value is None or not math.isfinite(value):
        return "—"
    if value != 0 and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.{digits - 1}e}"
    decimals = 0 if value == 0 else max(digits - 1 - math.floor(math.log10(abs(value))), 0)
    return f"{value:,.{decimals}f}"


def percent(fraction: float | None) -> str:
    """Return a fraction as a percentage; 100 % means all, never nearly all."""
    if fraction is None or not math.isfinite(fraction):
        return "—"
    if fraction in (0.0, 1.0):
        return f"{fraction:.0%}"
    return f"{min(max(100 * fraction, 0.1), 99.9):.1f}%"


def percents(value: "Interval") -> str:
    """Return an interval of fractions in brackets, as percentages."""
    return f"[{value.low:.0%}, {value.high:.0%}]"


def interval(value: "Interval | None") -> str:
    """Return an interval in brackets, "" for none."""
    return "" if value is None else f"[{number(value.low, 2)}, {number(value.high, 2)}]"
