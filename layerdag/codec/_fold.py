"""A job as one graph: the union of its classes of ranks, with matched communication merged.

Ranks that run the same program are one class ("stage"); a send and its receive are one node, and
so is a collective in which several classes take part. Decoding (``unfold.py``) therefore cannot
produce a message without a partner or a collective that some rank misses.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from layerdag.codec._attributed_graph import AttributedGraph, size_conditions
from layerdag.codec._groups import JobGroups
from layerdag.codec._merging import Merge, matched_nodes
from layerdag.codec._vocabulary import public_device, public_dtype, public_name
from layerdag.errors import GraphError
from layerdag.graph import Condition, longest_path_layers, pointers
from layerdag.traces import CollectiveType, NodeType, Trace, dependency_edges
from layerdag.traces.analysis import group_names
from layerdag.traces.chakra import without_nodes

T = TypeVar("T")

EDGE_TYPES = ("data", "control")
DATA, CONTROL = 0, 1
NONE = "none"
ALL = "all"
HOST = "host"
MESSAGE = "MESSAGE"
COMMUNICATION = frozenset({NodeType.COMM_COLL.name, MESSAGE})
"""Types of nodes in which ranks exchange something."""
CATEGORIES = ("op", "type", "collective", "group", "stage", "peer", "device", "dtype")
# Chakra enumerates these; the rest is open, but for the classes of ranks that a model has seen.
VOCABULARIES = {
    "type": ("COMP", "MEM_LOAD", "MEM_STORE", "COMM_COLL", MESSAGE),
    "collective": (NONE, *(kind.name for kind in CollectiveType if kind != CollectiveType.INVALID)),
}
OPEN_VOCABULARIES = ("op", "group", "device", "dtype")
# Attribute of the graph -> (attribute of the trace, unit); 0 and missing are "absent".
NUMBERS = {
    "flops": ("num_ops", "flops"),
    "bytes": ("tensor_size", "bytes"),
    "comm_bytes": ("comm_size", "bytes"),
    "duration": ("duration_ns", "ns"),
}


@dataclass(frozen=True, eq=False)
class RankClassTrace:
    """The program of one class of ranks.

    Attributes:
        trace: Of the first rank.
        ranks: All ranks of the class, ascending.
    """

    trace: Trace
    ranks: tuple[int, ...]


def job_graph(
    name: str,
    classes: Sequence[RankClassTrace],
    groups: Mapping[str, tuple[int, ...]],
    conditions: Mapping[str, Condition],
) -> AttributedGraph:
    """Return the graph of a job.

    METADATA and INVALID nodes are left out; what waited for them waits for what they waited for.

    Args:
        name: For messages and manifests.
        classes: At least one, covering all ranks.
        groups: Ranks of each communicator group by integer name.
        conditions: What is known of the job; sizes are added.

    Raises:
        TraceError: If a dependency dangles, or messages or collectives of the classes do not match.
        GraphError: If there is no node, or dependencies form a cycle.
    """
    traces = [without_nodes(part.trace, part.trace.type_N <= NodeType.METADATA) for part in classes]
    start_C = pointers([trace.num_nodes for trace in traces])
    if start_C[-1] == 0:
        raise GraphError(f"{name}: the traces hold no work, only metadata; collect them again.")
    roles = JobGroups(name, [part.ranks for part in classes], groups)
    columns = _joined(_categories(stage, trace, roles) for stage, trace in enumerate(traces))
    owner_N = np.arange(start_C[-1])
    for merge in matched_nodes(name, traces, roles):
        first, *others = (int(start_C[stage]) + row for stage, row in (merge.kept, *merge.others))
        owner_N[others] = first
        _mark_merged(columns, first, merge)
    kept = np.flatnonzero(owner_N == np.arange(len(owner_N)))
    new_N = np.zeros(len(owner_N), dtype=np.int64)
    new_N[kept] = np.arange(len(kept))
    edges_2E, type_E = _union_edges(traces, start_C, new_N[owner_N])
    edges_2E, type_E = _without_deadlock(edges_2E, type_E, len(kept))
    layer_N = longest_path_layers(len(kept), edges_2E)
    numbers = _joined(_numbers(trace) for trace in traces)
    return AttributedGraph(
        name=name,
        categories={key: [column[i] for i in kept.tolist()] for key, column in columns.items()},
        numbers={key: np.array(values)[kept] for key, values in numbers.items()},
        units={key: unit for key, (_, unit) in NUMBERS.items()},
        edge_index_2E=edges_2E,
        edge_type_E=type_E,
        edge_type_names=EDGE_TYPES,
        conditions={
            **conditions,
            "world_size": str(sum(len(part.ranks) for part in classes)),
            **size_conditions(layer_N),
        },
        open_vocabularies=OPEN_VOCABULARIES,
        vocabularies=VOCABULARIES,
    )


def _joined(parts: Iterable[Mapping[str, list[T]]]) -> dict[str, list[T]]:
    """Return the columns of all parts end to end."""
    whole: dict[str, list[T]] = {}
    for part in parts:
        for key, values in part.items():
            whole.setdefault(key, []).extend(values)
    return whole


def _numbers(trace: Trace) -> dict[str, list[float]]:
    """Return the numeric attributes of a class, NaN for absent."""
    found = {}
    for key, (attribute, _) in NUMBERS.items():
        value_N, _ = trace.integers(attribute)
        if key == "duration":
            measured_N = trace.duration_us_N.astype(np.int64) * 1000
            value_N = np.where(value_N > 0, value_N, measured_N)
        found[key] = np.where(value_N > 0, value_N, np.nan).astype(np.float64).tolist()
    return found


def _categories(stage: int, trace: Trace, groups: JobGroups) -> dict[str, list[str]]:
    """Return the words of each categorical attribute of a class, before merging."""
    collective_N, _ = trace.integers("comm_type")
    group_N, _ = group_names(trace)
    on_host_N, _ = trace.integers("is_cpu_op")
    device_N, _ = trace.texts("device")
    dtype_N = trace.dtypes()
    joins_N = (trace.type_N == NodeType.COMM_COLL).tolist()
    return {
        "op": [public_name(word) for word in trace.names()],
        "type": [NodeType(kind).name for kind in trace.type_N.tolist()],
        "collective": [
            CollectiveType(code).name if joins else NONE
            for code, joins in zip(_known(collective_N).tolist(), joins_N, strict=True)
        ],
        "group": [
            groups.role(group) if joins else NONE
            for group, joins in zip(group_N, joins_N, strict=True)
        ],
        "stage": [str(stage)] * trace.num_nodes,
        "peer": [NONE] * trace.num_nodes,
        "device": [
            HOST if host else public_device(word) if word else NONE
            for host, word in zip(on_host_N.tolist(), device_N, strict=True)
        ],
        "dtype": [public_dtype(word) if word else NONE for word in dtype_N],
    }


def _known(code_N: np.ndarray) -> np.ndarray:
    """Return codes of collectives, with those that Chakra does not define as INVALID."""
    known = np.isin(code_N, [int(kind) for kind in CollectiveType])
    return np.where(known, code_N, int(CollectiveType.INVALID))


def _mark_merged(columns: dict[str, list[str]], node: int, merge: Merge) -> None:
    """Write who takes part in a merged node."""
    if columns["type"][node] != NodeType.COMM_COLL.name:
        columns["type"][node] = MESSAGE
    if merge.joint:
        columns["stage"][node] = ALL
    else:
        columns["peer"][node] = str(merge.others[0][0])


def _union_edges(
    traces: Sequence[Trace], start_C: np.ndarray, new_N: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges of all classes between kept nodes, each once; data wins over control."""
    parts = [dependency_edges(trace) for trace in traces]
    pairs = [edges_2E + start for (edges_2E, _), start in zip(parts, start_C[:-1], strict=True)]
    edges_2E = new_N[np.concatenate(pairs, axis=1)]
    type_E = np.concatenate([kind_E for _, kind_E in parts]).astype(np.int64)
    order_E = np.lexsort((type_E, edges_2E[0], edges_2E[1]))
    edges_2E, type_E = edges_2E[:, order_E], type_E[order_E]
    fresh_E = np.ones(len(type_E), dtype=bool)
    fresh_E[1:] = (edges_2E[:, 1:] != edges_2E[:, :-1]).any(axis=0)
    fresh_E &= edges_2E[0] != edges_2E[1]
    return edges_2E[:, fresh_E], type_E[fresh_E]


def _without_deadlock(
    edges_2E: np.ndarray, type_E: np.ndarray, num_nodes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Drop the control edges on cycles that merging buffered messages has closed.

    Two ranks may each send before they receive: as single nodes the two messages then wait for each
    other, but only through program order, which a buffered send does not hold up.
    """
    adjacency = coo_array(
        (np.ones(edges_2E.shape[1], dtype=np.int8), (edges_2E[0], edges_2E[1])),
        shape=(num_nodes, num_nodes),
    )
    _, component_N = connected_components(adjacency, directed=True, connection="strong")
    on_cycle_E = component_N[edges_2E[0]] == component_N[edges_2E[1]]
    keep_E = ~(on_cycle_E & (type_E == CONTROL))
    return edges_2E[:, keep_E], type_E[keep_E]
