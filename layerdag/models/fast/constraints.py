"""Codes, degrees, neighborhoods seen in training.

Constraints taken from the training graphs: codes, alone and together, and degrees by kind.

What holds for out-degrees is a component: as observed in training, or unlimited.

Neighborhoods as in training: automata that read the kinds of a node's parents or children.

Shape letters: A node attributes, B graphs, E edges, F feature columns, G groups of rows, K codes,
N nodes, P pairs, R rows, X selected graphs.
"""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from layerdag.dag.dag import DAGBatch, GraphSizes
from layerdag.dag.statistics import MANY, GraphStatistics, KindMultisets, ListedNeighbors
from layerdag.models.config import ConstraintConfig
from layerdag.models.layers import CountEncoder

_NO_LIMIT = 1 << 40


class OutDegreeLimit(nn.Module, ABC):
    """How many children a node may have."""

    @abstractmethod
    def capacity(
        self, kind_B: Int[Tensor, " B"], out_degree_B: Int[Tensor, " B"] | None
    ) -> Int[Tensor, " B"]:
        """Return the largest number of children that each node may have.

        Args:
            kind_B: Kind of each node.
            out_degree_B: Predicted out-degree; None in a model without out-degree prediction.
        """

    @abstractmethod
    def violations(self, batch: DAGBatch) -> Float[Tensor, " B"]:
        """Return the number of nodes per graph that break the limit, float32 of shape (B,)."""


class ObservedOutDegrees(OutDegreeLimit):
    """The out-degrees that training nodes of the same kind have.

    Kinds that do not occur in training have no limit.
    """

    min_children_K: Tensor
    max_children_K: Tensor

    def __init__(self, statistics: GraphStatistics) -> None:
        super().__init__()
        children = [[degree for degree, _ in pairs] for pairs in statistics.out_degrees]
        fewest_children = torch.tensor([min(degrees, default=0) for degrees in children])
        most_children = torch.tensor([max(degrees, default=_NO_LIMIT) for degrees in children])
        self.register_buffer("min_children_K", fewest_children, persistent=False)
        self.register_buffer("max_children_K", most_children, persistent=False)

    def capacity(
        self, kind_B: Int[Tensor, " B"], out_degree_B: Int[Tensor, " B"] | None
    ) -> Int[Tensor, " B"]:
        """Return the most children of the kind, or as many as predicted if that is fewer.

        The predicted out-degree is the number of children in the finished graph, so that no
        training node ever has more.
        """
        most_B = self.max_children_K[kind_B]
        return most_B if out_degree_B is None else torch.minimum(most_B, out_degree_B)

    def violations(self, batch: DAGBatch) -> Float[Tensor, " B"]:
        """Return the number of nodes per graph with an out-degree outside the range of the kind."""
        kind_N = batch.x_NA[:, 0]
        children_N = torch.bincount(batch.edge_index_2E[0], minlength=batch.num_nodes)
        fits_N = self.min_children_K[kind_N] <= children_N
        fits_N = fits_N & (children_N <= self.max_children_K[kind_N])
        violations_B = torch.zeros(batch.num_graphs, device=kind_N.device)
        return violations_B.index_add(0, batch.graph_of_node(), (~fits_N).float())


class UnlimitedOutDegrees(OutDegreeLimit):
    """Any number of children, whatever was predicted."""

    def capacity(
        self, kind_B: Int[Tensor, " B"], out_degree_B: Int[Tensor, " B"] | None
    ) -> Int[Tensor, " B"]:
        """Return a number that no graph reaches."""
        return torch.full_like(kind_B, _NO_LIMIT)

    def violations(self, batch: DAGBatch) -> Float[Tensor, " B"]:
        """Return zeros."""
        return torch.zeros(batch.num_graphs, device=batch.x_NA.device)


def out_degree_limit(config: ConstraintConfig, statistics: GraphStatistics) -> OutDegreeLimit:
    """Return the component that a config names."""
    if config.out_degree == "observed":
        return ObservedOutDegrees(statistics)
    return UnlimitedOutDegrees()


class DegreeConstraints(nn.Module):
    """Degree limits of each kind, as masks on logits and as a count of violations.

    A node of layer 0 has no parent, so its kind must be a source kind: one that some training node
    without parents has. Any other node has a first parent, and as many more as its kind allows and
    as exist before the first one. If no kind fits (possible only for a graph unlike any in
    training), the constraint is dropped.

    A node without remaining capacity for children is ruled out as a parent unless it is the only
    candidate. The smallest number of children cannot be imposed while a graph is being sampled,
    because later nodes are not known yet, so violations are counted in the finished graph.

    Args:
        statistics: Of the training graphs.
        config: What is imposed; by default everything.
    """

    source_K: Tensor
    min_parents_K: Tensor
    max_parents_K: Tensor
    observed_F: Tensor

    def __init__(self, statistics: GraphStatistics, config: ConstraintConfig | None = None) -> None:
        super().__init__()
        self.out_degree = out_degree_limit(config or ConstraintConfig(), statistics)
        seen = [[degree for degree, _ in pairs] for pairs in statistics.in_degrees]
        inner = [[degree for degree in degrees if degree > 0] for degrees in seen]
        starts = torch.tensor([0 in degrees for degrees in seen])
        least = torch.tensor([min(degrees, default=_NO_LIMIT) for degrees in inner])
        most = torch.tensor([max(degrees, default=0) for degrees in inner])
        self.register_buffer("source_K", starts, persistent=False)
        self.register_buffer("min_parents_K", least, persistent=False)
        self.register_buffer("max_parents_K", most, persistent=False)
        others = statistics.attributes[1:]
        flat = [count > 0 for counts in others for count in counts]
        self.sizes = [len(counts) for counts in others]
        self.register_buffer("observed_F", torch.tensor(flat, dtype=torch.bool), persistent=False)

    def limit_attributes(self, logits_BK: Float[Tensor, "B K"], index: int) -> Float[Tensor, "B K"]:
        """Rule out codes of an attribute after the kind that no training node has.

        Args:
            logits_BK: Logits of the attribute.
            index: Position among the attributes after the kind.
        """
        start = sum(self.sizes[:index])
        seen_K = self.observed_F[start : start + self.sizes[index]]
        return logits_BK.masked_fill(~seen_K, -torch.inf)

    def limit_kinds(
        self, logits_BK: Float[Tensor, "B K"], first_B: Int[Tensor, " B"]
    ) -> Float[Tensor, "B K"]:
        """Rule out kinds that the node cannot have.

        Args:
            logits_BK: Logits of the kind.
            first_B: Position of the first parent, which is also the number of nodes that can be
                parents; 0 in layer 0.
        """
        fits_BK = torch.where(
            first_B[:, None] == 0, self.source_K, self.min_parents_K <= first_B[:, None]
        )
        fits_BK = fits_BK | ~fits_BK.any(dim=1, keepdim=True)
        return logits_BK.masked_fill(~fits_BK, -torch.inf)

    def limit_degrees(
        self,
        logits_BK: Float[Tensor, "B K"],
        counter: CountEncoder,
        kind_B: Int[Tensor, " B"],
        first_B: Int[Tensor, " B"],
    ) -> Float[Tensor, "B K"]:
        """Rule out in-degree codes none of whose counts the kind and the graph allow."""
        low_B, high_B = self._range(kind_B, first_B)
        fits_BK = (counter.lows_K1[:-1] <= high_B[:, None]) & (counter.lows_K1[1:] > low_B[:, None])
        return logits_BK.masked_fill(~fits_BK, -torch.inf)

    def clamp(
        self, degree_B: Int[Tensor, " B"], kind_B: Int[Tensor, " B"], first_B: Int[Tensor, " B"]
    ) -> Int[Tensor, " B"]:
        """Return the in-degree moved into the range that the kind and the graph allow."""
        low_B, high_B = self._range(kind_B, first_B)
        return torch.minimum(torch.maximum(degree_B, low_B), high_B)

    def capacity(
        self, kind_B: Int[Tensor, " B"], out_degree_B: Int[Tensor, " B"] | None
    ) -> Int[Tensor, " B"]:
        """Return the largest number of children of each node; see ``OutDegreeLimit``."""
        return self.out_degree.capacity(kind_B, out_degree_B)

    def violations(self, batch: DAGBatch) -> Float[Tensor, " B"]:
        """Return the number of nodes per graph with an out-degree that is not allowed."""
        return self.out_degree.violations(batch)

    def _range(
        self, kind_B: Int[Tensor, " B"], first_B: Int[Tensor, " B"]
    ) -> tuple[Int[Tensor, " B"], Int[Tensor, " B"]]:
        """Return the smallest and largest in-degree of each node; (0, 0) in layer 0."""
        high_B = torch.minimum(self.max_parents_K[kind_B].clamp(min=1), first_B)
        return torch.minimum(self.min_parents_K[kind_B], high_B), high_B


class AllowedCodes(nn.Module):
    """The codes of later attributes that training nodes with a code have.

    Args:
        sizes: Counts of the data set's schema.
        statistics: Measured on the training graphs; None leaves every code allowed.
    """

    allowed_FF: Tensor

    def __init__(self, sizes: GraphSizes, statistics: GraphStatistics | None) -> None:
        super().__init__()
        self.sizes = sizes.attributes
        self.starts = [sum(self.sizes[:a]) for a in range(len(self.sizes))]
        count = sum(self.sizes)
        allowed_FF = torch.ones((count, count), dtype=torch.bool)
        for a, later in enumerate(statistics.allowed_codes if statistics else ()):
            for b, lists in enumerate(later, start=a + 1):
                columns = slice(self.starts[b], self.starts[b] + self.sizes[b])
                for code, codes in enumerate(lists):
                    if codes:
                        allowed_FF[self.starts[a] + code, columns] = False
                        allowed_FF[self.starts[a] + code, [self.starts[b] + c for c in codes]] = (
                            True
                        )
        self.register_buffer("allowed_FF", allowed_FF, persistent=False)

    def given(self, attribute: int, code_B: Int[Tensor, " B"]) -> Bool[Tensor, "B F"]:
        """Return what nodes with these codes of an attribute may have in all attributes."""
        return self.allowed_FF[self.starts[attribute] + code_B]

    def limit(
        self, logits_BK: Float[Tensor, "B K"], allowed_BF: Bool[Tensor, "B F"], attribute: int
    ) -> Float[Tensor, "B K"]:
        """Rule out codes of an attribute that the earlier ones do not allow.

        Where they allow none, or none that is possible otherwise, nothing is ruled out.

        Args:
            logits_BK: Logits of the attribute; minus infinity is impossible already.
            allowed_BF: What all earlier attributes of each node allow.
            attribute: Position among all attributes.
        """
        start = self.starts[attribute]
        fits_BK = allowed_BF[:, start : start + self.sizes[attribute]] & (logits_BK > -torch.inf)
        fits_BK = fits_BK | ~fits_BK.any(dim=1, keepdim=True)
        return logits_BK.masked_fill(~fits_BK, -torch.inf)


class EdgeTypeSets(nn.Module):
    """The types that edges to nodes of a kind have together, imposed while they are drawn.

    A state is a kind, an in-degree and the multiset of types drawn so far; a type is possible if
    some listed multiset of as many types holds it beside them.

    Args:
        sizes: Counts of the data set's schema.
        statistics: Of the training graphs.
    """

    first_state: Tensor
    next_state: Tensor
    known_degrees: Tensor

    def __init__(self, sizes: GraphSizes, statistics: GraphStatistics) -> None:
        super().__init__()
        listed = statistics.edge_type_sets or ((),) * sizes.attributes[0]
        most = max((len(multiset) for sets in listed for multiset in sets), default=0)
        first_state = torch.zeros((len(listed), most + 1), dtype=torch.int64)
        known_degrees = torch.ones((len(listed), most + 1), dtype=torch.bool)
        for kind, sets in enumerate(listed):
            if sets:
                known_degrees[kind] = False
        rows, firsts = _type_automaton(listed, sizes.edge_types)
        for kind, degree, first in firsts:
            known_degrees[kind, degree] = True
            first_state[kind, degree] = first
        self.register_buffer("first_state", first_state, persistent=False)
        self.register_buffer("known_degrees", known_degrees, persistent=False)
        self.register_buffer("next_state", torch.tensor(rows), persistent=False)

    @property
    def any_listed(self) -> bool:
        """Whether there is a list of any kind."""
        return self.next_state.shape[0] > 1

    def limit_degrees(
        self, logits_BK: Float[Tensor, "B K"], counter: CountEncoder, kind_B: Int[Tensor, " B"]
    ) -> Float[Tensor, "B K"]:
        """Rule out in-degree codes none of whose counts has a listed multiset."""
        most = self.known_degrees.shape[1]
        before = torch.nn.functional.pad(self.known_degrees.long().cumsum(1), (1, 0))
        low_K, high_K = (lows.clamp(max=most) for lows in _bounds(counter))
        fits_BK = before[kind_B][:, high_K] > before[kind_B][:, low_K]
        fits_BK = fits_BK | self.known_degrees[kind_B].all(1, keepdim=True)
        fits_BK = fits_BK & (logits_BK > -torch.inf)
        return logits_BK.masked_fill(~fits_BK & fits_BK.any(1, keepdim=True), -torch.inf)

    def start(self, kind_X: Int[Tensor, " X"], degree_X: Int[Tensor, " X"]) -> Int[Tensor, " X"]:
        """Return the state of nodes of which no edge type is drawn."""
        most = self.first_state.shape[1] - 1
        state_X = self.first_state[kind_X, degree_X.clamp(max=most)]
        return state_X.masked_fill(degree_X > most, 0)

    def limit(
        self, logits_GK: Float[Tensor, "G K"], state_G: Int[Tensor, " G"]
    ) -> Float[Tensor, "G K"]:
        """Rule out edge types that no listed multiset holds beside those drawn."""
        return logits_GK.masked_fill(self.next_state[state_G] < 0, -torch.inf)

    def read(self, state_X: Int[Tensor, " X"], type_X: Int[Tensor, " X"]) -> Int[Tensor, " X"]:
        """Return the state after one more edge type, which ``limit`` left possible."""
        return self.next_state[state_X, type_X].clamp(min=0)


def _bounds(counter: CountEncoder) -> tuple[Int[Tensor, " K"], Int[Tensor, " K"]]:
    lows_K1 = counter.lows_K1.long()
    return lows_K1[:-1], lows_K1[1:]


@lru_cache(maxsize=4)  # the model of a checkpoint is built twice, and loaded again and again
def _type_automaton(
    listed: KindMultisets, edge_types: int
) -> tuple[list[list[int]], list[tuple[int, int, int]]]:
    rows = [[0] * edge_types]  # of the state that allows everything
    firsts = []
    for kind, sets in enumerate(listed):
        for degree in {len(multiset) for multiset in sets}:
            same = [multiset for multiset in sets if len(multiset) == degree]
            firsts.append((kind, degree, _add_states(rows, same)))
    return rows, firsts


def _add_states(rows: list[list[int]], multisets: Sequence[tuple[int, ...]]) -> int:
    """Add the states of multisets of one size to a table of next states; return the first."""
    states: dict[tuple[int, ...], int] = {}

    def number(drawn: tuple[int, ...]) -> int:
        if drawn not in states:
            states[drawn] = len(rows)
            rows.append([-1] * len(rows[0]))
        return states[drawn]

    first = number(())
    for multiset in multisets:
        layer: set[tuple[int, ...]] = {()}  # what may be drawn after so many types
        for _ in multiset:
            after: set[tuple[int, ...]] = set()
            for drawn in layer:
                for member in Counter(multiset) - Counter(drawn):
                    further = tuple(sorted((*drawn, member)))
                    rows[number(drawn)][member] = number(further)
                    after.add(further)
            layer = after
    return first


def edge_type_sets_of(
    config: ConstraintConfig, sizes: GraphSizes, statistics: GraphStatistics
) -> EdgeTypeSets:
    """Return the component that a config names."""
    if config.edge_types == "unlimited":
        statistics = replace(statistics, edge_type_sets=())
    return EdgeTypeSets(sizes, statistics)


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

    Args:
        multisets: Multisets of neighbors' kinds, by kind of the node.
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
        """Return whether all neighbors of each node together are as listed.

        Args:
            kind_N: Kind of each node.
            node_E: The node of each edge whose neighbors are read.
            neighbor_E: The kind at the other end.
        """
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

    Args:
        statistics: Of the training graphs.
    """

    offset_K: Tensor

    def __init__(self, statistics: GraphStatistics) -> None:
        super().__init__()
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


def neighbor_kinds_of(config: ConstraintConfig, statistics: GraphStatistics) -> NeighborKinds:
    """Return the component that a config names."""
    if config.neighbors == "unlimited":
        nothing = ListedNeighbors.nothing(len(statistics.attributes[0]))
        statistics = replace(statistics, parents=nothing, children=nothing)
    return NeighborKinds(statistics)


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
