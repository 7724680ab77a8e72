"""Membership by a classifier that tells samples from other real graphs."""

from typing import Any

import numpy as np

from layerdag._runtime import derive_seed
from layerdag.evaluation.privacy import Scores
from layerdag.evaluation.privacy.attacks._distance import halves_of
from layerdag.evaluation.privacy.attacks._pool import Pool, Roles

TREES = 150
LEAST_GRAPHS = 4
"""Of the samples and of the half of the held-out graphs that the classifier learns from."""


class CalibratedClassifier:
    """Probability that a graph is a sample rather than another real graph, by randomized trees.

    The classifier learns from the samples and from one half of the held-out graphs, and scores the
    training graphs and the other half, none of which it has seen; then the halves change places. A
    density ratio is learned so, without a distance having to be chosen: the score is calibrated by
    real graphs as that of DOMIAS is, as if there were as many samples as real graphs. Trees grow
    until they know every graph, for what was memorized lies beside single samples; boosted ones,
    which smooth, find less of it (docs/explanation/what-the-validator-sees.md).
    """

    name = "calibrated_classifier"
    description = "probability that it is a sample and no other real graph, by trees"

    def __init__(self, pool: Pool) -> None:
        self._x_PC = pool.components

    def folds(self, roles: Roles, seed: int) -> list[Scores]:
        """Return what classifiers that learned from either half say; none of too few."""
        if min(roles.sample_K.size, roles.other_H.size // 2) < LEAST_GRAPHS:
            return []
        return [
            self._scored(roles, reference, others, seed)
            for reference, others in halves_of(roles, seed)
        ]

    def fractions(self, roles: Roles) -> None:
        """Return nothing: the score is no fraction."""

    def _scored(self, roles: Roles, reference: np.ndarray, others: np.ndarray, seed: int) -> Scores:
        """Return the probabilities of members and of others."""
        x_BC = self._x_PC[np.concatenate([roles.sample_K, reference])]
        is_sample_B = np.arange(len(x_BC)) < roles.sample_K.size
        weight_B = np.where(is_sample_B, 0.5 / roles.sample_K.size, 0.5 / reference.size)
        model = _classifier(seed).fit(x_BC, is_sample_B, weight_B * len(x_BC))
        member_T, other_H = (
            model.predict_proba(self._x_PC[rows])[:, 1] for rows in (roles.member_T, others)
        )
        return member_T, other_H


def _classifier(seed: int) -> Any:
    """Return fresh randomized trees, grown to the end."""
    from sklearn.ensemble import ExtraTreesClassifier

    state = derive_seed(seed, "calibrated classifier") % 2**32
    return ExtraTreesClassifier(TREES, random_state=state)
