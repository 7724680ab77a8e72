"""Scores of candidate parents for one decision per graph, from the caches of a sampler.

Shape letters: D width of a state, O options, P pairs, Q decisions (by encoder row), T tokens, b
tokens of a block, d width of a head or key, q selected decisions.
"""

from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from layerdag.models.autoregressive import (
    NEVER,
    CandidatePairs,
    Pointer,
    log_code,
    stub_code,
)
from layerdag.models.autoregressive.sampling._cache import EncoderCache, visible_range
from layerdag.models.autoregressive.sampling._state import SamplerState


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
