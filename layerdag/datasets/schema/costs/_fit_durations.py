"""Durations from training jobs: nothing that fewer than ``needed`` of them show.

A usual duration is the median over nodes with the same costs, which several jobs have; where no
costs of an operator are shared, of those that are equal when rounded to powers of two. Quantiles of
factors end where several jobs reach. All are rounded.

Letters of shapes: N nodes, G jobs.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from layerdag.codec import AttributedGraph
from layerdag.codec.blocks import copies_of
from layerdag.datasets.schema.costs._durations import (
    LEVELS,
    Durations,
    OperatorDurations,
    Point,
    log_label_over_sum,
)

RANKS = "world_size"
"""Name of the condition that says how many ranks a job has."""
LEAST_NODES = 60
"""Nodes of an operator that has quantiles of its own."""
_DIGITS = 2


def fit_durations(
    graphs: Sequence[AttributedGraph], cost_NC: np.ndarray, label: str, needed: int
) -> Durations | None:
    """Return how long nodes take; None where nothing is shared.

    Args:
        graphs: Training graphs, jobs.
        cost_NC: FLOPs, bytes, bytes of communication of all of their nodes, 0 for absent.
        label: Name of the condition that is the step time.
        needed: Jobs that must stand behind everything.
    """
    if not graphs or any("duration" not in graph.numbers for graph in graphs):
        return None
    graph_N = np.repeat(np.arange(len(graphs)), [graph.num_nodes for graph in graphs])
    log_N = _logs(np.concatenate([graph.numbers["duration"] for graph in graphs]))
    row_N4 = np.column_stack([cost_NC, _ranks(graphs, cost_NC, graph_N)])
    op_N = np.concatenate([graph.categories["op"] for graph in graphs])
    told_N = np.isfinite(log_N)
    points = {
        str(name): found
        for name in np.unique(op_N[told_N])
        if (mine := told_N & (op_N == name)).any()
        and (found := _points(row_N4[mine], log_N[mine], graph_N[mine], needed))
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
        log_label_over_sum(usual_N[job] + weight, graph.conditions.get(label))
        for job, weight, graph in zip(jobs, weights, graphs, strict=True)
    ]
    over_G = np.array([np.nan if one is None else one for one in over])
    per_label, middle, left_G = _line(over_G, speed_G, needed)
    beyond_N = log_N - usual_N - np.nan_to_num(speed_G)[graph_N]
    known_N = np.isfinite(beyond_N)
    common = _quantiles(beyond_N[known_N], graph_N[known_N], needed)
    operators = {}
    for name, found in points.items():
        mine_N = known_N & (op_N == name)
        own = mine_N.sum() >= LEAST_NODES
        factors = _quantiles(beyond_N[mine_N], graph_N[mine_N], needed) if own else common
        operators[name] = OperatorDurations(found, factors)
    told_G = np.isfinite(left_G)
    factors = _quantiles(left_G[told_G], np.flatnonzero(told_G), needed)
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
    """Return the first node of each graph and the one after its last."""
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
    """Return the usual durations of one operator's costs that several jobs share."""
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
    """Return the median of each distinct row that enough jobs have."""
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


def _line(over_G: np.ndarray, speed_G: np.ndarray, needed: int) -> tuple[float, float, np.ndarray]:
    """Return slope and median of how speeds go with labels, and what it leaves of the speeds."""
    told_G = np.isfinite(over_G) & np.isfinite(speed_G)
    if told_G.sum() < max(LEAST_NODES, needed) or not np.ptp(over_G[told_G]) > 0:
        return 0.0, 0.0, speed_G
    middle = round(float(np.median(over_G[told_G])), _DIGITS)
    slope = round(float(np.polyfit(over_G[told_G], speed_G[told_G], 1)[0]), _DIGITS)
    return slope, middle, speed_G - slope * np.where(told_G, over_G - middle, 0.0)


def _quantiles(value_N: np.ndarray, graph_N: np.ndarray, needed: int) -> tuple[float, ...]:
    """Return quantiles of values moved to where ``needed`` jobs reach."""
    if not value_N.size:
        return (0.0,) * len(LEVELS)
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
