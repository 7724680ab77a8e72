"""Candidates for the next node of every graph: kind, in-degree, parents and edge types.

All candidates of a graph are drawn from one state of the encoder, so that they cost little beside
the encoding of a node. One of them is kept, with a probability in proportion to its weight:
importance resampling inside every step of a particle filter (Naesseth, Lindsten and Schon, Nested
sequential Monte Carlo methods, 2015).

Shape letters: B graphs (the active ones), C candidates (of all graphs; those of a graph follow one
another), D width of a state, K codes, O options, Q decisions (by encoder row), R rows of the
encoder (B or 2 B), S states of candidates (C or 2 C), U uniforms, X selected candidates.
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
        graph_C: Row of the graph of each candidate.
        first_C: Position of the first parent, 0 in layer 0.
        kind_C: Kind.
        degree_C: In-degree.
        edges: The first parent of every candidate that has one, the second, and so on.
        state_SD: States before the other attributes are drawn, in-degree and parents left out.
        parents_SD: Mean encodings of the parents.
    """

    graph_C: Int[Tensor, " C"]
    first_C: Int[Tensor, " C"]
    kind_C: Int[Tensor, " C"]
    degree_C: Int[Tensor, " C"]
    edges: tuple[EdgesToParents, ...]
    state_SD: Float[Tensor, "S D"]
    parents_SD: Float[Tensor, "S D"]

    def select(self, chosen_X: Int[Tensor, " X"], guidance: Guidance) -> "NodeCandidates":
        """Return the candidates ``chosen_X``."""
        count = self.kind_C.shape[0]
        place_C = torch.full_like(self.kind_C, -1)
        place_C[chosen_X] = torch.arange(chosen_X.shape[0], device=chosen_X.device)
        state_X = guidance.rows(chosen_X, count)
        return NodeCandidates(
            self.graph_C[chosen_X],
            self.first_C[chosen_X],
            self.kind_C[chosen_X],
            self.degree_C[chosen_X],
            tuple(_kept(edges, place_C) for edges in self.edges),
            self.state_SD[state_X],
            self.parents_SD[state_X],
        )


def _kept(edges: EdgesToParents, place_C: Int[Tensor, " C"]) -> EdgesToParents:
    """Return the edges to candidates that have a place, under their new numbers."""
    place_X = place_C[edges.candidate_X]
    kept_X = (place_X >= 0).nonzero()[:, 0]
    return EdgesToParents(place_X[kept_X], edges.parent_X[kept_X], edges.type_X[kept_X])


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
        graph_C = torch.arange(rows, device=context_RD.device).repeat_interleave(count)
        seed_C = self._seeds(count)
        uniform_CU = self._uniforms(seed_C, range(RandomSlot.ATTRIBUTE))
        context_SD = context_RD[self.guidance.rows(graph_C, rows)]
        first_C, kind_SD = self._first_parents(graph_C, context_SD, uniform_CU)
        logits_CK = self.guidance.merge(self.heads.kind_readout(kind_SD))
        kind_C = sample_from_logits(
            self.constraints.limit_kinds(logits_CK, first_C), uniform_CU[:, RandomSlot.KIND]
        )
        state_SD = self.heads.degree_state(kind_SD, self.guidance.duplicate(kind_C))
        degree_C = self._degrees(state_SD, kind_C, first_C, uniform_CU)
        edges, parents_SD = self._parents(graph_C, state_SD, first_C, degree_C, seed_C)
        return NodeCandidates(graph_C, first_C, kind_C, degree_C, edges, state_SD, parents_SD)

    def _seeds(self, count: int) -> UInt64[np.ndarray, " C"]:
        """Return the seed of each candidate; the first of a graph has the seed of the graph."""
        step_O = np.arange(count, dtype=np.uint64) * np.uint64(_CANDIDATE_STEP)
        return (self.seed_B[:, None] + step_O).reshape(-1)

    def _uniforms(self, seed_C: UInt64[np.ndarray, " C"], slots: range) -> Float[Tensor, "C U"]:
        """Return uniforms for decisions about the node, shape (candidates, slots)."""
        uniform_CU = slot_uniforms(seed_C, np.full(seed_C.shape, self.position), slots)
        return uniform_CU.to(self.state.sample_B.device)

    def _first_parents(
        self,
        graph_C: Int[Tensor, " C"],
        context_SD: Float[Tensor, "S D"],
        uniform_CU: Float[Tensor, "C U"],
    ) -> tuple[Int[Tensor, " C"], Float[Tensor, "S D"]]:
        """Draw the first parent (0 in layer 0); return it with the state of the kind."""
        state, count = self.state, graph_C.shape[0]
        chosen_X = (state.structure.layer_T[graph_C] > 0).nonzero()[:, 0]
        first_C, stub_C = torch.zeros_like(graph_C), torch.zeros_like(graph_C)
        parent_SD = torch.zeros_like(context_SD)
        if chosen_X.shape[0]:
            graph_X, state_X = graph_C[chosen_X], self.guidance.rows(chosen_X, count)
            span = (state.before_start_B[graph_X], state.layer_start_B[graph_X])
            decisions = self._decisions(graph_X, *span, state.sibling_B[graph_X])
            u_X2 = uniform_CU[chosen_X, RandomSlot.FIRST_PARENT : RandomSlot.FIRST_PARENT + 2]
            parent_X = self._one_parent(context_SD[state_X], decisions, u_X2)
            first_C[chosen_X] = parent_X
            out_degree_X = state.out_degree.at(graph_X, parent_X)
            stub_C[chosen_X] = stub_code(state.used.at(graph_X, parent_X), out_degree_X)
            parent_SD[state_X] = self._encoding(graph_X, parent_X)
        stub_S = self.guidance.duplicate(stub_C)
        return first_C, self.heads.kind_state(context_SD, parent_SD, stub_S)

    def _degrees(
        self,
        state_SD: Float[Tensor, "S D"],
        kind_C: Int[Tensor, " C"],
        first_C: Int[Tensor, " C"],
        uniform_CU: Float[Tensor, "C U"],
    ) -> Int[Tensor, " C"]:
        """Draw the in-degree within the constraints of the kind."""
        counter = self.heads.in_degree
        logits_CK = self.guidance.merge(self.heads.degree_readout(state_SD))
        logits_CK = self.constraints.limit_degrees(logits_CK, counter, kind_C, first_C)
        degree_C = counter.decode(
            sample_from_logits(logits_CK, uniform_CU[:, RandomSlot.IN_DEGREE]),
            uniform_CU[:, RandomSlot.IN_DEGREE + 1],
        )
        return self.constraints.clamp(degree_C, kind_C, first_C)

    def _parents(
        self,
        graph_C: Int[Tensor, " C"],
        state_SD: Float[Tensor, "S D"],
        first_C: Int[Tensor, " C"],
        degree_C: Int[Tensor, " C"],
        seed_C: UInt64[np.ndarray, " C"],
    ) -> tuple[tuple[EdgesToParents, ...], Float[Tensor, "S D"]]:
        """Draw further parents and all edge types; return the mean encoding of the parents, too."""
        edges: list[EdgesToParents] = []
        sum_SD = torch.zeros_like(state_SD)
        chosen_X = (degree_C > 0).nonzero()[:, 0]
        parent_X, rank = first_C[chosen_X], 0
        while chosen_X.shape[0]:
            graph_X, open_X = graph_C[chosen_X], degree_C[chosen_X] - rank - 1
            state_X = self.guidance.rows(chosen_X, graph_C.shape[0])
            parent_RD = self._encoding(graph_X, parent_X)
            sum_SD[state_X] += parent_RD
            after_RD = self.heads.further_state(
                state_SD[state_X], parent_RD, self.guidance.duplicate(open_X)
            )
            slot = RandomSlot.FURTHER_PARENT + SLOTS_PER_PARENT * rank
            u_X3 = self._uniforms(seed_C[chosen_X.cpu().numpy()], range(slot, slot + 3))
            type_XK = self.guidance.merge(self.heads.type_readout(after_RD))
            type_X = sample_from_logits(type_XK, u_X3[:, 2])
            edges.append(EdgesToParents(chosen_X, parent_X, type_X))
            more_X = (open_X > 0).nonzero()[:, 0]
            more_R = self.guidance.rows(more_X, chosen_X.shape[0])
            chosen_X, parent_X, rank = chosen_X[more_X], parent_X[more_X], rank + 1
            if chosen_X.shape[0]:
                decisions = self._decisions(graph_X[more_X], open_X[more_X], parent_X, parent_X)
                parent_X = self._one_parent(after_RD[more_R], decisions, u_X3[more_X])
        return tuple(edges), sum_SD / self.guidance.duplicate(degree_C).clamp(min=1)[:, None]

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
