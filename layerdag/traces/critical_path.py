"""The longest path through a weighted DAG, one vectorised step a layer."""

from dataclasses import dataclass

import numpy as np

from layerdag.graph.layering import group_by


@dataclass(frozen=True, eq=False)
class CriticalPath:
    """A longest path.

    Attributes:
        length: Sum of the costs on it.
        row_P: Its rows, from first to last.
        finish_N: Earliest possible finish of every node, were nothing but dependencies in the way.
    """

    length: float
    row_P: np.ndarray
    finish_N: np.ndarray


def critical_path(
    layer_N: np.ndarray, edge_index_2E: np.ndarray, cost_N: np.ndarray
) -> CriticalPath:
    """Return the path with the largest sum of node costs (the first such path by row).

    Args:
        layer_N: Longest-path layer of each node.
        edge_index_2E: Source and target row of each edge.
        cost_N: Cost of each node, >= 0, in any unit.
    """
    source_E, target_E = edge_index_2E
    start_N = np.zeros(layer_N.size)
    finish_N = cost_N.astype(np.float64)
    ptr, order_E = group_by(layer_N[target_E], int(layer_N.max(initial=-1)) + 1)
    node_ptr, order_N = group_by(layer_N, ptr.size - 1)
    for layer in range(1, ptr.size - 1):
        edges = order_E[ptr[layer] : ptr[layer + 1]]
        nodes = order_N[node_ptr[layer] : node_ptr[layer + 1]]
        np.maximum.at(start_N, target_E[edges], finish_N[source_E[edges]])
        finish_N[nodes] = start_N[nodes] + cost_N[nodes]
    if not finish_N.size:
        return CriticalPath(0.0, np.zeros(0, np.int64), finish_N)
    tight_E = finish_N[source_E] == start_N[target_E]
    parent_N = np.full(layer_N.size, -1)
    parent_N[target_E[tight_E][::-1]] = source_E[tight_E][::-1]
    path = [int(np.argmax(finish_N))]
    while parent_N[path[-1]] >= 0:
        path.append(int(parent_N[path[-1]]))
    return CriticalPath(float(finish_N.max()), np.array(path[::-1]), finish_N)
