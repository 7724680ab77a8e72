"""Neighborhoods as in training: automata that read the kinds of a node's parents or children.

Shape letters: A node attributes, B graphs, E edges, K codes, N nodes, P pairs, R rows, X selected
graphs.
"""

import math
from collections import Counter
from dataclasses import replace
from functools import lru_cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from layerdag.dag.dag import DAGBatch
from layerdag.dag.neighbors import MANY, KindMultisets, ListedNeighbors
from layerdag.dag.statistics import GraphStatistics

UNCONSTRAINED = 0
"""State of a node whose kind has no list: whatever it reads."""

UNSEEN = 1
"""State of a node whose neighbors are part of no listed multiset; it stays so."""

NATS_PER_VIOLATION = 2.0
"""Log of the ratio of the odds of unlisted neighbors in samples and in real graphs. Of the nodes of
validation jobs 5 % have unlisted parents and 6 % unlisted children, of those of samples of the
shipped checkpoint that are drawn one by one 15 % and 32 %; of 1.5, 2 and 3 nats, 2 was best for
validation jobs (docs/dev/decisions.md)."""

_STATES = 2


class KindAutomaton(nn.Module):
    """Reads the kinds of a node's neighbors one by one, in any order.

    A state is the node's kind and the multiset read so far; a state is final if that multiset is
    listed.
    """

    start_K: Tensor
    final_R: Tensor
    key_P: Tensor
    target_P: Tensor

    def __init__(self, multisets: KindMultisets) -> None:
        super().__init__()
        self.kinds = len(multisets)
        states, final, transitions = _automaton(multisets)
        start_K = torch.full((self.kinds,), UNCONSTRAINED)
        for kind, listed in enumerate(multisets):
            if listed:
                start_K[kind] = states[kind, ()]
        final_R = torch.zeros(_STATES + len(states), dtype=torch.bool)
        final_R[[UNCONSTRAINED, *final]] = True
        rows = sorted((state * self.kinds + kind, target) for state, kind, target in transitions)
        # The last row is greater than every key, so that a search always ends at a row.
        table_P2 = torch.tensor([*rows, (torch.iinfo(torch.int64).max, UNSEEN)])
        self.register_buffer("start_K", start_K, persistent=False)
        self.register_buffer("final_R", final_R, persistent=False)
        self.register_buffer("key_P", table_P2[:, 0].contiguous(), persistent=False)
        self.register_buffer("target_P", table_P2[:, 1].contiguous(), persistent=False)

    def read(
        self, state_X: Int[Tensor, "*shape"], kind_X: Int[Tensor, "*shape"]
    ) -> Int[Tensor, "*shape"]:
        """Return the state after one more neighbor of the kind ``kind_X``."""
        key_X = state_X * self.kinds + kind_X
        row_X = torch.searchsorted(self.key_P, key_X)
        known_X = self.key_P[row_X] == key_X
        next_X = torch.where(known_X, self.target_P[row_X], UNSEEN)
        return next_X.masked_fill(state_X == UNCONSTRAINED, UNCONSTRAINED)

    def accepts(
        self, kind_N: Int[Tensor, " N"], node_E: Int[Tensor, " E"], neighbor_E: Int[Tensor, " E"]
    ) -> Bool[Tensor, " N"]:
        """Return whether all neighbors of each node together are as listed."""
        state_N = self.start_K[kind_N]
        order_E = torch.argsort(node_E, stable=True)
        count_N = torch.bincount(node_E, minlength=kind_N.shape[0])
        start_N = count_N.cumsum(0) - count_N
        open_X, rank = (count_N > 0).nonzero()[:, 0], 0
        while open_X.shape[0]:
            next_X = neighbor_E[order_E[start_N[open_X] + rank]]
            state_N[open_X] = self.read(state_N[open_X], next_X)
            rank += 1
            unsettled_X = (count_N[open_X] > rank) & (state_N[open_X] > UNSEEN)
            open_X = open_X[unsettled_X]
        return self.final_R[state_N]


class NeighborKinds(nn.Module):
    """The parents and children that nodes of each kind have in several training graphs.

    Nothing is imposed: real graphs have other neighbors, too. A sampled graph is weighed by how
    likely its listed and its other neighbors are in real graphs, compared with samples. Where a
    share q of the real nodes of a kind has neighbors that are not listed, and the odds of that are
    exp(``NATS_PER_VIOLATION``) times as large in samples, the log of the ratio of both
    probabilities is, with c = log(1 - q + q exp(``NATS_PER_VIOLATION``)), c for listed neighbors
    and c - ``NATS_PER_VIOLATION`` for others. So a weight is 1 in the mean, and a kind that often
    has other neighbors is no worse than a kind that never has.
    """

    offset_K: Tensor

    def __init__(self, statistics: GraphStatistics, *, listed: bool = True) -> None:
        super().__init__()
        if not listed:
            nothing = ListedNeighbors.nothing(len(statistics.attributes[0]))
            statistics = replace(statistics, parents=nothing, children=nothing)
        self.of_parents = KindAutomaton(statistics.parents.multisets)
        self.of_children = KindAutomaton(statistics.children.multisets)
        sides = (statistics.parents.unlisted, statistics.children.unlisted)
        unlisted_2K = torch.tensor(sides, dtype=torch.float32)
        gain_2K = torch.log1p(unlisted_2K * (math.exp(NATS_PER_VIOLATION) - 1))
        self.register_buffer("offset_K", gain_2K.sum(0), persistent=False)

    @property
    def any_listed(self) -> bool:
        """Whether there is a list of any kind."""
        starts = torch.cat([self.of_parents.start_K, self.of_children.start_K])
        return bool((starts != UNCONSTRAINED).any())

    def violations(self, batch: DAGBatch) -> Float[Tensor, " B"]:
        """Return how many nodes of each graph have parents, and how many children, like none.

        A node that has both counts twice. float32 of shape (B,).
        """
        kind_N = batch.x_NA[:, 0]
        source_E, target_E = batch.edge_index_2E
        fits_N = self.of_parents.accepts(kind_N, target_E, kind_N[source_E]).float()
        fits_N = fits_N + self.of_children.accepts(kind_N, source_E, kind_N[target_E]).float()
        return _per_graph(batch, 2 - fits_N)

    def log_weight(self, batch: DAGBatch) -> Float[Tensor, " B"]:
        """Return the log weight of each graph, nats, float32 of shape (B,)."""
        offset_B = _per_graph(batch, self.offset_K[batch.x_NA[:, 0]])
        return offset_B - NATS_PER_VIOLATION * self.violations(batch)


def _per_graph(batch: DAGBatch, value_N: Float[Tensor, " N"]) -> Float[Tensor, " B"]:
    total_B = torch.zeros(batch.num_graphs, device=value_N.device)
    return total_B.index_add(0, batch.graph_of_node(), value_N)


@lru_cache(maxsize=4)
def _automaton(
    multisets: KindMultisets,
) -> tuple[
    dict[tuple[int, tuple[tuple[int, int], ...]], int], list[int], list[tuple[int, int, int]]
]:
    states: dict[tuple[int, tuple[tuple[int, int], ...]], int] = {}
    transitions: list[tuple[int, int, int]] = []
    final, waiting = [], []

    def number(kind: int, counts: tuple[tuple[int, int], ...]) -> int:
        if (kind, counts) not in states:
            states[kind, counts] = _STATES + len(states)
            waiting.append((kind, counts))
        return states[kind, counts]

    for kind, listed in enumerate(multisets):
        for multiset in listed:
            final.append(number(kind, tuple(sorted(Counter(multiset).items()))))
    while waiting:
        kind, counts = waiting.pop()
        here = states[kind, counts]
        for member, count in counts:
            fewer = tuple((m, c - (m == member)) for m, c in counts if (m, c) != (member, 1))
            transitions.append((number(kind, fewer), member, here))
            if count == MANY:
                transitions.append((here, member, here))
    return states, final, transitions
