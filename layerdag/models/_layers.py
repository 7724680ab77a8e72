"""Building blocks that the networks share.

Shape letters: R rows, N nodes, F features, A categorical columns, S segments, W padded length of a
segment, H heads (in ``sinusoids``: half the width), D width of a head or row, T tokens, K chosen
rows.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class MLP(nn.Sequential):
    """Two linear maps with GELU between."""

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__(nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, outputs))


class CodeEmbedding(nn.Module):
    """Sum of one embedding per categorical column.

    Args:
        cardinalities: Number of codes of each column.
        width: F of the result.
    """

    offset_A: Tensor

    def __init__(self, cardinalities: tuple[int, ...], width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(sum(cardinalities), width) * 0.5)
        starts = [sum(cardinalities[:i]) for i in range(len(cardinalities))]
        self.register_buffer("offset_A", torch.tensor(starts), persistent=False)

    def forward(self, code_NA: Tensor) -> Tensor:
        """Return the embeddings, shape (N, F)."""
        return F.embedding_bag(code_NA + self.offset_A, self.table, mode="sum")


def sinusoids(value_R: Tensor, width: int) -> Tensor:
    """Return sines and cosines of ``value_R`` at geometric frequencies, shape (R, width).

    Frequencies run from 1 to 1/1000 (Vaswani et al., arXiv 1706.03762, section 3.5).
    """
    half = width // 2
    frequency_H = torch.exp(
        torch.arange(half, device=value_R.device, dtype=value_R.dtype) * (-math.log(1000) / half)
    )
    angle_RH = value_R.unsqueeze(-1) * frequency_H
    return torch.cat([angle_RH.sin(), angle_RH.cos()], dim=-1)


def gather_rows(x_TD: Tensor, index: Tensor) -> Tensor:
    """Return the rows ``index`` of ``x_TD``, shape (*index.shape, D).

    The same as ``x_TD[index]``, whose gradient takes ten times as long on a CPU.
    """
    return x_TD.index_select(0, index.flatten()).unflatten(0, index.shape)


def to_float32(x: Tensor) -> Tensor:
    """Return ``x`` in at least float32, for sums over many rows under autocast.

    A sum in bfloat16, with its eight significant bits, stops growing after a few hundred terms.
    float64 is kept.
    """
    return x.to(torch.promote_types(x.dtype, torch.float32))


@dataclass(frozen=True, eq=False)
class Segments:
    """Segments of consecutive rows, in buckets of similar length.

    Buckets hold lengths up to 2, 4, 8, ...: with one padded call per bucket the padding is at most
    a factor of two, and the cost does not depend on the longest segment.

    Attributes:
        ptr: Segment s is the rows ``ptr[s]:ptr[s+1]``.
        buckets: (rows, valid), both (segments, length), of all segments longer than 1.
    """

    ptr: Tensor
    buckets: tuple[tuple[Tensor, Tensor], ...]

    @classmethod
    def of(cls, ptr: Tensor) -> "Segments":
        """Sort the segments into buckets."""
        length_S = ptr.diff()
        longest = int(length_S.max()) if length_S.numel() else 0
        buckets, low, high = [], 1, 2
        while low < longest:
            chosen_S = (length_S > low) & (length_S <= high)
            start_S1, end_S1 = ptr[:-1][chosen_S, None], ptr[1:][chosen_S, None]
            if start_S1.numel():
                rows_SW = start_S1 + torch.arange(high, device=ptr.device)
                valid_SW = rows_SW < end_S1
                buckets.append((torch.where(valid_SW, rows_SW, start_S1), valid_SW))
            low, high = high, 2 * high
        return cls(ptr, tuple(buckets))

    def broadcast(self, value_SF: Tensor) -> Tensor:
        """Return the value of each row's segment, shape (R, F)."""
        return torch.repeat_interleave(value_SF, self.ptr.diff(), dim=0)


class SegmentAttention(nn.Module):
    """Self-attention among the rows of each segment, for segments of any length.

    Args:
        width: F of the rows.
        heads: Number of heads; divides ``width``.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, rows_RF: Tensor, segments: "Segments") -> Tensor:
        """Return the attended rows, shape (R, F)."""
        projected_R3F = self.project(rows_RF)
        # A row that is alone in its segment attends to itself only: the result is its own value.
        mixed_RF = projected_R3F.chunk(3, dim=-1)[2]
        for rows_SW, valid_SW in segments.buckets:
            bucket = self._attend(gather_rows(projected_R3F, rows_SW), valid_SW)
            valid_K = valid_SW.flatten().nonzero()[:, 0]
            mixed_RF = mixed_RF.index_copy(
                0, rows_SW[valid_SW], gather_rows(bucket.flatten(0, 1), valid_K)
            )
        return self.output(mixed_RF)

    def _attend(self, projected_SW3F: Tensor, valid_SW: Tensor) -> Tensor:
        """Return attention over the second dimension, shape (S, W, F)."""
        split = projected_SW3F.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = split.unbind(0)
        mask_S11W = valid_SW[:, None, None, :]
        mixed_SHWD = F.scaled_dot_product_attention(query, key, value, attn_mask=mask_S11W)
        return mixed_SHWD.transpose(1, 2).flatten(2)


def segment_pointers(size_S: Tensor) -> Tensor:
    """Return running sums that start with 0, shape (S + 1,)."""
    return torch.cat([size_S.new_zeros(1), size_S.cumsum(0)])


def segment_ranges(start_S: Tensor, size_S: Tensor) -> tuple[Tensor, Tensor]:
    """Return (segment, value) of the ranges ``start_S[s] + [0, size_S[s])`` laid end to end."""
    total = int(size_S.sum())
    index_S = torch.arange(size_S.numel(), device=size_S.device)
    segment_R = torch.repeat_interleave(index_S, size_S, output_size=total)
    first_S = start_S - (size_S.cumsum(0) - size_S)
    return segment_R, first_S[segment_R] + torch.arange(total, device=size_S.device)
