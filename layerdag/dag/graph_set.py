"""Many DAGs as one disjoint union in numpy, so that every statistic is one vectorized step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from layerdag.dag.dag import DAG, layers_of
from layerdag.errors import DataError, UsageError
from layerdag.graph.topology import longest_path_layers, pointers


@dataclass(frozen=True, eq=False)
class GraphSet:
    """B DAGs laid end to end. Node numbers of edges count through the union.

    Attributes:
        x_NA: int32 attribute codes; int64 if one of them needs more.
        edge_index_2E: int64 source and target.
        edge_type_E: int64.
        node_ptr: int64 (B+1,).
        edge_ptr: int64 (B+1,).
        dags: The graphs, if the columns are theirs: they carry their layers.
    """

    x_NA: np.ndarray
    edge_index_2E: np.ndarray
    edge_type_E: np.ndarray
    node_ptr: np.ndarray
    edge_ptr: np.ndarray
    dags: tuple[DAG, ...] = ()

    @classmethod
    def from_dags(cls, dags: Sequence[DAG]) -> "GraphSet":
        """Lay ``dags`` end to end.

        Raises:
            UsageError: If there is no graph.
            DataError: If graphs have different numbers of node attributes; names the first.
        """
        if not dags:
            raise UsageError("There is no graph to look at; pass at least one.")
        widths = [dag.x_NA.shape[1] for dag in dags]
        odd = next((i for i, width in enumerate(widths) if width != widths[0]), None)
        if odd is not None:
            raise DataError(
                f"Graph {odd} has {widths[odd]} node attributes but graph 0 has {widths[0]}; "
                "compare graphs of one schema only."
            )
        node_ptr = pointers([dag.num_nodes for dag in dags])
        edge_ptr = pointers([dag.num_edges for dag in dags])
        edge_index_2E = np.concatenate([dag.edge_index_2E.numpy() for dag in dags], axis=1)
        return cls(
            x_NA=_codes(dags, int(node_ptr[-1])),
            edge_index_2E=edge_index_2E + np.repeat(node_ptr[:-1], np.diff(edge_ptr)),
            edge_type_E=np.concatenate([dag.edge_type_E.numpy() for dag in dags]),
            node_ptr=node_ptr,
            edge_ptr=edge_ptr,
            dags=tuple(dags),
        )

    def parts(self, nodes: int) -> Iterator["GraphSet"]:
        """Yield consecutive graphs as sets of at most so many nodes; a larger graph comes alone."""
        first = 0
        while first < self.num_graphs:
            limit = int(self.node_ptr[first]) + nodes
            last = max(first + 1, int(np.searchsorted(self.node_ptr, limit, side="right")) - 1)
            yield self._between(first, last)
            first = last

    def _between(self, first: int, last: int) -> "GraphSet":
        nodes = slice(self.node_ptr[first], self.node_ptr[last])
        edges = slice(self.edge_ptr[first], self.edge_ptr[last])
        return GraphSet(
            x_NA=self.x_NA[nodes],
            edge_index_2E=self.edge_index_2E[:, edges] - self.node_ptr[first],
            edge_type_E=self.edge_type_E[edges],
            node_ptr=self.node_ptr[first : last + 1] - self.node_ptr[first],
            edge_ptr=self.edge_ptr[first : last + 1] - self.edge_ptr[first],
            dags=self.dags[first:last],
        )

    @property
    def num_graphs(self) -> int:
        """Number of graphs (B)."""
        return len(self.node_ptr) - 1

    @property
    def num_nodes(self) -> int:
        """N over all graphs."""
        return int(self.node_ptr[-1])

    @property
    def num_attributes(self) -> int:
        """Number of node attributes (A)."""
        return self.x_NA.shape[1]

    @cached_property
    def u_NA(self) -> np.ndarray:
        """Positions inside the bins of numeric attributes, else 0, float32; those of ``dags``."""
        return np.concatenate([dag.u_NA.numpy() for dag in self.dags])

    @cached_property
    def nodes_B(self) -> np.ndarray:
        """Number of nodes of each graph."""
        return np.diff(self.node_ptr)

    @cached_property
    def edges_B(self) -> np.ndarray:
        """Number of edges of each graph."""
        return np.diff(self.edge_ptr)

    @cached_property
    def graph_N(self) -> np.ndarray:
        """Graph of each node."""
        return np.repeat(np.arange(self.num_graphs), self.nodes_B)

    @cached_property
    def graph_E(self) -> np.ndarray:
        """Graph of each edge."""
        return np.repeat(np.arange(self.num_graphs), self.edges_B)

    @cached_property
    def layer_N(self) -> np.ndarray:
        """Longest-path layer of each node. Raises GraphError on a cycle."""
        if self.dags:
            return np.concatenate([layer_N.numpy() for layer_N in layers_of(self.dags)])
        return longest_path_layers(self.num_nodes, self.edge_index_2E)

    @cached_property
    def layers_B(self) -> np.ndarray:
        """Number of layers of each graph."""
        depth_B = np.zeros(self.num_graphs, dtype=np.int64)
        np.maximum.at(depth_B, self.graph_N, self.layer_N + 1)
        return depth_B

    @cached_property
    def layer_ptr(self) -> np.ndarray:
        """(B+1,); the layers of graph b are entries ``layer_ptr[b]:layer_ptr[b+1]`` of width_L."""
        return pointers(self.layers_B)

    @cached_property
    def width_L(self) -> np.ndarray:
        """Number of nodes of each layer of each graph."""
        return np.bincount(
            self.layer_ptr[self.graph_N] + self.layer_N, minlength=int(self.layer_ptr[-1])
        )

    @cached_property
    def widest_B(self) -> np.ndarray:
        """Number of nodes of the widest layer of each graph."""
        widest_B = np.zeros(self.num_graphs, dtype=np.int64)
        np.maximum.at(widest_B, self.graph_L, self.width_L)
        return widest_B

    @cached_property
    def graph_L(self) -> np.ndarray:
        """Graph of each layer."""
        return np.repeat(np.arange(self.num_graphs), self.layers_B)

    @cached_property
    def in_degree_N(self) -> np.ndarray:
        """Number of parents of each node."""
        return np.bincount(self.edge_index_2E[1], minlength=self.num_nodes)

    @cached_property
    def out_degree_N(self) -> np.ndarray:
        """Number of children of each node."""
        return np.bincount(self.edge_index_2E[0], minlength=self.num_nodes)

    @cached_property
    def span_E(self) -> np.ndarray:
        """Layers that each edge descends, at least 1."""
        return self.layer_N[self.edge_index_2E[1]] - self.layer_N[self.edge_index_2E[0]]


def _codes(dags: Sequence[DAG], nodes: int) -> np.ndarray:
    """Return the codes of all nodes, (N, A): of 10,000 graphs they are most of what is held.

    They lie column by column, for most figures are about one attribute or two.
    """
    parts = [dag.x_NA.numpy() for dag in dags]
    limit = np.iinfo(np.int32)
    fits = all(limit.min <= part.min() and part.max() <= limit.max for part in parts if part.size)
    x_NA = np.empty((nodes, parts[0].shape[1]), np.int32 if fits else np.int64, order="F")
    return np.concatenate(parts, out=x_NA, casting="same_kind")
