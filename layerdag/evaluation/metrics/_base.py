"""What a metric is: a name, a goal, bounds, and a result that keeps a failure beside its value.

The contract follows SDMetrics' idea (metric -> result -> report): a failing metric does not end a
report, and its failure is listed, never averaged away.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

NORMAL_95 = 1.96


class Goal(Enum):
    """Which way is better."""

    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True)
class Metric:
    """Declares a figure.

    Attributes:
        name: Unique, in snake case.
        what: One line for people.
        goal: Which way is better.
        lower: Least possible value.
        upper: Greatest possible value, possibly infinite.
        unit: Unit of the value, "" for none.
    """

    name: str
    what: str
    goal: Goal
    lower: float = 0.0
    upper: float = math.inf
    unit: str = ""


@dataclass(frozen=True)
class Interval:
    """A 95 % interval around a figure, from the spread of its bootstrap draws.

    The spread and not the quantiles of the draws: a resample repeats graphs, which lengthens every
    distance between sets, so that quantiles may lie wholly above the figure itself.
    """

    low: float
    high: float

    @classmethod
    def around(
        cls, value: float, draws_R: np.ndarray, lower: float = -math.inf, upper: float = math.inf
    ) -> "Interval | None":
        """Return value +- 1.96 standard errors, cut at the bounds; None without finite draws."""
        finite = draws_R[np.isfinite(draws_R)]
        if finite.size < 2 or not math.isfinite(value):
            return None
        half = NORMAL_95 * float(finite.std(ddof=1))
        return cls(max(value - half, lower), min(value + half, upper))

    @classmethod
    def around_ratio(cls, value: float, draws_R: np.ndarray) -> "Interval | None":
        """Return the interval of a positive ratio, symmetric in its logarithm."""
        finite = draws_R[np.isfinite(draws_R) & (draws_R > 0)]
        if not (value > 0 and math.isfinite(value)) or finite.size < 2:
            return None
        factor = math.exp(NORMAL_95 * float(np.log(finite).std(ddof=1)))
        return cls(value / factor, value * factor)


@dataclass(frozen=True)
class MetricResult:
    """One computed figure, or why there is none.

    Attributes:
        metric: Its declaration.
        value: The figure; None where ``error`` says why there is none.
        interval: Bootstrap interval of the value over graphs.
        breakdown: Further figures by name, for drilling down.
        error: One sentence, "" where the metric was computed.
    """

    metric: Metric
    value: float | None
    interval: Interval | None = None
    breakdown: Mapping[str, float] = field(default_factory=dict)
    error: str = ""
