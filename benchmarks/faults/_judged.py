"""Did a figure see a fault? Shifts against the spread of real graphs drawn again."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.stats import t as student

from faults._declared import Duty

Figures = Mapping[str, float]


@dataclass(frozen=True)
class Spread:
    """A figure of real graphs that pose as samples, over draws of all sets.

    Attributes:
        mean: Over the draws.
        half: Half the width of the 95 % interval in which one more draw falls.
        error: Half the width of the 95 % interval of the mean.
    """

    mean: float
    half: float
    error: float

    @classmethod
    def of(cls, draws: Sequence[float]) -> "Spread":
        """Measure at least two draws, by Student's distribution."""
        value_R = np.array(draws, dtype=float)
        quantile = float(student.ppf(0.975, value_R.size - 1))
        deviation = float(value_R.std(ddof=1))
        error = quantile * deviation / math.sqrt(value_R.size)
        return cls(
            float(value_R.mean()), quantile * deviation * math.sqrt(1 + 1 / value_R.size), error
        )

    @property
    def low(self) -> float:
        """Lower end of the interval of one more draw."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """Upper end of it."""
        return self.mean + self.half


@dataclass(frozen=True)
class Judged:
    """A figure under a fault.

    Attributes:
        fault: Name of the fault.
        figure: Name of the figure.
        duty: What was asked of it.
        strengths: At which the fault was planted, ascending, without 0.
        shifts: Mean over the draws of the figure with the fault minus that without it.
        errors: Half the width of the 95 % interval of each shift, over draws.
        half: Of ``Spread``: what a shift must exceed to be seen in one run.
    """

    fault: str
    figure: str
    duty: Duty
    strengths: tuple[float, ...]
    shifts: tuple[float, ...]
    errors: tuple[float, ...]
    half: float

    @property
    def threshold(self) -> float | None:
        """The smallest strength from which on the figure lies outside the interval of strength 0.

        "From which on": at all larger strengths as well. None if the largest is not seen. A shift
        that is not told from 0 over the draws does not count; neither does one that is NaN, of a
        figure that there no longer is.
        """
        found = None
        for strength, shift, error in reversed(
            list(zip(self.strengths, self.shifts, self.errors, strict=True))
        ):
            if not abs(shift) > max(self.half, error) + 1e-12:
                break
            found = strength
        return found

    @property
    def monotone(self) -> bool:
        """Whether the figure moves one way, steps within the errors of their ends apart."""
        steps = [
            (later - earlier, one + other)
            for (earlier, later), (one, other) in zip(
                pairwise((0.0, *self.shifts)), pairwise((0.0, *self.errors)), strict=True
            )
        ]
        way = math.copysign(1, self.shifts[-1])
        return all(way * step > -slack - 1e-12 for step, slack in steps)

    @property
    def outcome(self) -> str:
        """Return "seen", "missed", "false move", or "" where nothing is to be told."""
        if self.duty is Duty.MUST:
            return "missed" if self.threshold is None else "seen"
        return "false move" if self.duty is Duty.STILL and self.threshold is not None else ""


def judged(
    fault: tuple[str, Duty],
    figure: str,
    with_fault: Mapping[float, Sequence[float]],
    without: Sequence[float],
    half: float,
) -> Judged:
    """Compare a figure with and without a fault, draw by draw.

    Args:
        fault: Its name, and what is asked of the figure.
        figure: Name of the figure.
        with_fault: The figure in each draw, by strength.
        without: The figure in each draw without a fault, of the same draws.
        half: Of the ``Spread`` of the figure.
    """
    strengths = tuple(sorted(with_fault))
    spreads = [
        Spread.of(np.subtract(with_fault[strength], without).tolist()) for strength in strengths
    ]
    return Judged(
        fault[0],
        figure,
        fault[1],
        strengths,
        tuple(spread.mean for spread in spreads),
        tuple(spread.error for spread in spreads),
        half,
    )
