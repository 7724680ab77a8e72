"""Repeated blocks of a program: runs of equal colors along the order of its nodes."""

from dataclasses import dataclass

import numpy as np

_MAX_PERIODS = 16  # of one lag
_MAX_LAGS = 16  # nodes of one color in a block


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
    for lag in range(1, min(_MAX_LAGS, len(color_N) - 1) + 1):
        same_N = color_N[order_N][lag:] == color_N[order_N][:-lag]
        gap_N = (order_N[lag:] - order_N[:-lag])[same_N]
        values, counts = np.unique(gap_N, return_counts=True)
        found.update(values[np.argsort(-counts * values, kind="stable")[:_MAX_PERIODS]].tolist())
    return sorted(period for period in found if 2 * period <= len(color_N))
