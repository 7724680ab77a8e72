"""Several DAGs laid end to end: flat tensors and pointers, as the model consumes them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layerdag.errors import GraphError
from layerdag.graph._dag import DAG, layers_of
from layerdag.graph._layering import pointers


@dataclass(frozen=True, eq=False)
class DAGBatch:
    """B DAGs in layer order, concatenated.

    Nodes of a graph are sorted by layer, edges by target; ``edge_index_2E`` counts through the
    whole batch. The conditions of a graph are encoded already: NaN in ``numeric_BC`` and -1 in
    ``category_BM`` mean "unknown" and are the same as dropped.

    Attributes:
        x_NA: int64 attribute codes.
        u_NA: float32 positions inside the bins.
        layer_N: int64 layer of each node inside its own graph.
        edge_index_2E: int64 source and target.
        edge_type_E: int64.
        node_ptr: int64 (B+1,); nodes of graph b are ``node_ptr[b]:node_ptr[b+1]``.
        edge_ptr: int64 (B+1,).
        numeric_BC: float32 standardized numeric conditions.
        category_BM: int64 categorical conditions.
    """

    x_NA: Int[Tensor, "N A"]
    u_NA: Float[Tensor, "N A"]
    layer_N: Int[Tensor, " N"]
    edge_index_2E: Int[Tensor, "2 E"]
    edge_type_E: Int[Tensor, " E"]
    node_ptr: Int[Tensor, " B1"]
    edge_ptr: Int[Tensor, " B1"]
    numeric_BC: Float[Tensor, "B C"]
    category_BM: Int[Tensor, "B M"]

    @classmethod
    def of(
        cls,
        dags: Sequence[DAG],
        numeric_BC: Float[Tensor, "B C"],
        category_BM: Int[Tensor, "B M"],
    ) -> "DAGBatch":
        """Lay ``dags``, each in layer order, end to end.

        Raises:
            GraphError: If a graph has a cycle, or lists a node before one of an earlier layer.
        """
        layers = layers_of(dags)
        _require_layer_order(layers)
        node_ptr = torch.from_numpy(pointers([dag.num_nodes for dag in dags]))
        edge_ptr = torch.from_numpy(pointers([dag.num_edges for dag in dags]))
        shift_E = torch.repeat_interleave(node_ptr[:-1], edge_ptr.diff())
        return cls(
            x_NA=torch.cat([dag.x_NA for dag in dags]),
            u_NA=torch.cat([dag.u_NA for dag in dags]),
            layer_N=torch.cat(layers),
            edge_index_2E=torch.cat([dag.edge_index_2E for dag in dags], dim=1) + shift_E,
            edge_type_E=torch.cat([dag.edge_type_E for dag in dags]),
            node_ptr=node_ptr,
            edge_ptr=edge_ptr,
            numeric_BC=numeric_BC,
            category_BM=category_BM,
        )

    @property
    def num_graphs(self) -> int:
        """Number of graphs (B)."""
        return self.node_ptr.shape[0] - 1

    @property
    def num_nodes(self) -> int:
        """N over all graphs."""
        return self.x_NA.shape[0]

    def graph_of_node(self) -> Int[Tensor, " N"]:
        """Return the graph index of each node, shape (N,)."""
        sizes_B = self.node_ptr.diff()
        index_B = torch.arange(self.num_graphs, device=sizes_B.device)
        return torch.repeat_interleave(index_B, sizes_B, output_size=self.num_nodes)

    def num_layers(self) -> Int[Tensor, " B"]:
        """Return the number of layers of each graph, shape (B,)."""
        zero_B = torch.zeros(self.num_graphs, dtype=torch.int64, device=self.layer_N.device)
        return zero_B.scatter_reduce(0, self.graph_of_node(), self.layer_N + 1, "amax")

    def to(self, device: torch.device | str) -> "DAGBatch":
        """Return the batch on ``device``."""
        moved = {f.name: getattr(self, f.name).to(device) for f in fields(self)}
        return replace(self, **moved)


def _require_layer_order(layers: Sequence[Tensor]) -> None:
    """Raise GraphError if a graph lists a node before one of an earlier layer."""
    layer_N = torch.cat([torch.zeros(1, dtype=torch.int64), *layers])
    first_B = torch.from_numpy(pointers([layer.shape[0] for layer in layers]))[:-1]
    falls_N = layer_N.diff() < 0
    falls_N[first_B[first_B < falls_N.shape[0]]] = False
    if bool(falls_N.any()):
        node = int(falls_N.nonzero()[0, 0])
        graph = int((first_B <= node).nonzero()[-1, 0])
        raise GraphError(
            f"Graph {graph} is not in layer order: its node {node - int(first_B[graph])} "
            "comes after a node of a later layer; call in_layer_order() on each graph first."
        )
