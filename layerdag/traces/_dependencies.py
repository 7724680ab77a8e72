"""Dependencies of a trace as edges between rows, checked: no double id, no dangling, no cycle."""

from dataclasses import replace

import numpy as np

from layerdag.errors import GraphError, TraceError
from layerdag.graph import longest_path_layers, pointers
from layerdag.traces._trace import Ragged, Trace, Workload

DATA, CONTROL = 0, 1


def dependency_edges(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """Return every distinct dependency as an edge from the earlier to the later node.

    A pair that is both a data and a control dependency is one data edge. ASTRA-sim enforces both
    kinds, and so does layerdag.

    Returns:
        (edge_index_2E int64 of rows, kind_E uint8: ``DATA`` or ``CONTROL``), sorted by target and
        then by source.

    Raises:
        TraceError: If an id occurs twice or a dependency names an absent node; names both.
    """
    order_N = np.argsort(trace.id_N, kind="stable")
    sorted_N = trace.id_N[order_N]
    _refuse_double_ids(trace, sorted_N)
    parts = [
        _edges_of(trace, deps, order_N, sorted_N) for deps in (trace.data_deps, trace.ctrl_deps)
    ]
    source_E, target_E = np.concatenate(parts, axis=1)
    kind_E = np.repeat(np.array([DATA, CONTROL], np.uint8), [part.shape[1] for part in parts])
    # Stable sort: of equal pairs the data edge comes first and is the one that is kept.
    key_E = target_E * max(trace.num_nodes, 1) + source_E
    _, first_E = np.unique(key_E, return_index=True)
    return np.stack([source_E, target_E])[:, first_E], kind_E[first_E]


def trace_layers(trace: Trace, edge_index_2E: np.ndarray | None = None) -> np.ndarray:
    """Return the longest-path layer of each node, shape (N,).

    Args:
        trace: The trace.
        edge_index_2E: Its ``dependency_edges`` where they are known already.

    Raises:
        TraceError: As ``dependency_edges``, and if dependencies form a cycle; names its nodes.
    """
    if edge_index_2E is None:
        edge_index_2E, _ = dependency_edges(trace)
    try:
        return longest_path_layers(trace.num_nodes, edge_index_2E)
    except GraphError:
        ids = [str(trace.id_N[row]) for row in rows_on_a_cycle(trace.num_nodes, edge_index_2E)]
        shown = ", ".join(ids[:8]) + (", ..." if len(ids) > 8 else "")
        what = (
            f"node {shown} depends on itself"
            if len(ids) == 1
            else f"{len(ids)} nodes wait for each other in a cycle (ids {shown})"
        )
        raise TraceError(
            f"{trace.source}: {what}; remove the dependency that closes the cycle."
        ) from None


def rows_on_a_cycle(num_nodes: int, edge_index_2E: np.ndarray) -> np.ndarray:
    """Return the rows of one set of nodes that all wait for each other; empty if there is none."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    source_E, target_E = edge_index_2E
    itself_E = source_E == target_E
    if itself_E.any():
        return source_E[itself_E][:1]
    ones_E = np.ones(source_E.size, dtype=np.int8)
    adjacency = coo_array((ones_E, (source_E, target_E)), shape=(num_nodes, num_nodes))
    _, component_N = connected_components(adjacency, directed=True, connection="strong")
    size_K = np.bincount(component_N, minlength=1)
    return np.flatnonzero((size_K > 1)[component_N] & (component_N == int(np.argmax(size_K))))


def rows_of(trace: Trace, ids: np.ndarray) -> np.ndarray:
    """Return the row of each id, -1 where no node has it."""
    order_N = np.argsort(trace.id_N, kind="stable")
    return _lookup(trace.id_N[order_N], order_N, ids)


def _lookup(sorted_N: np.ndarray, order_N: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return the row of each id by bisection, -1 where absent."""
    if not order_N.size:
        return np.full(ids.size, -1)
    at = np.minimum(np.searchsorted(sorted_N, ids), order_N.size - 1)
    return np.where(sorted_N[at] == ids, order_N[at], -1)


def _edges_of(trace: Trace, deps: Ragged, order_N: np.ndarray, sorted_N: np.ndarray) -> np.ndarray:
    """Return the edges of one kind of dependency, shape (2, E)."""
    target_E = np.repeat(np.arange(trace.num_nodes), np.diff(deps.ptr_N1))
    source_E = _lookup(sorted_N, order_N, deps.values)
    if (source_E < 0).any():
        bad = int(np.argmax(source_E < 0))
        raise TraceError(
            f"{trace.source}: node {trace.id_N[target_E[bad]]} depends on node "
            f"{deps.values[bad]}, which is not in the trace; add the node, or let "
            "'layerdag convert --drop-dangling' drop such dependencies."
        )
    return np.stack([source_E, target_E])


def _refuse_double_ids(trace: Trace, sorted_N: np.ndarray) -> None:
    """Raise TraceError if two nodes share an id."""
    twice = np.flatnonzero(sorted_N[1:] == sorted_N[:-1])
    if twice.size:
        raise TraceError(
            f"{trace.source}: {twice.size} ids occur more than once, first id "
            f"{sorted_N[twice[0]]}; give every node of a rank its own id."
        )


def drop_dangling(workload: Workload) -> tuple[Workload, int]:
    """Return the workload without dependencies on absent nodes, and how many went.

    Chakra's own converter writes control dependencies on nodes that it removed.
    """
    done: dict[int, tuple[Trace, int]] = {}
    for trace in workload.traces:
        if id(trace) not in done:
            data, data_gone = _resolved(trace, trace.data_deps)
            ctrl, ctrl_gone = _resolved(trace, trace.ctrl_deps)
            clean = replace(trace, data_deps=data, ctrl_deps=ctrl)
            done[id(trace)] = clean, data_gone + ctrl_gone
    traces = tuple(done[id(trace)][0] for trace in workload.traces)
    return replace(workload, traces=traces), sum(gone for _, gone in done.values())


def _resolved(trace: Trace, deps: Ragged) -> tuple[Ragged, int]:
    """Return the dependencies whose nodes exist, and the number of the others."""
    known_D = rows_of(trace, deps.values) >= 0
    before_D1 = pointers(known_D)
    return Ragged(before_D1[deps.ptr_N1], deps.values[known_D]), int((~known_D).sum())
