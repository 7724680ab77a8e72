"""Programs as sequences of operators, and which node of one is which node of the other.

Nodes whose neighborhood occurs once in each program are anchors (patience diff). Between two
anchors Myers' algorithm finds a longest common subsequence of operators. What is left on both
sides with the same neighborhood has moved.

E. W. Myers, "An O(ND) Difference Algorithm and Its Variations", Algorithmica 1 (1986): all
diagonals of one distance are advanced at once, and how far a diagonal runs is found by comparing
hashes.
"""

import bisect
import re
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from layerdag.codec.folding import rank_classes
from layerdag.errors import TraceError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.graph.formats.program_json import CALL, SIZES, call_text, is_program
from layerdag.graph.topology import longest_path_layers, neighborhood_colors
from layerdag.traces.analysis import collective_name, program_order
from layerdag.traces.trace import (
    NodeType,
    Trace,
    Workload,
    communicates,
    dependency_edges,
    trace_layers,
)

MOST_EDITS, LEAST_EDITS = 2_000, 200
"""Elements without a partner beyond which halves are compared with halves, of which fewer each."""

_NOWHERE = -(1 << 30)
_BASE = np.uint64(0x9E3779B97F4A7C15)


def common_subsequence(
    a: np.ndarray, b: np.ndarray, most: int = MOST_EDITS
) -> tuple[np.ndarray, bool]:
    """Return (place in ``a`` and place in ``b`` of each common element, rising; exact).

    Sequences that differ in more than ``most`` elements are compared half by half, which gives
    a common subsequence but perhaps not a longest one; then ``exact`` is False.
    """
    head = _equal_start(a, b)
    tail = _equal_start(a[head:][::-1], b[head:][::-1])
    mid_a, mid_b = a[head : len(a) - tail], b[head : len(b) - tail]
    inner_2P, exact = _of_middles(mid_a, mid_b, most)
    ends = np.arange(tail)
    return np.concatenate(
        [
            np.stack([np.arange(head)] * 2),
            inner_2P + head,
            np.stack([len(a) - tail + ends, len(b) - tail + ends]),
        ],
        axis=1,
    ), exact


def _equal_start(a: np.ndarray, b: np.ndarray) -> int:
    size = min(len(a), len(b))
    differs = np.flatnonzero(a[:size] != b[:size])
    return int(differs[0]) if differs.size else size


def _of_middles(a: np.ndarray, b: np.ndarray, most: int) -> tuple[np.ndarray, bool]:
    if not a.size or not b.size:
        return np.zeros((2, 0), np.int64), True
    # Elements of only one side can be in no pair: without them there is less to search.
    keep_a, keep_b = np.flatnonzero(np.isin(a, b)), np.flatnonzero(np.isin(b, a))
    found_2P = _myers(a[keep_a], b[keep_b], most)
    exact = found_2P is not None
    if found_2P is None:
        found_2P = _of_halves(a[keep_a], b[keep_b], max(most // 2, LEAST_EDITS))
    return np.stack([keep_a[found_2P[0]], keep_b[found_2P[1]]]), exact


def _of_halves(a: np.ndarray, b: np.ndarray, most: int) -> np.ndarray:
    half_a, half_b = len(a) // 2, len(b) // 2
    first_2P, _ = common_subsequence(a[:half_a], b[:half_b], most)
    second_2P, _ = common_subsequence(a[half_a:], b[half_b:], most)
    return np.concatenate([first_2P, second_2P + np.array([[half_a], [half_b]])], axis=1)


def _myers(a: np.ndarray, b: np.ndarray, most: int) -> np.ndarray | None:
    """Return the pairs, None if more than ``most`` elements have no partner.

    Place i in the row of distance d is the diagonal x - y = 2 i - d, and holds the largest x that
    can be reached on it; history has the rows of all distances.
    """
    n, m = len(a), len(b)
    prefixes = _Prefixes(a, b)
    zero_1 = np.zeros(1, np.int64)
    history = [prefixes.runs(zero_1, zero_1)]
    for edits in range(min(most, n + m) + 1):
        reach_K = history[-1]
        at = (n - m + edits) // 2
        if (n - m + edits) % 2 == 0 and 0 <= at < len(reach_K) and reach_K[at] == n:
            return _back(history, n, m)
        diagonal_K = np.arange(-edits - 1, edits + 2, 2)
        x_K = np.maximum(*_steps(reach_K, diagonal_K, n, m))
        inside = x_K >= 0
        start_K = np.where(inside, x_K, n)
        runs_K = prefixes.runs(start_K, np.where(inside, x_K - diagonal_K, m))
        history.append((x_K + runs_K).astype(np.int32))
    return None


def _steps(
    reach_K: np.ndarray, diagonal_K: np.ndarray, n: int, m: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return where the next row begins: after an element of ``b``, and after one of ``a``."""
    down_K = np.append(reach_K, _NOWHERE)
    right_K = np.insert(reach_K + 1, 0, _NOWHERE)
    down_K = np.where((down_K < 0) | (down_K - diagonal_K > m), _NOWHERE, down_K)
    right_K = np.where((right_K <= 0) | (right_K > n), _NOWHERE, right_K)
    return down_K, right_K


def _back(history: list[np.ndarray], n: int, m: int) -> np.ndarray:
    x, y = n, m
    pieces: list[np.ndarray] = []
    for edits in range(len(history) - 1, 0, -1):
        diagonal_K = np.arange(-edits, edits + 1, 2)
        at = (x - y + edits) // 2
        down, right = (int(s[at]) for s in _steps(history[edits - 1], diagonal_K, n, m))
        start = max(down, right)
        pieces.append(_run(start, x, x - y))
        x, y = (start, start - (x - y) - 1) if down >= right else (start - 1, start - (x - y))
    pieces.append(_run(0, x, 0))
    return np.concatenate(pieces[::-1], axis=1)


def _run(start: int, stop: int, diagonal: int) -> np.ndarray:
    x = np.arange(start, stop)
    return np.stack([x, x - diagonal])


class _Prefixes:
    def __init__(self, a: np.ndarray, b: np.ndarray) -> None:
        with np.errstate(over="ignore"):
            power = np.cumprod(np.full(max(len(a), len(b)) + 1, _BASE | np.uint64(1)))
            self._power = np.concatenate([np.ones(1, np.uint64), power])
            self._a, self._b = (self._prefix(x) for x in (a, b))
        self._sizes = len(a), len(b)

    def _prefix(self, x: np.ndarray) -> np.ndarray:
        word = (x.astype(np.uint64) + np.uint64(1)) * _BASE
        word ^= word >> np.uint64(29)
        return np.concatenate([np.zeros(1, np.uint64), np.cumsum(word * self._power[: len(x)])])

    def runs(self, x_K: np.ndarray, y_K: np.ndarray) -> np.ndarray:
        """Return how many elements are equal from each pair of places on."""
        n, m = self._sizes
        low_K, high_K = np.zeros(len(x_K), np.int64), np.minimum(n - x_K, m - y_K)
        step_K = np.ones(len(x_K), np.int64)  # doubled while it fits: most runs are short
        while (low_K < high_K).any():
            mid_K = np.minimum(low_K + step_K, high_K)
            with np.errstate(over="ignore"):
                sum_a = (self._a[x_K + mid_K] - self._a[x_K]) * self._power[y_K]
                sum_b = (self._b[y_K + mid_K] - self._b[y_K]) * self._power[x_K]
            equal = sum_a == sum_b
            low_K, high_K = np.where(equal, mid_K, low_K), np.where(equal, high_K, mid_K - 1)
            step_K = np.where(equal, 2 * step_K, np.maximum(step_K // 2, 1))
        return low_K


@dataclass(frozen=True, eq=False)
class Alignment:
    """Pairs of nodes, by their places in program order.

    Attributes:
        in_order_2P: int64, place in A and place in B, both rising.
        moved_2M: int64, pairs with equal neighborhoods at another place of the program.
        only_a: int64, places of A without a partner.
        only_b: int64, places of B without a partner.
        exact: False where a stretch was too different for the longest common subsequence.
    """

    in_order_2P: np.ndarray
    moved_2M: np.ndarray
    only_a: np.ndarray
    only_b: np.ndarray
    exact: bool = True

    @property
    def pairs_2P(self) -> np.ndarray:
        """All pairs."""
        return np.concatenate([self.in_order_2P, self.moved_2M], axis=1)


def align(
    label_a: np.ndarray, label_b: np.ndarray, color_a: np.ndarray, color_b: np.ndarray
) -> Alignment:
    """Align two programs.

    Args:
        label_a: An integer per node of A in program order; only nodes of one label are paired.
        label_b: The same of B, with the same meaning.
        color_a: What the neighborhood of each node of A looks like; equal colors, equal labels.
        color_b: The same of B.
    """
    pairs: list[np.ndarray] = []
    exact = True
    for low_a, high_a, low_b, high_b in _stretches(_anchors(color_a, color_b), label_a, label_b):
        found_2P, fine = common_subsequence(label_a[low_a:high_a], label_b[low_b:high_b])
        pairs.append(found_2P + np.array([[low_a], [low_b]]))
        exact = exact and fine
    in_order_2P = np.concatenate([np.zeros((2, 0), np.int64), *pairs], axis=1)
    only_a = np.setdiff1d(np.arange(len(label_a)), in_order_2P[0])
    only_b = np.setdiff1d(np.arange(len(label_b)), in_order_2P[1])
    moved_2M = _moved(only_a, only_b, color_a, color_b)
    return Alignment(
        in_order_2P,
        moved_2M,
        np.setdiff1d(only_a, moved_2M[0]),
        np.setdiff1d(only_b, moved_2M[1]),
        exact,
    )


def _anchors(color_a: np.ndarray, color_b: np.ndarray) -> list[tuple[int, int]]:
    once_a, once_b = (
        np.sort(first[count == 1])
        for _, first, count in (
            np.unique(color, return_index=True, return_counts=True) for color in (color_a, color_b)
        )
    )
    common = np.intersect1d(color_a[once_a], color_b[once_b])
    at_a = once_a[np.isin(color_a[once_a], common)]
    at_b = once_b[np.isin(color_b[once_b], common)]
    order_b = at_b[np.argsort(color_b[at_b])]
    row = np.searchsorted(common, color_a[at_a])
    return _rising(list(zip(at_a.tolist(), order_b[row].tolist(), strict=True)))


def _rising(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    tops: list[int] = []
    top_of: list[int] = []
    before: list[int] = []
    for at, (_, second) in enumerate(pairs):
        pile = bisect.bisect_left(tops, second)
        before.append(top_of[pile - 1] if pile else -1)
        tops[pile : pile + 1] = [second]
        top_of[pile : pile + 1] = [at]
    found = []
    at = top_of[-1] if top_of else -1
    while at >= 0:
        found.append(pairs[at])
        at = before[at]
    return found[::-1]


def _stretches(
    anchors: list[tuple[int, int]], label_a: np.ndarray, label_b: np.ndarray
) -> Iterator[tuple[int, int, int, int]]:
    ends = [*anchors, (len(label_a), len(label_b))]
    if not anchors or anchors[0] != (0, 0):
        ends = [(0, 0), *ends]
    for (low_a, low_b), (high_a, high_b) in pairwise(ends):
        yield low_a, high_a, low_b, high_b


def _moved(
    only_a: np.ndarray, only_b: np.ndarray, color_a: np.ndarray, color_b: np.ndarray
) -> np.ndarray:
    waiting: dict[int, list[int]] = defaultdict(list)
    for row, color in zip(only_b[::-1].tolist(), color_b[only_b[::-1]].tolist(), strict=True):
        waiting[color].append(row)
    pairs = [
        (row, waiting[color].pop())
        for row, color in zip(only_a.tolist(), color_a[only_a].tolist(), strict=True)
        if waiting.get(color)
    ]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T


# Numbers of copies: layer 3 of "mm.3", "L3", "layer3"; micro-batch 0 of "F0"; call 12 of "mm#12".
_COPY_NUMBER = re.compile(r"(?<![^\W_])([A-Za-z]|layer|block|stage)?\d+(?![^\W_])")
_RADIUS = 8
_COLUMNS = {"flops": "num_ops", "tensor_bytes": "tensor_size", "comm_bytes": "comm_size"}


@dataclass(frozen=True, eq=False)
class OperatorSequence:
    """A sequence of operators.

    Attributes:
        name: Which ranks, or which graph.
        operators: What each node does, in program order.
        is_communication_N: Which nodes are sends, receives or collectives.
        columns: Numeric attributes of each node, float64, NaN for absent.
        edges_2E: Dependencies as places in program order, int64.
        kind_E: Kind of each dependency.
    """

    name: str
    operators: Sequence[str]
    is_communication_N: np.ndarray
    columns: Mapping[str, np.ndarray]
    edges_2E: np.ndarray
    kind_E: np.ndarray

    @property
    def num_nodes(self) -> int:
        """Number of nodes (N)."""
        return len(self.operators)

    @cached_property
    def layer_N(self) -> np.ndarray:
        """Longest-path layer of each node."""
        return longest_path_layers(self.num_nodes, self.edges_2E)

    @classmethod
    def empty(cls, like: "OperatorSequence") -> "OperatorSequence":
        """Return a program without nodes, with the columns of another."""
        nothing = np.zeros(0)
        columns = dict.fromkeys(like.columns, nothing)
        edges_2E = np.zeros((2, 0), np.int64)
        return cls(like.name, (), nothing.astype(bool), columns, edges_2E, np.zeros(0, np.int64))


@dataclass(frozen=True, eq=False)
class RankKind:
    """Ranks that run one program."""

    program: OperatorSequence
    ranks: tuple[int, ...]


def kinds_of_ranks(workload: Workload) -> list[RankKind]:
    """Return the program of each kind of rank.

    Raises:
        TraceError: If a trace's dependencies are faulty.
    """
    try:
        classes = [(one.trace, one.ranks) for one in rank_classes(workload)]
    except TraceError:  # one rank of a job has no groups and no partners: take ranks as they are
        same: dict[int, list[int]] = {}
        for rank, trace in enumerate(workload.traces):
            same.setdefault(id(trace), []).append(rank)
        classes = [(workload.traces[ranks[0]], tuple(ranks)) for ranks in same.values()]
    return [RankKind(_program_of(trace), ranks) for trace, ranks in classes]


def _program_of(trace: Trace) -> OperatorSequence:
    order_N = program_order(trace)
    position_N = np.empty_like(order_N)
    position_N[order_N] = np.arange(order_N.size)
    edges_2E, kind_E = dependency_edges(trace)
    trace_layers(trace, edges_2E)  # refuses cycles by the ids of their nodes
    names = [_COPY_NUMBER.sub(r"\1#", name) for name in trace.names()]
    kind_N = trace.integers("comm_type", -1)[0]
    for row in np.flatnonzero(trace.type_N == NodeType.COMM_COLL).tolist():
        names[row] = f"{names[row]} [{collective_name(int(kind_N[row]))}]"
    columns = {"duration_us": trace.duration_us_N.astype(np.float64)}
    for name, attribute in _COLUMNS.items():
        value_N, present_N = trace.integers(attribute)
        columns[name] = np.where(present_N, value_N, np.nan).astype(np.float64)
    return OperatorSequence(
        trace.source,
        [names[row] for row in order_N.tolist()],
        communicates(trace.type_N[order_N]),
        {name: value_N[order_N] for name, value_N in columns.items()},
        position_N[edges_2E],
        kind_E.astype(np.int64),
    )


def program_of_graph(graph: AttributedGraph, edge_types: Sequence[str]) -> OperatorSequence:
    """Return the program of a graph: its nodes by layer, inside a layer by their neighborhoods.

    A graph with its nodes in another order is then the same program, except where the neighborhoods
    of two nodes look the same.

    Args:
        graph: The graph.
        edge_types: Names of edge types; their places become the kinds of edges.
    """
    columns = list(graph.categories.values())
    if is_program(graph):
        calls = zip(graph.categories[CALL], graph.categories[SIZES], strict=True)
        others = [graph.categories[name] for name in graph.categories if name not in (CALL, SIZES)]
        columns = [[call_text(call, sizes) for call, sizes in calls], *others]
    labels = [", ".join(row) for row in zip(*columns, strict=True)] if columns else []
    labels = labels or ["node"] * graph.num_nodes
    label_N = np.array([zlib.crc32(label.encode()) for label in labels], dtype=np.int64)
    color_N = neighborhood_colors(label_N, graph.edge_index_2E, _RADIUS)[-1]
    order_N = np.lexsort((color_N, graph.layer_N))
    position_N = np.empty_like(order_N)
    position_N[order_N] = np.arange(order_N.size)
    table = np.array([edge_types.index(name) for name in graph.edge_type_names], dtype=np.int64)
    return OperatorSequence(
        graph.name,
        [labels[row] for row in order_N.tolist()],
        np.zeros(graph.num_nodes, dtype=bool),
        {name: value_N[order_N].astype(np.float64) for name, value_N in graph.numbers.items()},
        position_N[graph.edge_index_2E],
        table[graph.edge_type_E] if graph.edge_type_E.size else graph.edge_type_E,
    )
