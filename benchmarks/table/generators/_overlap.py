"""How much of a sample one training graph has: what a copy with a few changes looks like.

A hash of the whole graph changes with one edge, so that "novel" says little about a sample that
follows one training graph nearly everywhere.

Shape letters: B graphs, K distinct keys, N nodes.
"""

from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_matrix

from layerdag.dag.dag import DAG
from layerdag.dag.graph_set import GraphSet
from layerdag.graph.topology import neighborhood_colors

RADIUS = 2


def shared_with_one(train: Sequence[DAG], samples: Sequence[DAG]) -> np.ndarray:
    """Return the largest fraction of each sample's neighborhoods that one training graph has.

    Neighborhoods of radius ``RADIUS`` are multisets: one that a sample has three times and a
    training graph twice is shared twice. Shape (B,), between 0 and 1; 1 for a copy.
    """
    sets = GraphSet.from_dags(train), GraphSet.from_dags(samples)
    keys = [_numbered(graphs) for graphs in sets]
    row_K, column_N = np.unique(np.concatenate(keys), return_inverse=True, axis=0)
    ends = np.cumsum([len(part) for part in keys])[:-1]
    known, drawn = (
        _members(column, graphs, len(row_K))
        for column, graphs in zip(np.split(column_N.ravel(), ends), sets, strict=True)
    )
    shared_B = (drawn @ known.T).max(axis=1).toarray().ravel()
    return shared_B / np.diff(sets[1].node_ptr)


def _numbered(graphs: GraphSet) -> np.ndarray:
    """Return color and how often it occurred before in its graph, shape (N, 2)."""
    color_N = neighborhood_colors(graphs.x_NA[:, 0], graphs.edge_index_2E, RADIUS)[-1]
    order_N = np.lexsort((color_N, graphs.graph_N))
    sorted_2N = np.stack([graphs.graph_N.astype(np.uint64), color_N])[:, order_N]
    is_first_N = np.ones(graphs.num_nodes, dtype=bool)
    is_first_N[1:] = (sorted_2N[:, 1:] != sorted_2N[:, :-1]).any(axis=0)
    place_N = np.arange(graphs.num_nodes)
    start_N = np.maximum.accumulate(np.where(is_first_N, place_N, 0))
    before_N = np.empty(graphs.num_nodes, dtype=np.uint64)
    before_N[order_N] = (place_N - start_N).astype(np.uint64)
    return np.stack([color_N, before_N], axis=1)


def _members(column_N: np.ndarray, graphs: GraphSet, columns: int) -> csr_matrix:
    """Return which graph has which key, shape (B, K)."""
    ones = np.ones(graphs.num_nodes, dtype=np.int32)
    return csr_matrix((ones, (graphs.graph_N, column_N)), shape=(graphs.num_graphs, columns))
