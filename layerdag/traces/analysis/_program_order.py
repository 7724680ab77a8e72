"""The communication nodes of a workload in the order in which the ranks issue them.

A rank issues in the order of its ids where the ids respect the dependencies, else in the order of
(layer, id): ASTRA-sim issues ready nodes by ascending id.
"""

from dataclasses import dataclass

import numpy as np

from layerdag.errors import TraceError
from layerdag.traces import NodeType, Trace, Workload, dependency_edges, trace_layers

WORLD = "0"
"""Name of the group of all ranks."""

WORLD_NAMES = ("", WORLD)
"""Values of ``pg_name`` that stand for all ranks."""


@dataclass(frozen=True, eq=False)
class CommEvents:
    """Communication nodes, rank by rank in program order.

    Attributes:
        rank_K: Rank.
        row_K: Row in the trace of the rank.
        id_K: Node id.
        type_K: ``NodeType``: COMM_SEND, COMM_RECV or COMM_COLL.
        group_K: 0 for all ranks, 1 + position in ``Workload.groups``, or -1 for an unknown group.
        comm_type_K: ``CollectiveType``, -1 for none.
        size_K: Bytes, -1 for none.
        source_K: Sending rank.
        target_K: Receiving rank.
        tag_K: Message tag.
    """

    rank_K: np.ndarray
    row_K: np.ndarray
    id_K: np.ndarray
    type_K: np.ndarray
    group_K: np.ndarray
    comm_type_K: np.ndarray
    size_K: np.ndarray
    source_K: np.ndarray
    target_K: np.ndarray
    tag_K: np.ndarray


def gather_communication(workload: Workload) -> CommEvents:
    """Lay the communication nodes of all ranks end to end; a shared trace is looked at once."""
    names: dict[str, int] = dict.fromkeys(WORLD_NAMES, 0)
    known: dict[int, CommEvents] = {}
    for trace in workload.traces:
        if id(trace) not in known:
            known[id(trace)] = _comm_events(trace, names)
    each = [known[id(trace)] for trace in workload.traces]
    rank_K = np.repeat(np.arange(len(each)), [one.row_K.size for one in each])
    columns = {
        name: np.concatenate([getattr(one, name) for one in each])
        for name in CommEvents.__dataclass_fields__
    }
    columns["rank_K"] = rank_K
    # A send without comm_src comes from its own rank, a receive without comm_dst goes to it.
    for column in ("source_K", "target_K"):
        columns[column] = np.where(columns[column] < 0, rank_K, columns[column])
    columns["group_K"] = _group_numbers(columns["group_K"], names, workload)
    return CommEvents(**columns)


def _group_numbers(group_K: np.ndarray, names: dict[str, int], workload: Workload) -> np.ndarray:
    """Turn pool numbers into 0 for the world, 1 + position in ``workload.groups``, or -1."""
    position = {name: at + 1 for at, name in enumerate(workload.groups)}
    table = np.full(max(names.values()) + 1, -1)
    for name, number in names.items():
        table[number] = 0 if number == 0 else position.get(name, -1)
    return table[group_K]


def _comm_events(trace: Trace, names: dict[str, int]) -> CommEvents:
    """Return the communication nodes of one trace in program order."""
    is_comm_N = (trace.type_N >= NodeType.COMM_SEND) & (trace.type_N <= NodeType.COMM_COLL)
    row_K = program_order(trace)
    row_K = row_K[is_comm_N[row_K]]
    texts, _ = group_names(trace)
    group_N = np.array([names.setdefault(text, len(names)) for text in texts], dtype=np.int64)
    return CommEvents(
        rank_K=np.zeros(row_K.size, dtype=np.int64),
        row_K=row_K,
        id_K=trace.id_N[row_K],
        type_K=trace.type_N[row_K],
        group_K=group_N[row_K],
        comm_type_K=trace.integers("comm_type", -1)[0][row_K],
        size_K=trace.integers("comm_size", -1)[0][row_K],
        source_K=trace.integers("comm_src", -1)[0][row_K],
        target_K=trace.integers("comm_dst", -1)[0][row_K],
        tag_K=trace.integers("comm_tag", 0)[0][row_K],
    )


def group_names(trace: Trace) -> tuple[list[str], np.ndarray]:
    """Return (name of each node's group or "", present_N): ``pg_name``, a string or an integer.

    Raises:
        TraceError: If ``pg_name`` is a float or a list.
    """
    try:
        return trace.texts("pg_name")
    except TraceError:
        value_N, present_N = trace.integers("pg_name")
        return [str(v) if p else "" for v, p in zip(value_N, present_N, strict=True)], present_N


def program_order(trace: Trace) -> np.ndarray:
    """Return the rows of a trace in the order in which its rank issues them.

    Raises:
        TraceError: If the dependencies are faulty.
    """
    edge_index_2E, _ = dependency_edges(trace)
    source_E, target_E = edge_index_2E
    if (trace.id_N[source_E] < trace.id_N[target_E]).all():
        return np.argsort(trace.id_N, kind="stable")
    return np.lexsort((trace.id_N, trace_layers(trace, edge_index_2E)))
