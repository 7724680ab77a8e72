"""Weisfeiler-Lehman hashes of attributed directed graphs, to count distinct and repeated ones."""

import numpy as np

from layerdag.graph._colors import MIX, mix, refined
from layerdag.graph._dag import DAG


def node_colors(dag: DAG, rounds: int = 3) -> np.ndarray:
    """Return a 64-bit color a node after ``rounds`` of directed, edge-typed WL refinement.

    Two nodes with the same attributed neighborhood of radius ``rounds`` get the same color. In
    and out neighbors enter separately; colors of neighbors are summed, so order does not matter.
    """
    color_N = np.full(dag.num_nodes, 1, dtype=np.uint64)
    for column in dag.x_NA.numpy().T.astype(np.uint64):
        color_N = mix(color_N * MIX + column + np.uint64(1))
    source_E, target_E = dag.edge_index_2E.numpy()
    salt_E = mix(dag.edge_type_E.numpy().astype(np.uint64) + np.uint64(7))
    for _ in range(rounds):
        color_N = refined(color_N, source_E, target_E, salt_E)
    return color_N


def graph_hash(dag: DAG, rounds: int = 3) -> str:
    """Return a hexadecimal hash that is equal for isomorphic attributed DAGs.

    Different DAGs collide only if ``rounds`` of WL refinement cannot tell them apart; use an exact
    isomorphism test to break ties where that matters.
    """
    color_N = node_colors(dag, rounds)
    total_1 = np.full(1, dag.num_edges, dtype=np.uint64)
    for word in (color_N.sum(dtype=np.uint64), np.bitwise_xor.reduce(mix(color_N), initial=0)):
        total_1 = mix(total_1 * MIX + np.full(1, word, dtype=np.uint64))
    return f"{int(total_1[0]):016x}"
