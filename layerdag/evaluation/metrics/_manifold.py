"""Fidelity and diversity apart: do samples lie where real graphs lie, and everywhere they do?

Balls around graphs reach to their k-th nearest neighbor in the same set. Precision and recall
after Kynkaanniemi et al. (NeurIPS 2019), density and coverage after Naeem et al. (ICML 2020), on
the embeddings of ``random_embeddings`` with k = 5, as Thompson et al. (ICLR 2022) propose.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.spatial.distance import cdist

from layerdag._runtime import numpy_generator
from layerdag.errors import DataError
from layerdag.evaluation.metrics._base import Goal, Metric, SimilarityRow
from layerdag.evaluation.metrics._comparison import Comparison
from layerdag.evaluation.metrics._embedding import embeddings

NEIGHBORS = 5
SUBSETS = 10
"""Number of random training subsets, as many graphs as were generated, behind the reference."""

Scores = Mapping[str, float]


@final
@dataclass(frozen=True)
class ManifoldMetric(Metric):
    """One of the four scores of ``manifold_scores``, by its name.

    Higher is better and all depend on the number of graphs, so that the reference is the mean of as
    many training graphs as were generated, and there is no ratio.
    """

    def compute(self, comparison: Comparison) -> SimilarityRow:
        """Return the score of generated graphs and that of training graphs."""
        found, real = comparison.once(_all_scores)
        return SimilarityRow.of_values(
            self, found[self.name], float(np.mean([scores[self.name] for scores in real]))
        )


def manifold_scores(real_BF: np.ndarray, other_BF: np.ndarray) -> dict[str, float]:
    """Return precision, recall, density and coverage of ``other`` with respect to ``real``.

    Raises:
        DataError: If a set has no more graphs than ``NEIGHBORS``.
    """
    least = min(len(real_BF), len(other_BF))
    if least <= NEIGHBORS:
        raise DataError(f"Balls of {NEIGHBORS} neighbors need more graphs than {least}.")
    between = cdist(real_BF, other_BF)
    in_real_ball = between <= _radius(real_BF)[:, None]
    in_other_ball = between <= _radius(other_BF)[None, :]
    return {
        "precision": float(in_real_ball.any(axis=0).mean()),
        "recall": float(in_other_ball.any(axis=1).mean()),
        "density": float(in_real_ball.sum(axis=0).mean() / NEIGHBORS),
        "coverage": float(in_real_ball.any(axis=1).mean()),
    }


def _radius(x_BF: np.ndarray) -> np.ndarray:
    """Return the distance of each graph to its k-th nearest neighbor, shape (B,)."""
    # The nearest of all is the graph itself, at distance 0.
    return np.asarray(np.partition(cdist(x_BF, x_BF), NEIGHBORS, axis=1)[:, NEIGHBORS])


def _all_scores(comparison: Comparison) -> tuple[Scores, list[Scores]]:
    """Return the scores of the generated graphs, and of each subset of the training graphs."""
    train, test, generated = comparison.once(embeddings)
    rng = numpy_generator(comparison.seed, "manifold")
    size = min(len(train), len(generated))
    found = manifold_scores(test, generated)
    subsets = [rng.permutation(len(train))[:size] for _ in range(SUBSETS)]
    return found, [manifold_scores(test, train[rows]) for rows in subsets]


def _metric(name: str, what: str, upper: float = math.inf) -> ManifoldMetric:
    return ManifoldMetric(name, what, Goal.MAXIMIZE, upper=upper)


MANIFOLD_METRICS = (
    _metric("precision", "share of samples inside the real manifold", upper=1.0),
    _metric("recall", "share of real graphs inside the manifold of samples", upper=1.0),
    _metric("density", "real balls around a sample, relative to k"),
    _metric("coverage", "share of real graphs with a sample in their ball", upper=1.0),
)
