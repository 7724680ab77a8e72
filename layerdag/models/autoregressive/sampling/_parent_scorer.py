"""Scores of candidate parents for one decision per graph, from the caches of a sampler.

Shape letters: D decisions (one per encoder row), F some of them, P pairs of decision and candidate,
C columns of candidates, H width of a state, K width of a key, b positions of a block.
"""

from dataclasses import dataclass, fields

import torch
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
        row_D: Row of the encoder's caches.
        graph_D: Row of the sampler state.
        low_D: First position that may be chosen.
        high_D: One past the last position that may be chosen.
        reference_D: Position to measure offsets from, ``NEVER`` for none.
    """

    row_D: Tensor
    graph_D: Tensor
    low_D: Tensor
    high_D: Tensor
    reference_D: Tensor

    def at(self, index_F: Tensor) -> "ParentDecisions":
        """Return the decisions ``index_F``."""
        return ParentDecisions(*(getattr(self, field.name)[index_F] for field in fields(self)))


@dataclass(frozen=True, eq=False)
class Scores:
    """Logits of the candidates of each decision, padded with -inf.

    Attributes:
        logits_DC: Logits of candidate tokens, then of candidate blocks.
        tokens: Number of token columns.
        first_token_D: Position of the first token column.
        first_block_D: Block of the first block column.
    """

    logits_DC: Tensor
    tokens: int
    first_token_D: Tensor
    first_block_D: Tensor


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

    def score_visible(self, hidden_DH: Tensor, decisions: ParentDecisions) -> Scores:
        """Return the scores of the tokens in the window and of the older blocks."""
        low, blocks = visible_range(self.position - 1, self.cache.block)
        near_low_D = decisions.low_D.clamp(min=low)
        near = CandidatePairs.ranges(near_low_D, decisions.high_D)
        block_low_D = decisions.low_D // self.cache.block
        block_high_D = ((decisions.high_D - 1) // self.cache.block + 1).clamp(max=blocks)
        near_P = self._tokens(hidden_DH, near, decisions, block_high_D > block_low_D)
        near_DC = _padded(near_P, near, near_low_D)
        num_pooled = CandidatePairs.ranges(block_low_D, block_high_D)
        if num_pooled.candidate_P.shape[0] == 0:
            return Scores(near_DC, near_DC.shape[1], near_low_D, block_low_D)
        far_DC = _padded(self._blocks(hidden_DH, num_pooled, decisions), num_pooled, block_low_D)
        both_DC = torch.cat([near_DC, far_DC], dim=1)
        return Scores(both_DC, near_DC.shape[1], near_low_D, block_low_D)

    def score_inside(
        self, hidden_DH: Tensor, decisions: ParentDecisions, block_D: Tensor
    ) -> Scores:
        """Return the scores of the tokens of one older block per decision."""
        start_D = block_D * self.cache.block
        low_D = torch.maximum(decisions.low_D, start_D)
        inside = CandidatePairs.ranges(
            low_D, torch.minimum(decisions.high_D, start_D + self.cache.block)
        )
        score_P = self._tokens(
            hidden_DH, inside, decisions, torch.zeros_like(low_D, dtype=torch.bool)
        )
        score_DC = _padded(score_P, inside, low_D)
        return Scores(score_DC, score_DC.shape[1], low_D, block_D)

    def _tokens(
        self,
        hidden_DH: Tensor,
        pairs: CandidatePairs,
        decisions: ParentDecisions,
        elsewhere_D: Tensor,
    ) -> Tensor:
        """Return the score of each candidate token; ``elsewhere_D``: whether there are others."""
        state = self.state
        graph_P, candidate_P = decisions.graph_D[pairs.decision_P], pairs.candidate_P
        reference_P = decisions.reference_D[pairs.decision_P]
        used_P = state.used.at(graph_P, candidate_P)
        last_P = state.last.at(graph_P, candidate_P)
        codes_P4 = self.pointer.token_codes(
            stub_code(used_P, state.out_degree.at(graph_P, candidate_P)),
            candidate_P - reference_P,
            reference_P != NEVER,
            (self.position - last_P) * (last_P != NEVER),
            state.structure.layer_T[graph_P] - state.layer.at(graph_P, candidate_P),
        )
        key_PK = self.cache.pointer_key.at(decisions.row_D[pairs.decision_P], candidate_P)
        score_P = self.pointer.tokens(hidden_DH, key_PK, codes_P4, pairs)
        has_capacity_P = state.capacity.at(graph_P, candidate_P) > 0
        others_D = elsewhere_D.long().index_add(0, pairs.decision_P, has_capacity_P.long())
        is_out_P = ~has_capacity_P & (others_D > 0)[pairs.decision_P]
        return score_P.masked_fill(is_out_P, -torch.inf)

    def _blocks(
        self, hidden_DH: Tensor, pairs: CandidatePairs, decisions: ParentDecisions
    ) -> Tensor:
        """Return the score of each candidate block."""
        block, state = self.cache.block, self.state
        graph_P = decisions.graph_D[pairs.decision_P]
        position_Pb = pairs.candidate_P[:, None] * block + torch.arange(
            block, device=graph_P.device
        )
        out_degree_Pb = state.out_degree.data[graph_P[:, None], position_Pb]
        used_Pb = state.used.data[graph_P[:, None], position_Pb]
        code_P = log_code((out_degree_Pb - used_Pb).sum(1).clamp(min=0))
        key_PK = self.cache.block_key.at(decisions.row_D[pairs.decision_P], pairs.candidate_P)
        return self.pointer.blocks(hidden_DH, key_PK, code_P, pairs)


def _padded(score_P: Tensor, pairs: CandidatePairs, low_D: Tensor) -> Tensor:
    """Return the scores as one row per decision, padded with -inf."""
    column_P = pairs.candidate_P - low_D[pairs.decision_P]
    columns = int(column_P.max()) + 1 if column_P.shape[0] else 0
    padded_DC = score_P.new_full((low_D.shape[0], columns), -torch.inf)
    return padded_DC.index_put((pairs.decision_P, column_P), score_P)
