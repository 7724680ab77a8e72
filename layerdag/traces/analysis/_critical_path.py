"""The longest path through a weighted DAG, in one compiled pass over its edges."""

import ctypes
from dataclasses import dataclass

import numpy as np

from layerdag._runtime import library


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
    source_E, target_E = (np.ascontiguousarray(end_E, np.int64) for end_E in edge_index_2E)
    start_N = np.zeros(layer_N.size)
    costs_N = np.ascontiguousarray(cost_N, np.float64)
    order_E = np.argsort(layer_N[target_E], kind="stable")
    columns = (source_E, target_E, order_E, costs_N, start_N)
    library().graph_starts(
        ctypes.c_int64(source_E.size),
        *(ctypes.c_void_p(column.ctypes.data) for column in columns),
    )
    finish_N = start_N + costs_N
    if not finish_N.size:
        return CriticalPath(0.0, np.zeros(0, np.int64), finish_N)
    tight_E = finish_N[source_E] == start_N[target_E]
    parent_N = np.full(layer_N.size, -1)
    parent_N[target_E[tight_E][::-1]] = source_E[tight_E][::-1]
    path = [int(np.argmax(finish_N))]
    while parent_N[path[-1]] >= 0:
        path.append(int(parent_N[path[-1]]))
    return CriticalPath(float(finish_N.max()), np.array(path[::-1]), finish_N)
