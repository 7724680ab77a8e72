"""Durations of operators, and the step time they add up to.

How long a node takes, given its operator and what it costs, as training jobs measured it.

Measured on one machine, nodes of one operator with equal costs differ as much within a job as from
job to job: a time slice of the scheduler, a cold cache. So a duration is the usual one of the
operator and its costs, times a factor drawn for the node, times one factor for the job, which
also goes with the step time that was measured for it.

Letters of shapes: N nodes, P known points of an operator, Q levels of quantiles.

Durations from training jobs: nothing that fewer than ``needed`` of them show.

A usual duration is the median over nodes with the same costs, which several jobs have; where no
costs of an operator are shared, of those that are equal when rounded to powers of two. Quantiles of
factors end where several jobs reach. All are rounded.

Letters of shapes: N nodes, G jobs.

How long the nodes of a job take together, given the step time that was measured for it.

A profiled step is slower than one that is not, and ranks work at the same time; so durations do
not sum to the step time. How their sum goes with it, and with the number of nodes, is fitted
to the training jobs.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from layerdag.dag.statistics import all_distinct, condition_units
from layerdag.graph.attributed_graph import AttributedGraph, Condition
from layerdag.graph.rolled_blocks import copies_of

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
        return _places(np.array([point[:4] for point in self.points], dtype=np.float64))

    @cached_property
    def _log_P(self) -> np.ndarray:
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

    def usual_of_costs(self, cost_N4: np.ndarray) -> np.ndarray:
        """Return the logarithms of usual durations of nodes of any operator, by costs alone."""
        return self._any.usual(cost_N4)

    @cached_property
    def _any(self) -> OperatorDurations:
        points = tuple(p for entry in self.operators.values() for p in entry.points)
        return OperatorDurations(points, (0.0,) * len(LEVELS))

    def nearest_name(self, operator: str) -> str:
        """Return an operator, or the one that is in place, or not, where only that has a time."""
        other = operator.removesuffix("_") if operator.endswith("_") else f"{operator}_"
        return other if operator not in self.operators and other in self.operators else operator

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
        log = log_step_time_ratio(usual_N, label)
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


def log_step_time_ratio(usual_N: np.ndarray, label: Condition | None) -> float | None:
    """Return the logarithm of a step time over the sum of usual durations; None if not known."""
    total = float(np.nansum(np.exp(usual_N)))
    if not isinstance(label, int | float) or not 0 < label < np.inf or not total > 0:
        return None
    return float(np.log(label) - np.log(total))


def _places(cost_N4: np.ndarray) -> np.ndarray:
    return np.log2(1 + cost_N4)


def _point(row: Any) -> Point:
    flops, moved, sent, ranks, log = row
    costs = (flops, moved, sent, ranks)
    if not all(isinstance(number, int) and 0 <= number < 1 << 62 for number in costs):
        raise ValueError(f"costs are whole numbers from 0, found {row!r:.60}")
    return flops, moved, sent, ranks, _log(log)


def _quantiles(row: Any) -> tuple[float, ...]:
    found = tuple(map(_log, row))
    if len(found) != len(LEVELS) or list(found) != sorted(found):
        raise ValueError(f"{len(LEVELS)} ascending quantiles are needed")
    return found


def _log(value: Any) -> float:
    if not abs(float(value)) <= _LARGEST:
        raise ValueError(f"logarithms up to {_LARGEST:g} are needed, found {value!r:.40}")
    return float(value)


RANKS = "world_size"
"""Name of the condition that says how many ranks a job has."""
LEAST_NODES = 60
"""Nodes of an operator that has quantiles of its own."""
_DIGITS = 2


def fit_durations(
    graphs: Sequence[AttributedGraph],
    cost_NC: np.ndarray,
    label: str,
    needed: int,
    program_G: np.ndarray | None = None,
) -> Durations | None:
    """Return how long nodes take; None where nothing is shared.

    Args:
        graphs: Training graphs, jobs.
        cost_NC: FLOPs, bytes, bytes of communication of all of their nodes, 0 for absent.
        label: Name of the condition that is the step time.
        needed: Programs that must stand behind everything.
        program_G: Number of the program of each job; all differ by default.
    """
    if not graphs or any("duration" not in graph.numbers for graph in graphs):
        return None
    program_G = all_distinct(graphs) if program_G is None else program_G
    graph_N = np.repeat(np.arange(len(graphs)), [graph.num_nodes for graph in graphs])
    program_N = program_G[graph_N]
    log_N = _logs(np.concatenate([graph.numbers["duration"] for graph in graphs]))
    row_N4 = np.column_stack([cost_NC, _ranks(graphs, cost_NC, graph_N)])
    op_N = np.concatenate([graph.categories["op"] for graph in graphs])
    told_N = np.isfinite(log_N)
    points = {
        str(name): found
        for name in np.unique(op_N[told_N])
        if (mine := told_N & (op_N == name)).any()
        and (found := _points(row_N4[mine], log_N[mine], program_N[mine], needed))
    }
    if not points:
        return None
    nothing = (0.0,) * len(LEVELS)
    bare = Durations(
        {name: OperatorDurations(found, nothing) for name, found in points.items()},
        nothing,
        0.0,
        0.0,
    )
    usual_N = bare.usual(op_N.tolist(), row_N4)
    jobs = [slice(*ends) for ends in _ends(graphs)]
    speed_G = np.array([_median(log_N[job] - usual_N[job]) for job in jobs])
    # Rolled blocks count as often as they are copied, as in a step time.
    weights = [np.log(copies_of(graph)) for graph in graphs]
    over = [
        log_step_time_ratio(usual_N[job] + weight, graph.conditions.get(label))
        for job, weight, graph in zip(jobs, weights, graphs, strict=True)
    ]
    over_G = np.array([np.nan if one is None else one for one in over])
    per_label, middle, left_G = _line(over_G, speed_G, needed, condition_units(program_G))
    beyond_N = log_N - usual_N - np.nan_to_num(speed_G)[graph_N]
    known_N = np.isfinite(beyond_N)
    common = _duration_quantiles(beyond_N[known_N], program_N[known_N], needed)
    operators = {}
    for name, found in points.items():
        mine_N = known_N & (op_N == name)
        own = mine_N.sum() >= LEAST_NODES
        factors = (
            _duration_quantiles(beyond_N[mine_N], program_N[mine_N], needed) if own else common
        )
        operators[name] = OperatorDurations(found, factors)
    told_G = np.isfinite(left_G)
    factors = _duration_quantiles(left_G[told_G], program_G[told_G], needed)
    return Durations(operators, factors, per_label, middle)


def costs_and_ranks(cost_NC: np.ndarray, ranks: int) -> np.ndarray:
    """Return costs with the number of ranks of nodes that communicate, 0 for others, (N, 4)."""
    return np.column_stack([cost_NC, np.where(cost_NC[:, 2] > 0, ranks, 0)])


def ranks_of(graph: AttributedGraph) -> int:
    """Return how many ranks a job has; 0 if that is not known."""
    try:
        return max(int(float(graph.conditions.get(RANKS, 0))), 0)
    except (TypeError, ValueError, OverflowError):
        return 0


def _ranks(
    graphs: Sequence[AttributedGraph], cost_NC: np.ndarray, graph_N: np.ndarray
) -> np.ndarray:
    """Return the ranks of each node's job where the node communicates, else 0."""
    rank_G = np.array([ranks_of(graph) for graph in graphs])
    found_N: np.ndarray = np.where(cost_NC[:, 2] > 0, rank_G[graph_N], 0)
    return found_N


def _ends(graphs: Sequence[AttributedGraph]) -> list[tuple[int, int]]:
    ends = np.cumsum([0, *(graph.num_nodes for graph in graphs)]).tolist()
    return list(pairwise(ends))


def _logs(duration_N: np.ndarray) -> np.ndarray:
    """Return logarithms, NaN where there is no duration."""
    given_N = np.isfinite(duration_N) & (duration_N > 0)
    found_N: np.ndarray = np.log(np.where(given_N, duration_N, 1.0))
    return np.where(given_N, found_N, np.nan)


def _points(
    row_N4: np.ndarray, log_N: np.ndarray, graph_N: np.ndarray, needed: int
) -> tuple[Point, ...]:
    exact = _medians(row_N4, log_N, graph_N, needed)
    if exact:
        return exact
    size_N3 = row_N4[:, :3]
    octave_N3 = np.where(size_N3 > 0, 1 << np.rint(np.log2(np.maximum(size_N3, 1))).astype(int), 0)
    coarse = _medians(np.column_stack([octave_N3, row_N4[:, 3]]), log_N, graph_N, needed)
    if coarse:
        return coarse
    middle_N4 = np.tile(
        np.median(np.column_stack([octave_N3, row_N4[:, 3]]), axis=0), (len(log_N), 1)
    )
    return _medians(middle_N4.astype(np.int64), log_N, graph_N, needed)


def _medians(
    row_N4: np.ndarray, log_N: np.ndarray, graph_N: np.ndarray, needed: int
) -> tuple[Point, ...]:
    rows, code_N = np.unique(row_N4, axis=0, return_inverse=True)
    code_N = code_N.ravel()
    pairs = np.unique(np.column_stack([code_N, graph_N]), axis=0)
    shared = np.flatnonzero(np.bincount(pairs[:, 0], minlength=len(rows)) >= needed)
    order_N = np.argsort(code_N, kind="stable")
    starts = np.searchsorted(code_N[order_N], np.arange(len(rows) + 1))
    found = []
    for row in shared.tolist():
        log = _median(log_N[order_N[starts[row] : starts[row + 1]]])
        flops, moved, sent, ranks = rows[row].tolist()
        found.append((flops, moved, sent, ranks, round(log, _DIGITS)))
    return tuple(found)


def _line(
    over_G: np.ndarray, speed_G: np.ndarray, needed: int, unit_G: np.ndarray
) -> tuple[float, float, np.ndarray]:
    told_G = np.isfinite(over_G) & np.isfinite(speed_G)
    count = len(np.unique(unit_G[told_G]))
    if count < max(LEAST_NODES, needed) or not np.ptp(over_G[told_G]) > 0:
        return 0.0, 0.0, speed_G
    middle = round(float(np.median(over_G[told_G])), _DIGITS)
    slope = round(float(np.polyfit(over_G[told_G], speed_G[told_G], 1)[0]), _DIGITS)
    return slope, middle, speed_G - slope * np.where(told_G, over_G - middle, 0.0)


def _duration_quantiles(value_N: np.ndarray, graph_N: np.ndarray, needed: int) -> tuple[float, ...]:
    """Return quantiles of values moved to where ``needed`` jobs, or programs, reach."""
    if not value_N.size:
        return (0.0,) * len(LEVELS)
    order_N = np.argsort(graph_N, kind="stable")
    value_N, graph_N = value_N[order_N], graph_N[order_N]
    starts = np.unique(graph_N, return_index=True)[1]
    low_G = np.sort(np.minimum.reduceat(value_N, starts))
    high_G = np.sort(np.maximum.reduceat(value_N, starts))
    index = min(needed, low_G.size) - 1
    if low_G[index] > high_G[-1 - index]:
        return (round(float(np.median(value_N)), _DIGITS),) * len(LEVELS)
    moved_N = np.clip(value_N, low_G[index], high_G[-1 - index])
    return tuple(round(float(q), _DIGITS) for q in np.quantile(moved_N, LEVELS))


def _median(value_N: np.ndarray) -> float:
    """Return the median of the values that there are; NaN for none."""
    known_N = value_N[np.isfinite(value_N)]
    return float(np.median(known_N)) if known_N.size else float("nan")


OUTSIDE = 0.02
"""Share of training jobs below, and above, the range of usual sums."""
_LARGEST_STEP_TIME = 1e3


@dataclass(frozen=True)
class StepTime:
    """The logarithm of the sum of durations in ns: linear in those of label and number of nodes.

    Attributes:
        intercept: At a label of 1 (second) and one node.
        per_label: Slope by the logarithm of the label.
        per_node: Slope by the logarithm of the number of nodes.
        low: Difference to the line below which one training job in fifty lies.
        high: That above which one in fifty lies.
    """

    intercept: float
    per_label: float
    per_node: float
    low: float
    high: float

    def factor(self, duration_N: np.ndarray, label: Condition | None) -> float:
        """Return what durations are multiplied by to have a usual sum; 1 where it is one."""
        total = float(np.nansum(duration_N))
        if not isinstance(label, int | float) or not label > 0 or not total > 0:
            return 1.0
        beyond = math.log(total) - self._line(float(label), len(duration_N))
        return math.exp(min(max(beyond, self.low), self.high) - beyond)

    def _line(self, label: float, nodes: int) -> float:
        return self.intercept + self.per_label * math.log(label) + self.per_node * math.log(nodes)

    def to_dict(self) -> dict[str, float]:
        """Return the figures as JSON-serializable data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "StepTime":
        """Rebuild from ``to_dict``. Raises KeyError, TypeError or ValueError if malformed."""
        names = ("intercept", "per_label", "per_node", "low", "high")
        found = cls(*(float(data[name]) for name in names))
        if not all(abs(value) < _LARGEST_STEP_TIME for value in asdict(found).values()):
            raise ValueError(f"logarithms below {_LARGEST_STEP_TIME:g} are needed")
        if found.low > found.high:
            raise ValueError("the range of usual sums is empty")
        return found


def fit_step_time(
    graphs: Sequence[AttributedGraph],
    label: str,
    needed: int,
    program_G: np.ndarray | None = None,
) -> StepTime | None:
    """Return how sums of durations go with labels; None where too few graphs tell.

    Args:
        graphs: Training graphs.
        label: Name of the condition.
        needed: Programs that must lie outside the range of usual sums, on each side.
        program_G: Number of the program of each graph; all differ by default.
    """
    numbers = all_distinct(graphs) if program_G is None else program_G
    rows = [
        (math.log(float(y)), math.log(int(copies_of(graph).sum())), math.log(total), program)
        for graph, program in zip(graphs, numbers.tolist(), strict=True)
        if isinstance(y := graph.conditions.get(label), int | float)
        and y > 0
        and "duration" in graph.numbers
        and (total := float(np.nansum(graph.numbers["duration"] * copies_of(graph)))) > 0
    ]
    if len({program for *_, program in rows}) * OUTSIDE < needed:
        return None
    row_GX = np.array([row[:3] for row in rows])
    line_GX = np.column_stack([np.ones(len(rows)), row_GX[:, :2]])
    slopes = np.linalg.lstsq(line_GX, row_GX[:, 2], rcond=1e-6)[0]
    beyond_G = row_GX[:, 2] - line_GX @ slopes
    figures = [*slopes, *np.quantile(beyond_G, [OUTSIDE, 1 - OUTSIDE])]
    return StepTime(*(round(float(value), 2) for value in figures))
