"""What the trunk reads: codes of a node and counts that describe its place."""

from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn

from layerdag.graph import GraphSizes
from layerdag.models.autoregressive._counts import CountCode, Counter, SumEmbedding
from layerdag.models.autoregressive._layout import Edges, Layout

_SCALE = CountCode(exact=24, largest=4096)


@dataclass(frozen=True, eq=False)
class Place:
    """Counts that are known once a token is complete; start tokens have zeros and a size of 1.

    In a model without plans all plans are 0, and what is still open is below 0 and read as 0.

    Attributes:
        degree_T: In-degree.
        planned_T: Planned number of children.
        size_T: Number of nodes of the layer.
        index_T: Position in the layer.
        left_T: Nodes of the layer still to come.
        open_T: Planned children of all tokens so far, less the edges so far.
        open_layer_T: Planned children of the token's own layer so far.
        open_before_T: Planned children of the layer before, less its edges to this layer so far.
        position_T: Position in the graph.
        layer_T: Layer.
    """

    degree_T: Tensor
    planned_T: Tensor
    size_T: Tensor
    index_T: Tensor
    left_T: Tensor
    open_T: Tensor
    open_layer_T: Tensor
    open_before_T: Tensor
    position_T: Tensor
    layer_T: Tensor

    @classmethod
    def of(cls, layout: Layout, edges: Edges, planned_T: Tensor) -> "Place":
        """Count over the true graphs of a batch, whose nodes plan ``planned_T`` children."""
        degree_T = torch.zeros_like(edges.out_degree_T)
        degree_T[layout.token_N] = edges.in_degree_N
        from_before_E = layout.layer_T[edges.parent_E] == layout.layer_T[edges.child_E] - 1
        near_T = torch.bincount(edges.child_E[from_before_E], minlength=layout.num_tokens)
        planned_sum_T, degree_sum_T, near_sum_T = (
            count_T.cumsum(0) for count_T in (planned_T, degree_T, near_T)
        )
        start_T = layout.start_B[layout.graph_T]
        layer_start_T, before_start_T = start_T + 1, start_T + 1
        layer_start_T = layer_start_T.index_put((layout.token_N,), layout.layer_start_N)
        before_start_T = before_start_T.index_put((layout.token_N,), layout.parent_start_N)
        below_T = layer_start_T - 1
        real_T = layout.layer_T >= 0
        inner_T = layout.layer_T > 0
        open_T = planned_sum_T - degree_sum_T
        open_before_T = planned_sum_T[below_T] - planned_sum_T[before_start_T - 1]
        return cls(
            degree_T=degree_T,
            planned_T=planned_T,
            size_T=layout.size_T,
            index_T=layout.index_T,
            left_T=layout.size_T - layout.index_T - 1,
            open_T=open_T - open_T[start_T],
            open_layer_T=(planned_sum_T - planned_sum_T[below_T]) * real_T,
            open_before_T=(open_before_T - near_sum_T + near_sum_T[below_T]) * inner_T,
            position_T=layout.position_T,
            layer_T=layout.layer_T.clamp(min=0),
        )

    def stacked(self) -> Tensor:
        """Return the counts as one matrix, shape (T, fields)."""
        return torch.stack([getattr(self, field.name) for field in fields(self)], dim=1)


class TokenEmbedding(nn.Module):
    """The trunk's input: attributes and counts as one sum of embeddings.

    The start token has a code of its own (one past the last) for every attribute.
    """

    start_A: Tensor

    def __init__(self, sizes: GraphSizes, width: int) -> None:
        super().__init__()
        self.register_buffer("start_A", torch.tensor(sizes.attributes), persistent=False)
        self.scale = Counter(_SCALE)
        codes = [size + 1 for size in sizes.attributes]
        counts = [self.scale.num_codes] * len(fields(Place))
        self.embedding = SumEmbedding([*codes, *counts], width)

    def forward(self, x_TA: Tensor, place: Place) -> Tensor:
        """Return the input of the trunk before the conditions are added, shape (T, D)."""
        place_TF = self.scale.encode(place.stacked().clamp(min=0))
        embedded_TD: Tensor = self.embedding(torch.cat([x_TA, place_TF], dim=1))
        return embedded_TD
