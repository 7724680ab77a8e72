"""Weisfeiler-Lehman hashes of attributed directed graphs, to count distinct and repeated ones."""

import numpy as np

from layerdag.graph.dag import DAG
from layerdag.rng import GOLDEN_GAMMA, scrambled

_MIX = np.uint64(GOLDEN_GAMMA % 2**64)


def _mix(value: np.ndarray) -> np.ndarray:
    """Scramble unsigned 64-bit words."""
    return scrambled(value.view(np.int64)).view(np.uint64)


def node_colours(dag: DAG, rounds: int = 3) -> np.ndarray:
    """Return a 64-bit colour a node after ``rounds`` of directed, edge-typed WL refinement.

    Two nodes with the same attributed neighbourhood of radius ``rounds`` get the same colour. In
    and out neighbours enter separately; colours of neighbours are summed, so order does not matter.
    """
    colour_N = np.full(dag.num_nodes, 1, dtype=np.uint64)
    for column in dag.x_NA.numpy().T.astype(np.uint64):
        colour_N = _mix(colour_N * _MIX + column + np.uint64(1))
    source_E, target_E = dag.edge_index_2E.numpy()
    salt_E = _mix(dag.edge_type_E.numpy().astype(np.uint64) + np.uint64(7))
    for _ in range(rounds):
        from_parents_N = np.zeros_like(colour_N)
        from_children_N = np.zeros_like(colour_N)
        np.add.at(from_parents_N, target_E, _mix(colour_N[source_E] ^ salt_E))
        np.add.at(from_children_N, source_E, _mix(colour_N[target_E] + salt_E))
        colour_N = _mix(colour_N * _MIX + _mix(from_parents_N) + _mix(from_children_N + _MIX))
    return colour_N


def graph_hash(dag: DAG, rounds: int = 3) -> str:
    """Return a hexadecimal hash that is equal for isomorphic attributed DAGs.

    Different DAGs collide only if ``rounds`` of WL refinement cannot tell them apart; use an exact
    isomorphism test to break ties where that matters.
    """
    colour_N = node_colours(dag, rounds)
    total_1 = np.full(1, dag.num_edges, dtype=np.uint64)
    for word in (colour_N.sum(dtype=np.uint64), np.bitwise_xor.reduce(_mix(colour_N), initial=0)):
        total_1 = _mix(total_1 * _MIX + np.full(1, word, dtype=np.uint64))
    return f"{int(total_1[0]):016x}"
