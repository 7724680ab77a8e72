"""Weights of graphs for bootstrap resamples and for subsets of equal size."""

from dataclasses import dataclass

import numpy as np

from layerdag._runtime import numpy_generator
from layerdag.evaluation._graph_set import GraphSet
from layerdag.evaluation.metrics import bootstrap_weights

SUBSETS = 50
"""Number of random training subsets behind ``SimilarityRow.matched``."""


@dataclass(frozen=True, eq=False)
class Resampling:
    """Train, test and generated graphs with the weights of each graph, shape (1 + R + S, B).

    The first row is all ones: the figure itself. R resamples follow, then S rows in which train is
    a random subset of as many graphs as were generated, and the others are all ones.
    """

    sets: tuple[GraphSet, GraphSet, GraphSet]
    weights: tuple[np.ndarray, np.ndarray, np.ndarray]

    @classmethod
    def draw(
        cls, sets: tuple[GraphSet, GraphSet, GraphSet], seed: int, replicates: int
    ) -> "Resampling":
        """Draw all weights from streams of ``seed``."""
        rows = []
        for label, graphs in enumerate(sets):
            size = graphs.num_graphs
            drawn_RB = bootstrap_weights(
                numpy_generator(seed, "bootstrap", label), replicates, size
            )
            rows.append([np.ones((1, size)), drawn_RB, np.ones((SUBSETS, size))])
        train, generated = sets[0].num_graphs, sets[2].num_graphs
        rng = numpy_generator(seed, "subsets")
        rank_SB = np.argsort(rng.random((SUBSETS, train)), axis=1)
        rows[0][2] = (rank_SB < generated).astype(float)
        return cls(
            sets, (np.concatenate(rows[0]), np.concatenate(rows[1]), np.concatenate(rows[2]))
        )
