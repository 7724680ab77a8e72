"""Candidates for the next node of every graph: kind, in-degree, parents and edge types.

All candidates of a graph are drawn from one state of the encoder, so that they cost little beside
the encoding of a node. One of them is kept, with a probability in proportion to its weight:
importance resampling inside every step of a particle filter (Naesseth, Lindsten and Schon, Nested
sequential Monte Carlo methods, 2015).

Shape letters: B graphs (the active ones), D width of a state, K codes, O options, P pairs (of graph
and candidate, those of a graph one after another), Q decisions (about candidates: P or 2 P, or of
selected ones), R rows (of the encoder: B or 2 B), T tokens, U uniforms, X selected graphs (or
candidates).
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int, UInt64
from torch import Tensor

from layerdag.models.autoregressive import DegreeConstraints, Heads, stub_code
from layerdag.models.autoregressive.sampling._cache import EncoderCache
from layerdag.models.autoregressive.sampling._guidance import Guidance
from layerdag.models.autoregressive.sampling._parent_scorer import ParentDecisions, ParentScorer
from layerdag.models.autoregressive.sampling._slots import SLOTS_PER_PARENT, RandomSlot
from layerdag.models.autoregressive.sampling._state import SamplerState
from layerdag.models.draws import sample_from_logits, slot_uniforms

_CANDIDATE_STEP = 0xD1B54A32D192ED03
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
        cache: Encodings and keys of earlier tokens.
        state: Of the newest token of every graph.
        guidance: Of the request.
        seed_B: Seed of each graph.
        position: Of the node.
    """

    heads: Heads
    constraints: DegreeConstraints
    cache: EncoderCache
    state: SamplerState
    guidance: Guidance
    seed_B: UInt64[np.ndarray, " B"]
    position: int

    def draw(self, context_RD: Float[Tensor, "R D"], count: int) -> NodeCandidates:
        """Draw ``count`` candidates for the next node of every graph.

        The first candidate is the node that is drawn with a count of 1.

        Args:
            context_RD: States of the decisions about the node.
            count: Candidates per graph.
        """
        rows = self.seed_B.shape[0]
        graph_P = torch.arange(rows, device=context_RD.device).repeat_interleave(count)
        seed_P = self._seeds(count)
        uniform_PU = self._uniforms(seed_P, range(RandomSlot.ATTRIBUTE))
        context_QD = context_RD[self.guidance.rows(graph_P, rows)]
        first_P, kind_QD = self._first_parents(graph_P, context_QD, uniform_PU)
        logits_PK = self.guidance.merge(self.heads.kind_readout(kind_QD))
        kind_P = sample_from_logits(
            self.constraints.limit_kinds(logits_PK, first_P), uniform_PU[:, RandomSlot.KIND]
        )
        state_QD = self.heads.degree_state(kind_QD, self.guidance.duplicate(kind_P))
        degree_P = self._degrees(state_QD, kind_P, first_P, uniform_PU)
        edges, parents_QD = self._parents(graph_P, state_QD, first_P, degree_P, seed_P)
        return NodeCandidates(graph_P, first_P, kind_P, degree_P, edges, state_QD, parents_QD)

    def _seeds(self, count: int) -> UInt64[np.ndarray, " P"]:
        """Return the seed of each candidate; the first of a graph has the seed of the graph."""
        step_O = np.arange(count, dtype=np.uint64) * np.uint64(_CANDIDATE_STEP)
        return (self.seed_B[:, None] + step_O).reshape(-1)

    def _uniforms(self, seed_P: UInt64[np.ndarray, " P"], slots: range) -> Float[Tensor, "P U"]:
        """Return uniforms for decisions about the node, shape (candidates, slots)."""
        uniform_PU = slot_uniforms(seed_P, np.full(seed_P.shape, self.position), slots)
        return uniform_PU.to(self.state.sample_B.device)

    def _first_parents(
        self,
        graph_P: Int[Tensor, " P"],
        context_QD: Float[Tensor, "Q D"],
        uniform_PU: Float[Tensor, "P U"],
    ) -> tuple[Int[Tensor, " P"], Float[Tensor, "Q D"]]:
        """Draw the first parent (0 in layer 0); return it with the state of the kind."""
        state, count = self.state, graph_P.shape[0]
        chosen_X = (state.structure.layer_T[graph_P] > 0).nonzero()[:, 0]
        first_P, stub_P = torch.zeros_like(graph_P), torch.zeros_like(graph_P)
        parent_QD = torch.zeros_like(context_QD)
        if chosen_X.shape[0]:
            graph_X, state_X = graph_P[chosen_X], self.guidance.rows(chosen_X, count)
            span = (state.before_start_B[graph_X], state.layer_start_B[graph_X])
            decisions = self._decisions(graph_X, *span, state.sibling_B[graph_X])
            u_X2 = uniform_PU[chosen_X, RandomSlot.FIRST_PARENT : RandomSlot.FIRST_PARENT + 2]
            parent_X = self._one_parent(context_QD[state_X], decisions, u_X2)
            first_P[chosen_X] = parent_X
            out_degree_X = state.out_degree.at(graph_X, parent_X)
            stub_P[chosen_X] = stub_code(state.used.at(graph_X, parent_X), out_degree_X)
            parent_QD[state_X] = self._encoding(graph_X, parent_X)
        stub_Q = self.guidance.duplicate(stub_P)
        return first_P, self.heads.kind_state(context_QD, parent_QD, stub_Q)

    def _degrees(
        self,
        state_QD: Float[Tensor, "Q D"],
        kind_P: Int[Tensor, " P"],
        first_P: Int[Tensor, " P"],
        uniform_PU: Float[Tensor, "P U"],
    ) -> Int[Tensor, " P"]:
        """Draw the in-degree within the constraints of the kind."""
        counter = self.heads.in_degree
        logits_PK = self.guidance.merge(self.heads.degree_readout(state_QD))
        logits_PK = self.constraints.limit_degrees(logits_PK, counter, kind_P, first_P)
        degree_P = counter.decode(
            sample_from_logits(logits_PK, uniform_PU[:, RandomSlot.IN_DEGREE]),
            uniform_PU[:, RandomSlot.IN_DEGREE + 1],
        )
        return self.constraints.clamp(degree_P, kind_P, first_P)

    def _parents(
        self,
        graph_P: Int[Tensor, " P"],
        state_QD: Float[Tensor, "Q D"],
        first_P: Int[Tensor, " P"],
        degree_P: Int[Tensor, " P"],
        seed_P: UInt64[np.ndarray, " P"],
    ) -> tuple[tuple[EdgesToParents, ...], Float[Tensor, "Q D"]]:
        """Draw further parents and all edge types; return the mean encoding of the parents, too."""
        edges: list[EdgesToParents] = []
        sum_QD = torch.zeros_like(state_QD)
        chosen_X = (degree_P > 0).nonzero()[:, 0]
        parent_X, rank = first_P[chosen_X], 0
        while chosen_X.shape[0]:
            graph_X, open_X = graph_P[chosen_X], degree_P[chosen_X] - rank - 1
            state_X = self.guidance.rows(chosen_X, graph_P.shape[0])
            parent_RD = self._encoding(graph_X, parent_X)
            sum_QD[state_X] += parent_RD
            after_RD = self.heads.further_state(
                state_QD[state_X], parent_RD, self.guidance.duplicate(open_X), sum_QD[state_X]
            )
            slot = RandomSlot.FURTHER_PARENT + SLOTS_PER_PARENT * rank
            u_X3 = self._uniforms(seed_P[chosen_X.cpu().numpy()], range(slot, slot + 3))
            type_XK = self.guidance.merge(self.heads.type_readout(after_RD))
            type_X = sample_from_logits(type_XK, u_X3[:, 2])
            edges.append(EdgesToParents(chosen_X, parent_X, type_X))
            more_X = (open_X > 0).nonzero()[:, 0]
            more_R = self.guidance.rows(more_X, chosen_X.shape[0])
            chosen_X, parent_X, rank = chosen_X[more_X], parent_X[more_X], rank + 1
            if chosen_X.shape[0]:
                decisions = self._decisions(graph_X[more_X], open_X[more_X], parent_X, parent_X)
                parent_X = self._one_parent(after_RD[more_R], decisions, u_X3[more_X])
        return tuple(edges), sum_QD / self.guidance.duplicate(degree_P).clamp(min=1)[:, None]

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
        state_QD: Float[Tensor, "Q D"],
        decisions: ParentDecisions,
        u_X: Float[Tensor, "X U"],
    ) -> Int[Tensor, " X"]:
        """Draw one parent per decision: a token, or a block and then a token inside."""
        scorer = ParentScorer(self.heads.pointer, self.cache, self.state, self.position)
        hidden_QD = scorer.pointer.activate(state_QD)
        scores = scorer.score_visible(hidden_QD, decisions)
        column_X = sample_from_logits(self.guidance.merge(scores.logits_QO), u_X[:, 0])
        count = column_X.shape[0]
        parent_X = scores.first_token_Q[:count] + column_X
        far_X = (column_X >= scores.tokens).nonzero()[:, 0]
        if far_X.shape[0] == 0:
            return parent_X
        far_Q = self.guidance.rows(far_X, count)
        block_X = scores.first_block_Q[far_X] + column_X[far_X] - scores.tokens
        inside = scorer.score_inside(
            hidden_QD[far_Q], decisions.at(far_Q), self.guidance.duplicate(block_X)
        )
        inside_X = sample_from_logits(self.guidance.merge(inside.logits_QO), u_X[far_X, 1])
        parent_X[far_X] = inside.first_token_Q[: far_X.shape[0]] + inside_X
        return parent_X
