"""The encoder's step for the newest token of every row, each at its own position.

What earlier tokens left stays where it is. A row that is not ready computes what nobody reads, and
writes it where it is written again before it is read.

Shape letters: A node attributes, B graphs, D width of a state, F feature columns, H heads, J
position buckets, K codes, R rows, T tokens, Y heads of all rows, Z attention blocks, b tokens of a
block, d width of a head or key, p parents of a node, v visible keys.
"""

import math
from functools import partial
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from layerdag.models.fast.device_rows import EncoderRows, GraphRows, LayerRows
from layerdag.models.fast.device_task import Extent, RowNumbers, SamplingTask
from layerdag.models.fast.encoder import EncoderBlock, WindowEncoder, alibi_slopes
from layerdag.models.fast.tokens import Feature
from layerdag.models.layers import LinearMap


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
        head_Y = torch.arange(rows * modules.encoder.heads, device=numbers.row_R.device)
        self._head_RH = head_Y.view(rows, -1)
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
        bias_RHv, position_R = duplicate(self._biases(position_B)), duplicate(position_B)
        parent_Rp = duplicate(graphs.parent_Bp)
        assert isinstance(modules.encoder, WindowEncoder)
        for block, layer in zip(modules.encoder.encoder_blocks, tokens.layers, strict=True):
            x_RD = self._encoder_block(block, layer, x_RD, position_R, bias_RHv, parent_Rp)
        encoded_RD: Tensor = modules.last_norm(x_RD) + after_RD
        key_width = tokens.key_RTd.shape[2]
        key_Rd, projection_RK = self._of_tokens(encoded_RD).split(
            (key_width, tokens.projection_RTK.shape[2]), dim=1
        )
        place_R = self._row_R * self.extent.tokens + position_R
        tokens.key_RTd.flatten(0, 1).index_copy_(0, place_R, key_Rd)
        tokens.projection_RTK.flatten(0, 1).index_copy_(0, place_R, projection_RK)
        if self.extent.pooled:
            number_R, blocks = position_R // self.block, tokens.block_key_RZd.shape[1]
            key_RZbd = tokens.key_RTd.unflatten(1, (blocks, -1))
            mean_Rd = key_RZbd[self._row_R, number_R].mean(1)
            place_R = self._row_R * blocks + number_R
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

    def _biases(self, position_B: Int[Tensor, " B"]) -> Float[Tensor, "B H _"]:
        """Return the distance penalties of the rings, then of pooled blocks; -inf is unseen."""
        length = 2 * self.block
        slot_v = torch.arange(length, device=position_B.device)
        distance_Bv = (position_B[:, None] - slot_v) % length
        # Of the ring, what is older than the block before the token's own is part of a mean.
        seen_B = position_B % self.block + self.block * (position_B >= self.block)
        bias_BHv = -self._slope_H[:, None] * distance_Bv[:, None]
        bias_BHv = bias_BHv.masked_fill((distance_Bv > seen_B[:, None])[:, None], -math.inf)
        if not self.extent.pooled:
            return bias_BHv
        number_Z = torch.arange(self.extent.tokens // self.block, device=position_B.device)
        near_BZ = number_Z >= (position_B // self.block - 1)[:, None]
        bias_BZ = torch.zeros_like(near_BZ, dtype=bias_BHv.dtype).masked_fill(near_BZ, -math.inf)
        bias_BHZ = bias_BZ[:, None].expand(-1, self._slope_H.shape[0], -1)
        return torch.cat([bias_BHv, bias_BHZ], dim=2)

    def _encoder_block(
        self,
        block: EncoderBlock,
        layer: LayerRows,
        x_RD: Float[Tensor, "R D"],
        position_R: Int[Tensor, " R"],
        bias_RHv: Float[Tensor, "R H _"],
        parent_Rp: Int[Tensor, "R p"],
    ) -> Float[Tensor, "R D"]:
        """Return the next state of the newest tokens."""
        rows, heads, ring, _ = layer.key_RHvd.shape
        query_RD, key_RD, value_RD = block.query_key_value(block.norm(x_RD)).chunk(3, dim=1)
        place_RH = (self._head_RH * ring + (position_R % ring)[:, None]).flatten()
        for ring_RHvd, new_RD in ((layer.key_RHvd, key_RD), (layer.value_RHvd, value_RD)):
            ring_RHvd.flatten(0, 2).index_copy_(0, place_RH, new_RD.reshape(rows * heads, -1))
        place_R = self._row_R * self.extent.tokens + position_R
        layer.value_RTD.flatten(0, 1).index_copy_(0, place_R, value_RD)
        if self.extent.pooled:
            self._pool(layer, position_R)
        return block.finish(
            x_RD,
            block.attention(query_RD, partial(self._attended, query_RD, layer, bias_RHv)),
            block.messages(value_RD, partial(self._message, layer, parent_Rp)),
        )

    def _pool(self, layer: LayerRows, position_R: Int[Tensor, " R"]) -> None:
        """Average over the newest attention block, right once it is complete."""
        number_R = position_R // self.block
        place_RH = self._head_RH * layer.pooled_key_RHZd.shape[2] + number_R[:, None]
        pooled = (layer.pooled_key_RHZd, layer.pooled_value_RHZd)
        for pooled_RHZd, half_RH2d in zip(pooled, layer.halves(), strict=True):
            newest_RHd = half_RH2d[self._row_R, :, number_R % 2]
            pooled_RHZd.flatten(0, 2).index_copy_(0, place_RH.flatten(), newest_RHd.flatten(0, 1))

    def _attended(
        self, query_RD: Float[Tensor, "R D"], layer: LayerRows, bias_RHv: Float[Tensor, "R H _"]
    ) -> Float[Tensor, "R D"]:
        """Return the attention of the newest tokens over window and pooled blocks."""
        _, heads, ring, width = layer.key_RHvd.shape
        query_RH1d = query_RD.unflatten(1, (heads, 1, width)) * width**-0.5
        score_RH1v = query_RH1d @ layer.key_RHvd.transpose(2, 3)
        if not self.extent.pooled:
            weight_RH1v = (score_RH1v + bias_RHv[:, :, None]).softmax(-1)
            return (weight_RH1v @ layer.value_RHvd).flatten(1)
        far_RH1Z = query_RH1d @ layer.pooled_key_RHZd.transpose(2, 3)
        score_RH1v = torch.cat([score_RH1v, far_RH1Z], dim=3)
        weight_RH1v = (score_RH1v + bias_RHv[:, :, None]).softmax(-1)
        near_RH1d = weight_RH1v[..., :ring] @ layer.value_RHvd
        return (near_RH1d + weight_RH1v[..., ring:] @ layer.pooled_value_RHZd).flatten(1)

    def _message(self, layer: LayerRows, parent_Rp: Int[Tensor, "R p"]) -> Float[Tensor, "R D"]:
        """Return the mean value of the newest tokens' parents, 0 without parents."""
        is_parent_Rp = parent_Rp > 0
        place_Rp = (self._row_R * self.extent.tokens)[:, None] + parent_Rp
        # Token 0 of row 0, a start token, is nobody's parent and stands for none.
        total_RD = F.embedding_bag(
            place_Rp.where(is_parent_Rp, 0),
            layer.value_RTD.flatten(0, 1),
            mode="sum",
            padding_idx=0,
        )
        return total_RD / is_parent_Rp.sum(1).clamp(min=1)[:, None]
