"""Topology in numpy: longest-path layers and longest paths, CSR pointers, color refinement.

Layer 0 holds the nodes without predecessors; a node of layer l+1 has all its predecessors in layers
<= l and at least one in layer l (LayerDAG, arXiv 2411.02322, section 3.1). The file tools use this
module, so it does not import torch.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from layerdag.errors import GraphError
from layerdag.runtime.native import library
from layerdag.runtime.rng import GOLDEN_GAMMA, scrambled

MIX = np.uint64(GOLDEN_GAMMA % 2**64)


def mix(value: np.ndarray) -> np.ndarray:
    """Scramble unsigned 64-bit words."""
    return scrambled(value.view(np.int64)).view(np.uint64)


def neighborhood_colors(label_N: np.ndarray, edge_index_2E: np.ndarray, radius: int) -> np.ndarray:
    """Return 64-bit Weisfeiler-Lehman colors of nodes by one label, shape (radius + 1, N).

    Row r says what the neighborhood of radius r looks like: the node's own label, and the multisets
    of the colors in row r - 1 of its parents and of its children. Edges have no types here.

    Args:
        label_N: int64 labels, not negative; row 0 tells them apart.
        edge_index_2E: int64 source and target.
        radius: Number of rounds.
    """
    color_N = mix(label_N.astype(np.uint64) + np.uint64(1))
    source_E, target_E = edge_index_2E
    rows = [color_N]
    for _ in range(radius):
        rows.append(refined(rows[-1], source_E, target_E, MIX))
    return np.stack(rows)


def refined(
    color_N: np.ndarray, source_E: np.ndarray, target_E: np.ndarray, salt_E: np.ndarray | np.uint64
) -> np.ndarray:
    """Return the colors of the next round; neighbors are summed, so that order does not matter."""
    from_parents_N = np.zeros_like(color_N)
    from_children_N = np.zeros_like(color_N)
    np.add.at(from_parents_N, target_E, mix(color_N[source_E] ^ salt_E))
    np.add.at(from_children_N, source_E, mix(color_N[target_E] + salt_E))
    return mix(color_N * MIX + mix(from_parents_N) + mix(from_children_N + MIX))


def pointers(sizes: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return where each of several runs of rows starts, and where the last one ends.

    Args:
        sizes: Number of rows of each run; True counts as one.

    Returns:
        The running sums of ``sizes``, int64, one longer than ``sizes`` and starting with 0.
    """
    ptr = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(np.asarray(sizes, dtype=np.int64), out=ptr[1:])
    return ptr


def group_by(keys_E: np.ndarray, num_groups: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (ptr, order): ``order[ptr[g]:ptr[g+1]]`` are the positions of key ``g``, ascending."""
    order_E = np.argsort(keys_E, kind="stable")
    return pointers(np.bincount(keys_E, minlength=num_groups)), order_E


def expand_ranges(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Concatenate the integer ranges ``[starts[i], ends[i])`` into one array."""
    lengths = ends - starts
    total = int(lengths.sum())
    offsets = np.repeat(starts - pointers(lengths)[:-1], lengths)
    return np.arange(total, dtype=np.int64) + offsets


def longest_path_layers(num_nodes: int, edge_index_2E: np.ndarray) -> np.ndarray:
    """Return the layer of each node, shape (N,), int64.

    A disjoint union of graphs may be passed at once. The cost is linear in nodes and edges, however
    deep the graph (``native/graph/layers.c``).

    Args:
        num_nodes: N.
        edge_index_2E: Source and target of each edge, values in [0, N).

    Raises:
        GraphError: If an endpoint is out of range, or the edges contain a cycle; the message names
            nodes on the cycle.
    """
    source_E, target_E = np.asarray(edge_index_2E, dtype=np.int64).reshape(2, -1)
    wrong_E = (source_E < 0) | (source_E >= num_nodes) | (target_E < 0) | (target_E >= num_nodes)
    if wrong_E.any():
        first = int(np.argmax(wrong_E))
        bad = [n for n in (int(source_E[first]), int(target_E[first])) if not 0 <= n < num_nodes]
        raise GraphError(
            f"Edge {first} names node {bad[0]} but the graph has {num_nodes} nodes; "
            "node ids must lie in [0, number of nodes)."
        )
    layer_N = np.empty(num_nodes, dtype=np.int64)
    native = library()
    native.graph_layers.restype = ctypes.c_int64
    columns = (np.ascontiguousarray(source_E), np.ascontiguousarray(target_E), layer_N)
    done = native.graph_layers(
        ctypes.c_int64(num_nodes),
        ctypes.c_int64(source_E.size),
        *(ctypes.c_void_p(column.ctypes.data) for column in columns),
    )
    if done < 0:
        raise MemoryError(f"no memory for the layers of {num_nodes} nodes")
    if (layer_N < 0).any():
        _raise_cycle(np.flatnonzero(layer_N < 0), source_E, target_E)
    return layer_N


def union_layers(sizes: Sequence[int], edges: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the longest-path layer of each node of each graph, found in one pass over all.

    Args:
        sizes: Number of nodes of each graph.
        edges: Source and target of each edge of each graph, int64 (2, E).

    Raises:
        GraphError: If a graph has a cycle (node numbers count through all graphs), or an edge names
            a node that its graph does not have.
    """
    start_B = pointers(sizes)
    union_2E = np.concatenate([np.zeros((2, 0), np.int64), *edges], axis=1)
    graph_E = np.repeat(np.arange(len(sizes)), [edges_2E.shape[1] for edges_2E in edges])
    size_E = np.asarray(sizes, dtype=np.int64)[graph_E]
    outside_E = ((union_2E < 0) | (union_2E >= size_E)).any(axis=0)
    if outside_E.any():
        first = int(np.argmax(outside_E))
        raise GraphError(
            f"An edge of graph {graph_E[first]} joins nodes {union_2E[0, first]} and "
            f"{union_2E[1, first]}, but the graph has {size_E[first]} nodes; node ids must lie in "
            "[0, number of nodes)."
        )
    layer_N = longest_path_layers(int(start_B[-1]), union_2E + start_B[graph_E])
    return np.split(layer_N, start_B[1:-1]) if sizes else []


def _raise_cycle(stuck: np.ndarray, source_E: np.ndarray, target_E: np.ndarray) -> None:
    among = np.isin(source_E, stuck) & np.isin(target_E, stuck)
    parent_of = dict(zip(target_E[among].tolist(), source_E[among].tolist(), strict=True))
    walk: list[int] = []
    node = int(stuck[0])
    while node not in walk:
        walk.append(node)
        node = parent_of[node]
    cycle = [*walk[walk.index(node) :], node][::-1]
    shown = " -> ".join(map(str, cycle[:8])) + (" -> ..." if len(cycle) > 8 else "")
    raise GraphError(
        f"The graph has a cycle through {len(cycle) - 1} nodes: {shown}. "
        "A DAG is needed; remove the edge that closes the cycle."
    )


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


def longest_path(
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
