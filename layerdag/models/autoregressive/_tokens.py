"""Input of the encoder: codes of a node and structural features that describe its position.

Shape letters: A node attributes, B graphs, D width of a state, E edges, F feature columns, N nodes,
T tokens.
"""

from dataclasses import dataclass, fields

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from layerdag.graph import GraphSizes
from layerdag.models.autoregressive._layout import Edges, Layout
from layerdag.models.layers import CountCode, Counter, SumEmbedding

_COUNT_CODE = CountCode(exact=24, largest=4096)


@dataclass(frozen=True, eq=False)
class StructuralFeatures:
    """Structural features of completed tokens; start tokens have zeros and a layer size of 1.

    In a model without out-degree prediction all predicted out-degrees are 0; the numbers of pending
    children are then negative and are encoded as 0.

    Attributes:
        degree_T: In-degree.
        out_degree_T: Predicted number of children; in training the true one.
        size_T: Number of nodes of the layer.
        index_T: Position in the layer.
        left_T: Number of nodes of the layer that follow.
        open_T: Pending children of all tokens so far: predicted ones less the edges so far.
        open_layer_T: Pending children of the token's own layer so far.
        open_before_T: Pending children of the layer before: predicted ones less its edges to this
            layer so far.
        position_T: Position in the graph.
        layer_T: Layer.
    """

    degree_T: Int[Tensor, " T"]
    out_degree_T: Int[Tensor, " T"]
    size_T: Int[Tensor, " T"]
    index_T: Int[Tensor, " T"]
    left_T: Int[Tensor, " T"]
    open_T: Int[Tensor, " T"]
    open_layer_T: Int[Tensor, " T"]
    open_before_T: Int[Tensor, " T"]
    position_T: Int[Tensor, " T"]
    layer_T: Int[Tensor, " T"]

    @classmethod
    def of(
        cls, layout: Layout, edges: Edges, out_degree_T: Int[Tensor, " T"]
    ) -> "StructuralFeatures":
        """Return the features of a batch of complete graphs with out-degrees ``out_degree_T``."""
        degree_T = torch.zeros_like(edges.out_degree_T)
        degree_T[layout.token_N] = edges.in_degree_N
        from_before_E = layout.layer_T[edges.parent_E] == layout.layer_T[edges.child_E] - 1
        near_T = torch.bincount(edges.child_E[from_before_E], minlength=layout.num_tokens)
        out_degree_sum_T, in_degree_sum_T, near_sum_T = (
            count_T.cumsum(0) for count_T in (out_degree_T, degree_T, near_T)
        )
        start_T = layout.start_B[layout.graph_T]
        layer_start_T, before_start_T = start_T + 1, start_T + 1
        layer_start_T = layer_start_T.index_put((layout.token_N,), layout.layer_start_N)
        before_start_T = before_start_T.index_put((layout.token_N,), layout.parent_start_N)
        below_T = layer_start_T - 1
        real_T = layout.layer_T >= 0
        inner_T = layout.layer_T > 0
        open_T = out_degree_sum_T - in_degree_sum_T
        open_before_T = out_degree_sum_T[below_T] - out_degree_sum_T[before_start_T - 1]
        return cls(
            degree_T=degree_T,
            out_degree_T=out_degree_T,
            size_T=layout.size_T,
            index_T=layout.index_T,
            left_T=layout.size_T - layout.index_T - 1,
            open_T=open_T - open_T[start_T],
            open_layer_T=(out_degree_sum_T - out_degree_sum_T[below_T]) * real_T,
            open_before_T=(open_before_T - near_sum_T + near_sum_T[below_T]) * inner_T,
            position_T=layout.position_T,
            layer_T=layout.layer_T.clamp(min=0),
        )

    def stacked(self) -> Int[Tensor, "T F"]:
        """Return the features as one matrix, shape (T, F)."""
        return torch.stack([getattr(self, field.name) for field in fields(self)], dim=1)


class TokenEmbedding(nn.Module):
    """The encoder's input: attributes and structural features as one sum of embeddings.

    The start token has a code of its own (one past the last) for every attribute.
    """

    start_A: Tensor

    def __init__(self, sizes: GraphSizes, width: int) -> None:
        super().__init__()
        self.register_buffer("start_A", torch.tensor(sizes.attributes), persistent=False)
        self.scale = Counter(_COUNT_CODE)
        codes = [size + 1 for size in sizes.attributes]
        counts = [self.scale.num_codes] * len(fields(StructuralFeatures))
        self.embedding = SumEmbedding([*codes, *counts], width)

    def forward(
        self, x_TA: Int[Tensor, "T A"], structure: StructuralFeatures
    ) -> Float[Tensor, "T D"]:
        """Return the input of the encoder before the conditions are added, shape (T, D)."""
        structure_TF = self.scale.encode(structure.stacked().clamp(min=0))
        embedded_TD: Tensor = self.embedding(torch.cat([x_TA, structure_TF], dim=1))
        return embedded_TD
