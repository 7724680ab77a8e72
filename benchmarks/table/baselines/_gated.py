"""States of nodes that follow from gated sums over their parents' (D-VAE), for many graphs at once.

Shape letters: B graphs, D width, E edges, M nodes of all graphs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from layerdag.dag.dag import DAG
from layerdag.graph.topology import longest_path_layers


@dataclass(frozen=True, eq=False)
class Flat:
    """Graphs one after the other.

    Attributes:
        kind_M: Kinds.
        graph_M: Number of each node's graph.
        edge_index_2E: Edges by target, those from the nearest parent first.
        layer_M: Longest-path layers.
        graphs: Number of graphs.
    """

    kind_M: Tensor
    graph_M: Tensor
    edge_index_2E: Tensor
    layer_M: Tensor
    graphs: int

    @classmethod
    def of(cls, dags: Sequence[DAG]) -> "Flat":
        """Put graphs in layer order one after the other."""
        size_B = torch.tensor([dag.num_nodes for dag in dags])
        first_B = (size_B.cumsum(0) - size_B).tolist()
        edges = [dag.edge_index_2E + first for dag, first in zip(dags, first_B, strict=True)]
        edge_index_2E = torch.cat(edges, dim=1)
        order_E = torch.argsort(edge_index_2E[1] * int(size_B.sum()) - edge_index_2E[0])
        return cls(
            torch.cat([dag.x_NA[:, 0] for dag in dags]),
            torch.arange(len(dags)).repeat_interleave(size_B),
            edge_index_2E[:, order_E],
            torch.cat([dag.layer_N for dag in dags]),
            len(dags),
        )

    def flipped(self) -> "Flat":
        """Return the same with every edge turned around."""
        edge_index_2E = self.edge_index_2E.flip(0)
        layer_M = torch.from_numpy(longest_path_layers(len(self.kind_M), edge_index_2E.numpy()))
        return replace(self, edge_index_2E=edge_index_2E, layer_M=layer_M)


class GatedUnit(nn.Module):
    """A recurrent unit that reads a node's kind and starts from a sum over its parents."""

    def __init__(self, kinds: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.kind, self.cell = nn.Embedding(kinds, width), nn.GRUCell(width, width)
        self.gate, self.map = nn.Linear(width, width), nn.Linear(width, width, bias=False)

    def forward(self, kind_M: Tensor, into_MD: Tensor) -> Tensor:
        """Return states from kinds and sums."""
        state_MD: Tensor = self.cell(self.kind(kind_M), into_MD)
        return state_MD

    def message(self, state: Tensor) -> Tensor:
        """Return what states add to the sums of their children."""
        found: Tensor = torch.sigmoid(self.gate(state)) * self.map(state)
        return found

    def states(self, flat: Flat, start_MD: Tensor) -> Tensor:
        """Return the state of every node, layer by layer; sums begin with ``start_MD``."""
        order_M = torch.argsort(flat.layer_M, stable=True)
        source_E, target_E = flat.edge_index_2E
        order_E = torch.argsort(flat.layer_M[target_E], stable=True)
        nodes = torch.bincount(flat.layer_M)
        edges = torch.bincount(flat.layer_M[target_E], minlength=len(nodes))
        message_MD, found = torch.zeros_like(start_MD), []
        parts = zip(order_M.split(nodes.tolist()), order_E.split(edges.tolist()), strict=True)
        rank_M = torch.empty_like(order_M)
        for rows, into in parts:
            rank_M[rows] = torch.arange(len(rows))
            sum_MD = start_MD.index_select(0, rows).index_add(
                0, rank_M[target_E[into]], message_MD.index_select(0, source_E[into])
            )
            state_MD = self(flat.kind_M[rows], sum_MD)
            message_MD = message_MD.index_copy(0, rows, self.message(state_MD))
            found.append(state_MD)
        return torch.cat(found).index_select(0, torch.argsort(order_M))
