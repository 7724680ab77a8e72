"""A histogram per graph, and distances between the pooled histograms of two sets of graphs.

Keeping counts by graph makes the bootstrap over graphs a matrix product: a resampled set is a row
of weights, its pooled histogram is ``weights_RB @ counts_BK``. A graph has few of all the values of
a set, so that the counts are a sparse matrix.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

_PAIR_BITS = 31
"""Two codes below 2**31 in one number: the first one's bits lie above those of the second."""
_LARGEST_TABLE = 1 << 22


@dataclass(frozen=True, eq=False)
class Histograms:
    """Counts of K values in each of B graphs.

    Attributes:
        support_K: The values, ascending and distinct; codes for unordered descriptors.
        counts_BK: float64 counts.
    """

    support_K: np.ndarray
    counts_BK: sparse.csr_array

    def pooled(self, weights_RB: np.ndarray | None = None) -> np.ndarray:
        """Return shares of each value over the whole set, shape (R, K); R = 1 without weights."""
        if weights_RB is None:
            weights_RB = np.ones((1, self.counts_BK.shape[0]))
        total_RK = weights_RB @ self.counts_BK
        return total_RK / np.maximum(total_RK.sum(axis=1, keepdims=True), 1e-300)

    def by_graph(self) -> np.ndarray:
        """Return the shares inside each graph, shape (B, K); a graph without items has zeros."""
        counts_BK = self.counts_BK.toarray()
        return counts_BK / np.maximum(counts_BK.sum(axis=1, keepdims=True), 1.0)


def aligned_histograms(
    values: list[np.ndarray], graphs: list[np.ndarray], sizes: list[int]
) -> list[Histograms]:
    """Return one Histograms for each set of graphs, all on the union of their values.

    Args:
        values: Item values of each set (degrees of nodes, spans of edges, ...).
        graphs: Graph of each item.
        sizes: Number of graphs of each set.
    """
    support_K, codes = distinct(values)
    return [
        Histograms(support_K, _counts(code, graph, size, support_K.size))
        for code, graph, size in zip(codes, graphs, sizes, strict=True)
    ]


def distinct(values: Sequence[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the distinct values of all arrays, ascending, and the place of each item among them.

    ``np.unique`` sorts all items; whole numbers that lie close together, and pairs of these, are
    found in a table instead, in the time that it takes to read them.
    """
    keys = _small_keys(values)
    if keys is None:
        support_K, place = np.unique(np.concatenate(values), return_inverse=True)
        return support_K, np.split(place.ravel(), np.cumsum([v.size for v in values])[:-1])
    occurs = np.zeros(1 + max(int(key.max()) for key in keys), dtype=bool)
    for key in keys:
        occurs[key] = True
    known = np.flatnonzero(occurs)
    place_of_key = np.zeros(occurs.size, dtype=np.int64)
    place_of_key[known] = np.arange(known.size)
    codes = [place_of_key[key] for key in keys]
    support_K = np.zeros(known.size, dtype=np.result_type(*values))
    for code, value in zip(codes, values, strict=True):
        support_K[code] = value
    return support_K, codes


def _small_keys(values: Sequence[np.ndarray]) -> list[np.ndarray] | None:
    """Return whole numbers from 0 that are in the order of the values; None if they get large."""
    if not all(np.issubdtype(value.dtype, np.integer) and value.size for value in values):
        return None
    low, high = min(int(v.min()) for v in values), max(int(v.max()) for v in values)
    if high - low < _LARGEST_TABLE:
        return [value - low for value in values]
    if low < 0:
        return None
    seconds = [value & ((1 << _PAIR_BITS) - 1) for value in values]
    width = 1 + max(int(second.max()) for second in seconds)
    if ((high >> _PAIR_BITS) + 1) * width > _LARGEST_TABLE:
        return None
    return [
        (value >> _PAIR_BITS) * width + second
        for value, second in zip(values, seconds, strict=True)
    ]


def _counts(code: np.ndarray, graph: np.ndarray, graphs: int, kinds: int) -> sparse.csr_array:
    """Return how often each value occurs in each graph."""
    if graphs * kinds <= code.size:
        counts = np.bincount(graph * kinds + code, minlength=graphs * kinds).astype(np.float64)
        return sparse.csr_array(counts.reshape(graphs, kinds))
    return sparse.coo_array((np.ones(code.size), (graph, code)), shape=(graphs, kinds)).tocsr()


def wasserstein_1(p_RK: np.ndarray, q_RK: np.ndarray, support_K: np.ndarray) -> np.ndarray:
    """Return the Wasserstein-1 distance of each row pair, in units of the support."""
    difference_RK = np.cumsum(p_RK - q_RK, axis=1)[:, :-1]
    gap_K = np.diff(support_K.astype(float))
    return np.abs(difference_RK) @ gap_K


def kolmogorov_smirnov(p_RK: np.ndarray, q_RK: np.ndarray, support_K: np.ndarray) -> np.ndarray:
    """Return the largest difference of the distribution functions of each row pair, in [0, 1]."""
    del support_K  # Only the order of the values matters.
    return np.abs(np.cumsum(p_RK - q_RK, axis=1)).max(axis=1, initial=0.0)


def total_variation(p_RK: np.ndarray, q_RK: np.ndarray, support_K: np.ndarray) -> np.ndarray:
    """Return half the L1 distance of each row pair, in [0, 1]; needs no order of the values."""
    del support_K  # The values are names only.
    return np.abs(p_RK - q_RK).sum(axis=1) / 2


def bootstrap_weights(rng: np.random.Generator, replicates: int, size: int) -> np.ndarray:
    """Return how often each of ``size`` graphs is drawn in each resample, shape (R, B)."""
    return rng.multinomial(size, np.full(size, 1 / size), size=replicates).astype(float)
