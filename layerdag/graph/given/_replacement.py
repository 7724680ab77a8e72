"""Which new nodes kept later ones depend on, in place of those that were removed.

Shape letters: A node attributes, D degrees, K codes (kinds), M new nodes, N nodes, O open edges
(from a removed node to a kept one), R removed nodes with open edges.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from layerdag.graph import DAG, GraphStatistics, ListedNeighbors
from layerdag.graph.given._gap import Gap

# What speaks for a new node, in nats. They only order proposals, among which the likelihood of all
# that follows chooses.
_SAME_KIND = 4.0
_SAME_ATTRIBUTES = 4.0
_KNOWN_PAIR = 3.0
_LAYERS_APART = 4.0
_RANKS_APART = 2.0
_USED_ALREADY = 3.0
_SHARES_CHILD = 1e6
_MOST_DEGREE_GAIN = 6.0
# Number of nodes that are added to the count of each degree of a kind.
_SMOOTHING = 0.01


@dataclass(frozen=True, eq=False)
class Replacement:
    """Puts new nodes in the place of removed ones.

    A removed node is replaced by a new one of the same kind, with the same attributes and about the
    same place, or else by one that kept children may have by the training graphs. New nodes
    that have fewer children than their kind has come first.

    Attributes:
        statistics: Of the training graphs.
    """

    statistics: GraphStatistics

    def parents(
        self, gap: Gap, begun: DAG, rng: np.random.Generator, spread: float
    ) -> Int[Tensor, " O"]:
        """Return the new parent of each open edge of a gap; -1 where there is no further one.

        Each node of the first kept layer after the gap has a parent in the layer before, and no two
        edges are equal.

        Args:
            gap: What is kept.
            begun: The kept first layers and new ones.
            rng: Of this graph.
            spread: Of the noise on what is proposed, nats; 0 is the nearest replacement.
        """
        source_O, target_O = gap.dag.edge_index_2E[:, gap.open_O].numpy()
        removed_R, row_O = np.unique(source_O, return_inverse=True)
        score_RM = self._likeness(gap, begun, removed_R, row_O, target_O)
        score_RM += spread * rng.gumbel(size=score_RM.shape)
        last_M = begun.layer_N[gap.start :].numpy() == gap.end_layer - 1
        bound_O = _bound_edges(gap, source_O, target_O)
        allowed_RM = score_RM.copy()
        allowed_RM[np.ix_(np.unique(row_O[bound_O]), ~last_M)] = -np.inf
        chosen_R = self._chosen(gap, begun, allowed_RM, row_O, target_O)
        parent_O = _without_doubles(chosen_R, score_RM, row_O, target_O, bound_O)
        return torch.from_numpy(np.where(parent_O < 0, -1, parent_O + gap.start))

    def _likeness(
        self, gap: Gap, begun: DAG, removed_R: np.ndarray, row_O: np.ndarray, target_O: np.ndarray
    ) -> Float[np.ndarray, "R M"]:
        """Return how well each new node fits in the place of each removed one, nats."""
        x_NA, new_MA = gap.dag.x_NA.numpy(), begun.x_NA[gap.start :].numpy()
        old_NA = x_NA[gap.start : gap.end]
        same_RMA = x_NA[removed_R][:, None] == new_MA[None]
        score_RM = _SAME_KIND * same_RMA[..., 0] + _SAME_ATTRIBUTES * same_RMA.mean(2)
        layer_R = gap.dag.layer_N.numpy()[removed_R]
        layer_M = begun.layer_N[gap.start :].numpy()
        apart_RM = np.abs(layer_R[:, None] - layer_M) / (gap.end_layer - gap.first_layer)
        rank_R = _rank_in_kind(old_NA[:, 0])[removed_R - gap.start]
        ranks_RM = np.abs(rank_R[:, None] - _rank_in_kind(new_MA[:, 0]))
        score_RM -= _LAYERS_APART * apart_RM + _RANKS_APART * ranks_RM
        known_OM = self._known_pairs_KK[new_MA[:, 0]][:, x_NA[target_O, 0]].T
        known_RM = np.zeros(score_RM.shape)
        np.add.at(known_RM, row_O, known_OM)
        return score_RM + _KNOWN_PAIR * known_RM / np.bincount(row_O)[:, None]

    def _chosen(
        self, gap: Gap, begun: DAG, score_RM: np.ndarray, row_O: np.ndarray, target_O: np.ndarray
    ) -> Int[np.ndarray, " R"]:
        """Return a new node for each removed one, the best pair first."""
        kind_M = begun.x_NA[gap.start :, 0].numpy()
        source_E = begun.edge_index_2E[0].numpy()
        children_M = np.bincount(source_E, minlength=begun.num_nodes)[gap.start :]
        further_R = np.bincount(row_O)
        share_RR = _sharing(row_O, target_O)
        gain_RM = score_RM + self._degree_gain(kind_M[None], children_M[None], further_R[:, None])
        chosen_R = np.full(len(further_R), -1)
        for _ in range(len(further_R)):
            r, m = np.unravel_index(int(gain_RM.argmax()), gain_RM.shape)
            chosen_R[r] = m
            gain_RM[r] = -np.inf
            before_R = self._degree_gain(kind_M[[m]], children_M[[m]], further_R)
            children_M[m] += further_R[r]
            after_R = self._degree_gain(kind_M[[m]], children_M[[m]], further_R)
            gain_RM[:, m] += after_R - before_R - _USED_ALREADY - _SHARES_CHILD * share_RR[r]
        return chosen_R

    def _degree_gain(
        self, kind: np.ndarray, children: np.ndarray, further: np.ndarray
    ) -> Float[np.ndarray, "..."]:
        """Return how much likelier so many further children make the degree of nodes, nats."""
        most = self._log_degrees_KD.shape[1] - 1
        after = self._log_degrees_KD[kind, np.minimum(children + further, most)]
        before = self._log_degrees_KD[kind, np.minimum(children, most)]
        return np.clip(after - before, -_MOST_DEGREE_GAIN, _MOST_DEGREE_GAIN)

    @cached_property
    def _log_degrees_KD(self) -> Float[np.ndarray, "K D"]:
        """Log of the share of each number of children among the training nodes of a kind."""
        most = self.statistics.max_out_degree
        count_KD = np.full((len(self.statistics.out_degrees), most + 2), _SMOOTHING)
        for kind, pairs in enumerate(self.statistics.out_degrees):
            for degree, nodes in pairs:
                count_KD[kind, degree] += nodes
        log_KD: np.ndarray = np.log(count_KD / count_KD.sum(1, keepdims=True))
        return log_KD

    @cached_property
    def _known_pairs_KK(self) -> Bool[np.ndarray, "K K"]:
        """Whether nodes of the second kind are children of the first kind in training graphs."""
        of_parents = _known_neighbors(self.statistics.parents)
        known_KK: np.ndarray = _known_neighbors(self.statistics.children) & of_parents.T
        return known_KK


def _known_neighbors(listed: ListedNeighbors) -> Bool[np.ndarray, "K K"]:
    """Return which kinds are listed as neighbors of each kind; all of one without a list."""
    known_KK = np.zeros((len(listed.multisets),) * 2, dtype=bool)
    for kind, multisets in enumerate(listed.multisets):
        known_KK[kind, sorted({k for multiset in multisets for k in multiset})] = True
        known_KK[kind] |= not multisets
    return known_KK


def _bound_edges(gap: Gap, source_O: np.ndarray, target_O: np.ndarray) -> Bool[np.ndarray, " O"]:
    """Return the edge of each node of the first kept layer that tells its layer.

    It is the last one from the removed layer before.
    """
    layer_N = gap.dag.layer_N.numpy()
    near_O = (layer_N[source_O] == gap.end_layer - 1) & (layer_N[target_O] == gap.end_layer)
    last: dict[int, int] = {int(target_O[edge]): int(edge) for edge in near_O.nonzero()[0]}
    bound_O = np.zeros(len(source_O), dtype=bool)
    bound_O[list(last.values())] = True
    return bound_O


def _without_doubles(
    chosen_R: np.ndarray,
    score_RM: np.ndarray,
    row_O: np.ndarray,
    target_O: np.ndarray,
    bound_O: np.ndarray,
) -> Int[np.ndarray, " O"]:
    """Return the new node of each open edge, another one where two edges would be equal.

    An edge is left out (-1) if its child has all new nodes as parents.
    """
    parent_O = chosen_R[row_O]
    taken: dict[int, set[int]] = {int(child): set() for child in target_O}
    for edge in [*bound_O.nonzero()[0], *(~bound_O).nonzero()[0]]:
        mine = taken[int(target_O[edge])]
        if int(parent_O[edge]) in mine:
            score_M = score_RM[row_O[edge]]
            free = np.setdiff1d(np.arange(len(score_M)), sorted(mine))
            parent_O[edge] = free[score_M[free].argmax()] if len(free) else -1
        mine.add(int(parent_O[edge]))
    return parent_O


def _sharing(row_O: np.ndarray, target_O: np.ndarray) -> Bool[np.ndarray, "R R"]:
    """Return which removed nodes have a kept child in common."""
    _, child_O = np.unique(target_O, return_inverse=True)
    has_RC = np.zeros((row_O.max() + 1, child_O.max() + 1), dtype=np.float32)
    has_RC[row_O, child_O] = 1
    share_RR: np.ndarray = has_RC @ has_RC.T > 0
    return share_RR


def _rank_in_kind(kind_N: np.ndarray) -> Float[np.ndarray, " N"]:
    """Return the relative position of each node among those of its kind, in (0, 1)."""
    rank_N = np.zeros(len(kind_N))
    for kind in np.unique(kind_N):
        mine = kind_N == kind
        rank_N[mine] = (np.arange(mine.sum()) + 0.5) / mine.sum()
    return rank_N
