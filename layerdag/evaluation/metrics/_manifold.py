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

from layerdag._runtime import numpy_generator
from layerdag.errors import DataError
from layerdag.evaluation import inside_balls, neighbor_distances
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
    return _scores(real_BF, other_BF, _radius(real_BF))


def _scores(real_BF: np.ndarray, other_BF: np.ndarray, radius_B: np.ndarray) -> dict[str, float]:
    """Return the scores, the radii of the balls of real graphs being known."""
    holds_other, real_around = [], np.zeros(len(other_BF), dtype=np.int64)
    in_other_ball = []
    for in_real_ball, in_ball_of_other in inside_balls(
        real_BF, other_BF, radius_B, _radius(other_BF)
    ):
        holds_other.append(in_real_ball.any(axis=1))
        real_around += in_real_ball.sum(axis=0)
        in_other_ball.append(in_ball_of_other.any(axis=1))
    return {
        "precision": float((real_around > 0).mean()),
        "recall": float(np.concatenate(in_other_ball).mean()),
        "density": float(real_around.mean() / NEIGHBORS),
        "coverage": float(np.concatenate(holds_other).mean()),
    }


def _radius(x_BF: np.ndarray) -> np.ndarray:
    """Return the distance of each graph to its k-th nearest neighbor, shape (B,).

    Raises:
        DataError: If there are no more graphs than ``NEIGHBORS``.
    """
    if len(x_BF) <= NEIGHBORS:
        raise DataError(f"Balls of {NEIGHBORS} neighbors need more graphs than {len(x_BF)}.")
    return neighbor_distances(x_BF, NEIGHBORS)


def _all_scores(comparison: Comparison) -> tuple[Scores, list[Scores]]:
    """Return the scores of the generated graphs, and of each subset of the training graphs."""
    train, test, generated = comparison.once(embeddings)
    rng = numpy_generator(comparison.seed, "manifold")
    size = min(len(train), len(generated))
    radius = _radius(test)
    found = _scores(test, generated, radius)
    # All subsets of as many graphs as there are are the same.
    subsets = [
        rng.permutation(len(train))[:size] for _ in range(SUBSETS if size < len(train) else 1)
    ]
    return found, [_scores(test, train[rows], radius) for rows in subsets]


def _metric(name: str, what: str, upper: float = math.inf) -> ManifoldMetric:
    return ManifoldMetric(name, what, Goal.MAXIMIZE, upper=upper)


MANIFOLD_METRICS = (
    _metric("precision", "share of samples inside the real manifold", upper=1.0),
    _metric("recall", "share of real graphs inside the manifold of samples", upper=1.0),
    _metric("density", "real balls around a sample, relative to k"),
    _metric("coverage", "share of real graphs with a sample in their ball", upper=1.0),
)
