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
        dag: The whole graph; models that predict out-degrees read those of the prefix from it.
        num_layers: Number of its layers that are given.

    Raises:
        UsageError: If the graph does not have so many layers.
        GraphError: If the graph has a cycle.
    """

    dag: DAG
    num_layers: int

    def __post_init__(self) -> None:
        if not 1 <= self.num_layers <= self.dag.num_layers:
            raise UsageError(
                f"A prefix of this graph has from 1 to {self.dag.num_layers} layers, found "
                f"{self.num_layers}."
            )
        object.__setattr__(self, "dag", self.dag.in_layer_order())

    @cached_property
    def num_nodes(self) -> int:
        """Number of nodes of the given layers; they are the first ones of ``dag``."""
        return int((self.dag.layer_N < self.num_layers).sum())

    @cached_property
    def layer_sizes(self) -> tuple[int, ...]:
        """Number of nodes of each given layer."""
        size_L = torch.bincount(self.dag.layer_N[: self.num_nodes], minlength=self.num_layers)
        return tuple(size_L.tolist())

    @cached_property
    def out_degrees(self) -> tuple[int, ...]:
        """Number of children of each given node in the whole graph."""
        source_E, _ = self.dag.edge_index_2E
        return tuple(torch.bincount(source_E, minlength=self.dag.num_nodes).tolist())

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
        given_NA, drawn_NA = self.dag.u_NA[: self.num_nodes], dag.u_NA[self.num_nodes :]
        return dag.with_columns(dag.x_NA, torch.cat([given_NA, drawn_NA]))
