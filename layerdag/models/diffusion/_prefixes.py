"""Training examples of the layerwise model: every prefix of every graph, block-diagonally.

In a ``DAGBatch`` the nodes of a graph are sorted by layer and its edges by target, so the prefix of
the first l layers is a contiguous range of nodes and edges: prefixes are built from pointers.

Shape letters: B graphs, E edges, I prefixes, L layers, N nodes, R rows (nodes of the prefixes, end
to end), V edges among rows.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from layerdag.graph import DAGBatch
from layerdag.models.layers import segment_pointers, segment_ranges


@dataclass(frozen=True, eq=False)
class LayerIndex:
    """Positions of the layers of a batch.

    Attributes:
        count_B: Layers of each graph.
        first_B: Number of the graph's layer 0, counting layers through the batch.
        start_L1: First node of each layer; the last entry is the number of nodes.
    """

    count_B: Int[Tensor, " B"]
    first_B: Int[Tensor, " B"]
    start_L1: Int[Tensor, " L1"]

    @classmethod
    def of(cls, batch: DAGBatch) -> "LayerIndex":
        """Find the layers of ``batch``."""
        count_B = batch.num_layers()
        first_B = count_B.cumsum(0) - count_B
        layer_N = first_B[batch.graph_of_node()] + batch.layer_N
        size_L = torch.bincount(layer_N, minlength=int(count_B.sum()))
        return cls(count_B, first_B, segment_pointers(size_L))

    def end_of(self, graph_I: Int[Tensor, " I"], depth_I: Int[Tensor, " I"]) -> Int[Tensor, " I"]:
        """Return the first node beyond the first ``depth_I`` layers of each graph ``graph_I``."""
        return self.start_L1[self.first_B[graph_I] + depth_I]


@dataclass(frozen=True, eq=False)
class PrefixIndex:
    """Prefixes of graphs: the first ``depth_I`` layers of the graphs ``graph_I``."""

    graph_I: Int[Tensor, " I"]
    depth_I: Int[Tensor, " I"]

    def __len__(self) -> int:
        return self.graph_I.numel()

    def where(self, keep_I: Bool[Tensor, " I"] | Int[Tensor, " _"]) -> "PrefixIndex":
        """Return the prefixes for which ``keep_I`` is true, or whose numbers it lists."""
        return PrefixIndex(self.graph_I[keep_I], self.depth_I[keep_I])


def all_prefixes(layers: LayerIndex) -> PrefixIndex:
    """Return every prefix of every graph, from the empty one to the whole graph."""
    zero_B = torch.zeros_like(layers.count_B)
    return PrefixIndex(*segment_ranges(zero_B, layers.count_B + 1))


def subsample_prefixes(
    items: PrefixIndex, cost_I: Int[Tensor, " I"], budget: int, generator: torch.Generator
) -> PrefixIndex:
    """Return all prefixes, or a random subset with a total cost of at most ``budget``.

    At least one prefix is returned, whatever its cost.
    """
    if int(cost_I.sum()) <= budget:
        return items
    key_I = torch.rand(len(items), generator=generator, device=cost_I.device)
    order_I = torch.argsort(key_I)
    affordable = int((cost_I[order_I].cumsum(0) <= budget).sum())
    chosen_I = order_I[: max(affordable, 1)].sort().values
    return items.where(chosen_I)


@dataclass(frozen=True, eq=False)
class Prefixes:
    """Rows and edges of several prefixes laid end to end.

    Attributes:
        node_R: Node of the batch behind each row.
        prefix_R: Prefix of each row, ascending.
        distance_R: Layers from the row's node to the next layer; 1 is the latest layer, 0 the next
            layer itself.
        row_ptr: Rows of prefix i are ``row_ptr[i]:row_ptr[i+1]``.
        edge_index_2V: Source and target rows of the known edges.
        edge_type_V: Their types.
    """

    node_R: Int[Tensor, " R"]
    prefix_R: Int[Tensor, " R"]
    distance_R: Int[Tensor, " R"]
    row_ptr: Int[Tensor, " I1"]
    edge_index_2V: Int[Tensor, "2 V"]
    edge_type_V: Int[Tensor, " V"]

    @property
    def num_prefixes(self) -> int:
        """Number of prefixes."""
        return self.row_ptr.numel() - 1


def prefixes(batch: DAGBatch, layers: LayerIndex, items: PrefixIndex, ahead: int) -> Prefixes:
    """Lay the prefixes ``items`` end to end.

    Args:
        batch: The graphs.
        layers: Their layers.
        items: Which prefixes.
        ahead: 0, or 1 to add the nodes (without edges) of the layer after the prefix.
    """
    start_I = batch.node_ptr[items.graph_I]
    known_I = layers.end_of(items.graph_I, items.depth_I)
    last_I = layers.end_of(items.graph_I, items.depth_I + ahead) if ahead else known_I
    prefix_R, node_R = segment_ranges(start_I, last_I - start_I)
    row_ptr = segment_pointers(last_I - start_I)
    target_E = batch.edge_index_2E[1].contiguous()
    first_edge_I = batch.edge_ptr[items.graph_I]
    edges_I = torch.searchsorted(target_E, known_I) - first_edge_I
    candidate_V, edge_V = segment_ranges(first_edge_I, edges_I)
    shift_V = (row_ptr[:-1] - start_I)[candidate_V]
    return Prefixes(
        node_R=node_R,
        prefix_R=prefix_R,
        distance_R=items.depth_I[prefix_R] - batch.layer_N[node_R],
        row_ptr=row_ptr,
        edge_index_2V=batch.edge_index_2E[:, edge_V] + shift_V,
        edge_type_V=batch.edge_type_E[edge_V],
    )
