"""Statistics of whole DAGs as feature vectors for boosted trees."""

from collections.abc import Sequence

import numpy as np

from layerdag.errors import DataError
from layerdag.evaluation import GraphSet
from layerdag.graph import DAG, GraphSizes


def graph_features(dags: Sequence[DAG], sizes: GraphSizes) -> np.ndarray:
    """Return one row per graph, float32 (B, F): shape, degrees, spans, and counts of every code.

    Counts enter as log(1 + count); trees are blind to the choice, plots and thresholds are not.

    Raises:
        DataError: If a code lies outside ``sizes``; names the attribute.
        GraphError: If a graph has a cycle.
    """
    graphs = GraphSet.of(dags)
    columns = [*_shape(graphs), _per_graph(graphs, graphs.edge_type_E, sizes.edge_types, "edge")]
    for index, size in enumerate(sizes.attributes):
        columns.append(_per_graph(graphs, graphs.x_NA[:, index], size, f"attribute {index}"))
    return np.concatenate(columns, axis=1).astype(np.float32)


def _shape(graphs: GraphSet) -> list[np.ndarray]:
    """Return counts and ratios that do not look at attributes, (B, 1) each."""
    nodes_B = np.maximum(graphs.nodes_B, 1)
    edges_B = np.maximum(graphs.edges_B, 1)
    starts = graphs.layer_ptr[:-1]
    widest_B = np.maximum.reduceat(graphs.width_L, np.minimum(starts, graphs.width_L.size - 1))
    roots_B = np.bincount(graphs.graph_N[graphs.in_degree_N == 0], minlength=graphs.num_graphs)
    leaves_B = np.bincount(graphs.graph_N[graphs.out_degree_N == 0], minlength=graphs.num_graphs)
    span_B = np.bincount(graphs.graph_E, weights=graphs.span_E, minlength=graphs.num_graphs)
    values = (
        np.log1p(graphs.nodes_B),
        np.log1p(graphs.edges_B),
        np.log1p(graphs.layers_B),
        np.log1p(widest_B),
        graphs.edges_B / nodes_B,
        graphs.nodes_B / np.maximum(graphs.layers_B, 1),
        roots_B / nodes_B,
        leaves_B / nodes_B,
        span_B / edges_B,
    )
    return [value_B[:, None] for value_B in values]


def _per_graph(graphs: GraphSet, code: np.ndarray, size: int, what: str) -> np.ndarray:
    """Return log(1 + count) of each code in each graph, (B, size)."""
    if code.size and not 0 <= code.min() <= code.max() < size:
        raise DataError(
            f"Codes of {what} reach from {int(code.min())} to {int(code.max())}, but the surrogate "
            f"knows 0 to {size - 1}; encode the graphs with the schema it was fitted with."
        )
    graph = graphs.graph_E if what == "edge" else graphs.graph_N
    counts = np.bincount(graph * size + code, minlength=graphs.num_graphs * size)
    return np.log1p(counts.reshape(graphs.num_graphs, size))
