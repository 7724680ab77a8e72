"""The given first layers of a graph, which a model completes.

Shape letters: A node attributes, E edges, N nodes.
"""

from dataclasses import dataclass
from functools import cached_property

import torch

from layerdag.errors import UsageError
from layerdag.graph import DAG


@dataclass(frozen=True, eq=False)
class Prefix:
    """The first layers of a graph.

    Attributes:
        dag: The given layers, nodes in layer order.
        out_degrees: Number of children of each given node in the whole graph, which models that
            predict out-degrees are told.
        reserved: Number of those children that are given, too, and come after the drawn nodes;
            empty where all that follows is drawn.
    """

    dag: DAG
    out_degrees: tuple[int, ...]
    reserved: tuple[int, ...] = ()

    @classmethod
    def of(cls, dag: DAG, num_layers: int) -> "Prefix":
        """Return the first layers of a whole graph.

        Raises:
            UsageError: If the graph does not have so many layers.
            GraphError: If the graph has a cycle.
        """
        require_layers(num_layers, dag.num_layers)
        dag = dag.in_layer_order()
        count = int((dag.layer_N < num_layers).sum())
        degree_N = torch.bincount(dag.edge_index_2E[0], minlength=dag.num_nodes)
        inside_E = dag.edge_index_2E[1] < count
        first = DAG.build(
            dag.x_NA[:count],
            dag.edge_index_2E[:, inside_E],
            edge_type_E=dag.edge_type_E[inside_E],
            u_NA=dag.u_NA[:count],
            layer_N=dag.layer_N[:count],
        )
        return cls(first, tuple(degree_N[:count].tolist()))

    @property
    def num_nodes(self) -> int:
        """Number of nodes of the given layers."""
        return self.dag.num_nodes

    @property
    def num_layers(self) -> int:
        """Number of given layers."""
        return self.dag.num_layers

    @cached_property
    def layer_sizes(self) -> tuple[int, ...]:
        """Number of nodes of each given layer."""
        return tuple(torch.bincount(self.dag.layer_N).tolist())

    @cached_property
    def parents(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Parent and edge type of each edge into each given node, the last parent first."""
        found: list[list[tuple[int, int]]] = [[] for _ in range(self.dag.num_nodes)]
        edges = zip(*self.dag.edge_index_2E.tolist(), self.dag.edge_type_E.tolist(), strict=True)
        for source, target, edge_type in edges:
            found[target].append((source, edge_type))
        return tuple(tuple(sorted(parents, reverse=True)) for parents in found)

    def require_room(self, max_nodes: int, max_layers: int) -> None:
        """Refuse limits of a graph that leave nothing to complete.

        Raises:
            UsageError: If the prefix reaches one of them.
        """
        if self.num_nodes >= max_nodes or self.num_layers >= max_layers:
            raise UsageError(
                f"The prefix has {self.num_nodes} nodes in {self.num_layers} layers, and a graph "
                f"may have {max_nodes} nodes and {max_layers} layers: nothing is left to complete; "
                "raise max_nodes, or give fewer layers."
            )

    def kept_in(self, dag: DAG) -> DAG:
        """Return a completed graph whose given nodes have their own positions inside bins."""
        drawn_NA = dag.u_NA[self.num_nodes :]
        return dag.with_columns(dag.x_NA, torch.cat([self.dag.u_NA, drawn_NA]))


def require_layers(given: int, layers: int) -> None:
    """Refuse a prefix of no layers, or of more than there are.

    Raises:
        UsageError: If it is one.
    """
    if not 1 <= given <= layers:
        raise UsageError(f"A prefix of this graph has from 1 to {layers} layers, found {given}.")
