"""The encoder's step for the newest token of every row, each at its own position.

What earlier tokens left stays where it is. A row that is not ready computes what nobody reads, and
writes it where it is written again before it is read.

Shape letters: A node attributes, B graphs, D width of a state, F feature columns, H heads, J
position buckets, K codes, L layers, R rows, T tokens, Z attention blocks, d width of a head or key,
p parents of a node, v visible keys.
Layers are the blocks of the encoder.
"""

import math
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from layerdag.models.fast.compiled_sampler import LinearMap
from layerdag.models.fast.device_rows import (
    EncoderRows,
    Extent,
    Feature,
    GraphRows,
    RowNumbers,
    SamplingTask,
    window,
)
from layerdag.models.fast.encoder import EncoderBlock, WindowEncoder, alibi_slopes


@final
class DeviceEncoder:
    """Encodes newest tokens.

    Args:
        task: What is sampled.
        extent: For how much there is room.
        numbers: Of the rows.
        graphs: The rows.
    """

    def __init__(
        self, task: SamplingTask, extent: Extent, numbers: RowNumbers, graphs: GraphRows
    ) -> None:
        modules, heads = task.modules, task.modules.heads
        self.task, self.extent, self.graphs = task, extent, graphs
        self.guidance, self.block, self._row_R = task.guidance, modules.block, numbers.row_R
        of_parents = [heads.first_parent, heads.last_parent, heads.all_parents]
        of_parents += [] if heads.chosen_parents is None else [heads.chosen_parents]
        self._of_tokens = LinearMap.of(heads.pointer.key, *of_parents)
        width, rows = heads.context.out_features, numbers.row_R.shape[0]
        self.tokens = EncoderRows.empty(modules, extent, rows, len(of_parents) * width)
        assert isinstance(modules.encoder, WindowEncoder)
        self._slope_H = alibi_slopes(modules.encoder.heads, numbers.row_R.device)
        samples = task.vectors.before_BJD.shape[0] // task.pairs
        self._offset_R = samples * (numbers.row_R // extent.rows)

    def encode(self) -> Float[Tensor, "R D"]:
        """Encode the newest token of every row and remember it."""
        graphs, modules, tokens = self.graphs, self.task.modules, self.tokens
        duplicate = self.guidance.duplicate
        position_B = graphs.feature_BF[:, Feature.POSITION].contiguous()
        before_RD, after_RD = self._conditions(position_B)
        code_BF = modules.tokens.scale.encode(graphs.feature_BF.clamp(min=0))
        embedded_BD = modules.tokens.embedding(torch.cat([graphs.code_BA, code_BF], dim=1))
        x_RD = duplicate(embedded_BD) + before_RD
        slot_Bv, start_B = window(position_B, self.block)
        distance_Bv = position_B[:, None] - slot_Bv
        unseen_Bv = (distance_Bv < 0) | (slot_Bv < 0)
        bias_BHv = -self._slope_H[:, None] * distance_Bv[:, None]
        bias_BHv = bias_BHv.masked_fill(unseen_Bv[:, None], -math.inf)
        if self.extent.pooled:
            number_Z = torch.arange(self.extent.pooled, device=slot_Bv.device)
            far_BZ = number_Z >= start_B[:, None] // self.block
            bias_BHZ = torch.zeros_like(far_BZ, dtype=x_RD.dtype).masked_fill(far_BZ, -math.inf)
            bias_BHZ = bias_BHZ[:, None].expand(-1, self._slope_H.shape[0], -1)
            bias_BHv = torch.cat([bias_BHv, bias_BHZ], dim=2)
        bias_RHv, slot_Rv = duplicate(bias_BHv), duplicate(slot_Bv.clamp(min=0))
        position_R, parent_Rp = duplicate(position_B), duplicate(graphs.parent_Bp)
        assert isinstance(modules.encoder, WindowEncoder)
        for number, block in enumerate(modules.encoder.encoder_blocks):
            x_RD = self._encoder_block(
                number, block, x_RD, position_R, slot_Rv, bias_RHv, parent_Rp
            )
        encoded_RD: Tensor = modules.last_norm(x_RD) + after_RD
        key_width = tokens.key_RTd.shape[2]
        key_Rd, projection_RK = self._of_tokens(encoded_RD).split(
            (key_width, tokens.projection_RTK.shape[2]), dim=1
        )
        place_R = self._row_R * self.extent.tokens + position_R
        tokens.key_RTd.flatten(0, 1).index_copy_(0, place_R, key_Rd)
        tokens.projection_RTK.flatten(0, 1).index_copy_(0, place_R, projection_RK)
        if self.extent.pooled:
            own_Rv = slot_Rv[:, self.block :] + (self._row_R * self.extent.tokens)[:, None]
            mean_Rd = tokens.key_RTd.flatten(0, 1)[own_Rv].mean(1)
            place_R = self._row_R * tokens.block_key_RZd.shape[1] + position_R // self.block
            tokens.block_key_RZd.flatten(0, 1).index_copy_(0, place_R, mean_Rd)
        return encoded_RD

    def _conditions(
        self, position_B: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "R D"], Float[Tensor, "R D"]]:
        """Return what conditions and remaining sizes add to the encoder's input and output."""
        vectors, modules, graphs = self.task.vectors, self.task.modules, self.graphs
        duplicate = self.guidance.duplicate
        sample_R = duplicate(graphs.sample_B) + self._offset_R
        bucket_R = duplicate(
            torch.bucketize(position_B, modules.conditions.first_position_J, right=True)
        )
        place_R = sample_R * vectors.before_BJD.shape[1] + bucket_R
        before_RD = vectors.before_BJD.flatten(0, 1)[place_R]
        after_RD = vectors.after_BJD.flatten(0, 1)[place_R]
        if modules.remaining is None:
            return before_RD, after_RD
        layer_R = duplicate(graphs.feature_BF[:, Feature.LAYER])
        remaining_RD = modules.remaining(duplicate(position_B), layer_R, vectors.sizes_B2[sample_R])
        return before_RD + remaining_RD[0], after_RD + remaining_RD[1]

    def _encoder_block(
        self,
        number: int,
        block: EncoderBlock,
        x_RD: Float[Tensor, "R D"],
        position_R: Int[Tensor, " R"],
        slot_Rv: Int[Tensor, "R v"],
        bias_RHv: Float[Tensor, "R H _"],
        parent_Rp: Int[Tensor, "R p"],
    ) -> Float[Tensor, "R D"]:
        """Return the next state of the newest tokens."""
        width, tokens = x_RD.shape[1], self.tokens
        depth, length = tokens.memory_RLTD.shape[1:3]
        row_R = self._row_R * depth + number
        query_RD, both_RD = block.query_key_value(block.norm(x_RD)).split((width, 2 * width), dim=1)
        memory_TD = tokens.memory_RLTD.flatten(0, 2)
        memory_TD.index_copy_(0, row_R * length + position_R, both_RD)

        is_parent_Rp = parent_Rp > 0

        def attended() -> Tensor:
            seen_RvD = memory_TD[(row_R * length)[:, None] + slot_Rv]
            if self.extent.pooled:
                pooled_ZD = tokens.pooled_RLZD.flatten(0, 2)
                place_R = row_R * tokens.pooled_RLZD.shape[2] + position_R // self.block
                pooled_ZD.index_copy_(0, place_R, seen_RvD[:, self.block :].mean(1))
                pooled_RZD = tokens.pooled_RLZD[:, number, : self.extent.pooled]
                seen_RvD = torch.cat([seen_RvD, pooled_RZD], dim=1)
            key_RHvd, value_RHvd = (
                part.unflatten(2, (block.heads, -1)).transpose(1, 2)
                for part in seen_RvD.chunk(2, dim=2)
            )
            query_RH1d = query_RD.unflatten(1, (block.heads, 1, -1))
            score_RH1v = (query_RH1d * query_RH1d.shape[3] ** -0.5) @ key_RHvd.transpose(2, 3)
            weight_RH1v = (score_RH1v + bias_RHv[:, :, None]).softmax(-1)
            return (weight_RH1v @ value_RHvd).flatten(1)

        def message() -> Tensor:
            # Values are the odd rows; row 0, the first key, stands for no parent.
            place_Rp = ((row_R * length)[:, None] + parent_Rp) * 2 + 1
            total_RD = F.embedding_bag(
                place_Rp.where(is_parent_Rp, 0),
                memory_TD.view(-1, width),
                mode="sum",
                padding_idx=0,
            )
            return total_RD / is_parent_Rp.sum(1).clamp(min=1)[:, None]

        return block.finish(
            x_RD, block.attention(query_RD, attended), block.messages(query_RD, message)
        )
