"""Partial graphs during sampling: flat arrays that are extended by one layer at a time.

Shape letters: A node attributes, E edges, N nodes, V edges among rows, W new nodes.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layerdag.graph import DAG
from layerdag.models.draws import assemble_dags


@dataclass(frozen=True, eq=False)
class NewLayer:
    """One layer of every graph that has one, nodes ordered by graph.

    Attributes:
        graph_W: Graph of each new node.
        code_WA: Attribute codes.
        source_V: Earlier node of each new edge, numbered through all graphs.
        target_V: New node of each edge, 0..W.
        type_V: Type of each edge.
    """

    graph_W: Int[Tensor, " W"]
    code_WA: Int[Tensor, "W A"]
    source_V: Int[Tensor, " V"]
    target_V: Int[Tensor, " V"]
    type_V: Int[Tensor, " V"]


class PartialGraphs:
    """All nodes and edges so far, in the order of sampling.

    Attributes:
        graph_N: Graph of each node.
        layer_N: Layer of each node.
        code_NA: Attribute codes, in-degree last.
        edge_index_2E: Nodes joined.
        edge_type_E: Types.
        depth: Number of layers sampled.
    """

    def __init__(self, columns: int, device: torch.device) -> None:
        empty = torch.zeros(0, dtype=torch.int64, device=device)
        self.graph_N, self.layer_N, self.edge_type_E = empty, empty, empty
        self.code_NA = empty.reshape(0, columns)
        self.edge_index_2E = empty.reshape(2, 0)
        self.depth = 0

    def append(self, layer: NewLayer) -> None:
        """Add the next layer."""
        start = self.graph_N.numel()
        depth_W = torch.full_like(layer.graph_W, self.depth)
        edge_index_2V = torch.stack([layer.source_V, start + layer.target_V])
        self.graph_N = torch.cat([self.graph_N, layer.graph_W])
        self.layer_N = torch.cat([self.layer_N, depth_W])
        self.code_NA = torch.cat([self.code_NA, layer.code_WA])
        self.edge_index_2E = torch.cat([self.edge_index_2E, edge_index_2V], dim=1)
        self.edge_type_E = torch.cat([self.edge_type_E, layer.type_V])
        self.depth += 1

    def finished(self, u_NA: Float[Tensor, "N A"], num_graphs: int) -> tuple[DAG, ...]:
        """Return the graphs, nodes in layer order and edges by (target, source).

        Args:
            u_NA: Positions inside the bins, rows ordered by graph and layer.
            num_graphs: B.
        """
        order_N = torch.argsort(self.graph_N, stable=True)
        rank_N = torch.empty_like(order_N)
        rank_N[order_N] = torch.arange(order_N.numel(), device=order_N.device)
        return assemble_dags(
            self.code_NA[order_N, :-1].cpu(),
            u_NA.cpu(),
            torch.bincount(self.graph_N, minlength=num_graphs).cpu(),
            rank_N[self.edge_index_2E].cpu(),
            self.edge_type_E.cpu(),
            self.layer_N[order_N].cpu(),
        )
