"""Edges layer by layer, for what is handed down from parents to children."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from layerdag.graph import group_by


def edges_by_layer(
    edge_index_2E: np.ndarray, layer_N: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the sources and targets of the edges into each layer, from layer 1 on.

    Args:
        edge_index_2E: Source and target of each edge.
        layer_N: Longest-path layer of each node.
    """
    source_E, target_E = edge_index_2E
    ptr, order_E = group_by(layer_N[target_E], int(layer_N.max(initial=0)) + 1)
    for low, high in pairwise(ptr[1:]):
        into = order_E[low:high]
        yield source_E[into], target_E[into]
