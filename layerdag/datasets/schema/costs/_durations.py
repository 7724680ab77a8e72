"""How long a node takes, given its operator and what it costs, as training jobs measured it.

Measured on one machine, nodes of one operator with equal costs differ as much within a job as from
job to job: a time slice of the scheduler, a cold cache. So a duration is the usual one of the
operator and its costs, times a factor drawn for the node, times one factor for the job, which
also goes with the step time that was measured for it.

Letters of shapes: N nodes, P known points of an operator, Q levels of quantiles.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from layerdag.graph import Condition

LEVELS = (0.0, 0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97, 0.99, 0.995, 0.999, 1.0)
"""Levels of the quantiles of a factor."""
NEAREST = 2
"""Known points between which the usual duration of new costs lies."""
_SOFTENING = 0.25
_DISTANCES = 4_000_000
"""Distances from costs to points that are held at once: a file may have many points."""
_LARGEST = 60.0

Point = tuple[int, int, int, int, float]
"""FLOPs, bytes, bytes of communication and ranks (0: it does not communicate), and the logarithm of
the median duration in ns."""


@dataclass(frozen=True)
class OperatorDurations:
    """How long calls of one operator take.

    Attributes:
        points: Usual durations of costs.
        factors: Quantiles of the logarithm of the factor of a node, at ``LEVELS``.
    """

    points: tuple[Point, ...]
    factors: tuple[float, ...]

    @cached_property
    def _place_P4(self) -> np.ndarray:
        """Where each point lies."""
        return _places(np.array([point[:4] for point in self.points], dtype=np.float64))

    @cached_property
    def _log_P(self) -> np.ndarray:
        """The logarithm of each point's duration."""
        return np.array([point[4] for point in self.points])

    def usual(self, cost_N4: np.ndarray) -> np.ndarray:
        """Return the logarithm of the usual duration of nodes, float64 (N,).

        That of a point with these costs; between the nearest points where there is none.
        """
        distinct, row_N = np.unique(cost_N4, axis=0, return_inverse=True)
        step = max(1, _DISTANCES // len(self.points))
        parts = [
            self._between_points(distinct[first : first + step])
            for first in range(0, len(distinct), step)
        ]
        found_N: np.ndarray = np.concatenate(parts)[row_N.ravel()]
        return found_N

    def _between_points(self, distinct: np.ndarray) -> np.ndarray:
        """Return the logarithm of the usual duration of some costs."""
        gap_NP = np.abs(_places(distinct)[:, None] - self._place_P4[None]).sum(axis=2)
        near_NP = np.argsort(gap_NP, axis=1, kind="stable")[:, :NEAREST]
        gap_NP = np.take_along_axis(gap_NP, near_NP, axis=1)
        weight_NP = np.where(gap_NP[:, :1] > 0, 1 / (gap_NP + _SOFTENING), gap_NP == 0)
        found_N: np.ndarray = (weight_NP * self._log_P[near_NP]).sum(1) / weight_NP.sum(1)
        return found_N


@dataclass(frozen=True)
class Durations:
    """How long nodes of jobs take.

    Attributes:
        operators: By operator.
        factors: Quantiles of the logarithm of the factor of a job, at ``LEVELS``.
        per_label: What the logarithm of a job's factor gains by that of its label over the sum of
            usual durations.
        label: The median of that logarithm.
    """

    operators: Mapping[str, OperatorDurations]
    factors: tuple[float, ...]
    per_label: float
    label: float

    def usual(self, operators: Sequence[str], cost_N4: np.ndarray) -> np.ndarray:
        """Return the logarithms of usual durations of nodes, NaN where the operator has none.

        Args:
            operators: Of each node.
            cost_N4: FLOPs, bytes, bytes of communication and ranks, 0 for none.
        """
        log_N = np.full(len(operators), np.nan)
        op_N = np.array(operators, dtype=object)
        for name in dict.fromkeys(operators):
            if name in self.operators:
                mine_N = op_N == name
                log_N[mine_N] = self.operators[name].usual(cost_N4[mine_N])
        return log_N

    def node_factors(self, operators: Sequence[str], draw_N: np.ndarray) -> np.ndarray:
        """Return the logarithm of each node's factor; ``draw_N`` is uniform in [0, 1)."""
        log_N = np.zeros(len(operators))
        op_N = np.array(operators, dtype=object)
        for name in dict.fromkeys(operators):
            if name in self.operators:
                mine_N = op_N == name
                log_N[mine_N] = np.interp(draw_N[mine_N], LEVELS, self.operators[name].factors)
        return log_N

    def job_factor(self, usual_N: np.ndarray, label: Condition | None, draw: float) -> float:
        """Return the logarithm of a job's factor.

        Args:
            usual_N: ``usual`` of its nodes.
            label: Its step time in seconds, as far as it is known.
            draw: Uniform in [0, 1).
        """
        found = float(np.interp(draw, LEVELS, self.factors))
        log = log_label_over_sum(usual_N, label)
        return found if log is None else found + self.per_label * (log - self.label)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON-serializable data."""
        return {
            "operators": {
                name: {"points": [list(p) for p in entry.points], "factors": list(entry.factors)}
                for name, entry in self.operators.items()
            },
            "factors": list(self.factors),
            "per_label": self.per_label,
            "label": self.label,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Durations":
        """Rebuild from ``to_dict``. Raises KeyError, TypeError or ValueError if malformed."""
        operators = {
            str(name): OperatorDurations(
                tuple(map(_point, entry["points"])), _quantiles(entry["factors"])
            )
            for name, entry in data["operators"].items()
        }
        if not all(entry.points for entry in operators.values()):
            raise ValueError("an operator without points has no duration")
        return cls(
            operators, _quantiles(data["factors"]), _log(data["per_label"]), _log(data["label"])
        )


def log_label_over_sum(usual_N: np.ndarray, label: Condition | None) -> float | None:
    """Return the logarithm of a step time over the sum of usual durations; None if not known."""
    total = float(np.nansum(np.exp(usual_N)))
    if not isinstance(label, int | float) or not 0 < label < np.inf or not total > 0:
        return None
    return float(np.log(label) - np.log(total))


def _places(cost_N4: np.ndarray) -> np.ndarray:
    """Return costs as places, between which distances are doublings."""
    return np.log2(1 + cost_N4)


def _point(row: Any) -> Point:
    """Return four whole numbers and a logarithm."""
    flops, moved, sent, ranks, log = row
    costs = (flops, moved, sent, ranks)
    if not all(isinstance(number, int) and 0 <= number < 1 << 62 for number in costs):
        raise ValueError(f"costs are whole numbers from 0, found {row!r:.60}")
    return flops, moved, sent, ranks, _log(log)


def _quantiles(row: Any) -> tuple[float, ...]:
    """Return ascending logarithms, one for each level."""
    found = tuple(map(_log, row))
    if len(found) != len(LEVELS) or list(found) != sorted(found):
        raise ValueError(f"{len(LEVELS)} ascending quantiles are needed")
    return found


def _log(value: Any) -> float:
    """Return a logarithm of usual size."""
    if not abs(float(value)) <= _LARGEST:
        raise ValueError(f"logarithms up to {_LARGEST:g} are needed, found {value!r:.40}")
    return float(value)
