"""Choosing one parent for each of several growing graphs, from the caches of a sampler."""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from layerdag.models.autoregressive import (
    NEVER,
    Candidates,
    Pointer,
    log_code,
    stub_code,
    token_codes,
)
from layerdag.models.autoregressive.sampling._cache import EncoderCache, window
from layerdag.models.autoregressive.sampling._state import Progress


@dataclass(frozen=True, eq=False)
class Choice:
    """Decisions that are being made, one for each of the encoder's rows.

    Attributes:
        row_D: Row of the encoder's caches.
        graph_D: Row of the progress.
        low_D: First position that may be chosen.
        high_D: One past the last position that may be chosen.
        reference_D: Position to measure offsets from, ``NEVER`` for none.
    """

    row_D: Tensor
    graph_D: Tensor
    low_D: Tensor
    high_D: Tensor
    reference_D: Tensor

    def at(self, index_F: Tensor) -> "Choice":
        """Return the decisions ``index_F``."""
        return Choice(*(getattr(self, field.name)[index_F] for field in fields(self)))


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

    A token that has as many children as it may have is ruled out, unless nothing else is in
    reach (of an older block that was drawn: in the block): a node must have its parents.

    Attributes:
        pointer: The model's pointer.
        cache: Keys of earlier tokens.
        progress: Plans, uses and room of earlier tokens.
        position: Position of the newest node.
    """

    pointer: Pointer
    cache: EncoderCache
    progress: Progress
    position: int

    def in_sight(self, hidden_DH: Tensor, choice: Choice) -> Scores:
        """Score the tokens in the window, and all that is older as blocks."""
        low, blocks = window(self.position - 1, self.cache.block)
        near_low_D = choice.low_D.clamp(min=low)
        near = Candidates.ranges(near_low_D, choice.high_D)
        block_low_D = choice.low_D // self.cache.block
        block_high_D = ((choice.high_D - 1) // self.cache.block + 1).clamp(max=blocks)
        near_P = self._tokens(hidden_DH, near, choice, block_high_D > block_low_D)
        near_DC = _padded(near_P, near, near_low_D)
        far = Candidates.ranges(block_low_D, block_high_D)
        if far.item_P.shape[0] == 0:
            return Scores(near_DC, near_DC.shape[1], near_low_D, block_low_D)
        far_DC = _padded(self._blocks(hidden_DH, far, choice), far, block_low_D)
        both_DC = torch.cat([near_DC, far_DC], dim=1)
        return Scores(both_DC, near_DC.shape[1], near_low_D, block_low_D)

    def inside(self, hidden_DH: Tensor, choice: Choice, block_D: Tensor) -> Scores:
        """Score the tokens of one older block each."""
        start_D = block_D * self.cache.block
        low_D = torch.maximum(choice.low_D, start_D)
        inside = Candidates.ranges(low_D, torch.minimum(choice.high_D, start_D + self.cache.block))
        score_P = self._tokens(hidden_DH, inside, choice, torch.zeros_like(low_D, dtype=torch.bool))
        score_DC = _padded(score_P, inside, low_D)
        return Scores(score_DC, score_DC.shape[1], low_D, block_D)

    def _tokens(
        self, hidden_DH: Tensor, pairs: Candidates, choice: Choice, elsewhere_D: Tensor
    ) -> Tensor:
        """Return the score of each candidate token; ``elsewhere_D``: whether there are others."""
        progress = self.progress
        graph_P, item_P = choice.graph_D[pairs.decision_P], pairs.item_P
        reference_P = choice.reference_D[pairs.decision_P]
        used_P = progress.used.at(graph_P, item_P)
        last_P = progress.last.at(graph_P, item_P)
        codes_P4 = token_codes(
            stub_code(used_P, progress.planned.at(graph_P, item_P)),
            item_P - reference_P,
            reference_P != NEVER,
            (self.position - last_P) * (last_P != NEVER),
            progress.place.layer_T[graph_P] - progress.layer.at(graph_P, item_P),
        )
        key_PK = self.cache.pointer_key.at(choice.row_D[pairs.decision_P], item_P)
        score_P = self.pointer.tokens(hidden_DH, key_PK, codes_P4, pairs)
        has_room_P = progress.room.at(graph_P, item_P) > 0
        others_D = elsewhere_D.long().index_add(0, pairs.decision_P, has_room_P.long())
        is_out_P = ~has_room_P & (others_D > 0)[pairs.decision_P]
        return score_P.masked_fill(is_out_P, -torch.inf)

    def _blocks(self, hidden_DH: Tensor, pairs: Candidates, choice: Choice) -> Tensor:
        """Return the score of each candidate block."""
        block, progress = self.cache.block, self.progress
        graph_P = choice.graph_D[pairs.decision_P]
        position_Pb = pairs.item_P[:, None] * block + torch.arange(block, device=graph_P.device)
        planned_Pb = progress.planned.data[graph_P[:, None], position_Pb]
        used_Pb = progress.used.data[graph_P[:, None], position_Pb]
        code_P = log_code((planned_Pb - used_Pb).sum(1).clamp(min=0))
        key_PK = self.cache.block_key.at(choice.row_D[pairs.decision_P], pairs.item_P)
        return self.pointer.blocks(hidden_DH, key_PK, code_P, pairs)


def _padded(score_P: Tensor, pairs: Candidates, low_D: Tensor) -> Tensor:
    """Return the scores as one row a decision; empty places hold -inf."""
    column_P = pairs.item_P - low_D[pairs.decision_P]
    columns = int(column_P.max()) + 1 if column_P.shape[0] else 0
    padded_DC = score_P.new_full((low_D.shape[0], columns), -torch.inf)
    return padded_DC.index_put((pairs.decision_P, column_P), score_P)
