"""A graph with names and numbers, before a schema has turned it into codes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from layerdag.errors import GraphError
from layerdag.graph import Condition, longest_path_layers

SIZE_CONDITIONS = NUM_NODES, NUM_LAYERS = ("num_nodes", "num_layers")
"""Conditions that follow from a graph itself."""


def size_conditions(layer_N: np.ndarray) -> dict[str, Condition]:
    """Return the conditions "num_nodes" and "num_layers" of a graph with these layers."""
    return {NUM_NODES: float(len(layer_N)), NUM_LAYERS: float(layer_N.max(initial=-1) + 1)}


@dataclass(frozen=True, eq=False)
class AttributedGraph:
    """A DAG as its source gives it. The order of attributes is the order of the model's columns.

    Attributes:
        name: For messages and manifests.
        categories: Words of each categorical attribute, one per node.
        numbers: Values of each numeric attribute, float64 (N,), NaN for absent.
        units: Unit of each numeric attribute.
        edge_index_2E: int64 source and target.
        edge_type_E: int64 position in ``edge_type_names``.
        edge_type_names: Name of each edge type.
        conditions: Graph-level values by name.
        open_vocabularies: Categorical attributes in which unseen words may map to ``<other>``.
        vocabularies: Words that an attribute's vocabulary holds even if no training graph has them.
    """

    name: str
    categories: Mapping[str, list[str]]
    numbers: Mapping[str, np.ndarray]
    edge_index_2E: np.ndarray
    edge_type_E: np.ndarray
    units: Mapping[str, str] = field(default_factory=dict)
    edge_type_names: tuple[str, ...] = ("data",)
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    open_vocabularies: tuple[str, ...] = ()
    vocabularies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def num_nodes(self) -> int:
        """Number of nodes (N)."""
        for column in self.categories.values():
            return len(column)
        for values in self.numbers.values():
            return len(values)
        return 0

    @cached_property
    def layer_N(self) -> np.ndarray:
        """Longest-path layer of each node, int64, found once. Raises GraphError on a cycle."""
        return longest_path_layers(self.num_nodes, self.edge_index_2E)

    def checked(self) -> "AttributedGraph":
        """Return self if columns, edges and edge types agree; cycles are found when encoding.

        Raises:
            GraphError: With one sentence that names the first fault.
        """
        sizes = {name: len(column) for name, column in self.categories.items()}
        sizes |= {name: len(values) for name, values in self.numbers.items()}
        if self.num_nodes == 0:
            raise GraphError(f"{self.name}: there is no node, or no node attribute.")
        for name, size in sizes.items():
            if size != self.num_nodes:
                raise GraphError(
                    f"{self.name}: attribute '{name}' has {size} values for {self.num_nodes} nodes."
                )
        num_edges = self.edge_index_2E.shape[1]
        if self.edge_type_E.shape != (num_edges,):
            raise GraphError(
                f"{self.name}: there are {len(self.edge_type_E)} edge types for {num_edges} edges."
            )
        outside = (self.edge_index_2E < 0) | (self.edge_index_2E >= self.num_nodes)
        if outside.any():
            raise GraphError(
                f"{self.name}: an edge names node {int(self.edge_index_2E[outside][0])}, but nodes "
                f"are 0 to {self.num_nodes - 1}."
            )
        if np.unique(self.edge_index_2E, axis=1).shape[1] != num_edges:
            raise GraphError(f"{self.name}: an edge occurs twice; keep one for each pair.")
        return self
