"""A histogram per graph, and distances between the pooled histograms of two sets of graphs.

Keeping counts by graph makes the bootstrap over graphs a matrix product: a resampled set is a row
of weights, its pooled histogram is ``weights_RB @ counts_BK``.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Histograms:
    """Counts of K values in each of B graphs.

    Attributes:
        support_K: The values, ascending and distinct; codes for unordered descriptors.
        counts_BK: float64 counts.
    """

    support_K: np.ndarray
    counts_BK: np.ndarray

    def pooled(self, weights_RB: np.ndarray | None = None) -> np.ndarray:
        """Return shares of each value over the whole set, shape (R, K); R = 1 without weights."""
        if weights_RB is None:
            weights_RB = np.ones((1, self.counts_BK.shape[0]))
        total_RK = weights_RB @ self.counts_BK
        return total_RK / np.maximum(total_RK.sum(axis=1, keepdims=True), 1e-300)

    def by_graph(self) -> np.ndarray:
        """Return the shares inside each graph, shape (B, K); a graph without items has zeros."""
        return self.counts_BK / np.maximum(self.counts_BK.sum(axis=1, keepdims=True), 1.0)


def aligned_histograms(
    values: list[np.ndarray], graphs: list[np.ndarray], sizes: list[int]
) -> list[Histograms]:
    """Return one Histograms for each set of graphs, all on the union of their values.

    Args:
        values: Item values of each set (degrees of nodes, spans of edges, ...).
        graphs: Graph of each item.
        sizes: Number of graphs of each set.
    """
    support_K, code = np.unique(np.concatenate(values), return_inverse=True)
    ends = np.cumsum([len(items) for items in values])[:-1]
    result = []
    for codes, graph, size in zip(np.split(code, ends), graphs, sizes, strict=True):
        flat = np.bincount(graph * support_K.size + codes, minlength=size * support_K.size)
        result.append(Histograms(support_K, flat.reshape(size, support_K.size).astype(float)))
    return result


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
