"""What acts on rows: gathering, sums over segments (groups of rows), attention, maps, embeddings.

Rows of a batch are flat, without padding.

Shape letters: D width of a state, F feature columns, G groups of rows, H heads, K codes, R rows, V
edges among rows, d width of a head or key, w window.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.nn import functional as F

from layerdag.models.fused import (
    Activation,
    activated,
    activated_product,
    embedding_sum,
    message_sum,
    product_dtype,
)


def gather_rows(
    x_RD: Shaped[Tensor, "R D"], index: Int[Tensor, "*shape"]
) -> Shaped[Tensor, "*shape D"]:
    """Return the rows ``index`` of ``x_RD``, shape (*index.shape, D).

    The same as ``x_RD[index]``, whose gradient takes ten times as long on a CPU.
    """
    return x_RD.index_select(0, index.flatten()).unflatten(0, index.shape)


def to_float32(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return ``x`` in at least float32, for sums over many rows under autocast.

    A sum in bfloat16, with its eight significant bits, stops growing after a few hundred terms.
    float64 is kept.
    """
    return x.to(torch.promote_types(x.dtype, torch.float32))


def segment_mean(
    value_RD: Float[Tensor, "R D"], group_R: Int[Tensor, " R"], count_G: Int[Tensor, " G"]
) -> Float[Tensor, "G D"]:
    """Return the mean of the rows of each group, zero for an empty one."""
    value_RD = to_float32(value_RD)
    total_GD = value_RD.new_zeros(count_G.shape[0], value_RD.shape[1])
    total_GD = total_GD.index_add(0, group_R, value_RD)
    return total_GD / count_G.clamp(min=1)[:, None]


def segment_max(
    value_RD: Float[Tensor, "R D"], group_R: Int[Tensor, " R"], groups: int
) -> Float[Tensor, "G D"]:
    """Return the maximum over the rows of each group, minus infinity for an empty one."""
    empty_GD = value_RD.new_full((groups, value_RD.shape[1]), -torch.inf)
    return empty_GD.scatter_reduce(0, group_R[:, None].expand_as(value_RD), value_RD, "amax")


def segment_log_sum_exp(
    value_RD: Float[Tensor, "R D"], group_R: Int[Tensor, " R"], max_GD: Float[Tensor, "G D"]
) -> Float[Tensor, "G D"]:
    """Return log-sum-exp over the rows of each group; none may be empty.

    It is a sum in the log domain: the time of a graph is the sum of its operators' times.
    ``max_GD`` is from ``segment_max``.
    """
    shift_GD = max_GD.detach()
    exp_RD = (value_RD - gather_rows(shift_GD, group_R)).exp()
    return shift_GD + torch.zeros_like(shift_GD).index_add(0, group_R, exp_RD).log()


def segment_pointers(size_G: Int[Tensor, " G"]) -> Int[Tensor, " G+1"]:
    """Return running sums that start with 0."""
    return torch.cat([size_G.new_zeros(1), size_G.cumsum(0)])


def segment_ranges(
    start_G: Int[Tensor, " G"], size_G: Int[Tensor, " G"]
) -> tuple[Int[Tensor, " R"], Int[Tensor, " R"]]:
    """Return (group, value) of the ranges ``start_G[g] + [0, size_G[g])`` laid end to end."""
    total = int(size_G.sum())
    index_G = torch.arange(size_G.numel(), device=size_G.device)
    group_R = torch.repeat_interleave(index_G, size_G, output_size=total)
    first_G = start_G - (size_G.cumsum(0) - size_G)
    return group_R, first_G[group_R] + torch.arange(total, device=size_G.device)


@dataclass(frozen=True, eq=False)
class Segments:
    """Segments of consecutive rows, in buckets of similar length.

    Buckets hold lengths up to 2, 4, 8, ...: with one padded call per bucket the padding is at most
    a factor of two, and the cost does not depend on the longest segment.
    """

    ptr: Int[Tensor, " G1"]  # segment g is the rows ``ptr[g]:ptr[g+1]``
    buckets: tuple[tuple[Tensor, Tensor], ...]  # (rows, valid), (segments, length) each

    @classmethod
    def from_ptr(cls, ptr: Int[Tensor, " G1"]) -> "Segments":
        """Sort the segments into buckets."""
        length_G = ptr.diff()
        longest = int(length_G.max()) if length_G.numel() else 0
        buckets, low, high = [], 1, 2
        while low < longest:
            chosen_G = (length_G > low) & (length_G <= high)
            start_G1, end_G1 = ptr[:-1][chosen_G, None], ptr[1:][chosen_G, None]
            if start_G1.numel():
                rows_Gw = start_G1 + torch.arange(high, device=ptr.device)
                valid_Gw = rows_Gw < end_G1
                buckets.append((torch.where(valid_Gw, rows_Gw, start_G1), valid_Gw))
            low, high = high, 2 * high
        return cls(ptr, tuple(buckets))

    def broadcast(self, value_GD: Float[Tensor, "G D"]) -> Float[Tensor, "R D"]:
        """Return the value of each row's segment."""
        return torch.repeat_interleave(value_GD, self.ptr.diff(), dim=0)


class SegmentAttention(nn.Module):
    """Self-attention among the rows of each segment, for segments of any length."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = Linear(width, 3 * width)
        self.output = Linear(width, width)

    def forward(self, rows_RD: Float[Tensor, "R D"], segments: Segments) -> Float[Tensor, "R D"]:
        """Return the attended rows."""
        projected_R3D = self.project(rows_RD)
        # A row that is alone in its segment attends to itself only: the result is its own value.
        mixed_RD = projected_R3D.chunk(3, dim=-1)[2]
        for rows_Gw, valid_Gw in segments.buckets:
            bucket_GwD = self._attend(gather_rows(projected_R3D, rows_Gw), valid_Gw)
            valid = valid_Gw.flatten().nonzero()[:, 0]
            mixed_RD = mixed_RD.index_copy(
                0, rows_Gw[valid_Gw], gather_rows(bucket_GwD.flatten(0, 1), valid)
            )
        return self.output(mixed_RD)

    def _attend(self, projected_Gw3D: Tensor, valid_Gw: Tensor) -> Tensor:
        split = projected_Gw3D.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = split.unbind(0)
        mask_G11w = valid_Gw[:, None, None, :]
        mixed_GHwd = F.scaled_dot_product_attention(query, key, value, attn_mask=mask_G11w)
        return mixed_GHwd.transpose(1, 2).flatten(2)


class Linear(nn.Linear):
    """``nn.Linear`` whose products of training batches have few different numbers of rows.

    On a processor PyTorch leaves products in bfloat16 to oneDNN, which compiles each shape that it
    meets; that takes longer than a product of a thousand rows, and batches differ in their rows.
    Under autocast rows of zeros are added up to a ``rounded_size``, where a matrix of single
    precision is converted to bfloat16 anyway. Everywhere else it is ``nn.Linear``.
    """

    def forward(self, x: Float[Tensor, "*shape K"]) -> Float[Tensor, "*shape D"]:
        """Return the products with the weights, and the bias added."""
        converts = (
            x.device.type == "cpu"
            and x.dim() > 1
            and x.dtype in (torch.float32, torch.bfloat16)
            and self.weight.dtype == torch.float32
            and torch.is_autocast_enabled("cpu")
            and torch.get_autocast_dtype("cpu") == torch.bfloat16
        )
        if not converts:
            return super().forward(x)
        return activated_product(None, self.weight, self.bias, x, torch.bfloat16)


@dataclass(frozen=True, eq=False)
class LinearMap:
    """Linear maps side by side, made ready for products with few rows."""

    weight_DK: Float[Tensor, "D K"]  # transposed weights
    bias_K: Float[Tensor, " K"]  # their biases

    @classmethod
    def of(cls, *linear: nn.Linear) -> "LinearMap":
        """Return the maps of some modules, end to end."""
        weight_KD = torch.cat([each.weight.detach() for each in linear])
        biases = [each.bias.detach() for each in linear if each.bias is not None]
        bias_K = torch.cat(biases) if biases else weight_KD.new_zeros(weight_KD.shape[0])
        return cls(weight_KD.T.contiguous(), bias_K)

    def __call__(self, x_RD: Float[Tensor, "R D"]) -> Float[Tensor, "R K"]:
        """Return what the maps make of some rows."""
        return torch.addmm(self.bias_K, x_RD, self.weight_DK)


_GROWTH = 1.25


def count_bins(exact: int, largest: int) -> tuple[int, ...]:
    """Return the smallest count of each bin, then the end of the last one (``CountEncoder``)."""
    lows = list(range(exact + 1))
    while lows[-1] < largest + 1:
        lows.append(min(max(lows[-1] + 1, int(lows[-1] * _GROWTH)), largest + 1))
    return (*lows, max(lows[-1] + 1, lows[-1] * 3 // 2))


class CountEncoder(nn.Module):
    """A code for non-negative integers: one category each up to ``exact``, wider bins above.

    The last bin is beyond ``largest``, the largest count of the training data, so that unseen
    counts have a positive probability: it ends at 1.5 times its start.
    """

    lows_K1: Tensor

    def __init__(self, exact: int, largest: int) -> None:
        super().__init__()
        lows = count_bins(exact, largest)
        self.num_codes = len(lows) - 1
        self.register_buffer("lows_K1", torch.tensor(lows), persistent=False)
        self._host_lows_K1 = torch.tensor(lows, device="cpu")  # batches are made on the host
        self._host_log_width_K = self._host_lows_K1.diff().log()

    def encode(self, count: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
        """Return the code of each count; counts beyond the last bin get the last code."""
        lows_K1 = self._host_lows_K1 if count.device.type == "cpu" else self.lows_K1
        code = torch.searchsorted(lows_K1, count.contiguous(), right=True) - 1
        return code.clamp(0, self.num_codes - 1)

    def decode(
        self, code: Int[Tensor, "*shape"], u: Float[Tensor, "*shape"]
    ) -> Int[Tensor, "*shape"]:
        """Return the count at position ``u`` in [0, 1) of the bin ``code``."""
        low = self.lows_K1[code]
        width = self.lows_K1[code + 1] - low
        return low + (u * width).to(torch.int64).clamp(max=width - 1)

    def inside(self, count: Int[Tensor, "*shape"]) -> Float[Tensor, ""]:
        """Return -log p of counts of the host given their bins, summed, nats."""
        return self._host_log_width_K[self.encode(count)].sum()


class MLP(nn.Sequential):
    """Two linear maps with GELU between."""

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__(Linear(inputs, hidden), nn.GELU(), Linear(hidden, outputs))


def dropout(
    x: Float[Tensor, "*shape"], rate: float, generator: torch.Generator | None
) -> Float[Tensor, "*shape"]:
    """Zero a fraction ``rate`` of ``x`` and scale up the rest; without a generator, do nothing."""
    if generator is None or rate == 0.0:
        return x
    keep = torch.rand(x.shape, generator=generator, device=x.device, dtype=x.dtype).ge_(rate)
    return x * keep.div_(1.0 - rate)


def row_dropout(
    x_RD: Float[Tensor, "R D"], rate: float, generator: torch.Generator | None
) -> Float[Tensor, "R D"]:
    """Zero whole rows with probability ``rate``; without a generator, do nothing."""
    if generator is None or rate == 0.0:
        return x_RD
    draw_R1 = torch.rand(x_RD.shape[0], 1, generator=generator, device=x_RD.device)
    return x_RD * (draw_R1 >= rate)


class SumEmbedding(nn.Module):
    """Sum of one embedding per column: a linear layer on one-hot codes, computed as one lookup.

    ``std`` is of an initial weight, by default such that the sum has 1; ``name`` is that of the
    weights in checkpoints.
    """

    weight: nn.Parameter
    offset_F: Tensor

    def __init__(
        self,
        cardinalities: Sequence[int],
        width: int,
        *,
        std: float | None = None,
        name: str = "weight",
    ) -> None:
        super().__init__()
        std = len(cardinalities) ** -0.5 if std is None else std
        self.name = name
        self.register_parameter(name, nn.Parameter(torch.randn(sum(cardinalities), width) * std))
        ends_F = torch.tensor(cardinalities).cumsum(0)
        self.register_buffer("offset_F", ends_F - torch.tensor(cardinalities), persistent=False)

    def forward(self, codes_RF: Int[Tensor, "R F"]) -> Float[Tensor, "R D"]:
        """Return the summed embeddings."""
        table: Tensor = getattr(self, self.name)
        if product_dtype(table, self) is not None:
            return embedding_sum(codes_RF, self.offset_F, table)
        if codes_RF.shape[1] == 1:
            return table.index_select(0, codes_RF[:, 0])
        return nn.functional.embedding_bag(codes_RF + self.offset_F, table, mode="sum")


def sinusoids(value_R: Float[Tensor, " R"], width: int) -> Float[Tensor, "R {width//2*2}"]:
    """Return sines and cosines of ``value_R`` at geometric frequencies, shape (R, width).

    Frequencies run from 1 to 1/1000 (Vaswani et al., arXiv 1706.03762, section 3.5).
    """
    half = width // 2
    frequency = torch.exp(
        torch.arange(half, device=value_R.device, dtype=value_R.dtype) * (-math.log(1000) / half)
    )
    angle = value_R.unsqueeze(-1) * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=-1)


class MessagePassingLayer(nn.Module):
    """``h' = GELU(LN(A W h + A^T W' h + W'' h))`` with an embedding of the kind on each message.

    The published layer (LayerDAG, arXiv 2411.02322, appendix) plus a layer norm, which keeps sums
    over many neighbors in range.
    """

    def __init__(self, width: int, edge_kinds: int) -> None:
        super().__init__()
        self.maps = Linear(width, 3 * width)
        self.norm = nn.LayerNorm(width)
        self.kinds = nn.Embedding(edge_kinds, 2 * width) if edge_kinds > 1 else None

    def forward(
        self,
        rows_RD: Float[Tensor, "R D"],
        edge_index_2V: Int[Tensor, "2 V"],
        edge_kind_V: Int[Tensor, " V"],
    ) -> Float[Tensor, "R D"]:
        """Return the new rows."""
        if product_dtype(rows_RD, self, self.kinds) == rows_RD.dtype:
            kinds = None if self.kinds is None else self.kinds.weight
            maps_R3D = to_float32(self.maps(rows_RD))
            total_RD = message_sum(maps_R3D, edge_index_2V, edge_kind_V, kinds)
            return activated(Activation(self.norm, gelu=True), total_RD)
        source_V, target_V = edge_index_2V
        own_RD, down_RD, up_RD = to_float32(self.maps(rows_RD)).chunk(3, dim=-1)
        down_VD, up_VD = gather_rows(down_RD, source_V), gather_rows(up_RD, target_V)
        if self.kinds is not None:
            kind_VD = self.kinds(edge_kind_V).to(down_VD.dtype)
            down_kind_VD, up_kind_VD = kind_VD.chunk(2, dim=-1)
            down_VD, up_VD = down_VD + down_kind_VD, up_VD + up_kind_VD
        total_RD = own_RD.index_add(0, target_V, down_VD).index_add(0, source_V, up_VD)
        return F.gelu(self.norm(total_RD))
