"""Message passing along and against the edges of a graph.

Shape letters: D width of a state, R rows (nodes), V edges among rows.
"""

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from layerdag.models.layers._rows import gather_rows, to_float32


class MessagePassingLayer(nn.Module):
    """``h' = GELU(LN(A W h + A^T W' h + W'' h))`` with an embedding of the kind on each message.

    The published layer (LayerDAG, arXiv 2411.02322, appendix) plus a layer norm, which keeps sums
    over many neighbors in range.
    """

    def __init__(self, width: int, edge_kinds: int) -> None:
        super().__init__()
        self.maps = nn.Linear(width, 3 * width)
        self.norm = nn.LayerNorm(width)
        self.kinds = nn.Embedding(edge_kinds, 2 * width) if edge_kinds > 1 else None

    def forward(
        self,
        rows_RD: Float[Tensor, "R D"],
        edge_index_2V: Int[Tensor, "2 V"],
        edge_kind_V: Int[Tensor, " V"],
    ) -> Float[Tensor, "R D"]:
        """Return the new rows."""
        source_V, target_V = edge_index_2V
        own_RD, down_RD, up_RD = to_float32(self.maps(rows_RD)).chunk(3, dim=-1)
        down_VD, up_VD = gather_rows(down_RD, source_V), gather_rows(up_RD, target_V)
        if self.kinds is not None:
            kind_VD = self.kinds(edge_kind_V).to(down_VD.dtype)
            down_kind_VD, up_kind_VD = kind_VD.chunk(2, dim=-1)
            down_VD, up_VD = down_VD + down_kind_VD, up_VD + up_kind_VD
        total_RD = own_RD.index_add(0, target_V, down_VD).index_add(0, source_V, up_VD)
        return F.gelu(self.norm(total_RD))
