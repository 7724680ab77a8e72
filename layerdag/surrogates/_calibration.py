"""Prediction intervals from graphs that no fit saw: split-conformal calibration.

Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World", 2005; Lei, G'Sell, Rinaldo,
Tibshirani and Wasserman, JASA 113(523), 2018. The interval of a new graph is as wide as the error
that the wanted fraction of calibration graphs stayed below. Where new and calibration graphs come
from the same source, at least this fraction of intervals hold the target, whatever the model; this
is an average over graphs, and some kinds of graphs may be covered less often than others.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from layerdag.errors import UsageError

LEVEL = 0.9
FEWEST = 9
"""Calibration graphs that an interval of 90 % needs."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions of B graphs with an interval each, in the unit of the training targets.

    Attributes:
        value_B: The predictions, float64.
        low_B: Lower ends.
        high_B: Upper ends.
        level: Fraction of graphs whose interval is to hold the target.
    """

    value_B: np.ndarray
    low_B: np.ndarray
    high_B: np.ndarray
    level: float


@dataclass(frozen=True, eq=False)
class Calibration:
    """How far predictions were off on S graphs that no fit saw.

    Attributes:
        log: True where errors are those of logarithms, so that an interval is a factor.
        error_S: Absolute errors in units of the model's own spread, ascending, float64.
    """

    log: bool
    error_S: np.ndarray

    @classmethod
    def measure(
        cls, target_S: np.ndarray, predicted_S: np.ndarray, spread_S: np.ndarray
    ) -> "Calibration | None":
        """Return the calibration; None for fewer than ``FEWEST`` graphs.

        Args:
            target_S: What was measured.
            predicted_S: What was predicted.
            spread_S: How unsure the model was, positive, in any unit.
        """
        if target_S.size < FEWEST:
            return None
        log = bool((target_S > 0).all() and (predicted_S > 0).all())
        if log:
            target_S, predicted_S = np.log(target_S), np.log(predicted_S)
        return cls(log, np.sort(np.abs(target_S - predicted_S) / spread_S))

    @classmethod
    def from_dict(cls, data: object) -> "Calibration | None":
        """Return what ``to_dict`` wrote; None for what is no calibration."""
        if not isinstance(data, Mapping):
            return None
        try:
            error_S = np.sort(np.asarray(data.get("errors"), dtype=float))
        except (TypeError, ValueError):
            return None
        fine = error_S.ndim == 1 and error_S.size >= FEWEST and bool((error_S >= 0).all())
        return cls(bool(data.get("log")), error_S) if fine else None

    def to_dict(self) -> dict[str, object]:
        """Return plain data."""
        return {"log": self.log, "errors": self.error_S.tolist()}

    @property
    def highest_level(self) -> float:
        """The highest level that the calibration graphs suffice for."""
        return self.error_S.size / (self.error_S.size + 1)

    def around(
        self, predicted_B: np.ndarray, spread_B: np.ndarray, level: float = LEVEL
    ) -> Predictions:
        """Return predictions with their intervals.

        Raises:
            UsageError: If the level is no fraction, or too high for the calibration graphs.
        """
        reach_B = self._error(level) * spread_B
        if self.log:
            low_B, high_B = predicted_B * np.exp(-reach_B), predicted_B * np.exp(reach_B)
        else:
            low_B, high_B = predicted_B - reach_B, predicted_B + reach_B
        return Predictions(predicted_B, low_B, high_B, level)

    def _error(self, level: float) -> float:
        """Return the error that the given fraction of new graphs stays below."""
        size = self.error_S.size
        if not 0 < level < 1:
            raise UsageError(f"The level of an interval is {level:g}; give a fraction, such as .9.")
        # One more than the graphs there are: the new graph counts as one of them.
        rank = math.ceil((size + 1) * level - 1e-9)
        if rank > size:
            raise UsageError(
                f"An interval of {level:.4g} needs more than the {size} graphs that the surrogate "
                f"was calibrated on; ask for at most {self.highest_level:.4f}."
            )
        return float(self.error_S[rank - 1])
