"""An axis with round ticks, linear or logarithmic."""

import math

import numpy as np

from layerdag.viz import number


class Axis:
    """Maps values to horizontal positions.

    Attributes:
        log: Whether the axis is logarithmic.
    """

    def __init__(self, low: float, high: float, log: bool, left: int, right: int) -> None:
        self.log = log
        self._low, self._high = (math.log10(low), math.log10(high)) if log else (low, high)
        self._left, self._right = left, right

    def x(self, value: np.ndarray) -> np.ndarray:
        """Return horizontal positions."""
        position = np.log10(np.maximum(value, 10.0**self._low)) if self.log else value
        fraction = (position - self._low) / max(self._high - self._low, 1e-12)
        return np.asarray(self._left + (self._right - self._left) * fraction)

    def edges(self, bins: int) -> np.ndarray:
        """Return the ends of ``bins`` bins that are equally wide on the axis, (bins + 1,)."""
        edges = np.linspace(self._low, self._high, bins + 1)
        return np.asarray(10.0**edges if self.log else edges)

    def ticks(self) -> list[float]:
        """Return a few round values inside the range."""
        powers = self._powers() if self.log else []
        # Less than a decade has too few powers of ten: even steps read better.
        return powers if len(powers) > 1 else self._multiples()

    def _powers(self) -> list[float]:
        """Return powers of ten, or multiples 1, 2, 5 of them where the range is short."""
        first, last = math.floor(self._low), math.ceil(self._high)
        step = max((last - first) // 5, 1)
        factors = (1, 2, 5) if self._high - self._low < 2 else (1,)
        every = [k * 10.0**power for power in range(first, last + 1, step) for k in factors]
        return [v for v in every if self._low - 1e-9 <= math.log10(v) <= self._high + 1e-9]

    def _multiples(self) -> list[float]:
        """Return three to six multiples of 1, 2 or 5 times a power of ten."""
        low, high = (10.0**self._low, 10.0**self._high) if self.log else (self._low, self._high)
        span = max(high - low, 1e-12)
        power = 10.0 ** math.floor(math.log10(span / 3))
        gap = next(k * power for k in (1, 2, 5, 10) if span / (k * power) <= 5)
        return [
            k * gap for k in range(math.ceil(low / gap - 1e-9), math.floor(high / gap + 1e-9) + 1)
        ]


def tick_text(value: float) -> str:
    """Return a tick's number, whole numbers without decimals."""
    return f"{value:,.0f}" if value == round(value) and abs(value) < 1e6 else number(value, 2)
