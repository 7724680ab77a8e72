"""Longest-path layers of a DAG, without a Python loop over nodes or edges.

Layer 0 holds the nodes without predecessors; a node of layer l+1 has all its predecessors in layers
<= l and at least one in layer l (LayerDAG, arXiv 2411.02322, section 3.1). numpy only, so that the
file tools can use it without importing torch.
"""

import numpy as np

from layerdag.errors import GraphError


def group_by(keys_E: np.ndarray, num_groups: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (ptr, order): ``order[ptr[g]:ptr[g+1]]`` are the positions of key ``g``, ascending."""
    order_E = np.argsort(keys_E, kind="stable")
    ptr = np.zeros(num_groups + 1, dtype=np.int64)
    np.cumsum(np.bincount(keys_E, minlength=num_groups), out=ptr[1:])
    return ptr, order_E


def expand_ranges(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Concatenate the integer ranges ``[starts[i], ends[i])`` into one array."""
    lengths = ends - starts
    total = int(lengths.sum())
    offsets = np.repeat(starts - np.concatenate(([0], np.cumsum(lengths)[:-1])), lengths)
    return np.arange(total, dtype=np.int64) + offsets


def longest_path_layers(num_nodes: int, edge_index_2E: np.ndarray) -> np.ndarray:
    """Return the layer of each node, shape (N,), int64.

    A disjoint union of graphs may be passed at once: the cost is one vectorised step per layer of
    the deepest graph plus linear work in nodes and edges.

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
    ptr, order_E = group_by(source_E, num_nodes)
    children_E = target_E[order_E]
    waiting_N = np.bincount(target_E, minlength=num_nodes)
    layer_N = np.full(num_nodes, -1, dtype=np.int64)
    frontier = np.flatnonzero(waiting_N == 0)
    depth = 0
    while frontier.size:
        layer_N[frontier] = depth
        reached = children_E[expand_ranges(ptr[frontier], ptr[frontier + 1])]
        np.subtract.at(waiting_N, reached, 1)
        frontier = np.unique(reached[waiting_N[reached] == 0])
        depth += 1
    if (layer_N < 0).any():
        _raise_cycle(np.flatnonzero(layer_N < 0), source_E, target_E)
    return layer_N


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
