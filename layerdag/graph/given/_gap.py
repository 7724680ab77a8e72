"""A gap in a graph: layers that are drawn anew between given ones.

Shape letters: A node attributes, E edges, N nodes, P pairs (of a removed and a kept node that
depends on it).
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Int
from torch import Tensor

from layerdag.errors import UsageError
from layerdag.graph import DAG
from layerdag.graph.given._prefix import Prefix, require_layers


@dataclass(frozen=True, eq=False)
class Gap:
    """Layers of a graph that are to be drawn anew, while those before and after are kept.

    Attributes:
        dag: The whole given graph, nodes in layer order, edges by target.
        first_layer: The first layer to be drawn anew.
        end_layer: The first layer after it that is kept.
    """

    dag: DAG
    first_layer: int
    end_layer: int

    @classmethod
    def of(cls, dag: DAG, prefix_layers: int, suffix_layers: int) -> "Gap":
        """Return the gap that keeps so many first and so many last layers of a graph.

        Raises:
            UsageError: If no layer is left between them, or one of them is empty.
            GraphError: If the graph has a cycle.
        """
        layers = dag.num_layers
        require_layers(prefix_layers, layers)
        if suffix_layers < 1 or prefix_layers + suffix_layers >= layers:
            raise UsageError(
                f"Of the {layers} layers of this graph the first {prefix_layers} and the last "
                f"{suffix_layers} are to be kept, which leaves none between them to be drawn anew; "
                "keep at least one layer on each side and fewer together."
            )
        return cls(dag.in_layer_order(), prefix_layers, layers - suffix_layers)

    @cached_property
    def start(self) -> int:
        """Number of nodes before the gap."""
        return int((self.dag.layer_N < self.first_layer).sum())

    @cached_property
    def end(self) -> int:
        """First node after the gap."""
        return int((self.dag.layer_N < self.end_layer).sum())

    @property
    def num_later(self) -> int:
        """Number of nodes after the gap."""
        return self.dag.num_nodes - self.end

    @cached_property
    def prefix(self) -> Prefix:
        """The layers before the gap; children after it are reserved."""
        first = Prefix.of(self.dag, self.first_layer)
        source_E, target_E = self.dag.edge_index_2E
        after_E = source_E[target_E >= self.end]
        reserved_N = torch.bincount(after_E, minlength=self.start)[: self.start]
        return replace(first, reserved=tuple(reserved_N.tolist()))

    @cached_property
    def open_P(self) -> Int[Tensor, " P"]:
        """The edges of ``dag`` from a removed node to a kept later one."""
        source_E, target_E = self.dag.edge_index_2E
        inside_E = (source_E >= self.start) & (source_E < self.end) & (target_E >= self.end)
        return inside_E.nonzero()[:, 0]

    def filled(self, begun: DAG, parent_P: Int[Tensor, " P"]) -> DAG:
        """Return a graph that goes on after new layers as the given one did.

        Args:
            begun: The kept first layers and new ones, as many as were removed.
            parent_P: For each open edge the node of ``begun`` that it comes from; -1 leaves it out.
        """
        shift = begun.num_nodes - self.end
        source_E, target_E = self.dag.edge_index_2E.clone()
        source_E = torch.where(source_E >= self.end, source_E + shift, source_E)
        source_E[self.open_P] = parent_P
        kept_E = (target_E >= self.end) & (source_E >= 0)
        later_2E = torch.stack([source_E, target_E + shift])[:, kept_E]
        edges_2E = torch.cat([begun.edge_index_2E, later_2E], dim=1)
        type_E = torch.cat([begun.edge_type_E, self.dag.edge_type_E[kept_E]])
        nodes = begun.num_nodes + self.num_later
        order_E = torch.argsort(edges_2E[1] * nodes + edges_2E[0])
        return DAG.build(
            torch.cat([begun.x_NA, self.dag.x_NA[self.end :]]),
            edges_2E[:, order_E],
            edge_type_E=type_E[order_E],
            u_NA=torch.cat([begun.u_NA, self.dag.u_NA[self.end :]]),
            layer_N=torch.cat([begun.layer_N, self.dag.layer_N[self.end :]]),
        )
