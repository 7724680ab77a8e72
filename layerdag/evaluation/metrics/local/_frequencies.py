"""Frequencies of very many kinds (paths, type hashes), pooled over the graphs of a set.

``Histograms`` keeps a dense matrix of graphs and kinds. Here most kinds occur in few graphs, so the
counts are sparse, and kinds are weighed a block at a time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from layerdag.errors import DataError
from layerdag.evaluation.metrics import Comparison, Items

_KINDS_AT_ONCE = 2048


@dataclass(frozen=True, eq=False)
class FrequencyDistances:
    """Distances of two pooled sets for each row of weights.

    Attributes:
        total_variation_R: Half the summed absolute differences of the frequencies, in [0, 1].
        rmse_R: Root of the mean squared difference of the frequencies over the kinds that occur.
    """

    total_variation_R: np.ndarray
    rmse_R: np.ndarray


def frequency_distances(
    items: Sequence[Items], comparison: Comparison
) -> tuple[FrequencyDistances, FrequencyDistances]:
    """Return the distances of generated and of training graphs from the test graphs.

    Args:
        items: Kinds that occur in training, test and generated graphs, once for each time.
        comparison: The graphs, with the weights of their bootstrap.

    Raises:
        DataError: If a set has no items.
    """
    for name, part in zip(("training", "test", "generated"), items, strict=True):
        if not part.value.size:
            raise DataError(f"The {name} graphs have nothing to count here (no nodes or edges).")
    kinds, code = np.unique(np.concatenate([part.value for part in items]), return_inverse=True)
    ends = np.cumsum([part.value.size for part in items])[:-1]
    pooled = [
        _Pooled(_counts(codes, part.graph, graphs.num_graphs, kinds.size), weights_RB)
        for codes, part, graphs, weights_RB in zip(
            np.split(code.ravel(), ends), items, comparison.sets, comparison.weights, strict=True
        )
    ]
    return _between(pooled[2], pooled[1]), _between(pooled[0], pooled[1])


@dataclass(frozen=True, eq=False)
class _Pooled:
    """Counts (B, K) of the kinds in the graphs of a set, and weights (R, B) of these."""

    counts_BK: sparse.csc_array
    weights_RB: np.ndarray

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield the frequencies of some kinds after others, each block of shape (K', R)."""
        total_R = np.maximum(self.weights_RB @ self.counts_BK.sum(axis=1), 1e-300)
        for first in range(0, self.counts_BK.shape[1], _KINDS_AT_ONCE):
            counts_BK = self.counts_BK[:, first : first + _KINDS_AT_ONCE]
            yield counts_BK.T @ self.weights_RB.T / total_R


def _counts(code: np.ndarray, graph: np.ndarray, graphs: int, kinds: int) -> sparse.csc_array:
    """Return how often each kind occurs in each graph."""
    ones = np.ones(code.size)
    return sparse.coo_array((ones, (graph, code)), shape=(graphs, kinds)).tocsc()


def _between(first: _Pooled, second: _Pooled) -> FrequencyDistances:
    """Return the distances of two sets."""
    absolute_R, square_R, kinds_R = np.zeros((3, len(first.weights_RB)))
    for p_KR, q_KR in zip(first.blocks(), second.blocks(), strict=True):
        absolute_R += np.abs(p_KR - q_KR).sum(axis=0)
        square_R += ((p_KR - q_KR) ** 2).sum(axis=0)
        kinds_R += ((p_KR > 0) | (q_KR > 0)).sum(axis=0)
    return FrequencyDistances(absolute_R / 2, np.sqrt(square_R / np.maximum(kinds_R, 1)))
