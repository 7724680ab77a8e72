"""Aligning two programs: which node of one is which node of the other.

Nodes whose neighborhood occurs once in each program are anchors (patience diff). Between two
anchors Myers' algorithm finds a longest common subsequence of operators. What is left on both
sides with the same neighborhood has moved.
"""

import bisect
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from layerdag.workloads.differences._common_subsequence import common_subsequence


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
    """Return the longest rising sequence of pairs of nodes whose colors are unique in A and B."""
    once_a, once_b = (_positions_of_unique(color) for color in (color_a, color_b))
    common = np.intersect1d(color_a[once_a], color_b[once_b])
    at_a = once_a[np.isin(color_a[once_a], common)]
    at_b = once_b[np.isin(color_b[once_b], common)]
    order_b = at_b[np.argsort(color_b[at_b])]
    row = np.searchsorted(common, color_a[at_a])
    return _rising(list(zip(at_a.tolist(), order_b[row].tolist(), strict=True)))


def _positions_of_unique(color_N: np.ndarray) -> np.ndarray:
    """Return the places of colors that occur once, rising."""
    _, first, count = np.unique(color_N, return_index=True, return_counts=True)
    return np.sort(first[count == 1])


def _rising(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return a longest subsequence of pairs (first ends rising) whose second ends rise, too."""
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
    """Yield the stretches that begin with each anchor, as bounds in A and in B."""
    ends = [*anchors, (len(label_a), len(label_b))]
    if not anchors or anchors[0] != (0, 0):
        ends = [(0, 0), *ends]
    for (low_a, low_b), (high_a, high_b) in pairwise(ends):
        yield low_a, high_a, low_b, high_b


def _moved(
    only_a: np.ndarray, only_b: np.ndarray, color_a: np.ndarray, color_b: np.ndarray
) -> np.ndarray:
    """Pair what is left on both sides with the same color, in order."""
    waiting: dict[int, list[int]] = defaultdict(list)
    for row, color in zip(only_b[::-1].tolist(), color_b[only_b[::-1]].tolist(), strict=True):
        waiting[color].append(row)
    pairs = [
        (row, waiting[color].pop())
        for row, color in zip(only_a.tolist(), color_a[only_a].tolist(), strict=True)
        if waiting.get(color)
    ]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T
