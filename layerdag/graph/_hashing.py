"""Weisfeiler-Lehman hashes of attributed directed graphs, to count distinct and repeated ones."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from layerdag.graph._colors import MIX, mix, refined
from layerdag.graph._dag import DAG
from layerdag.graph._layering import pointers

_NODES_AT_ONCE = 1 << 14


def node_colors(dag: DAG, rounds: int = 3) -> np.ndarray:
    """Return a 64-bit color a node after ``rounds`` of directed, edge-typed WL refinement.

    Two nodes with the same attributed neighborhood of radius ``rounds`` get the same color. In
    and out neighbors enter separately; colors of neighbors are summed, so order does not matter.
    """
    *_, color_N = color_rounds([dag], rounds)
    return color_N


def color_rounds(dags: Sequence[DAG], rounds: int) -> Iterator[np.ndarray]:
    """Yield the colors of all nodes of some graphs, end to end, after 0, 1, ... rounds.

    Args:
        dags: Graphs with the same number of attributes.
        rounds: Number of the last round.
    """
    x_NA = np.concatenate([dag.x_NA.numpy() for dag in dags])
    color_N = np.full(len(x_NA), 1, dtype=np.uint64)
    for column in x_NA.T.astype(np.uint64):
        color_N = mix(color_N * MIX + column + np.uint64(1))
    first_B = pointers([dag.num_nodes for dag in dags])[:-1]
    shift_E = np.repeat(first_B, [dag.num_edges for dag in dags])
    source_E, target_E = np.concatenate([d.edge_index_2E.numpy() for d in dags], axis=1) + shift_E
    types_E = np.concatenate([dag.edge_type_E.numpy() for dag in dags])
    salt_E = mix(types_E.astype(np.uint64) + np.uint64(7))
    yield color_N
    for _ in range(rounds):
        color_N = refined(color_N, source_E, target_E, salt_E)
        yield color_N


def graph_hash(dag: DAG, rounds: int = 3) -> str:
    """Return a hexadecimal hash that is equal for isomorphic attributed DAGs.

    Different DAGs collide only if ``rounds`` of WL refinement cannot tell them apart; use an exact
    isomorphism test to break ties where that matters.
    """
    return _hashes([dag], rounds)[0]


def graph_hashes(dags: Iterable[DAG], rounds: int = 3) -> Iterator[str]:
    """Yield ``graph_hash`` of each graph of a stream, many at a time; a tenth of the work."""
    waiting: list[DAG] = []
    nodes = 0
    for dag in dags:
        alike = not waiting or dag.x_NA.shape[1] == waiting[0].x_NA.shape[1]
        if waiting and (nodes + dag.num_nodes > _NODES_AT_ONCE or not alike):
            yield from _hashes(waiting, rounds)
            waiting, nodes = [], 0
        waiting.append(dag)
        nodes += dag.num_nodes
    if waiting:
        yield from _hashes(waiting, rounds)


def _hashes(dags: Sequence[DAG], rounds: int) -> list[str]:
    """Return the hash of each graph."""
    *_, color_N = color_rounds(dags, rounds)
    ptr = pointers([dag.num_nodes for dag in dags])
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(color_N, dtype=np.uint64)])
    xors = np.concatenate([np.zeros(1, np.uint64), np.bitwise_xor.accumulate(mix(color_N))])
    total_B = np.array([dag.num_edges for dag in dags], dtype=np.uint64)
    for word_B in (sums[ptr[1:]] - sums[ptr[:-1]], xors[ptr[1:]] ^ xors[ptr[:-1]]):
        total_B = mix(total_B * MIX + word_B)
    return [f"{word:016x}" for word in total_B.tolist()]
