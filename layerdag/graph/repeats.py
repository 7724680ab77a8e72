"""Repeated blocks of a program: runs of equal colors along the order of its nodes.

A layer that occurs n times is a run of n equal blocks in the forward pass and another one in the
backward pass, in which block i belongs to block n + 1 - i of the first. `Blocks` holds one copy of
each block and every edge as a pattern: from a place in one block to a place in another, so many
copies deeper, for a range of copies. Unrolled with the same count, it gives the same graph; with
another count, a graph of so many layers.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

_MOST_PERIODS = 16  # of one lag
_MOST_LAGS = 16  # nodes of one color in a block


@dataclass(frozen=True)
class Run:
    """Equal blocks one after the other.

    Attributes:
        start: First node.
        period: Nodes of a block.
        count: Number of blocks.
    """

    start: int
    period: int
    count: int

    @property
    def stop(self) -> int:
        """One past the last node."""
        return self.start + self.period * self.count


def repeated_runs(color_N: np.ndarray) -> tuple[Run, ...]:
    """Return the outermost runs of a sequence, the longest first where they overlap.

    Args:
        color_N: A color per node, in program order; equal for nodes that may be copies.

    Returns:
        Runs of at least two blocks in order, which do not overlap.
    """
    found: list[Run] = []
    todo = [(0, len(color_N))]
    while todo:
        low, high = todo.pop()
        run = _longest(color_N[low:high])
        if run is not None:
            run = Run(low + run.start, run.period, run.count)
            found.append(run)
            todo += [(low, run.start), (run.stop, high)]
    return tuple(sorted(found, key=lambda run: run.start))


def nested_runs(color_N: np.ndarray) -> tuple[Run, ...]:
    """Return the runs of all levels: those inside a block occur once for each of its copies."""
    found: list[Run] = []
    todo = [(0, color_N)]
    while todo:
        start, colors = todo.pop()
        for run in repeated_runs(colors):
            found.append(Run(start + run.start, run.period, run.count))
            block = colors[run.start : run.start + run.period]
            todo += [(start + run.start + c * run.period, block) for c in range(run.count)]
    return tuple(sorted(found, key=lambda run: (run.start, -run.stop)))


def _longest(color_N: np.ndarray) -> Run | None:
    best: Run | None = None
    for period in _periods(color_N):
        same = np.concatenate(([False], color_N[:-period] == color_N[period:], [False]))
        edges = np.flatnonzero(same[1:] != same[:-1])
        if not edges.size:
            continue
        starts, lengths = edges[::2], edges[1::2] - edges[::2]
        at = int(np.argmax(lengths))
        count = int(lengths[at]) // period + 1
        run = Run(int(starts[at]), period, count)
        if count > 1 and (best is None or run.stop - run.start > best.stop - best.start):
            best = run
    return best


def _periods(color_N: np.ndarray) -> list[int]:
    """Return frequent distances between nodes of one color, rising.

    A color may occur several times in a block, so that not only neighbors count.
    """
    order_N = np.argsort(color_N, kind="stable")
    found: set[int] = set()
    for lag in range(1, min(_MOST_LAGS, len(color_N) - 1) + 1):
        same_N = color_N[order_N][lag:] == color_N[order_N][:-lag]
        gap_N = (order_N[lag:] - order_N[:-lag])[same_N]
        values, counts = np.unique(gap_N, return_counts=True)
        found.update(values[np.argsort(-counts * values, kind="stable")[:_MOST_PERIODS]].tolist())
    return sorted(period for period in found if 2 * period <= len(color_N))


@dataclass(frozen=True)
class BlockNode:
    """A node of a block, or a node outside all blocks.

    Attributes:
        run: Number of the run, -1 outside.
        at: Node of the block; outside, the node.
    """

    run: int
    at: int


@dataclass(frozen=True)
class Pattern:
    """Edges of one kind between two places.

    Attributes:
        source: Where they come from.
        target: Where they go.
        kind: Type of edge.
        deeper: Copies by which the target lies deeper than the source; 0 if one is outside.
        ranges: Depths for which there is an edge, first and one past the last: that of the target,
            or of the source if the target is outside.
    """

    source: BlockNode
    target: BlockNode
    kind: int
    deeper: int
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Unrolled:
    """A graph made from blocks.

    Attributes:
        row_N: The node of the folded graph that each node is a copy of.
        depth_N: Depth of each node's copy, -1 outside.
        edge_index_2E: int64 source and target, sorted by target and source.
        edge_type_E: Kind of each edge.
    """

    row_N: np.ndarray
    depth_N: np.ndarray
    edge_index_2E: np.ndarray
    edge_type_E: np.ndarray


@final
@dataclass(frozen=True)
class RepeatedProgram:
    """A graph as blocks that repeat together.

    Attributes:
        num_nodes: Nodes of the graph that was folded.
        runs: Runs in order; one may have fewer blocks than others, where its ends look different.
        backward: Which runs have the deepest copy first.
        count: Most copies that a run has.
        patterns: All edges.
    """

    num_nodes: int
    runs: tuple[Run, ...]
    backward: tuple[bool, ...]
    count: int
    patterns: tuple[Pattern, ...]

    @classmethod
    def fold(
        cls,
        num_nodes: int,
        edges: tuple[np.ndarray, np.ndarray],
        runs: Sequence[Run],
        backward: Sequence[bool],
    ) -> "RepeatedProgram":
        """Fold a graph.

        Args:
            num_nodes: Nodes.
            edges: Source and target, int64 (2, E), and kind of each edge.
            runs: Runs in order, not overlapping.
            backward: Which runs have the deepest copy first.
        """
        count = max(run.count for run in runs)
        position_N, depth_N = _places(num_nodes, runs, backward)
        depths: dict[tuple[BlockNode, BlockNode, int, int], list[int]] = defaultdict(list)
        edges_2E, kind_E = edges
        for source, target, kind in zip(*edges_2E.tolist(), kind_E.tolist(), strict=True):
            inside = position_N[source].run >= 0 and position_N[target].run >= 0
            deeper = depth_N[target] - depth_N[source] if inside else 0
            depth = depth_N[target] if position_N[target].run >= 0 else depth_N[source]
            depths[position_N[source], position_N[target], kind, deeper].append(depth)
        patterns = tuple(Pattern(*key, _ranges(found)) for key, found in depths.items())
        return cls(num_nodes, tuple(runs), tuple(backward), count, patterns)

    def unrolled(self, count: int | None = None) -> Unrolled:
        """Return the graph with so many copies of each block, by default as it was.

        Runs of fewer blocks grow by as many.
        """
        count = self.count if count is None else count
        row_N, depth_N = self._rows(count)
        at = self._positions(row_N, depth_N)
        edges = sorted({
            (target, source, pattern.kind)
            for pattern in self.patterns
            for source, target in self._edges(pattern, count, at)
        })  # fmt: skip
        table_E3 = np.array(edges, dtype=np.int64).reshape(-1, 3)
        return Unrolled(row_N, depth_N, table_E3[:, [1, 0]].T.copy(), table_E3[:, 2].copy())

    def _rows(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        rows, depths, after = [], [], 0
        for run, back in zip(self.runs, self.backward, strict=True):
            depth_C = np.arange(max(run.count + count - self.count, 0))
            origin_C = _origin(depth_C, run.count)
            order_C = depth_C[::-1] if back else depth_C
            copy_C = run.count - 1 - origin_C[order_C] if back else origin_C[order_C]
            block = run.start + copy_C[:, None] * run.period + np.arange(run.period)
            rows += [np.arange(after, run.start), block.reshape(-1)]
            depths += [np.full(run.start - after, -1), np.repeat(order_C, run.period)]
            after = run.stop
        rows.append(np.arange(after, self.num_nodes))
        depths.append(np.full(self.num_nodes - after, -1))
        return np.concatenate(rows), np.concatenate(depths)

    def _positions(
        self, row_N: np.ndarray, depth_N: np.ndarray
    ) -> dict[tuple[BlockNode, int], int]:
        position_N, _ = _places(self.num_nodes, self.runs, self.backward)
        pairs = zip(row_N.tolist(), depth_N.tolist(), strict=True)
        return {(position_N[row], depth): at for at, (row, depth) in enumerate(pairs)}

    def _edges(
        self, pattern: Pattern, count: int, at: dict[tuple[BlockNode, int], int]
    ) -> Iterator[tuple[int, int]]:
        inner, outer = pattern.source.run >= 0, pattern.target.run >= 0
        for depth in self._depths(pattern, count):
            source = (pattern.source, depth - pattern.deeper if inner else -1)
            target = (pattern.target, depth if outer else -1)
            if source in at and target in at:
                yield at[source], at[target]

    def _depths(self, pattern: Pattern, count: int) -> Iterator[int]:
        """Yield the depths of a pattern among ``count`` copies.

        What holds wherever it can holds so again; else each end stays as far from the first or
        the last copy, whichever is nearer.
        """
        if pattern.source.run < 0 and pattern.target.run < 0:
            yield -1
            return
        low, high = max(0, pattern.deeper), min(0, pattern.deeper)
        if pattern.ranges == ((low, self.count + high),):
            yield from range(low, count + high)
            return
        for start, stop in pattern.ranges:
            first = start if 2 * start < self.count else count - (self.count - start)
            last = stop if 2 * stop <= self.count else count - (self.count - stop)
            yield from range(max(first, 0), min(last, count))


def _origin(depth_C: np.ndarray, before: int) -> np.ndarray:
    count = len(depth_C)
    first = min((before + 1) // 2, (count + 1) // 2)
    last_C = depth_C + before - count
    of_end_C = depth_C >= count - (before - first)
    return np.where(depth_C < first, depth_C, np.where(of_end_C, last_C, first - 1))


def _places(
    num_nodes: int, runs: Sequence[Run], backward: Sequence[bool]
) -> tuple[list[BlockNode], list[int]]:
    nodes = [BlockNode(-1, row) for row in range(num_nodes)]
    depths = [-1] * num_nodes
    for number, (run, back) in enumerate(zip(runs, backward, strict=True)):
        for copy in range(run.count):
            for at in range(run.period):
                row = run.start + copy * run.period + at
                nodes[row] = BlockNode(number, at)
                depths[row] = run.count - 1 - copy if back else copy
    return nodes, depths


def _ranges(depths: list[int]) -> tuple[tuple[int, int], ...]:
    ordered = np.unique(np.array(depths))
    cuts = np.flatnonzero(np.diff(ordered) > 1) + 1
    return tuple((int(part[0]), int(part[-1]) + 1) for part in np.split(ordered, cuts))
