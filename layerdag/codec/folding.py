"""A job as one graph: the union of its classes of ranks, with matched communication merged.

Ranks that run the same program are one class ("stage"). The k-th send from one class to another
with a tag meets the k-th receive there, and the k-th collective that a class issues in a group
meets the k-th one of the other classes in it, in the order in which ranks issue
(``layerdag.traces``): each is one node. Decoding (``unfolding.py``) therefore cannot produce a
message without a partner or a collective that some rank misses.

The role of a group says who takes part without naming a rank: "world" (all ranks), "stage" (the
ranks of the own class), or the shape of a sub-group, "contiguous4" or "strided2". So a graph with
roles can be unfolded on another number of ranks.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from layerdag.codec.vocabulary import (
    OTHER,
    PublicWords,
    operator_name,
    operators,
    public_device,
    public_dtype,
)
from layerdag.errors import GraphError, TraceError
from layerdag.graph.attributed_graph import AttributedGraph, Condition, size_conditions
from layerdag.graph.topology import longest_path_layers, pointers
from layerdag.hardware.collectives import CollectiveType
from layerdag.runtime.notes import Note, NoteCollector, NoteKind, merge_notes
from layerdag.traces.analysis import WORLD_NAMES, group_names, program_order, refuse_negative
from layerdag.traces.chakra.files import without_nodes
from layerdag.traces.trace import NodeType, Trace, Workload, dependency_edges

ALL_RANKS = "world"
STAGE = "stage"
_SHAPE = re.compile(r"(contiguous|strided)([1-9][0-9]{0,6})")


class JobGroups:
    """The communicator groups of a job, by integer name, in terms of its rank classes."""

    def __init__(
        self,
        name: str,
        classes: Sequence[tuple[int, ...]],
        groups: Mapping[str, tuple[int, ...]],
    ) -> None:
        self._name = name
        self._classes = [set(ranks) for ranks in classes]
        self._groups = groups
        self._world = {rank for ranks in classes for rank in ranks}

    @property
    def num_classes(self) -> int:
        """Number of classes of ranks."""
        return len(self._classes)

    def ranks(self, group: str) -> set[int]:
        """Return the ranks of a group. Raises TraceError if the group is unknown."""
        if group in self._groups:
            return set(self._groups[group])
        if group in WORLD_NAMES:
            return self._world
        raise TraceError(
            f"{self._name}: a collective runs in group '{group}', which is not among the job's "
            "groups; add the communicator-group file that was written with the traces."
        )

    def classes_of(self, group: str) -> tuple[int, ...]:
        """Return the classes that have a rank in the group."""
        ranks = self.ranks(group)
        return tuple(i for i, members in enumerate(self._classes) if ranks & members)

    def role(self, group: str) -> str:
        """Return the role of a group."""
        ranks = self.ranks(group)
        if ranks == self._world:
            return ALL_RANKS
        if ranks in self._classes:
            return STAGE
        steps = set(np.diff(sorted(ranks)).tolist())
        return ("contiguous" if steps <= {1} else "strided") + str(len(ranks))

    def stage_of(self, rank: int) -> int:
        """Return the class of ``rank``; raise TraceError if it has no trace."""
        for stage, members in enumerate(self._classes):
            if rank in members:
                return stage
        raise TraceError(
            f"{self._name}: a message names rank {rank}, of which there is no trace; add it."
        )


def members(role: str, domain: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return the ranks that share a group of shape ``role`` with ``rank``, one of ``domain``.

    Any role but a shape means the whole (ascending) domain; so does a shape larger than it.
    """
    match = _SHAPE.fullmatch(role)
    if match is None:
        return tuple(domain)
    wanted = min(int(match[2]), len(domain))
    size = max(d for d in range(1, wanted + 1) if len(domain) % d == 0)
    position, count = list(domain).index(rank), len(domain) // size
    if match[1] == "contiguous":
        return tuple(domain[position // size * size : (position // size + 1) * size])
    return tuple(domain[position % count :: count])


Node = tuple[int, int]
"""(class, row in its trace)."""


@dataclass(frozen=True)
class Merge:
    """Equivalent nodes, of which the send or the first class's collective is kept.

    ``joint`` if every class of the job takes part.
    """

    kept: Node
    others: tuple[Node, ...]
    joint: bool


def matched_nodes(name: str, traces: Sequence[Trace], groups: JobGroups) -> Iterator[Merge]:
    """Yield every message, and every collective that several classes share.

    Raises TraceError if a partner is missing, or a collective joins three classes or more but not
    all, which the graph of a job cannot express.
    """
    sends: dict[tuple[int, int, int], list[Node]] = defaultdict(list)
    receives: dict[tuple[int, int, int], list[Node]] = defaultdict(list)
    shared: dict[str, dict[int, list[Node]]] = defaultdict(lambda: defaultdict(list))
    for stage, trace in enumerate(traces):
        target_N, _ = trace.integers("comm_dst")
        source_N, _ = trace.integers("comm_src")
        tag_N, _ = trace.integers("comm_tag")
        group_N, _ = group_names(trace)
        for row in program_order(trace).tolist():
            kind, tag, node = int(trace.type_N[row]), int(tag_N[row]), (stage, row)
            if kind == NodeType.COMM_SEND:
                sends[stage, groups.stage_of(int(target_N[row])), tag].append(node)
            elif kind == NodeType.COMM_RECV:
                receives[groups.stage_of(int(source_N[row])), stage, tag].append(node)
            elif kind == NodeType.COMM_COLL and len(groups.classes_of(group_N[row])) > 1:
                shared[group_N[row]][stage].append(node)
    yield from _messages(name, sends, receives)
    for group, lists in shared.items():
        yield from _collectives(name, group, lists, groups)


def _messages(
    name: str,
    sends: dict[tuple[int, int, int], list[Node]],
    receives: dict[tuple[int, int, int], list[Node]],
) -> Iterator[Merge]:
    for key in sorted(sends.keys() | receives.keys()):
        if len(sends[key]) != len(receives[key]):
            raise TraceError(
                f"{name}: {len(sends[key])} sends from rank class {key[0]} to {key[1]} with tag "
                f"{key[2]} meet {len(receives[key])} receives; the ranks are not of one job."
            )
        for send, receive in zip(sends[key], receives[key], strict=True):
            yield Merge(send, (receive,), joint=False)


def _collectives(
    name: str, group: str, lists: dict[int, list[Node]], groups: JobGroups
) -> Iterator[Merge]:
    wanted = groups.classes_of(group)
    joint = len(wanted) == groups.num_classes
    if not joint and len(wanted) > 2:
        raise TraceError(
            f"{name}: group '{group}' joins {len(wanted)} of {groups.num_classes} classes of "
            "ranks; a graph of a job holds collectives of one, two or all classes."
        )
    counts = {stage: len(lists.get(stage, [])) for stage in wanted}
    if len(set(counts.values())) > 1:
        found = ", ".join(f"{count} in class {stage}" for stage, count in counts.items())
        raise TraceError(
            f"{name}: the ranks of group '{group or 0}' issue different numbers of collectives "
            f"({found}); some trace is cut."
        )
    for first, *rest in zip(*(lists[stage] for stage in wanted), strict=True):
        yield Merge(first, tuple(rest), joint)


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
    """The trace of the first rank of a class, and all its ranks, ascending."""

    trace: Trace
    ranks: tuple[int, ...]


def job_graph(
    name: str,
    classes: Sequence[RankClassTrace],
    groups: Mapping[str, tuple[int, ...]],
    conditions: Mapping[str, Condition],
    *,
    public_words: PublicWords = (),
) -> AttributedGraph:
    """Return the graph of a job from its classes of ranks and communicator groups.

    METADATA and INVALID nodes are bypassed. Sizes are added to the conditions. Operators of
    ``public_words`` are kept beside the public ones; "all" keeps every name. Raises TraceError if a
    dependency dangles, or messages or collectives of the classes do not match, and GraphError if
    there is no node, or dependencies form a cycle.
    """
    traces = [without_nodes(part.trace, part.trace.type_N <= NodeType.METADATA) for part in classes]
    for trace in traces:
        refuse_negative(trace)
    start_C = pointers([trace.num_nodes for trace in traces])
    if start_C[-1] == 0:
        raise GraphError(f"{name}: the traces hold no work, only metadata; collect them again.")
    roles = JobGroups(name, [part.ranks for part in classes], groups)
    words = [operators(trace, public_words) for trace in traces]
    columns = _joined(
        _categories(stage, trace, roles, op_N)
        for stage, (trace, op_N) in enumerate(zip(traces, words, strict=True))
    )
    owner_N = np.arange(start_C[-1])
    for merge in matched_nodes(name, traces, roles):
        first, *others = (int(start_C[stage]) + row for stage, row in (merge.kept, *merge.others))
        owner_N[others] = first
        if columns["type"][first] != NodeType.COMM_COLL.name:
            columns["type"][first] = MESSAGE
        if merge.joint:
            columns["stage"][first] = ALL
        else:
            columns["peer"][first] = str(merge.others[0][0])
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
        notes=merge_notes(
            note
            for trace, op_N in zip(traces, words, strict=True)
            for note in (*trace.notes, *_unknown_operators(trace, op_N))
        ),
    )


_NAMELESS = frozenset({"", OTHER, *(kind.name for kind in NodeType)})
"""Names that describe no operator: users need not be told that they are dropped."""


def _unknown_operators(trace: Trace, op_N: Sequence[str]) -> Sequence[Note]:
    if OTHER not in op_N:
        return ()
    found = NoteCollector(trace.source)
    firsts: dict[str, tuple[int, int]] = {}
    for row, (name, word) in enumerate(zip(trace.names(), op_N, strict=True)):
        if word == OTHER and name not in _NAMELESS:
            first, count = firsts.get(name, (row, 0))
            firsts[name] = first, count + 1
    for name, (row, count) in firsts.items():
        found.add(
            NoteKind.OPERATOR,
            operator_name(name),
            f"not public; '{OTHER}' in graphs of jobs unless public_words allows it",
            where=f"node {int(trace.id_N[row])}",
            count=count,
        )
    return found.notes


def _joined(parts: Iterable[Mapping[str, list[T]]]) -> dict[str, list[T]]:
    whole: dict[str, list[T]] = {}
    for part in parts:
        for key, values in part.items():
            whole.setdefault(key, []).extend(values)
    return whole


def _numbers(trace: Trace) -> dict[str, list[float]]:
    """Return the numeric attributes of a class, NaN if absent."""
    found = {}
    for key, (attribute, _) in NUMBERS.items():
        value_N, _ = trace.integers(attribute)
        if key == "duration":
            measured_N = trace.duration_us_N.astype(np.int64) * 1000
            value_N = np.where(value_N > 0, value_N, measured_N)
        found[key] = np.where(value_N > 0, value_N, np.nan).astype(np.float64).tolist()
    return found


def _categories(
    stage: int, trace: Trace, groups: JobGroups, op_N: list[str]
) -> dict[str, list[str]]:
    collective_N, _ = trace.integers("comm_type")
    known_N = np.isin(collective_N, [int(kind) for kind in CollectiveType])
    collective_N = np.where(known_N, collective_N, int(CollectiveType.INVALID))
    group_N, _ = group_names(trace)
    on_host_N, _ = trace.integers("is_cpu_op")
    device_N, _ = trace.texts("device")
    dtype_N = trace.dtypes()
    joins_N = (trace.type_N == NodeType.COMM_COLL).tolist()
    return {
        "op": op_N,
        "type": [NodeType(kind).name for kind in trace.type_N.tolist()],
        "collective": [
            CollectiveType(code).name if joins else NONE
            for code, joins in zip(collective_N.tolist(), joins_N, strict=True)
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


def _union_edges(
    traces: Sequence[Trace], start_C: np.ndarray, new_N: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct edges between kept nodes; data wins over control."""
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
    """Drop control edges on cycles that merging buffered messages has closed.

    Two ranks may each send before they receive: merged, the messages would wait for each other,
    but only through program order, which does not hold up a buffered send.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    adjacency = coo_array(
        (np.ones(edges_2E.shape[1], dtype=np.int8), (edges_2E[0], edges_2E[1])),
        shape=(num_nodes, num_nodes),
    )
    _, component_N = connected_components(adjacency, directed=True, connection="strong")
    on_cycle_E = component_N[edges_2E[0]] == component_N[edges_2E[1]]
    keep_E = ~(on_cycle_E & (type_E == CONTROL))
    return edges_2E[:, keep_E], type_E[keep_E]


_NUMBERS = ("num_ops", "tensor_size", "comm_size", "is_cpu_op")


def rank_classes(workload: Workload) -> list[RankClassTrace]:
    """Return the classes of ranks, each with the trace of its first rank.

    Ranks of one class agree in operators, types, dependencies, sizes, kinds of collectives and
    shapes of groups, and exchange messages with the same places of the same classes (or equally far
    around their own). Times, ids, tags and names of groups may differ. Raises TraceError if
    dependencies dangle, a group is unknown, or a message names a rank that the job does not have.
    """
    ranks = range(workload.num_ranks)
    groups = JobGroups(workload.source, [(rank,) for rank in ranks], workload.groups)
    fixed: dict[int, bytes] = {}
    keys: list[object] = []
    for trace in workload.traces:
        if id(trace) not in fixed:
            shapes = _group_shapes(trace, groups)
            fixed[id(trace)] = hashlib.sha256(b"".join((*_program(trace), shapes))).digest()
        keys.append(fixed[id(trace)])
    peers = [_peers(trace, workload.num_ranks) for trace in workload.traces]
    class_R = _refined(_numbered(keys), peers)
    found: dict[int, list[int]] = {}
    for rank, number in enumerate(class_R.tolist()):
        found.setdefault(number, []).append(rank)
    return [RankClassTrace(workload.traces[same[0]], tuple(same)) for same in found.values()]


def _refined(class_R: np.ndarray, peers: Sequence[np.ndarray]) -> np.ndarray:
    """Split classes until the ranks of each meet the same classes, and then the same places.

    Places are compared last: among stages that run the same program, but have not been separated by
    their neighbors yet, they mean nothing. ``peers`` are each rank's message partners in order.
    """
    while True:
        finer_R = _numbered(
            [(c, class_R[met].tobytes()) for c, met in zip(class_R.tolist(), peers, strict=True)]
        )
        if finer_R.max() == class_R.max():
            finer_R = _numbered(_meeting_places(class_R, peers))
            if finer_R.max() == class_R.max():
                return class_R
        class_R = finer_R


def _meeting_places(class_R: np.ndarray, peers: Sequence[np.ndarray]) -> Iterator[object]:
    order_R = np.argsort(class_R, kind="stable")
    size_C = np.bincount(class_R)
    position_R = np.empty_like(class_R)
    position_R[order_R] = np.arange(class_R.size) - (np.cumsum(size_C) - size_C)[class_R[order_R]]
    for rank, met in enumerate(peers):
        own = class_R[rank]
        shift = position_R[met] - position_R[rank]
        yield int(own), np.where(class_R[met] == own, shift % size_C[own], shift).tobytes()


def _numbered(keys: Iterable[object]) -> np.ndarray:
    number: dict[object, int] = {}
    return np.array([number.setdefault(key, len(number)) for key in keys], dtype=np.int64)


def _program(trace: Trace) -> Iterator[bytes]:
    edges_2E, kind_E = dependency_edges(trace)
    yield "\n".join(trace.names()).encode()
    yield trace.type_N.tobytes()
    yield edges_2E.tobytes() + kind_E.tobytes()
    yield trace.integers("comm_type", -1)[0].tobytes()
    for name in _NUMBERS:
        yield trace.integers(name)[0].tobytes()


def _group_shapes(trace: Trace, groups: JobGroups) -> bytes:
    group_N, _ = group_names(trace)
    of_collectives = [group_N[row] for row in np.flatnonzero(trace.type_N == NodeType.COMM_COLL)]
    shapes = {group: groups.role(group) for group in dict.fromkeys(of_collectives)}
    return "\n".join(shapes[group] for group in of_collectives).encode()


def _peers(trace: Trace, num_ranks: int) -> np.ndarray:
    found = []
    for name, kind in (("comm_dst", NodeType.COMM_SEND), ("comm_src", NodeType.COMM_RECV)):
        peer_M = trace.integers(name)[0][trace.type_N == kind].astype(np.int64)
        if peer_M.size and not 0 <= peer_M.min() <= peer_M.max() < num_ranks:
            strange = peer_M.min() if peer_M.min() < 0 else peer_M.max()
            raise TraceError(
                f"{trace.source}: a message names rank {int(strange)}, but the job has ranks "
                f"0 to {num_ranks - 1}; add the missing traces."
            )
        found.append(peer_M)
    return np.concatenate(found)
