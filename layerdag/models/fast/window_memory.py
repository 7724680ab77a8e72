"""What the window encoder keeps of earlier tokens while graphs are drawn, each computed once.

Every row has a position of its own. All tensors have their shapes before the first token, so that
the work of a step touches the same addresses at every position and can be recorded once. A step of
a row that is not to go on may be taken all the same: it writes where it is written again.

Shape letters: D width of a state, H heads, R rows, T tokens, Z attention blocks,
d width of a head or key, p parents of a node, v visible keys.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from layerdag.dag.dag import tensors_of


@dataclass(frozen=True, eq=False)
class LayerMemory:
    """What one encoder block keeps of the tokens of each row.

    Keys and values of the newest two attention blocks lie in rings, position t at t modulo their
    length, so that nothing is gathered to be attended to.
    """

    key_RHvd: Float[Tensor, "R H v d"]  # keys of the newest two attention blocks
    value_RHvd: Float[Tensor, "R H v d"]
    pooled_key_RHZd: Float[Tensor, "R H Z d"]  # mean key of each attention block
    pooled_value_RHZd: Float[Tensor, "R H Z d"]  # its mean value
    value_RTD: Float[Tensor, "R T D"]  # values of all tokens, of which those of parents are read

    @classmethod
    def empty(cls, like_RHd: Float[Tensor, "R H d"], block: int, tokens: int) -> "LayerMemory":
        """Return a memory without tokens; ``like_RHd`` has its type and device."""
        rows, heads, width = like_RHd.shape
        ring = like_RHd.new_zeros((rows, heads, 2 * block, width))
        pooled = like_RHd.new_zeros((rows, heads, tokens // block, width))
        values = like_RHd.new_zeros((rows, tokens, heads * width))
        return cls(ring, ring.clone(), pooled, pooled.clone(), values)

    def halves(self) -> tuple[Float[Tensor, "R H 2 d"], Float[Tensor, "R H 2 d"]]:
        """Return the mean key and value of both halves of the rings, an attention block each."""
        key, value = (
            ring.unflatten(2, (2, -1)).mean(3) for ring in (self.key_RHvd, self.value_RHvd)
        )
        return key, value


@dataclass(frozen=True, eq=False)
class WindowMemory:
    """What all encoder blocks keep."""

    layers: tuple[LayerMemory, ...]  # of each encoder block
    block: int  # tokens of an attention block
    tokens: int  # for how many there is room in each row, whole attention blocks
    slope_H: Float[Tensor, " H"]  # distance penalty of each head
    row_R: Int[Tensor, " R"]
    head_RH: Int[Tensor, "R H"]

    @classmethod
    def empty(
        cls,
        like_RD: Float[Tensor, "R D"],
        depth: int,
        slope_H: Float[Tensor, " H"],
        block: int,
        tokens: int,
    ) -> "WindowMemory":
        """Return a memory of R rows without tokens; ``like_RD`` has its type and device."""
        rows, heads = like_RD.shape[0], slope_H.shape[0]
        like_RHd = like_RD.unflatten(1, (heads, -1))
        layers = tuple(LayerMemory.empty(like_RHd, block, tokens) for _ in range(depth))
        head_RH = torch.arange(rows * heads, device=like_RD.device).view(rows, heads)
        return cls(layers, block, tokens, slope_H, head_RH[:, 0] // heads, head_RH)

    @property
    def pooled(self) -> int:
        """Attention blocks that can be seen as one mean: all but the newest two."""
        return max(self.tokens // self.block - 2, 0)

    def biases(self, position_R: Int[Tensor, " R"]) -> Float[Tensor, "R H _"]:
        """Return what is added to the scores of the rings, then of pooled blocks, (R, H, v + Z).

        It is the distance penalty, 0 for pooled blocks, and -inf for what is not seen.
        """
        length = 2 * self.block
        slot_v = torch.arange(length, device=position_R.device)
        distance_Rv = (position_R[:, None] - slot_v) % length
        # Of the ring, what is older than the block before the token's own is part of a mean.
        seen_R = position_R % self.block + self.block * (position_R >= self.block)
        bias_RHv = -self.slope_H[:, None] * distance_Rv[:, None]
        bias_RHv = bias_RHv.masked_fill((distance_Rv > seen_R[:, None])[:, None], -math.inf)
        if not self.pooled:
            return bias_RHv
        number_Z = torch.arange(self.tokens // self.block, device=position_R.device)
        near_RZ = number_Z >= (position_R // self.block - 1)[:, None]
        bias_RZ = torch.zeros_like(near_RZ, dtype=bias_RHv.dtype).masked_fill(near_RZ, -math.inf)
        bias_RHZ = bias_RZ[:, None].expand(-1, self.slope_H.shape[0], -1)
        return torch.cat([bias_RHv, bias_RHZ], dim=2)

    def write(
        self,
        number: int,
        position_R: Int[Tensor, " R"],
        key_RD: Float[Tensor, "R D"],
        value_RD: Float[Tensor, "R D"],
    ) -> None:
        """Append the newest tokens to what encoder block ``number`` keeps."""
        layer, ring = self.layers[number], 2 * self.block
        place_RH = self.head_RH * ring + (position_R % ring)[:, None]
        for ring_RHvd, new_RD in ((layer.key_RHvd, key_RD), (layer.value_RHvd, value_RD)):
            head_RHd = new_RD.unflatten(1, (place_RH.shape[1], -1))
            ring_RHvd.flatten(0, 2).index_copy_(0, place_RH.flatten(), head_RHd.flatten(0, 1))
        place_R = self.row_R * self.tokens + position_R
        layer.value_RTD.flatten(0, 1).index_copy_(0, place_R, value_RD)

    def pool(self, position_R: Int[Tensor, " R"]) -> None:
        """Average over the attention blocks of the newest tokens, right once these are complete."""
        if not self.pooled:
            return
        number_R = position_R // self.block
        place_RH = self.head_RH * (self.tokens // self.block) + number_R[:, None]
        for layer in self.layers:
            pooled = (layer.pooled_key_RHZd, layer.pooled_value_RHZd)
            for pooled_RHZd, half_RH2d in zip(pooled, layer.halves(), strict=True):
                newest_RHd = half_RH2d[self.row_R, :, number_R % 2]
                pooled_RHZd.flatten(0, 2).index_copy_(
                    0, place_RH.flatten(), newest_RHd.flatten(0, 1)
                )

    def attended(
        self, number: int, query_RD: Float[Tensor, "R D"], bias_RHv: Float[Tensor, "R H _"]
    ) -> Float[Tensor, "R D"]:
        """Return the attention of the newest tokens over window and pooled blocks."""
        layer = self.layers[number]
        _, heads, ring, width = layer.key_RHvd.shape
        query_RH1d = query_RD.unflatten(1, (heads, 1, width)) * width**-0.5
        score_RH1v = query_RH1d @ layer.key_RHvd.transpose(2, 3)
        if not self.pooled:
            weight_RH1v = (score_RH1v + bias_RHv[:, :, None]).softmax(-1)
            return (weight_RH1v @ layer.value_RHvd).flatten(1)
        far_RH1Z = query_RH1d @ layer.pooled_key_RHZd.transpose(2, 3)
        score_RH1v = torch.cat([score_RH1v, far_RH1Z], dim=3)
        weight_RH1v = (score_RH1v + bias_RHv[:, :, None]).softmax(-1)
        near_RH1d = weight_RH1v[..., :ring] @ layer.value_RHvd
        return (near_RH1d + weight_RH1v[..., ring:] @ layer.pooled_value_RHZd).flatten(1)

    def message(self, number: int, parent_Rp: Int[Tensor, "R p"]) -> Float[Tensor, "R D"]:
        """Return the mean value of parents, 0 without parents.

        Parents are positions, then zeros.
        """
        is_parent_Rp = parent_Rp > 0
        place_Rp = (self.row_R * self.tokens)[:, None] + parent_Rp
        # Token 0 of row 0, a start token, is nobody's parent and stands for none.
        total_RD = F.embedding_bag(
            place_Rp.where(is_parent_Rp, 0),
            self.layers[number].value_RTD.flatten(0, 1),
            mode="sum",
            padding_idx=0,
        )
        return total_RD / is_parent_Rp.sum(1).clamp(min=1)[:, None]

    def copy_rows(self, target_R: Int[Tensor, " R"], source_R: Int[Tensor, " R"]) -> None:
        """Replace the rows ``target_R`` by the rows ``source_R``."""
        for layer in self.layers:
            for values in tensors_of(layer):
                values[target_R] = values[source_R]

    def moved(self, row_R: Int[Tensor, " R"], tokens: int) -> "WindowMemory":
        """Return the rows ``row_R`` in a memory with room for so many tokens, not fewer."""
        like_RD = self.layers[0].value_RTD[:1, 0].expand(row_R.shape[0], -1)
        new = WindowMemory.empty(like_RD, len(self.layers), self.slope_H, self.block, tokens)
        for layer, new_layer in zip(self.layers, new.layers, strict=True):
            for values, place in zip(tensors_of(layer), tensors_of(new_layer), strict=True):
                kept = values[row_R]
                place[tuple(slice(size) for size in kept.shape)] = kept
            if new.pooled and not self.pooled:
                # Means of the first two blocks were left out while there were no more. Those of a
                # block that is not complete are written again before they are read.
                pooled = (new_layer.pooled_key_RHZd, new_layer.pooled_value_RHZd)
                for pooled_RHZd, half_RH2d in zip(pooled, new_layer.halves(), strict=True):
                    pooled_RHZd[:, :, :2] = half_RH2d
        return new
