"""Membership by motifs that a single real graph has: do they recur in samples?"""

import numpy as np

from layerdag.evaluation import GraphSet
from layerdag.evaluation.privacy import Scores
from layerdag.evaluation.privacy.attacks._pool import Pool, Roles
from layerdag.graph import neighborhood_colors

RADIUS = 3
PRIOR = 2.0
"""Motifs that are added to those a graph alone has, so that one of one is less than ten of ten."""


class UniqueMotifs:
    """Fraction of the motifs that a real graph alone has, of all real ones, that samples have.

    A motif is a node with its surroundings up to one, two or three edges away, by the first
    attribute: the operators of a trace. Motifs of training and of held-out graphs are unique among
    both together, so that either kind has the same chance to recur.
    """

    name = "unique_motifs"
    description = "fraction of the motifs that no other real graph has which samples have"

    def __init__(self, pool: Pool) -> None:
        graphs = pool.graphs
        self.word_C, color_M = np.unique(motifs_of(graphs), return_inverse=True)
        graph_M = np.tile(graphs.graph_N, RADIUS)
        self._colors = int(color_M.max(initial=-1)) + 1
        pair_Q = np.unique(graph_M * max(self._colors, 1) + color_M)
        self._graph_Q, self._color_Q = np.divmod(pair_Q, max(self._colors, 1))
        self._graphs = graphs.num_graphs

    def folds(self, roles: Roles, seed: int) -> list[Scores]:
        """Return the fractions."""
        del seed
        return _scores(self.counts(roles), roles)

    def fractions(self, roles: Roles) -> tuple[float, float]:
        """Return the fraction that recurs of all such motifs of members, and of others."""
        return _fractions(self.counts(roles), roles)

    def counts(
        self, roles: Roles, in_samples_C: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return how many motifs each real graph alone has, and how many of these samples have.

        Both are 0 for graphs of the pool that are not real.

        Args:
            roles: The parts of the graphs.
            in_samples_C: Whether samples have each of ``word_C``; those of the pool by default.
        """
        is_real_Q = self._among(roles.real_G)
        owners_C = np.bincount(self._color_Q[is_real_Q], minlength=self._colors)
        if in_samples_C is None:
            in_samples_C = np.zeros(self._colors, dtype=bool)
            in_samples_C[self._color_Q[self._among(roles.sample_K)]] = True
        unique_Q = is_real_Q & (owners_C[self._color_Q] == 1)
        recurring_Q = unique_Q & in_samples_C[self._color_Q]
        unique_P, recurring_P = (
            np.bincount(self._graph_Q[which], minlength=self._graphs)
            for which in (unique_Q, recurring_Q)
        )
        return unique_P, recurring_P

    def _among(self, graphs: np.ndarray) -> np.ndarray:
        """Return which motifs are of these graphs."""
        chosen_P = np.zeros(self._graphs, dtype=bool)
        chosen_P[graphs] = True
        found_Q: np.ndarray = chosen_P[self._graph_Q]
        return found_Q


class MotifTally:
    """``UniqueMotifs`` of samples that come some at a time.

    Args:
        attack: The same of samples that are held, which knows the motifs of real graphs.
        roles: The parts of the real graphs.
    """

    def __init__(self, attack: UniqueMotifs, roles: Roles) -> None:
        self.attack, self._roles = attack, roles
        self._in_samples_C = np.zeros(attack.word_C.size, dtype=bool)

    def add(self, graphs: GraphSet) -> None:
        """Look at samples."""
        word_M, word_C = motifs_of(graphs), self.attack.word_C
        place_M = np.minimum(np.searchsorted(word_C, word_M), word_C.size - 1)
        self._in_samples_C[place_M[word_C[place_M] == word_M]] = True

    def folds(self) -> list[Scores]:
        """Return the scores."""
        return _scores(self.attack.counts(self._roles, self._in_samples_C), self._roles)

    def fractions(self) -> tuple[float, float]:
        """Return the fraction that recurs of all such motifs of members, and of others."""
        return _fractions(self.attack.counts(self._roles, self._in_samples_C), self._roles)


def motifs_of(graphs: GraphSet) -> np.ndarray:
    """Return the motifs of all nodes, of all radii end to end."""
    colors_RN = neighborhood_colors(graphs.x_NA[:, 0], graphs.edge_index_2E, RADIUS)[1:]
    return colors_RN.ravel()


def _scores(counts: tuple[np.ndarray, np.ndarray], roles: Roles) -> list[Scores]:
    """Return the fraction of the motifs of each real graph that recur, few of few shrunk."""
    unique_P, recurring_P = counts
    score_P = recurring_P / (unique_P + PRIOR)
    return [(score_P[roles.member_T], score_P[roles.other_H])]


def _fractions(counts: tuple[np.ndarray, np.ndarray], roles: Roles) -> tuple[float, float]:
    """Return the fraction that recurs of all motifs of members, and of others."""
    unique_P, recurring_P = counts
    of_members, of_others = (
        float(recurring_P[rows].sum() / max(unique_P[rows].sum(), 1))
        for rows in (roles.member_T, roles.other_H)
    )
    return of_members, of_others
