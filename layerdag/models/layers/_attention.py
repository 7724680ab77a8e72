"""Self-attention among the rows of each segment, without padding to the longest one.

Shape letters: D width of a state, G groups of rows (segments), H heads, R rows, d width of a head
or key, w window (padded length of a group).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from layerdag.models.layers._rows import gather_rows


@dataclass(frozen=True, eq=False)
class Segments:
    """Segments of consecutive rows, in buckets of similar length.

    Buckets hold lengths up to 2, 4, 8, ...: with one padded call per bucket the padding is at most
    a factor of two, and the cost does not depend on the longest segment.

    Attributes:
        ptr: Segment g is the rows ``ptr[g]:ptr[g+1]``.
        buckets: (rows, valid), both (segments, length), of all segments longer than 1.
    """

    ptr: Int[Tensor, " G1"]
    buckets: tuple[tuple[Tensor, Tensor], ...]

    @classmethod
    def of(cls, ptr: Int[Tensor, " G1"]) -> "Segments":
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
    """Self-attention among the rows of each segment, for segments of any length.

    Args:
        width: D of the rows.
        heads: Number of heads; divides ``width``.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

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

    def _attend(
        self, projected_Gw3D: Float[Tensor, "G w _"], valid_Gw: Bool[Tensor, "G w"]
    ) -> Float[Tensor, "G w D"]:
        """Return attention over the second dimension."""
        split = projected_Gw3D.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = split.unbind(0)
        mask_G11w = valid_Gw[:, None, None, :]
        mixed_GHwd = F.scaled_dot_product_attention(query, key, value, attn_mask=mask_G11w)
        return mixed_GHwd.transpose(1, 2).flatten(2)
