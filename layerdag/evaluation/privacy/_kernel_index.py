"""Weisfeiler-Lehman distances of a stream of graphs to a set that is looked at once.

The features of a graph count the colors of its nodes after 0 to ``ROUNDS`` rounds of refinement
(Shervashidze et al., JMLR 12, 2011) and are normalized to length 1 in each round, so that all
rounds weigh the same. Letters: K graphs of the stream, B graphs of the set.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, hstack

from layerdag.graph import DAG, color_rounds

ROUNDS = 3


@dataclass(frozen=True, eq=False)
class KernelIndex:
    """The features of a set of graphs.

    Attributes:
        colors: Of each round, the colors that occur, ascending.
        features: Of the B graphs, the rounds side by side.
    """

    colors: tuple[np.ndarray, ...]
    features: csr_array

    @classmethod
    def of(cls, dags: Sequence[DAG]) -> "KernelIndex":
        """Look at a set of graphs."""
        rounds = list(color_rounds(dags, ROUNDS))
        colors = tuple(np.unique(color_N) for color_N in rounds)
        return cls(colors, _features(dags, rounds, colors))

    def distances(self, dags: Sequence[DAG]) -> np.ndarray:
        """Return the distances of some graphs to those of the set, (K, B), in [0, sqrt(2)]."""
        features = _features(dags, list(color_rounds(dags, ROUNDS)), self.colors)
        cosine = (features @ self.features.T).toarray()
        return np.sqrt(np.maximum(2 - 2 * cosine, 0))


def kernel_distances(left: Sequence[DAG], right: Sequence[DAG]) -> np.ndarray:
    """Return Weisfeiler-Lehman kernel distances, shape (left, right), values in [0, sqrt(2)]."""
    return KernelIndex.of(right).distances(left)


def _features(
    dags: Sequence[DAG], rounds: Sequence[np.ndarray], colors: Sequence[np.ndarray]
) -> csr_array:
    """Return normalized counts of known colors in all rounds; others count for the length."""
    graph_N = np.repeat(np.arange(len(dags)), [dag.num_nodes for dag in dags])
    blocks = []
    for color_N, known in zip(rounds, colors, strict=True):
        own, code_N = np.unique(color_N, return_inverse=True)
        counts = csr_array((np.ones(code_N.size), (graph_N, code_N)), shape=(len(dags), own.size))
        length_B = np.sqrt((counts**2).sum(axis=1)) * math.sqrt(ROUNDS + 1)
        scale = csr_array(
            (1 / np.maximum(length_B, 1e-12), np.arange(len(dags)), np.arange(len(dags) + 1))
        )
        blocks.append(_in_columns(scale @ counts, own, known))
    return csr_array(hstack(blocks))


def _in_columns(counts: csr_array, own: np.ndarray, known: np.ndarray) -> csr_array:
    """Return the counts of ``own`` colors by the place of each among the known ones."""
    if own.size == known.size and np.array_equal(own, known):
        return counts
    place = np.searchsorted(known, own)
    is_known = np.isin(own, known)
    table = csr_array(
        (np.ones(int(is_known.sum())), (np.flatnonzero(is_known), place[is_known])),
        shape=(own.size, known.size),
    )
    found = csr_array(counts @ table)
    found.sort_indices()
    return found
