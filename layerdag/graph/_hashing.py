"""Weisfeiler-Lehman hashes of attributed directed graphs, to count distinct and repeated ones."""

import numpy as np

from layerdag._runtime import GOLDEN_GAMMA, scrambled
from layerdag.graph._dag import DAG

_MIX = np.uint64(GOLDEN_GAMMA % 2**64)


def _mix(value: np.ndarray) -> np.ndarray:
    """Scramble unsigned 64-bit words."""
    return scrambled(value.view(np.int64)).view(np.uint64)


def node_colors(dag: DAG, rounds: int = 3) -> np.ndarray:
    """Return a 64-bit color a node after ``rounds`` of directed, edge-typed WL refinement.

    Two nodes with the same attributed neighborhood of radius ``rounds`` get the same color. In
    and out neighbors enter separately; colors of neighbors are summed, so order does not matter.
    """
    color_N = np.full(dag.num_nodes, 1, dtype=np.uint64)
    for column in dag.x_NA.numpy().T.astype(np.uint64):
        color_N = _mix(color_N * _MIX + column + np.uint64(1))
    source_E, target_E = dag.edge_index_2E.numpy()
    salt_E = _mix(dag.edge_type_E.numpy().astype(np.uint64) + np.uint64(7))
    for _ in range(rounds):
        color_N = _refined(color_N, source_E, target_E, salt_E)
    return color_N


def neighborhood_colors(label_N: np.ndarray, edge_index_2E: np.ndarray, radius: int) -> np.ndarray:
    """Return 64-bit Weisfeiler-Lehman colors of nodes by one label, shape (radius + 1, N).

    Row r says what the neighborhood of radius r looks like: the node's own label, and the multisets
    of the colors in row r - 1 of its parents and of its children. Edges have no types here.

    Args:
        label_N: int64 labels, not negative; row 0 tells them apart.
        edge_index_2E: int64 source and target.
        radius: Number of rounds.
    """
    color_N = _mix(label_N.astype(np.uint64) + np.uint64(1))
    source_E, target_E = edge_index_2E
    rows = [color_N]
    for _ in range(radius):
        rows.append(_refined(rows[-1], source_E, target_E, _MIX))
    return np.stack(rows)


def _refined(
    color_N: np.ndarray, source_E: np.ndarray, target_E: np.ndarray, salt_E: np.ndarray | np.uint64
) -> np.ndarray:
    """Return the colors of the next round; neighbors are summed, so that order does not matter."""
    from_parents_N = np.zeros_like(color_N)
    from_children_N = np.zeros_like(color_N)
    np.add.at(from_parents_N, target_E, _mix(color_N[source_E] ^ salt_E))
    np.add.at(from_children_N, source_E, _mix(color_N[target_E] + salt_E))
    return _mix(color_N * _MIX + _mix(from_parents_N) + _mix(from_children_N + _MIX))


def graph_hash(dag: DAG, rounds: int = 3) -> str:
    """Return a hexadecimal hash that is equal for isomorphic attributed DAGs.

    Different DAGs collide only if ``rounds`` of WL refinement cannot tell them apart; use an exact
    isomorphism test to break ties where that matters.
    """
    color_N = node_colors(dag, rounds)
    total_1 = np.full(1, dag.num_edges, dtype=np.uint64)
    for word in (color_N.sum(dtype=np.uint64), np.bitwise_xor.reduce(_mix(color_N), initial=0)):
        total_1 = _mix(total_1 * _MIX + np.full(1, word, dtype=np.uint64))
    return f"{int(total_1[0]):016x}"
