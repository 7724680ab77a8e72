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
from layerdag.models.fast.layout import (
    BLOCK_CODES,
    NEVER,
    TOKEN_CODES,
    log_code,
    offset_code,
    stub_code,
)
from layerdag.models.fast.sampling_inputs import Extent, RowNumbers, SamplingTask
from layerdag.models.fast.sampling_rows import GraphRows, Node, TokenRows
from layerdag.models.fast.tokens import Feature
from layerdag.models.layers import LinearMap


@dataclass(frozen=True, eq=False)
class ParentSpan:
    """Decisions on one parent each."""

    low_X: Int[Tensor, " X"]  # first position that may be chosen
    high_X: Int[Tensor, " X"]  # one past the last one
    reference_X: Int[Tensor, " X"]  # position to measure offsets from, ``NEVER`` for none

    def repeated(self, times: int) -> "ParentSpan":
        """Return each decision so many times."""
        fields = (self.low_X, self.high_X, self.reference_X)
        return ParentSpan(*(value_X.repeat_interleave(times) for value_X in fields))


@dataclass(frozen=True, eq=False)
class SeenTokens:
    """Tokens that groups of decisions see one by one, and what all decisions see of them alike."""

    slot_Gv: Int[Tensor, "G v"]  # their positions; those below 0 are none
    key_Rvd: Float[Tensor, "R v d"]  # their keys, for each row of the encoder of a group
    codes: tuple[Int[Tensor, "G v"], ...]  # of pending children, last child, layers between
    has_room_Gv: Bool[Tensor, "G v"]  # whether they may have another child


@final
class ParentDraws:
    """Draws parents of candidates."""

    def __init__(
        self,
        task: SamplingTask,
        extent: Extent,
        numbers: RowNumbers,
        graphs: GraphRows,
        tokens: TokenRows,
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

    def window(self) -> SeenTokens:
        """Return the tokens that decisions on the newest node of each row see one by one."""
        return self._seen(self.numbers.row_B, self._start()[:, None] + self._slots(2))

    def _start(self) -> Int[Tensor, " B"]:
        """Return the first position of the window; below 0 where there is one block only."""
        position_B = self.graphs.feature_BF[:, Feature.POSITION] - 1
        return (position_B // self.block - 1) * self.block

    def _slots(self, blocks: int) -> Int[Tensor, " v"]:
        return torch.arange(blocks * self.block, device=self.numbers.row_B.device)

    def _seen(self, row_G: Int[Tensor, " G"], slot_Gv: Int[Tensor, "G v"]) -> SeenTokens:
        held_Gv = slot_Gv.clamp(min=0)
        node_GvF = self.graphs.node_BTF[row_G[:, None], held_Gv]
        feature_GF = self.graphs.feature_BF[row_G]
        last_Gv = node_GvF[..., Node.LAST]
        gap_Gv = (feature_GF[:, Feature.POSITION, None] - last_Gv) * (last_Gv != NEVER)
        back_Gv = feature_GF[:, Feature.LAYER, None] - node_GvF[..., Node.LAYER]
        stub_Gv = stub_code(node_GvF[..., Node.USED], node_GvF[..., Node.OUT_DEGREE])
        codes_3Gv = torch.stack([stub_Gv, log_code(gap_Gv), log_code(back_Gv)])
        if not self.pointer.dynamic:
            codes_3Gv = torch.zeros_like(codes_3Gv)
        stub_Gv, used_Gv, layers_Gv = codes_3Gv.unbind()
        offset_F = self.pointer.offset_F
        encoder_R = self.guidance.rows(row_G, self.extent.rows)
        return SeenTokens(
            slot_Gv,
            self.tokens.key_RTd[encoder_R[:, None], self.guidance.duplicate(held_Gv)],
            (stub_Gv + offset_F[0], used_Gv + offset_F[2], layers_Gv + offset_F[3]),
            node_GvF[..., Node.ROOM] > 0,
        )

    def draw(
        self,
        state_QD: Float[Tensor, "_ D"],
        near: SeenTokens,
        span: ParentSpan,
        uniform_PU: Float[Tensor, "P _"],
    ) -> Int[Tensor, " P"]:
        """Draw one parent for each candidate: a token, or a block and then a token inside.

        There is one state per row, from which all of its candidates draw, or one per candidate.
        ``near`` is from ``window``, since the newest node was started.
        """
        row_P, decisions = self.numbers.row_P, span.low_X.shape[0]
        draws = row_P.shape[0] // decisions
        projected_QK = self._of_decisions(self.pointer.activate(state_QD))
        start_B, columns = self._start(), near.slot_Gv.shape[1]
        uniform_XU = uniform_PU[:, 0].reshape(decisions, draws)
        if not self.extent.pooled:
            nowhere_X = torch.zeros_like(span.low_X, dtype=torch.bool)
            logits_Qv = self._token_scores(projected_QK, near, span, nowhere_X)
            column_P = sample_if_possible(self.guidance.merge(logits_Qv), uniform_XU).flatten()
            return (start_B[row_P] + column_P).clamp(min=0)
        row_X = row_P if draws == 1 else self.numbers.row_B
        block_QZ, elsewhere_X = self._block_scores(projected_QK, span, row_X, start_B)
        near_Qv = self._token_scores(projected_QK, near, span, elsewhere_X)
        logits_QK = self.guidance.merge(torch.cat([near_Qv, block_QZ], dim=1))
        column_P = sample_if_possible(logits_QK, uniform_XU).flatten()
        first_P = (column_P - columns).clamp(min=0) * self.block
        inside = self._seen(row_P, first_P[:, None] + self._slots(1))
        if draws > 1:
            projected_QK = projected_QK[self.numbers.row_Q]
            span = span.repeated(draws)
        nowhere_P = torch.zeros_like(first_P, dtype=torch.bool)
        logits_Qv = self._token_scores(projected_QK, inside, span, nowhere_P)
        inside_P = sample_if_possible(self.guidance.merge(logits_Qv), uniform_PU[:, 1])
        near_P = start_B[row_P] + column_P
        return torch.where(column_P >= columns, first_P + inside_P, near_P).clamp(min=0)

    def _token_scores(
        self, projected_QK: Tensor, seen: SeenTokens, span: ParentSpan, elsewhere_X: Tensor
    ) -> Tensor:
        """Return the scores of tokens as parents, those that are out ruled out.

        Others than those of the span are out, and those without room while there are other
        candidates. The decisions of a group follow one another in ``span``.
        """
        groups = seen.slot_Gv.shape[0]
        each = span.low_X.shape[0] // groups
        duplicate, d = self.guidance.duplicate, seen.key_Rvd.shape[2]
        query_ROd = projected_QK[:, :d].unflatten(0, (-1, each))
        score_ROv = (query_ROd @ seen.key_Rvd.transpose(1, 2)) * d**-0.5
        feature_ROK = projected_QK[:, 2 * d : 2 * d + sum(TOKEN_CODES)].unflatten(0, (-1, each))
        for code_Gv in seen.codes:
            code_ROv = duplicate(code_Gv)[:, None].expand(-1, each, -1)
            score_ROv = score_ROv + feature_ROK.gather(2, code_ROv)
        slot_G1v = seen.slot_Gv[:, None]
        low_GO1, high_GO1, reference_GO1 = (
            value_X.view(groups, each, 1) for value_X in (span.low_X, span.high_X, span.reference_X)
        )
        offset_GOv = slot_G1v - reference_GO1
        has_reference_GOv = (reference_GO1 != NEVER).expand_as(offset_GOv)
        code_GOv = offset_code(offset_GOv, has_reference_GOv) * self.pointer.dynamic
        code_ROv = duplicate(code_GOv + self.pointer.offset_F[1])
        score_ROv = score_ROv + feature_ROK.gather(2, code_ROv)
        inside_GOv = (slot_G1v >= low_GO1) & (slot_G1v < high_GO1)
        room_GOv = inside_GOv & seen.has_room_Gv[:, None]
        others_GO = elsewhere_X.view(groups, each) | room_GOv.any(2)
        possible_GOv = room_GOv | (inside_GOv & ~others_GO[:, :, None])
        return score_ROv.masked_fill(~duplicate(possible_GOv), -math.inf).flatten(0, 1)

    def _block_scores(
        self, projected_QK: Tensor, span: ParentSpan, row_X: Tensor, start_B: Tensor
    ) -> tuple[Tensor, Tensor]:
        blocks, d = self.extent.pooled, self.tokens.key_RTd.shape[2]
        node_BTF = self.graphs.node_BTF[:, : blocks * self.block]
        pending_BT = node_BTF[..., Node.OUT_DEGREE] - node_BTF[..., Node.USED]
        pending_BZ = pending_BT.unflatten(1, (blocks, -1)).sum(2).clamp(min=0)
        code_QZ = self.guidance.duplicate(log_code(pending_BZ)[row_X])
        query_ROd = projected_QK[:, d : 2 * d].unflatten(0, (self.numbers.row_R.shape[0], -1))
        key_RZd = self.tokens.block_key_RZd[:, :blocks]
        score_QZ = (query_ROd @ key_RZd.transpose(1, 2)).flatten(0, 1) * d**-0.5
        score_QZ = score_QZ + projected_QK[:, -BLOCK_CODES:].gather(1, code_QZ)
        number_Z = torch.arange(blocks, device=row_X.device)
        end_X = (span.high_X - 1) // self.block + 1
        end_X = torch.minimum(end_X, (start_B // self.block)[row_X])
        inside_XZ = number_Z >= (span.low_X // self.block)[:, None]
        inside_XZ = inside_XZ & (number_Z < end_X[:, None])
        masked_QZ = score_QZ.masked_fill(~self.guidance.duplicate(inside_XZ), -math.inf)
        return masked_QZ, inside_XZ.any(1)
