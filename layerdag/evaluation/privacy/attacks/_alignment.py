"""Reconstruction: how much of a real graph does the sample hold that is best aligned with it?

Nodes are read layer by layer, and within a layer by their operators. Two graphs are aligned by the
longest common subsequence of what they read, its length found for one node after the other with all
places of the other graph as the bits of one number (Hyyrö, "Bit-Parallel LCS-length Computation
Revisited", AWOCA 2004).
"""

import numpy as np

from layerdag.evaluation.privacy import Scores
from layerdag.evaluation.privacy.attacks._pool import Pool, Roles

MOST_ALIGNED = 16
"""Samples that a real graph is aligned with: those that share most operators with it."""
CHUNK = 256


class Reconstruction:
    """Largest fraction of a real graph that one sample reconstructs, over all samples.

    The fraction is of the nodes of the larger one of both graphs, so that a huge sample, in which
    anything can be found, reconstructs nothing.
    """

    name = "reconstruction"
    description = "fraction of its nodes, aligned along the layers, that the best sample has"

    def __init__(self, pool: Pool) -> None:
        graphs = pool.graphs
        order_N = np.lexsort((graphs.x_NA[:, 0], graphs.layer_N, graphs.graph_N))
        code_N = graphs.x_NA[order_N, 0]
        self._words = [part.tolist() for part in np.split(code_N, graphs.node_ptr[1:-1])]
        self._nodes_P = graphs.nodes_B
        size = int(code_N.max(initial=0)) + 1
        flat = np.bincount(graphs.graph_N * size + code_N, minlength=graphs.num_graphs * size)
        self._count_PC = flat.reshape(graphs.num_graphs, size)
        self._known: dict[tuple[int, int], float] = {}

    def folds(self, roles: Roles, seed: int) -> list[Scores]:
        """Return the fractions."""
        del seed
        best_G = self.best_fractions(roles.real_G, roles.sample_K)
        return [(best_G[: roles.member_T.size], best_G[roles.member_T.size :])]

    def fractions(self, roles: Roles) -> tuple[float, float]:
        """Return the mean fraction of members, and of others."""
        of_members, of_others = (
            float(self.best_fractions(rows, roles.sample_K).mean())
            for rows in (roles.member_T, roles.other_H)
        )
        return of_members, of_others

    def best_fractions(self, real_G: np.ndarray, sample_K: np.ndarray) -> np.ndarray:
        """Return the best fraction of each real graph, float64 (G,)."""
        parts = [
            self._of_chunk(real_G[start : start + CHUNK], sample_K)
            for start in range(0, real_G.size, CHUNK)
        ]
        return np.concatenate(parts)

    def _of_chunk(self, real_G: np.ndarray, sample_K: np.ndarray) -> np.ndarray:
        bound_GK = self._bounds(real_G, sample_K)
        order_GK = np.argsort(-bound_GK, axis=1, kind="stable")[:, :MOST_ALIGNED]
        best_G = np.zeros(real_G.size)
        for row, real in enumerate(real_G.tolist()):
            for index in order_GK[row].tolist():
                if bound_GK[row, index] <= best_G[row]:
                    break
                best_G[row] = max(best_G[row], self._aligned(real, int(sample_K[index])))
        return best_G

    def _bounds(self, real_G: np.ndarray, sample_K: np.ndarray) -> np.ndarray:
        """Return the fractions if order did not matter, which no alignment exceeds."""
        common_GK = np.zeros((real_G.size, sample_K.size), dtype=np.int64)
        for count_P in self._count_PC.T:
            of_real_G, of_sample_K = count_P[real_G], count_P[sample_K]
            if of_real_G.any() and of_sample_K.any():
                common_GK += np.minimum(of_real_G[:, None], of_sample_K)
        larger_GK = np.maximum(self._nodes_P[real_G][:, None], self._nodes_P[sample_K])
        return common_GK / np.maximum(larger_GK, 1)

    def _aligned(self, real: int, sample: int) -> float:
        """Return the fraction of one pair, computed once."""
        key = (real, sample)
        if key not in self._known:
            larger = max(self._nodes_P[real], self._nodes_P[sample], 1)
            common = common_length(self._words[real], self._words[sample])
            self._known[key] = common / float(larger)
        return self._known[key]


def common_length(first: list[int], second: list[int]) -> int:
    """Return the length of a longest common subsequence."""
    positions: dict[int, int] = {}
    for index, word in enumerate(first):
        positions[word] = positions.get(word, 0) | (1 << index)
    every = (1 << len(first)) - 1
    row = every
    for word in second:
        matches = row & positions.get(word, 0)
        row = ((row + matches) | (row - matches)) & every
    return len(first) - row.bit_count()
