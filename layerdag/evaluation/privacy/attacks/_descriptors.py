"""Whole graphs as vectors, for attacks that learn: sizes, widths, counts of codes and of edges."""

import numpy as np

from layerdag.evaluation import GraphSet

MOST_PAIRS = 128
"""Pairs of first attributes at edges with a column of their own: the most frequent ones."""
MOST_CODES = 256
COMPONENTS = 32


def graph_descriptors(graphs: GraphSet, real: int) -> np.ndarray:
    """Return one row for each graph, float32 (B, F); columns that never differ are left out.

    Counts enter as log(1 + count).

    Args:
        graphs: Real graphs, then samples.
        real: Number of real graphs, whose pairs are counted.
    """
    columns = [_shape(graphs), _counts(graphs, graphs.graph_E, graphs.edge_type_E)]
    for code_N in graphs.x_NA.T:
        columns.append(_counts(graphs, graphs.graph_N, np.minimum(code_N, MOST_CODES - 1)))
    columns.append(_pairs(graphs, real))
    found_BF = np.concatenate(columns, axis=1).astype(np.float32)
    return found_BF[:, np.ptp(found_BF, axis=0) > 0]


def main_components(x_BF: np.ndarray, real: int) -> np.ndarray:
    """Return the main components of standardized columns, float64 (B, at most ``COMPONENTS``).

    Args:
        x_BF: Descriptors of real graphs, then of samples.
        real: Number of real graphs, which define scale and components.
    """
    mean_F, spread_F = x_BF[:real].mean(axis=0), x_BF[:real].std(axis=0)
    kept_F = spread_F > 0
    z_BF = ((x_BF - mean_F) / np.maximum(spread_F, 1e-6))[:, kept_F].astype(np.float64)
    if not kept_F.any():
        return np.zeros((len(x_BF), 1))
    _, _, axes_CF = np.linalg.svd(z_BF[:real], full_matrices=False)
    found_BC: np.ndarray = z_BF @ axes_CF[:COMPONENTS].T
    return found_BC


def widths_of(graphs: GraphSet) -> np.ndarray:
    """Return the number of nodes of the widest layer of each graph."""
    widest_B = np.zeros(graphs.num_graphs, dtype=np.int64)
    np.maximum.at(widest_B, graphs.graph_L, graphs.width_L)
    return widest_B


def _shape(graphs: GraphSet) -> np.ndarray:
    """Return counts and ratios that do not look at attributes."""
    nodes_B = np.maximum(graphs.nodes_B, 1)
    roots_B = np.bincount(graphs.graph_N[graphs.in_degree_N == 0], minlength=graphs.num_graphs)
    leaves_B = np.bincount(graphs.graph_N[graphs.out_degree_N == 0], minlength=graphs.num_graphs)
    span_B = np.bincount(graphs.graph_E, weights=graphs.span_E, minlength=graphs.num_graphs)
    values = (
        np.log1p(graphs.nodes_B),
        np.log1p(graphs.edges_B),
        np.log1p(graphs.layers_B),
        np.log1p(widths_of(graphs)),
        graphs.edges_B / nodes_B,
        roots_B / nodes_B,
        leaves_B / nodes_B,
        span_B / np.maximum(graphs.edges_B, 1),
    )
    return np.stack(values, axis=1)


def _counts(graphs: GraphSet, graph: np.ndarray, code: np.ndarray) -> np.ndarray:
    """Return log(1 + count) of each code in each graph."""
    size = int(code.max(initial=0)) + 1
    counts = np.bincount(graph * size + code, minlength=graphs.num_graphs * size)
    return np.log1p(counts.reshape(graphs.num_graphs, size))


def _pairs(graphs: GraphSet, real: int) -> np.ndarray:
    """Return log(1 + count) of the pairs of first attributes that edges most often connect."""
    source_E, target_E = graphs.x_NA[:, 0].astype(np.int64)[graphs.edge_index_2E]
    pair_E = (source_E << 31) | target_E
    known, count = np.unique(pair_E[graphs.graph_E < real], return_counts=True)
    known = np.sort(known[np.argsort(-count, kind="stable")[:MOST_PAIRS]])
    kept_E = np.isin(pair_E, known)
    position_E = np.searchsorted(known, pair_E[kept_E])
    return _counts(graphs, graphs.graph_E[kept_E], position_E)
