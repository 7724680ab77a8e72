"""Durations of operators, as training jobs measured them.

Measured on one machine, nodes of one operator with equal costs differ as much within a job as from
job to job: a time slice of the scheduler, a cold cache. So a duration is the usual one of the
operator and its costs, times a factor drawn for the node, times one factor for the job.

A usual duration is the median over nodes with the same costs, which several jobs have; where no
costs of an operator are shared, of those that are equal when rounded to powers of two. Quantiles of
factors end where several jobs reach. All are rounded. Nothing is kept that fewer than ``needed``
training jobs show.

Shape letters: G jobs, N nodes, P known points of an operator, Q levels of quantiles.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from layerdag.dag.program_numbers import all_distinct
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.schema.attributes import shared_range

LEVELS = (0.0, 0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97, 0.99, 0.995, 0.999, 1.0)
"""Levels of the quantiles of a factor."""
NEAREST = 2
"""Known points between which the usual duration of new costs lies."""
_SOFTENING = 0.25
_DISTANCES = 4_000_000
"""Distances from costs to points that are held at once: a file may have many points."""
_LARGEST = 60.0

_COSTS = ("flops", "bytes", "comm_bytes")
_LARGEST_COST = 1 << 62
RETIRED_KEYS = ("per_label", "label")  # earlier versions wrote them, and nothing reads them

Point = tuple[int, int, int, int, float]
"""FLOPs, bytes, bytes of communication and ranks (0: it does not communicate), and the logarithm of
the median duration in ns."""


@dataclass(frozen=True)
class OperatorDurations:
    """How long calls of one operator take: usual durations of costs, and quantiles.

    The latter are of the logarithm of the factor of a node, at ``LEVELS``.
    """

    points: tuple[Point, ...]
    factors: tuple[float, ...]

    def check(self) -> None:
        """Raise ValueError unless nodes can be given durations by these figures."""
        if not self.points:
            raise ValueError("an operator without points has no duration")
        if not all(0 <= cost < _LARGEST_COST for *costs, _ in self.points for cost in costs):
            raise ValueError(f"costs are whole numbers from 0 to {_LARGEST_COST}")
        if not all(abs(log) <= _LARGEST for *_, log in self.points):
            raise ValueError(f"logarithms up to {_LARGEST:g} are needed")
        _require_quantiles(self.factors)

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
    """How long nodes of jobs take, by operator.

    ``factors`` are quantiles of the logarithm of the factor of a job, at ``LEVELS``.
    """

    operators: Mapping[str, OperatorDurations]
    factors: tuple[float, ...]

    def usual(self, operators: Sequence[str], cost_N4: np.ndarray) -> np.ndarray:
        """Return the logarithms of usual durations of nodes, NaN where the operator has none.

        Costs are FLOPs, bytes, bytes of communication and ranks, 0 for none.
        """
        log_N = np.full(len(operators), np.nan)
        for entry, mine_N in self._rows(operators):
            log_N[mine_N] = entry.usual(cost_N4[mine_N])
        return log_N

    def _rows(self, operators: Sequence[str]) -> Iterator[tuple[OperatorDurations, np.ndarray]]:
        """Yield the durations of each operator that has some, and which nodes are of it."""
        op_N = np.array(operators, dtype=object)
        for name in dict.fromkeys(operators):
            if name in self.operators:
                yield self.operators[name], op_N == name

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
        for entry, mine_N in self._rows(operators):
            log_N[mine_N] = np.interp(draw_N[mine_N], LEVELS, entry.factors)
        return log_N

    def job_factor(self, draw: float) -> float:
        """Return the logarithm of a job's factor; ``draw`` is uniform in [0, 1)."""
        return float(np.interp(draw, LEVELS, self.factors))

    def check(self) -> None:
        """Raise ValueError unless nodes can be given durations by these figures."""
        _require_quantiles(self.factors)
        for entry in self.operators.values():
            entry.check()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serializable data; fingerprints of data sets depend on its very types."""
        return {
            "operators": {
                name: {"points": [list(p) for p in entry.points], "factors": list(entry.factors)}
                for name, entry in self.operators.items()
            },
            "factors": list(self.factors),
        }


def _require_quantiles(found: Sequence[float]) -> None:
    fits = len(found) == len(LEVELS) and list(found) == sorted(found)
    if not fits or not all(abs(log) <= _LARGEST for log in found):
        raise ValueError(f"{len(LEVELS)} ascending quantiles up to {_LARGEST:g} are needed")


def _places(cost_N4: np.ndarray) -> np.ndarray:
    return np.log2(1 + cost_N4)


RANKS = "world_size"
"""Name of the condition that says how many ranks a job has."""
LEAST_NODES = 60
"""Nodes of an operator that has quantiles of its own."""
_DIGITS = 2


def cost_columns(numbers: Mapping[str, np.ndarray], num_nodes: int) -> np.ndarray:
    """Return FLOPs, bytes and bytes of communication as int64 columns, 0 for absent."""
    absent_N = np.zeros(num_nodes)
    columns = [np.nan_to_num(numbers.get(name, absent_N), posinf=0) for name in _COSTS]
    return np.rint(np.clip(np.stack(columns, axis=1), 0, _LARGEST_COST / 2)).astype(np.int64)


def fit_durations(
    graphs: Sequence[AttributedGraph],
    needed: int,
    program_G: np.ndarray | None = None,
) -> Durations | None:
    """Return how long nodes of training jobs take; None where nothing is shared.

    ``needed`` programs must share everything; ``program_G`` is the number of the program of each
    job, all differ by default.
    """
    if not graphs or any("duration" not in graph.numbers for graph in graphs):
        return None
    program_G = all_distinct(graphs) if program_G is None else program_G
    graph_N = np.repeat(np.arange(len(graphs)), [graph.num_nodes for graph in graphs])
    program_N = program_G[graph_N]
    cost_NC = np.concatenate([cost_columns(graph.numbers, graph.num_nodes) for graph in graphs])
    duration_N = np.concatenate([graph.numbers["duration"] for graph in graphs])
    given_N = np.isfinite(duration_N) & (duration_N > 0)
    log_N = np.where(given_N, np.log(np.where(given_N, duration_N, 1.0)), np.nan)
    rank_G = np.array([_num_ranks(graph) for graph in graphs])
    row_N4 = np.column_stack([cost_NC, np.where(cost_NC[:, 2] > 0, rank_G[graph_N], 0)])
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
        {name: OperatorDurations(found, nothing) for name, found in points.items()}, nothing
    )
    usual_N = bare.usual(op_N.tolist(), row_N4)
    ends = np.cumsum([graph.num_nodes for graph in graphs])[:-1]
    speed_G = np.array([_median(beyond) for beyond in np.split(log_N - usual_N, ends)])
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
    told_G = np.isfinite(speed_G)
    factors = _duration_quantiles(speed_G[told_G], program_G[told_G], needed)
    return Durations(operators, factors)


def _num_ranks(graph: AttributedGraph) -> int:
    try:
        return max(int(float(graph.conditions.get(RANKS, 0))), 0)
    except (TypeError, ValueError, OverflowError):
        return 0


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


def _duration_quantiles(value_N: np.ndarray, graph_N: np.ndarray, needed: int) -> tuple[float, ...]:
    """Return quantiles of values moved to where ``needed`` jobs, or programs, reach."""
    if not value_N.size:
        return (0.0,) * len(LEVELS)
    low, high = shared_range(value_N, graph_N, needed)
    if low > high:
        return (round(float(np.median(value_N)), _DIGITS),) * len(LEVELS)
    moved_N = np.clip(value_N, low, high)
    return tuple(round(float(q), _DIGITS) for q in np.quantile(moved_N, LEVELS))


def _median(value_N: np.ndarray) -> float:
    known_N = value_N[np.isfinite(value_N)]
    return float(np.median(known_N)) if known_N.size else float("nan")
