"""Longest-path layers of a DAG, in one compiled pass over nodes and edges.

Layer 0 holds the nodes without predecessors; a node of layer l+1 has all its predecessors in layers
<= l and at least one in layer l (LayerDAG, arXiv 2411.02322, section 3.1). numpy only, so that the
file tools can use it without importing torch.
"""

import ctypes
from collections.abc import Sequence

import numpy as np

from layerdag._runtime import library
from layerdag.errors import GraphError


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
    """Walk backwards among the unreachable nodes until one repeats, and name that cycle."""
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
