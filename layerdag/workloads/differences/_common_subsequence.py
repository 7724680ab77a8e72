"""A longest common subsequence of two integer sequences, by Myers' algorithm with numpy.

E. W. Myers, "An O(ND) Difference Algorithm and Its Variations", Algorithmica 1 (1986): all
diagonals of one distance are advanced at once, and how far a diagonal runs is found by comparing
hashes.
"""

import numpy as np

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
    """Return how many elements are equal from the start."""
    size = min(len(a), len(b))
    differs = np.flatnonzero(a[:size] != b[:size])
    return int(differs[0]) if differs.size else size


def _of_middles(a: np.ndarray, b: np.ndarray, most: int) -> tuple[np.ndarray, bool]:
    """Return the common subsequence of sequences that begin and end differently."""
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
    """Return the pairs inside the first halves and inside the second halves."""
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
    """Walk from the end to the start and return the pairs on the way."""
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
    """Return the pairs of a run of equal elements."""
    x = np.arange(start, stop)
    return np.stack([x, x - diagonal])


class _Prefixes:
    """Hashes of prefixes of two sequences, to see how long they agree from any two places."""

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
