"""Candidates of a node, parent scores, shared prefixes.

Candidates that agree so far, so that what they have in common is computed once.

Candidates of a graph are drawn from one state, and sharp distributions make many of them alike: a
state, its scores and its logits are then the same, and only the uniforms differ.

Scores of candidate parents for one decision per graph, from the caches of a sampler.

Candidates for the next node of every graph: kind, in-degree, parents and edge types.

All candidates of a graph are drawn from one state of the encoder, and what those that agree so far
have in common is computed once, so that they cost little beside the encoding of a node. One of them
is kept, with a probability in proportion to its weight: importance resampling inside every step of
a particle filter (Naesseth, Lindsten and Schon, Nested sequential Monte Carlo methods, 2015).

Shape letters: B graphs, D width of a state, F feature columns, G groups of rows, K codes, O
options, P pairs, Q decisions, R rows, T tokens, U uniforms, X selected graphs, b tokens of a block,
d width of a head or key, q selected decisions.
"""

from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped, UInt64
from torch import Tensor

from layerdag.models.draws import sample_from_logits, slot_uniforms
from layerdag.models.fast.constraints import DegreeConstraints, EdgeTypeSets
from layerdag.models.fast.decisions import Heads, Pointer
from layerdag.models.fast.layout import NEVER, CandidatePairs, log_code, stub_code, visible_range
from layerdag.models.fast.sampler_state import (
    SLOTS_PER_PARENT,
    CodeMasks,
    EncoderCache,
    Guidance,
    RandomSlot,
    SamplerState,
)


@dataclass(frozen=True, eq=False)
class PrefixGroups:
    """Groups of candidates about which all decisions so far are the same.

    Attributes:
        group_P: Group of each candidate.
        option_P: Number of each candidate among those of its graph.
        options: Candidates per graph.
        first_G: One candidate of each group.
    """

    group_P: Int[Tensor, " P"]
    option_P: Int[Tensor, " P"]
    options: int
    first_G: Int[Tensor, " G"]

    @classmethod
    def by_graph(cls, graphs: int, options: int, device: torch.device) -> "PrefixGroups":
        """Return one group per graph, before anything is decided."""
        candidate_P = torch.arange(graphs * options, device=device)
        return cls(
            candidate_P // options,
            candidate_P % options,
            options,
            torch.arange(graphs, device=device) * options,
        )

    @property
    def groups(self) -> int:
        """Number of groups (G)."""
        return self.first_G.shape[0]

    def of(self, value_P: Shaped[Tensor, " P"]) -> Shaped[Tensor, " G"]:
        """Return the value of each group, which all of its candidates have."""
        return value_P[self.first_G]

    def draw(
        self, logits_GK: Float[Tensor, "G K"], uniform_P: Float[Tensor, " P"]
    ) -> Int[Tensor, " P"]:
        """Return a code for each candidate, drawn from the logits of its group."""
        if self.options == 1:
            return sample_from_logits(logits_GK, uniform_P)
        uniform_GO = uniform_P.new_zeros((self.groups, self.options))
        uniform_GO[self.group_P, self.option_P] = uniform_P
        return sample_from_logits(logits_GK, uniform_GO)[self.group_P, self.option_P]

    def split(self, code_P: Int[Tensor, " P"]) -> "PrefixGroups":
        """Return the groups after one more decision, whose non-negative codes are given."""
        if self.options == 1:
            return self
        return self._numbered(self.group_P * (int(code_P.max()) + 1) + code_P, self.option_P)

    def keep(self, chosen_X: Int[Tensor, " X"]) -> "PrefixGroups":
        """Return the groups of the candidates ``chosen_X`` alone, under their new numbers."""
        return self._numbered(self.group_P[chosen_X], self.option_P[chosen_X])

    def _numbered(self, key_P: Int[Tensor, " P"], option_P: Int[Tensor, " P"]) -> "PrefixGroups":
        """Return a group for each key that occurs."""
        candidate_P = torch.arange(key_P.shape[0], device=key_P.device)
        if self.options == 1:
            return PrefixGroups(candidate_P, option_P, 1, candidate_P)
        found_G, group_P = torch.unique(key_P, return_inverse=True)
        first_G = torch.zeros_like(found_G).index_put((group_P,), candidate_P)
        return PrefixGroups(group_P, option_P, self.options, first_G)


@dataclass(frozen=True, eq=False)
class GroupStates:
    """States of decisions, one row (two under guidance) for each group of candidates.

    Attributes:
        guidance: Of the request.
        alike: The groups.
        columns: States, each of shape (Q, D).
    """

    guidance: Guidance
    alike: PrefixGroups
    columns: tuple[Float[Tensor, "Q D"], ...]

    def split(self, code_P: Int[Tensor, " P"]) -> "GroupStates":
        """Return the states of the groups after one more decision."""
        split = self.alike.split(code_P)
        return self._taken(split, split.of(self.alike.group_P))

    def keep(self, chosen_X: Int[Tensor, " X"]) -> "GroupStates":
        """Return the states of the groups of the candidates ``chosen_X``."""
        kept = self.alike.keep(chosen_X)
        return self._taken(kept, kept.of(self.alike.group_P[chosen_X]))

    def having(self, *columns: Float[Tensor, "Q D"]) -> "GroupStates":
        """Return other states of the same groups."""
        return replace(self, columns=columns)

    def of_candidates(self, chosen_X: Int[Tensor, " X"]) -> tuple[Float[Tensor, "R D"], ...]:
        """Return the states of the candidates ``chosen_X``, one row (or two) for each."""
        row_R = self.guidance.rows(self.alike.group_P[chosen_X], self.alike.groups)
        return tuple(column[row_R] for column in self.columns)

    def _taken(self, alike: PrefixGroups, group_G: Int[Tensor, " G"]) -> "GroupStates":
        """Return the states of groups that each are a part of one of these."""
        row_Q = self.guidance.rows(group_G, self.alike.groups)
        return replace(self, alike=alike, columns=tuple(column[row_Q] for column in self.columns))


@dataclass(frozen=True, eq=False)
class ParentDecisions:
    """Decisions on one parent each, one per encoder row.

    Attributes:
        row_Q: Row of the encoder's caches.
        graph_Q: Row of the sampler state.
        low_Q: First position that may be chosen.
        high_Q: One past the last position that may be chosen.
        reference_Q: Position to measure offsets from, ``NEVER`` for none.
    """

    row_Q: Int[Tensor, " Q"]
    graph_Q: Int[Tensor, " Q"]
    low_Q: Int[Tensor, " Q"]
    high_Q: Int[Tensor, " Q"]
    reference_Q: Int[Tensor, " Q"]

    def at(self, index_q: Int[Tensor, " q"]) -> "ParentDecisions":
        """Return the decisions ``index_q``."""
        return ParentDecisions(*(getattr(self, field.name)[index_q] for field in fields(self)))


@dataclass(frozen=True, eq=False)
class Scores:
    """Logits of the candidates of each decision, padded with -inf.

    Attributes:
        logits_QO: Logits of candidate tokens, then of candidate blocks.
        tokens: Number of token columns.
        first_token_Q: Position of the first token column.
        first_block_Q: Block of the first block column.
    """

    logits_QO: Float[Tensor, "Q O"]
    tokens: int
    first_token_Q: Int[Tensor, " Q"]
    first_block_Q: Int[Tensor, " Q"]


@dataclass(frozen=True, eq=False)
class ParentScorer:
    """Scores candidate parents of the node at ``position`` with the pointer of the model.

    A token without remaining capacity is ruled out unless there is no other candidate (inside a
    pooled block: no other candidate of the block), because the node must get its parents.

    Attributes:
        pointer: The model's pointer.
        cache: Keys of earlier tokens.
        state: Out-degrees, uses and capacities of earlier tokens.
        position: Position of the newest node.
    """

    pointer: Pointer
    cache: EncoderCache
    state: SamplerState
    position: int

    def score_visible(self, hidden_QD: Float[Tensor, "Q D"], decisions: ParentDecisions) -> Scores:
        """Return the scores of the tokens in the window and of the older blocks."""
        low, blocks = visible_range(self.position - 1, self.cache.block)
        near_low_Q = decisions.low_Q.clamp(min=low)
        near = CandidatePairs.ranges(near_low_Q, decisions.high_Q)
        block_low_Q = decisions.low_Q // self.cache.block
        block_high_Q = ((decisions.high_Q - 1) // self.cache.block + 1).clamp(max=blocks)
        near_P = self._tokens(hidden_QD, near, decisions, block_high_Q > block_low_Q)
        near_QO = _padded(near_P, near, near_low_Q)
        num_pooled = CandidatePairs.ranges(block_low_Q, block_high_Q)
        if num_pooled.candidate_P.shape[0] == 0:
            return Scores(near_QO, near_QO.shape[1], near_low_Q, block_low_Q)
        far_QO = _padded(self._blocks(hidden_QD, num_pooled, decisions), num_pooled, block_low_Q)
        both_QO = torch.cat([near_QO, far_QO], dim=1)
        return Scores(both_QO, near_QO.shape[1], near_low_Q, block_low_Q)

    def score_inside(
        self,
        hidden_QD: Float[Tensor, "Q D"],
        decisions: ParentDecisions,
        block_Q: Int[Tensor, " Q"],
    ) -> Scores:
        """Return the scores of the tokens of one older block per decision."""
        start_Q = block_Q * self.cache.block
        low_Q = torch.maximum(decisions.low_Q, start_Q)
        inside = CandidatePairs.ranges(
            low_Q, torch.minimum(decisions.high_Q, start_Q + self.cache.block)
        )
        score_P = self._tokens(
            hidden_QD, inside, decisions, torch.zeros_like(low_Q, dtype=torch.bool)
        )
        score_QO = _padded(score_P, inside, low_Q)
        return Scores(score_QO, score_QO.shape[1], low_Q, block_Q)

    def _tokens(
        self,
        hidden_QD: Float[Tensor, "Q D"],
        pairs: CandidatePairs,
        decisions: ParentDecisions,
        elsewhere_Q: Bool[Tensor, " Q"],
    ) -> Float[Tensor, " P"]:
        """Return the score of each candidate token; ``elsewhere_Q``: whether there are others."""
        state = self.state
        graph_P, candidate_P = decisions.graph_Q[pairs.decision_P], pairs.candidate_P
        reference_P = decisions.reference_Q[pairs.decision_P]
        used_P = state.used.at(graph_P, candidate_P)
        last_P = state.last.at(graph_P, candidate_P)
        codes_P4 = self.pointer.token_codes(
            stub_code(used_P, state.out_degree.at(graph_P, candidate_P)),
            candidate_P - reference_P,
            reference_P != NEVER,
            (self.position - last_P) * (last_P != NEVER),
            state.structure.layer_T[graph_P] - state.layer.at(graph_P, candidate_P),
        )
        key_Pd = self.cache.pointer_key.at(decisions.row_Q[pairs.decision_P], candidate_P)
        score_P = self.pointer.tokens(hidden_QD, key_Pd, codes_P4, pairs)
        has_capacity_P = state.capacity.at(graph_P, candidate_P) > 0
        others_Q = elsewhere_Q.long().index_add(0, pairs.decision_P, has_capacity_P.long())
        is_out_P = ~has_capacity_P & (others_Q > 0)[pairs.decision_P]
        return score_P.masked_fill(is_out_P, -torch.inf)

    def _blocks(
        self, hidden_QD: Float[Tensor, "Q D"], pairs: CandidatePairs, decisions: ParentDecisions
    ) -> Float[Tensor, " P"]:
        """Return the score of each candidate block."""
        block, state = self.cache.block, self.state
        graph_P = decisions.graph_Q[pairs.decision_P]
        position_Pb = pairs.candidate_P[:, None] * block + torch.arange(
            block, device=graph_P.device
        )
        out_degree_Pb = state.out_degree.data[graph_P[:, None], position_Pb]
        used_Pb = state.used.data[graph_P[:, None], position_Pb]
        code_P = log_code((out_degree_Pb - used_Pb).sum(1).clamp(min=0))
        key_Pd = self.cache.block_key.at(decisions.row_Q[pairs.decision_P], pairs.candidate_P)
        return self.pointer.blocks(hidden_QD, key_Pd, code_P, pairs)


def _padded(
    score_P: Float[Tensor, " P"], pairs: CandidatePairs, low_Q: Int[Tensor, " Q"]
) -> Float[Tensor, "Q O"]:
    """Return the scores as one row per decision, padded with -inf."""
    column_P = pairs.candidate_P - low_Q[pairs.decision_P]
    columns = int(column_P.max()) + 1 if column_P.shape[0] else 0
    padded_QO = score_P.new_full((low_Q.shape[0], columns), -torch.inf)
    return padded_QO.index_put((pairs.decision_P, column_P), score_P)


CANDIDATE_STEP = 0xD1B54A32D192ED03 - 2**64
"""Between the seeds of two candidates; odd, and no multiple of the steps between positions."""


@dataclass(frozen=True, eq=False)
class EdgesToParents:
    """One edge to each of some candidates.

    Attributes:
        candidate_X: Index of the candidate.
        parent_X: Position of its parent.
        type_X: Type of the edge.
    """

    candidate_X: Int[Tensor, " X"]
    parent_X: Int[Tensor, " X"]
    type_X: Int[Tensor, " X"]


@dataclass(frozen=True, eq=False)
class NodeCandidates:
    """Candidates for the next node, the same number for each graph.

    Attributes:
        graph_P: Row of the graph of each candidate.
        first_P: Position of the first parent, 0 in layer 0.
        kind_P: Kind.
        degree_P: In-degree.
        edges: The first parent of every candidate that has one, the second, and so on.
        state_QD: States before the other attributes are drawn, in-degree and parents left out.
        parents_QD: Mean encodings of the parents.
    """

    graph_P: Int[Tensor, " P"]
    first_P: Int[Tensor, " P"]
    kind_P: Int[Tensor, " P"]
    degree_P: Int[Tensor, " P"]
    edges: tuple[EdgesToParents, ...]
    state_QD: Float[Tensor, "Q D"]
    parents_QD: Float[Tensor, "Q D"]

    def select(self, chosen_X: Int[Tensor, " X"], guidance: Guidance) -> "NodeCandidates":
        """Return the candidates ``chosen_X``."""
        count = self.kind_P.shape[0]
        position_P = torch.full_like(self.kind_P, -1)
        position_P[chosen_X] = torch.arange(chosen_X.shape[0], device=chosen_X.device)
        state_X = guidance.rows(chosen_X, count)
        return NodeCandidates(
            self.graph_P[chosen_X],
            self.first_P[chosen_X],
            self.kind_P[chosen_X],
            self.degree_P[chosen_X],
            tuple(_kept(edges, position_P) for edges in self.edges),
            self.state_QD[state_X],
            self.parents_QD[state_X],
        )


def _kept(edges: EdgesToParents, position_P: Int[Tensor, " P"]) -> EdgesToParents:
    """Return the edges to candidates that have a place, under their new numbers."""
    position_X = position_P[edges.candidate_X]
    kept_X = (position_X >= 0).nonzero()[:, 0]
    return EdgesToParents(position_X[kept_X], edges.parent_X[kept_X], edges.type_X[kept_X])


@dataclass(frozen=True, eq=False)
class CandidateSampler:
    """Draws candidates for the node at one position.

    Attributes:
        heads: Readouts of the model.
        constraints: Constraints taken from the training graphs.
        type_sets: The edge types that go together in training graphs.
        masks: The codes that nodes can have.
        cache: Encodings and keys of earlier tokens.
        state: Of the newest token of every graph.
        guidance: Of the request.
        sample_B: Index of each graph's sample.
        seed_B: Seed of each graph.
        position: Of the node.
    """

    heads: Heads
    constraints: DegreeConstraints
    type_sets: EdgeTypeSets
    masks: CodeMasks
    cache: EncoderCache
    state: SamplerState
    guidance: Guidance
    sample_B: Int[Tensor, " B"]
    seed_B: UInt64[np.ndarray, " B"]
    position: int

    def draw(self, context_RD: Float[Tensor, "R D"], count: int) -> NodeCandidates:
        """Draw ``count`` candidates for the next node of every graph.

        The first candidate is the node that is drawn with a count of 1.

        Args:
            context_RD: States of the decisions about the node.
            count: Candidates per graph.
        """
        alike = PrefixGroups.by_graph(self.seed_B.shape[0], count, context_RD.device)
        graph_P, seed_P = alike.group_P, self._seeds(count)
        uniform_PU = self._uniforms(seed_P, range(RandomSlot.ATTRIBUTE))
        first_P, states = self._first_parents(
            GroupStates(self.guidance, alike, (context_RD,)), uniform_PU
        )
        kind_P, states = self._kinds(states, graph_P, first_P, uniform_PU)
        degree_P = self._degrees(states, kind_P, first_P, uniform_PU)
        (state_QD,) = states.of_candidates(torch.arange(graph_P.shape[0], device=graph_P.device))
        types_P = self.type_sets.start(kind_P, degree_P)
        states = states.split(degree_P)
        edges, sum_QD = self._parents(graph_P, states, first_P, degree_P, types_P, seed_P)
        parents_QD = sum_QD / self.guidance.duplicate(degree_P).clamp(min=1)[:, None]
        return NodeCandidates(graph_P, first_P, kind_P, degree_P, edges, state_QD, parents_QD)

    def _seeds(self, count: int) -> UInt64[np.ndarray, " P"]:
        """Return the seed of each candidate; the first of a graph has the seed of the graph."""
        step_O = (np.arange(count) * CANDIDATE_STEP).view(np.uint64)
        return (self.seed_B[:, None] + step_O).reshape(-1)

    def _uniforms(self, seed_P: UInt64[np.ndarray, " P"], slots: range) -> Float[Tensor, "P U"]:
        """Return uniforms for decisions about the node, shape (candidates, slots)."""
        uniform_PU = slot_uniforms(seed_P, np.full(seed_P.shape, self.position), slots)
        return uniform_PU.to(self.sample_B.device)

    def _first_parents(
        self, states: GroupStates, uniform_PU: Float[Tensor, "P U"]
    ) -> tuple[Int[Tensor, " P"], GroupStates]:
        """Draw the first parent (0 in layer 0); return it with the states of the kinds."""
        state, graph_P = self.state, states.alike.group_P
        first_P = torch.zeros_like(graph_P)
        chosen_X = (state.structure.layer_T[graph_P] > 0).nonzero()[:, 0]
        if chosen_X.shape[0]:
            chosen = states.keep(chosen_X)
            graph_G = chosen.alike.of(graph_P[chosen_X])
            span = (state.before_start_B[graph_G], state.layer_start_B[graph_G])
            decisions = self._decisions(graph_G, *span, state.sibling_B[graph_G])
            u_X2 = uniform_PU[chosen_X, RandomSlot.FIRST_PARENT : RandomSlot.FIRST_PARENT + 2]
            first_P[chosen_X] = self._one_parent(chosen, decisions, u_X2)
        states = states.split(first_P)
        graph_G, parent_G = states.alike.of(graph_P), states.alike.of(first_P)
        is_child_G = state.structure.layer_T[graph_G] > 0
        used_G, out_degree_G = (
            part.at(graph_G, parent_G).masked_fill(~is_child_G, 0)
            for part in (state.used, state.out_degree)
        )
        is_child_Q = self.guidance.duplicate(is_child_G)
        parent_QD = self._encoding(graph_G, parent_G).masked_fill(~is_child_Q[:, None], 0.0)
        stub_Q = self.guidance.duplicate(stub_code(used_G, out_degree_G))
        return first_P, states.having(self.heads.kind_state(states.columns[0], parent_QD, stub_Q))

    def _kinds(
        self,
        states: GroupStates,
        graph_P: Int[Tensor, " P"],
        first_P: Int[Tensor, " P"],
        uniform_PU: Float[Tensor, "P U"],
    ) -> tuple[Int[Tensor, " P"], GroupStates]:
        """Draw the kind within the constraints; return it with the states of the in-degrees."""
        logits_GK = self.guidance.merge(self.heads.kind_readout(states.columns[0]))
        logits_GK = self.constraints.limit_kinds(logits_GK, states.alike.of(first_P))
        sample_G = self.sample_B[states.alike.of(graph_P)]
        logits_GK = self.masks.limit(logits_GK, self.masks.graph_BF[sample_G], 0)
        kind_P = states.alike.draw(logits_GK, uniform_PU[:, RandomSlot.KIND])
        states = states.split(kind_P)
        kind_Q = self.guidance.duplicate(states.alike.of(kind_P))
        return kind_P, states.having(self.heads.degree_state(states.columns[0], kind_Q))

    def _degrees(
        self,
        states: GroupStates,
        kind_P: Int[Tensor, " P"],
        first_P: Int[Tensor, " P"],
        uniform_PU: Float[Tensor, "P U"],
    ) -> Int[Tensor, " P"]:
        """Draw the in-degree within the constraints of the kind."""
        counter, alike = self.heads.in_degree, states.alike
        logits_GK = self.guidance.merge(self.heads.degree_readout(states.columns[0]))
        logits_GK = self.constraints.limit_degrees(
            logits_GK, counter, alike.of(kind_P), alike.of(first_P)
        )
        logits_GK = self.type_sets.limit_degrees(logits_GK, counter, alike.of(kind_P))
        degree_P = counter.decode(
            alike.draw(logits_GK, uniform_PU[:, RandomSlot.IN_DEGREE]),
            uniform_PU[:, RandomSlot.IN_DEGREE + 1],
        )
        return self.constraints.clamp(degree_P, kind_P, first_P)

    def _parents(
        self,
        graph_P: Int[Tensor, " P"],
        states: GroupStates,
        first_P: Int[Tensor, " P"],
        degree_P: Int[Tensor, " P"],
        types_P: Int[Tensor, " P"],
        seed_P: UInt64[np.ndarray, " P"],
    ) -> tuple[tuple[EdgesToParents, ...], Float[Tensor, "Q D"]]:
        """Draw further parents and all edge types; return the sum of the parents' encodings, too.

        The states are those of the in-degrees, by groups that have the same in-degree.
        """
        edges: list[EdgesToParents] = []
        count, (state_QD,) = graph_P.shape[0], states.columns
        sum_RD = state_QD.new_zeros((self.guidance.duplicate(graph_P).shape[0], state_QD.shape[1]))
        chosen_X = (degree_P > 0).nonzero()[:, 0]
        states = states.having(state_QD, torch.zeros_like(state_QD)).keep(chosen_X)
        parent_X, rank = first_P[chosen_X], 0
        while chosen_X.shape[0]:
            open_X = degree_P[chosen_X] - rank - 1
            states = self._after_parent(states, graph_P[chosen_X], parent_X, open_X)
            slot = RandomSlot.FURTHER_PARENT + SLOTS_PER_PARENT * rank
            u_X3 = self._uniforms(seed_P[chosen_X.cpu().numpy()], range(slot, slot + 3))
            type_GK = self.guidance.merge(self.heads.type_readout(states.columns[2]))
            type_GK = self.type_sets.limit(type_GK, states.alike.of(types_P[chosen_X]))
            type_X = states.alike.draw(type_GK, u_X3[:, 2])
            edges.append(EdgesToParents(chosen_X, parent_X, type_X))
            if self.type_sets.any_listed:
                types_P[chosen_X] = self.type_sets.read(types_P[chosen_X], type_X)
                states = states.split(type_X)
            ended_X, more_X = (open_X == 0).nonzero()[:, 0], (open_X > 0).nonzero()[:, 0]
            sum_RD[self.guidance.rows(chosen_X[ended_X], count)] = states.of_candidates(ended_X)[1]
            states, chosen_X, rank = states.keep(more_X), chosen_X[more_X], rank + 1
            if chosen_X.shape[0]:
                decisions = self._further(
                    states.alike, graph_P[chosen_X], parent_X[more_X], open_X[more_X]
                )
                after = states.having(states.columns[2])
                parent_X = self._one_parent(after, decisions, u_X3[more_X])
                states = states.having(*states.columns[:2]).split(parent_X)
        return tuple(edges), sum_RD

    def _after_parent(
        self,
        states: GroupStates,
        graph_X: Int[Tensor, " X"],
        parent_X: Int[Tensor, " X"],
        open_X: Int[Tensor, " X"],
    ) -> GroupStates:
        """Return the states of a node, the sums of its parents and the states after one more."""
        alike, (state_QD, sum_QD) = states.alike, states.columns
        parent_QD = self._encoding(alike.of(graph_X), alike.of(parent_X))
        sum_QD = sum_QD + parent_QD
        open_code_Q = self.guidance.duplicate(self.heads.in_degree.encode(alike.of(open_X)))
        after_QD = self.heads.further_state(state_QD, parent_QD, open_code_Q, sum_QD)
        return states.having(state_QD, sum_QD, after_QD)

    def _further(
        self,
        alike: PrefixGroups,
        graph_X: Int[Tensor, " X"],
        parent_X: Int[Tensor, " X"],
        open_X: Int[Tensor, " X"],
    ) -> ParentDecisions:
        """Return the decision of each group on the parent before the one chosen last."""
        graph_G, parent_G, open_G = map(alike.of, (graph_X, parent_X, open_X))
        return self._decisions(graph_G, open_G, parent_G, parent_G)

    def _encoding(
        self, graph_X: Int[Tensor, " X"], parent_X: Int[Tensor, " X"]
    ) -> Float[Tensor, "R D"]:
        """Return the encodings of the positions ``parent_X``, for both rows of each pair."""
        encoder_R = self.guidance.rows(graph_X, self.seed_B.shape[0])
        encoded_RD: Tensor = self.cache.encoded.at(encoder_R, self.guidance.duplicate(parent_X))
        return encoded_RD

    def _decisions(
        self,
        graph_X: Int[Tensor, " X"],
        low_X: Int[Tensor, " X"],
        high_X: Int[Tensor, " X"],
        reference_X: Int[Tensor, " X"],
    ) -> ParentDecisions:
        """Return a decision for each encoder row of the graphs ``graph_X``."""
        values = (self.guidance.duplicate(v) for v in (graph_X, low_X, high_X, reference_X))
        return ParentDecisions(self.guidance.rows(graph_X, self.seed_B.shape[0]), *values)

    def _one_parent(
        self,
        states: GroupStates,
        decisions: ParentDecisions,
        u_X: Float[Tensor, "X U"],
    ) -> Int[Tensor, " X"]:
        """Draw one parent per candidate: a token, or a block and then a token inside."""
        scorer = ParentScorer(self.heads.pointer, self.cache, self.state, self.position)
        states = states.having(scorer.pointer.activate(states.columns[0]))
        scores, group_X = scorer.score_visible(states.columns[0], decisions), states.alike.group_P
        column_X = states.alike.draw(self.guidance.merge(scores.logits_QO), u_X[:, 0])
        parent_X = scores.first_token_Q[group_X] + column_X
        far_X = (column_X >= scores.tokens).nonzero()[:, 0]
        if far_X.shape[0] == 0:
            return parent_X
        far = states.keep(far_X).split(column_X[far_X])
        group_G = far.alike.of(group_X[far_X])
        block_G = scores.first_block_Q[group_G] + far.alike.of(column_X[far_X]) - scores.tokens
        inside = scorer.score_inside(
            far.columns[0],
            decisions.at(self.guidance.rows(group_G, states.alike.groups)),
            self.guidance.duplicate(block_G),
        )
        inside_X = far.alike.draw(self.guidance.merge(inside.logits_QO), u_X[far_X, 1])
        parent_X[far_X] = inside.first_token_Q[far.alike.group_P] + inside_X
        return parent_X
