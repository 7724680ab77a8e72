"""Fidelity and diversity apart: do samples lie where real graphs lie, and everywhere they do?

Balls around graphs reach to their k-th nearest neighbor in the same set. Precision and recall
after Kynkaanniemi et al. (NeurIPS 2019), density and coverage after Naeem et al. (ICML 2020), on
the embeddings of ``validator.embedding`` with k = 5, as Thompson et al. (ICLR 2022) propose.
"""

import numpy as np
from scipy.spatial.distance import cdist

from layerdag.errors import DataError
from layerdag.evaluation.metrics._base import Goal, Metric

NEIGHBORS = 5
MANIFOLD_METRICS = (
    Metric("precision", "share of samples inside the real manifold", Goal.HIGHER, upper=1.0),
    Metric("recall", "share of real graphs inside the manifold of samples", Goal.HIGHER, upper=1.0),
    Metric("density", "real balls around a sample, relative to k", Goal.HIGHER),
    Metric("coverage", "share of real graphs with a sample in their ball", Goal.HIGHER, upper=1.0),
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
