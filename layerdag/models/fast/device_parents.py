"""Draws of parents with fixed shapes: every decision scores its whole window and all older blocks.

Positions that a decision may not choose are scored like the others, and then ruled out.

Shape letters: B graphs, D width of a state, F feature columns, G groups of rows, K codes, O
options, P pairs, Q decisions, R rows, T tokens, U uniforms, X selected graphs, Z attention blocks,
d width of a head or key, v visible keys.
Pairs are candidates of graphs; under guidance there are twice as many decisions (Q) as choices (X).
"""

import math
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from layerdag.models.draws import sample_if_possible
from layerdag.models.fast.compiled_sampler import LinearMap
from layerdag.models.fast.device_rows import (
    EncoderRows,
    Extent,
    Feature,
    GraphRows,
    Node,
    RowNumbers,
    SamplingTask,
    window,
)
from layerdag.models.fast.layout import BLOCK_CODES, NEVER, TOKEN_CODES, log_code, stub_code


@dataclass(frozen=True, eq=False)
class ParentSpan:
    """Decisions on one parent each.

    Attributes:
        low_X: First position that may be chosen.
        high_X: One past the last one.
        reference_X: Position to measure offsets from, ``NEVER`` for none.
    """

    low_X: Int[Tensor, " X"]
    high_X: Int[Tensor, " X"]
    reference_X: Int[Tensor, " X"]


@final
class ParentDraws:
    """Draws parents of candidates.

    Args:
        task: What is sampled.
        extent: For how much there is room.
        numbers: Of the rows.
        graphs: The rows.
        tokens: Their tokens.
    """

    def __init__(
        self,
        task: SamplingTask,
        extent: Extent,
        numbers: RowNumbers,
        graphs: GraphRows,
        tokens: EncoderRows,
    ) -> None:
        self.pointer, self.block = task.modules.heads.pointer, task.modules.block
        self.guidance, self.extent = task.guidance, extent
        self.numbers, self.graphs, self.tokens = numbers, graphs, tokens
        self._of_decisions = LinearMap.of(
            self.pointer.query,
            self.pointer.far_query,
            self.pointer.code_scores,
            self.pointer.block_scores,
        )

    def draw(
        self, state_QD: Float[Tensor, "_ D"], span: ParentSpan, uniform_PU: Float[Tensor, "P _"]
    ) -> Int[Tensor, " P"]:
        """Draw one parent for each candidate: a token, or a block and then a token inside.

        Decisions are one per row, from which all of its candidates draw, or one per candidate. The
        first two uniforms are used.
        """
        pointer, duplicate = self.pointer, self.guidance.duplicate
        rows, decisions = self.extent.rows, span.low_X.shape[0]
        draws = self.numbers.row_P.shape[0] // decisions
        projected_QK = self._of_decisions(pointer.activate(state_QD))
        position_B = self.graphs.feature_BF[:, Feature.POSITION]
        slot_Bv, start_B = window(position_B - 1, self.block)
        row_X = self.numbers.row_B if decisions == rows else self.numbers.row_P
        in_block_XZ = None
        elsewhere_X = torch.zeros_like(span.low_X, dtype=torch.bool)
        if self.extent.pooled:
            number_Z = torch.arange(self.extent.pooled, device=slot_Bv.device)
            end_X = torch.minimum(
                (span.high_X - 1) // self.block + 1, (start_B // self.block)[row_X]
            )
            in_block_XZ = (number_Z >= (span.low_X // self.block)[:, None]) & (
                number_Z < end_X[:, None]
            )
            elsewhere_X = in_block_XZ.any(1)
        logits_QO = self._token_scores(projected_QK, self.numbers.row_B, slot_Bv, span, elsewhere_X)
        if in_block_XZ is not None:
            block_QZ = self._block_scores(projected_QK, row_X)
            block_QZ = block_QZ.masked_fill(~duplicate(in_block_XZ), -math.inf)
            logits_QO = torch.cat([logits_QO, block_QZ], dim=1)
        uniform_XU = uniform_PU[:, 0].reshape(decisions, draws)
        column_P = sample_if_possible(self.guidance.merge(logits_QO), uniform_XU).flatten()
        token_P = start_B[self.numbers.row_P] + column_P
        if not self.extent.pooled:
            return token_P.clamp(min=0)
        near = slot_Bv.shape[1]
        first_P = (column_P - near).clamp(min=0) * self.block
        slot_Pv = first_P[:, None] + torch.arange(self.block, device=first_P.device)
        own = ParentSpan(
            *(
                v.repeat_interleave(draws, output_size=first_P.shape[0])
                for v in (span.low_X, span.high_X, span.reference_X)
            )
        )
        if draws > 1:
            projected_QK = projected_QK[self.numbers.row_Q]
        nowhere_P = torch.zeros_like(first_P, dtype=torch.bool)
        inside_Qv = self._token_scores(projected_QK, self.numbers.row_P, slot_Pv, own, nowhere_P)
        inside_P = sample_if_possible(self.guidance.merge(inside_Qv), uniform_PU[:, 1])
        return torch.where(column_P >= near, first_P + inside_P, token_P).clamp(min=0)

    def _token_scores(
        self,
        projected_QK: Float[Tensor, "_ K"],
        row_G: Int[Tensor, " G"],
        slot_Gv: Int[Tensor, "G v"],
        span: ParentSpan,
        elsewhere_X: Bool[Tensor, " X"],
    ) -> Float[Tensor, "_ v"]:
        """Return the scores of tokens as parents, those that are out ruled out.

        Args:
            projected_QK: Queries and scores of features.
            row_G: Row of each group; its decisions follow one another.
            slot_Gv: Positions that the decisions of a group see; others than those of the span, and
                without room while there are other candidates, are out.
            span: The decisions.
            elsewhere_X: Whether there are other candidates.
        """
        pointer, tokens = self.pointer, self.tokens
        duplicate, rows = self.guidance.duplicate, self.extent.rows
        groups, width = slot_Gv.shape
        each = span.low_X.shape[0] // groups
        held_Gv = slot_Gv.clamp(min=0)
        node_GvF = self.graphs.node_BTF[row_G[:, None], held_Gv]
        reference_GO1 = span.reference_X.view(groups, each, 1)
        position_G = self.graphs.feature_BF[row_G, Feature.POSITION][:, None]
        layer_G = self.graphs.feature_BF[row_G, Feature.LAYER][:, None]
        last_Gv = node_GvF[..., Node.LAST]
        stub_Gv = stub_code(node_GvF[..., Node.USED], node_GvF[..., Node.OUT_DEGREE])
        gap_Gv = (position_G - last_Gv) * (last_Gv != NEVER)
        back_Gv = layer_G - node_GvF[..., Node.LAYER]
        full = (groups, each, width)
        codes_P4 = pointer.token_codes(
            stub_Gv[:, None].expand(full).flatten(),
            (held_Gv[:, None] - reference_GO1).flatten(),
            (reference_GO1 != NEVER).expand(full).flatten(),
            gap_Gv[:, None].expand(full).flatten(),
            back_Gv[:, None].expand(full).flatten(),
        )
        d = tokens.key_RTd.shape[2]
        code_X4 = (codes_P4 + pointer.offset_F).view(groups * each, width * len(TOKEN_CODES))
        feature_QK = projected_QK[:, 2 * d : 2 * d + sum(TOKEN_CODES)]
        score_Qv = feature_QK.gather(1, duplicate(code_X4)).unflatten(1, (width, -1)).sum(2)
        key_Gvd = tokens.key_RTd[self.guidance.rows(row_G, rows)[:, None], duplicate(held_Gv)]
        query_GOd = projected_QK[:, :d].unflatten(0, (-1, each))
        dot_Qv = (query_GOd @ key_Gvd.transpose(1, 2)).flatten(0, 1)
        score_Qv = score_Qv + dot_Qv * d**-0.5
        slot_GOv = slot_Gv[:, None].expand(full)
        low_GO1, high_GO1 = (v.view(groups, each, 1) for v in (span.low_X, span.high_X))
        inside_Xv = ((slot_GOv >= low_GO1) & (slot_GOv < high_GO1)).flatten(0, 1)
        room_Gv = node_GvF[..., Node.ROOM] > 0
        room_Xv = room_Gv[:, None].expand(full).flatten(0, 1) & inside_Xv
        others_X = elsewhere_X | room_Xv.any(1)
        possible_Xv = room_Xv | (inside_Xv & ~others_X[:, None])
        return score_Qv.masked_fill(~duplicate(possible_Xv), -math.inf)

    def _block_scores(
        self, projected_QK: Float[Tensor, "_ K"], row_X: Int[Tensor, " X"]
    ) -> Float[Tensor, "_ Z"]:
        """Return the scores of attention blocks."""
        node_BTF, tokens = self.graphs.node_BTF[:, : self.extent.pooled * self.block], self.tokens
        pending_BT = node_BTF[..., Node.OUT_DEGREE] - node_BTF[..., Node.USED]
        pending_BZ = pending_BT.unflatten(1, (self.extent.pooled, -1)).sum(2).clamp(min=0)
        code_QZ = self.guidance.duplicate(log_code(pending_BZ)[row_X])
        d = tokens.key_RTd.shape[2]
        query_ROd = projected_QK[:, d : 2 * d].unflatten(0, (self.numbers.row_R.shape[0], -1))
        dot_QZ = (
            query_ROd @ tokens.block_key_RZd[:, : self.extent.pooled].transpose(1, 2)
        ).flatten(0, 1)
        return dot_QZ * d**-0.5 + projected_QK[:, -BLOCK_CODES:].gather(1, code_QZ)
