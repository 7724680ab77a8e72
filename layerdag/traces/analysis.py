"""The order in which ranks issue nodes, communication that belongs together, and summaries.

A rank issues in the order of its ids where the ids respect the dependencies, else in the order of
(layer, id): ASTRA-sim issues ready nodes by ascending id.

As in ASTRA-sim, the k-th collective that a rank issues in a group meets the k-th one of every other
member of the group, and the k-th send for (source, destination, tag) meets the k-th receive.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass

import numpy as np

from layerdag.errors import TraceError
from layerdag.graph.topology import longest_path
from layerdag.hardware.collectives import CollectiveType
from layerdag.runtime.notes import Note, NoteCollector, NoteKind
from layerdag.traces.trace import (
    DATA,
    MAX_MICROSECONDS,
    MAX_NUMBER,
    OPERATOR,
    NodeType,
    Trace,
    Workload,
    communicates,
    dependency_edges,
    listed,
    trace_layers,
)

WORLD = "0"
"""Name of the group of all ranks."""

WORLD_NAMES = ("", WORLD)
"""Values of ``pg_name`` that mean all ranks."""


@dataclass(frozen=True, eq=False)
class CommEvents:
    """Communication nodes, rank by rank in program order.

    Attributes:
        group_K: 0 for all ranks, 1 + position in ``Workload.groups``, or -1 for an unknown group.
        comm_type_K: ``CollectiveType``, -1 for none.
        size_K: Bytes, -1 for none.
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
    number = {name: at + 1 for at, name in enumerate(workload.groups)}
    number |= dict.fromkeys(WORLD_NAMES, 0)
    each = workload.for_each_rank(lambda trace: _comm_events(trace, number))
    rank_K = np.repeat(np.arange(len(each)), [one.row_K.size for one in each])
    columns = {
        name: np.concatenate([getattr(one, name) for one in each])
        for name in CommEvents.__dataclass_fields__
    }
    columns["rank_K"] = rank_K
    # A send without comm_src comes from its own rank, a receive without comm_dst goes to it.
    for column in ("source_K", "target_K"):
        columns[column] = np.where(columns[column] < 0, rank_K, columns[column])
    return CommEvents(**columns)


def _comm_events(trace: Trace, number: Mapping[str, int]) -> CommEvents:
    """Return the communication of a rank that is not known yet; groups have a number by name."""
    row_K = program_order(trace)
    row_K = row_K[communicates(trace.type_N)[row_K]]
    texts, _ = group_names(trace)
    group_K = np.array([number.get(texts[row], -1) for row in row_K.tolist()], dtype=np.int64)
    values = {
        name: trace.integers(name, 0 if name == "comm_tag" else -1)[0][row_K]
        for name in ("comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag")
    }
    head = (np.zeros(row_K.size, dtype=np.int64), row_K, trace.id_N[row_K], trace.type_N[row_K])
    return CommEvents(*head, group_K, *values.values())


def group_names(trace: Trace) -> tuple[list[str], np.ndarray]:
    """Return (name of each node's group or "", present_N): ``pg_name``, a string or an integer.

    Raises:
        TraceError: If ``pg_name`` is a float or a list.
    """
    return trace.texts("pg_name", numbers=True)


def undescribed_groups(workload: Workload) -> tuple[Note, ...]:
    """Return a note on each group that traces use and the workload does not describe.

    Raises TraceError like ``group_names``.
    """
    notes = NoteCollector(workload.source)
    for trace, _ in workload.ranks_by_trace():
        if "pg_name" not in trace.strings:
            continue
        names, _ = group_names(trace)
        counts = Counter(names)
        for name in sorted(counts.keys() - workload.groups.keys() - {*WORLD_NAMES}):
            if name.isdecimal() and str(int(name)) in (*workload.groups, WORLD):
                continue  # "01" is "1" to ASTRA-sim
            effect = (
                "used and not described, so 'layerdag simulate' refuses it; give its ranks in a "
                "group file"
            )
            where = f"node {trace.id_N[names.index(name)]}"
            notes.add(NoteKind.GROUP, name, effect, where=where, count=counts[name])
    return notes.notes


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


@dataclass(frozen=True)
class Mismatch:
    """A communication that would hang or be wrong, at the first of the ranks that disagree."""

    rank: int
    node: int
    message: str


@dataclass(frozen=True, eq=False)
class MatchedCommunication:
    """The communication of a workload, matched: C participations of ranks, M messages.

    Participations with the same ``instance_C`` are one collective. Rows are those of the nodes in
    the traces of their ranks. ``bytes_M`` is what the sender says it sends, -1 if it does not say.
    """

    rank_C: np.ndarray
    row_C: np.ndarray
    instance_C: np.ndarray
    send_rank_M: np.ndarray
    send_row_M: np.ndarray
    recv_rank_M: np.ndarray
    recv_row_M: np.ndarray
    bytes_M: np.ndarray
    mismatches: tuple[Mismatch, ...]


def match_communication(workload: Workload) -> MatchedCommunication:
    """Match collectives, sends and receives over the ranks of a workload.

    Raises:
        TraceError: If a trace has faulty dependencies, or a communication attribute of a wrong
            type. Missing partners and disagreements are returned, not raised.
    """
    events = gather_communication(workload)
    of_collectives = events.type_K == NodeType.COMM_COLL
    collective = CommEvents(**{name: held[of_collectives] for name, held in vars(events).items()})
    instance_C, mismatches = _match_collectives(workload, collective)
    send, receive, others = _match_messages(events)
    return MatchedCommunication(
        rank_C=collective.rank_K,
        row_C=collective.row_K,
        instance_C=instance_C,
        send_rank_M=events.rank_K[send],
        send_row_M=events.row_K[send],
        recv_rank_M=events.rank_K[receive],
        recv_row_M=events.row_K[receive],
        bytes_M=events.size_K[send],
        mismatches=(*mismatches, *others),
    )


def _occurrences(keys: tuple[np.ndarray, ...]) -> np.ndarray:
    """Return how often each row's key occurred before it; the last key is the most significant."""
    size = keys[0].size
    order = np.lexsort(keys)
    changed = np.zeros(size, dtype=bool)
    for key in keys:
        changed[1:] |= key[order][1:] != key[order][:-1]
    start = np.maximum.accumulate(np.where(changed, np.arange(size), 0))
    turn = np.empty(size, dtype=np.int64)
    turn[order] = np.arange(size) - start
    return turn


def _match_collectives(workload: Workload, coll: CommEvents) -> tuple[np.ndarray, list[Mismatch]]:
    turn_K = _occurrences((coll.rank_K, coll.group_K))
    key_K = np.stack([coll.group_K, turn_K])
    _, instance_K = np.unique(key_K, axis=1, return_inverse=True)
    instance_K = instance_K.reshape(-1)
    members = [set(range(workload.num_ranks)), *(set(r) for r in workload.groups.values())]
    names = ["of all ranks", *(f"of group '{name}'" for name in workload.groups)]
    found = list(_outside_group(coll, members, names))
    order = np.lexsort((coll.rank_K, instance_K))
    edges = np.flatnonzero(np.diff(instance_K[order], prepend=-1, append=-1))
    wanted_G = np.array([len(ranks) for ranks in members])
    sizes = np.diff(edges)
    group_I = coll.group_K[order[edges[:-1]]] if edges.size else np.zeros(0, np.int64)
    suspect_I = sizes != wanted_G[group_I]
    for column in (coll.comm_type_K, coll.size_K) if sizes.size else ():
        low_I = np.minimum.reduceat(column[order], edges[:-1])
        suspect_I |= low_I != np.maximum.reduceat(column[order], edges[:-1])
    for at in np.flatnonzero(suspect_I & (group_I >= 0)).tolist():
        rows = order[edges[at] : edges[at + 1]]
        group = int(group_I[at])
        found.append(_disagreement(coll, rows, members[group], names[group], int(turn_K[rows[0]])))
    return instance_K, found


def _outside_group(
    coll: CommEvents, members: list[set[int]], names: list[str]
) -> Iterator[Mismatch]:
    for group in np.unique(coll.group_K).tolist():
        of_group = coll.group_K == group
        ranks = np.unique(coll.rank_K[of_group]).tolist()
        for rank in ranks if group < 0 else sorted(set(ranks) - members[group]):
            first = int(np.flatnonzero(of_group & (coll.rank_K == rank))[0])
            node = int(coll.id_K[first])
            problem = (
                "names a communicator group that is not described; add it to the group file"
                if group < 0
                else f"calls a collective {names[group]}, to which the rank does not belong; "
                "correct the group file or the trace"
            )
            yield Mismatch(rank, node, f"Rank {rank}, node {node}: {problem}.")


def _disagreement(
    coll: CommEvents, rows: np.ndarray, members: set[int], name: str, turn: int
) -> Mismatch:
    rank, node = int(coll.rank_K[rows[0]]), int(coll.id_K[rows[0]])
    absent = sorted(members - set(coll.rank_K[rows].tolist()))
    start = f"Rank {rank}, node {node}: collective number {turn} {name}"
    if absent:
        shown = listed(absent, 8)
        return Mismatch(
            rank, node, f"{start} is never called by rank {shown}; the others would wait forever."
        )
    differs = (coll.comm_type_K[rows] != coll.comm_type_K[rows[0]]) | (
        coll.size_K[rows] != coll.size_K[rows[0]]
    )
    other = rows[int(np.argmax(differs))]
    uneven = (coll.comm_type_K[rows] == CollectiveType.ALL_TO_ALL).all()
    way = ", which 'layerdag convert --uneven max' does" if uneven else ""
    return Mismatch(
        rank,
        node,
        f"{start} has type {coll.comm_type_K[rows[0]]} and {coll.size_K[rows[0]]} bytes, but rank "
        f"{coll.rank_K[other]}, node {coll.id_K[other]} has type {coll.comm_type_K[other]} and "
        f"{coll.size_K[other]} bytes; make them equal{way}.",
    )


def _match_messages(events: CommEvents) -> tuple[np.ndarray, np.ndarray, list[Mismatch]]:
    """Return the rows of matched sends and of their receives, and what does not match."""
    sends = np.flatnonzero(events.type_K == NodeType.COMM_SEND)
    receives = np.flatnonzero(events.type_K == NodeType.COMM_RECV)
    rows = np.concatenate([sends, receives])
    side = np.repeat([0, 1], [sends.size, receives.size])
    keys = tuple(key_K[rows] for key_K in (events.tag_K, events.target_K, events.source_K))
    turn = _occurrences((*keys, side))
    order = np.lexsort((side, turn, *keys))
    same = np.ones(max(order.size - 1, 0), dtype=bool)
    for key in (*keys, turn):
        same &= key[order][1:] == key[order][:-1]
    first = np.flatnonzero(same & (np.diff(side[order]) == 1))
    send, receive = rows[order[first]], rows[order[first + 1]]
    matched = np.zeros(events.row_K.size, dtype=bool)
    matched[send] = matched[receive] = True
    found = []
    for row in rows[~matched[rows]].tolist():
        rank, node = int(events.rank_K[row]), int(events.id_K[row])
        source, target = int(events.source_K[row]), int(events.target_K[row])
        what, other, peer = ("receive", "send", source)
        if events.type_K[row] == NodeType.COMM_SEND:
            what, other, peer = ("send", "receive", target)
        message = (
            f"Rank {rank}, node {node}: the {what} from rank {source} to rank {target} with tag "
            f"{events.tag_K[row]} has no matching {other} on rank {peer}; add it or correct rank "
            "and tag."
        )
        found.append(Mismatch(rank, node, message))
    for at in np.flatnonzero(events.size_K[send] != events.size_K[receive]).tolist():
        one, two = send[at], receive[at]
        rank, node = int(events.rank_K[one]), int(events.id_K[one])
        message = (
            f"Rank {rank}, node {node}: sends {events.size_K[one]} bytes, but rank "
            f"{events.rank_K[two]}, node {events.id_K[two]} receives {events.size_K[two]}; make "
            "them equal."
        )
        found.append(Mismatch(rank, node, message))
    return send, receive, found


_CALL_NUMBER = re.compile(r"[#(]\d+\)?$")
_TOP = 12


@dataclass(frozen=True)
class RankSummary:
    """One distinct trace of a workload.

    Attributes:
        control_edges: Number of control dependencies that are not data dependencies.
        types: Number of nodes of each ``NodeType`` that occurs.
        operators: The most frequent node names (call numbers cut off) and their counts.
        communication_us: Sum of the durations recorded for communication, in microseconds.
        tensor_bytes: Sum of ``tensor_size``, in bytes; None where no node has it.
        span_us: From the first recorded start to the last end of a profile, in microseconds; None
            of other traces. It has the gaps of the host, which the critical path has not.
    """

    ranks: tuple[int, ...]
    nodes: int
    data_edges: int
    control_edges: int
    types: Mapping[str, int]
    operators: Mapping[str, int]
    layers: int
    widest_layer: int
    mean_width: float
    duration_us: int
    critical_path_us: int
    critical_path_nodes: int
    communication_us: int
    tensor_bytes: int | None
    span_us: int | None = None

    def to_json(self) -> dict[str, object]:
        """Return the summary as plain JSON types, the span only where there is one."""
        found = asdict(self)
        if self.span_us is None:
            del found["span_us"]
        return found


@dataclass(frozen=True)
class GroupSummary:
    """The communication inside one group, over all its ranks.

    Attributes:
        group: Its name; "all ranks" for the world, "?" for groups that are not described.
        size: Number of ranks; 0 if unknown.
        collectives: Number of collectives of each kind, a collective of all members counted once.
        bytes_per_rank: ``comm_size`` summed over the collectives of one member, in bytes.
    """

    group: str
    size: int
    collectives: Mapping[str, int]
    bytes_per_rank: int


@dataclass(frozen=True)
class WorkloadSummary:
    """A whole workload.

    Attributes:
        version: Chakra version that the file states, "" for none.
        messages: Number of matched send and receive pairs.
        mismatches: Communication that does not match, one sentence each.
    """

    source: str
    version: str
    num_ranks: int
    distinct_traces: int
    nodes: int
    ranks: tuple[RankSummary, ...]
    groups: tuple[GroupSummary, ...]
    messages: int
    message_bytes: int
    mismatches: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """Return the summary as plain JSON types."""
        return {**asdict(self), "ranks": tuple(rank.to_json() for rank in self.ranks)}


def summarize(workload: Workload) -> WorkloadSummary:
    """Summarize a workload.

    Raises:
        TraceError: If the dependencies of a trace dangle, repeat an id, or form a cycle.
    """
    distinct = workload.ranks_by_trace()
    events = gather_communication(workload)
    matched = match_communication(workload)
    return WorkloadSummary(
        source=workload.source,
        version=workload.traces[0].version if workload.traces else "",
        num_ranks=workload.num_ranks,
        distinct_traces=len(distinct),
        nodes=sum(trace.num_nodes for trace in workload.traces),
        ranks=tuple(summarize_trace(trace, tuple(ranks)) for trace, ranks in distinct),
        groups=_groups(workload, events),
        messages=matched.bytes_M.size,
        message_bytes=_total(np.maximum(matched.bytes_M, 0)),
        mismatches=tuple(mismatch.message for mismatch in matched.mismatches),
    )


def summarize_trace(trace: Trace, ranks: tuple[int, ...] = (0,)) -> RankSummary:
    """Summarize one trace that the given ranks run; raises TraceError like ``summarize``."""
    edge_index_2E, kind_E = dependency_edges(trace)
    layer_N = trace_layers(trace, edge_index_2E)
    path = longest_path(layer_N, edge_index_2E, trace.duration_us_N.astype(np.float64))
    long_N = trace.duration_us_N > MAX_MICROSECONDS
    if long_N.any():
        first = int(np.argmax(long_N))
        raise TraceError(
            f"{trace.source}: node {trace.id_N[first]} lasts {trace.duration_us_N[first]} us; at "
            "most 1e12 us can be run, so correct it."
        )
    width_L = np.bincount(layer_N)
    type_count = np.bincount(trace.type_N, minlength=len(NodeType)).tolist()
    stated_N, _ = trace.texts(OPERATOR)
    operators = Counter(
        stated or _CALL_NUMBER.sub("", name)
        for name, stated in zip(trace.names(), stated_N, strict=True)
    )
    size_N, sized_N = trace.integers("tensor_size")
    refuse_negative(trace)
    return RankSummary(
        ranks=ranks,
        nodes=trace.num_nodes,
        data_edges=int((kind_E == DATA).sum()),
        control_edges=int((kind_E != DATA).sum()),
        types={t.name: type_count[t] for t in NodeType if type_count[t]},
        operators=dict(operators.most_common(_TOP)),
        layers=width_L.size,
        widest_layer=int(width_L.max(initial=0)),
        mean_width=round(trace.num_nodes / max(width_L.size, 1), 3),
        duration_us=int(trace.duration_us_N.sum()),
        critical_path_us=int(path.length),
        critical_path_nodes=path.row_P.size,
        communication_us=int(trace.duration_us_N[communicates(trace.type_N)].sum()),
        tensor_bytes=_total(size_N) if sized_N.any() else None,
        span_us=measured_span_us(trace),
    )


def is_group_name(name: str) -> bool:
    """Return whether ASTRA-sim can use ``name``: an integer above 0."""
    return name.isascii() and name.isdigit() and len(name) <= 10 and 0 < int(name) < 2**31


def refuse_negative(trace: Trace) -> None:
    """Raise TraceError where bytes or operations are below 0, which would be taken off a sum."""
    for name in ("tensor_size", "comm_size", "num_ops"):
        value_N, _ = trace.integers(name)
        if (value_N < 0).any():
            first = int(np.argmax(value_N < 0))
            raise TraceError(
                f"{trace.source}: node {trace.id_N[first]} carries attribute '{name}' = "
                f"{value_N[first]}; it is at least 0, so correct it."
            )


def impossible(workload: Workload, *, dependencies: bool) -> tuple[Note, ...]:
    """Return notes on what no consumer can run and is written nevertheless.

    That is bytes and operations below 0, and ``dependencies`` that dangle or form a cycle.
    """
    notes = NoteCollector(workload.source)
    checks: list[tuple[NoteKind, Callable[[Trace], object]]] = [(NoteKind.NUMBER, refuse_negative)]
    checks += [(NoteKind.EDGE, trace_layers)] * dependencies
    for trace, _ in workload.ranks_by_trace():
        for kind, check in checks:
            try:
                check(trace)
            except TraceError as error:
                fault = str(error).removeprefix(f"{trace.source}: ").rstrip(".")
                word = "below 0" if kind is NoteKind.NUMBER else "dependency"
                where = "" if trace.source == workload.source else trace.source
                notes.add(kind, word, f"{fault}; written as it is", where=where)
    return notes.notes


def _total(values: np.ndarray) -> int:
    small = values.sum(dtype=np.float64) < 2.0**62
    return int(values.sum()) if small else sum(map(int, values.tolist()))


def measured_span_us(trace: Trace) -> int | None:
    """Return the time from the first recorded start to the last end of a profile.

    None without starts, and of traces without calls of the host beside work of a device: there the
    gaps are those of the profiler.
    """
    starts = trace.start_us_N
    if not starts.any() or int(starts.max()) > MAX_NUMBER // 2:
        return None
    on_cpu_N = trace.integers("is_cpu_op")[0] != 0
    if not on_cpu_N.any() or on_cpu_N.all():
        return None
    ends = starts + np.minimum(trace.duration_us_N, np.uint64(MAX_MICROSECONDS))
    return int(ends.max() - starts.min())


def _groups(workload: Workload, events: CommEvents) -> tuple[GroupSummary, ...]:
    names = ["all ranks", *workload.groups]
    sizes = [workload.num_ranks, *map(len, workload.groups.values())]
    found = []
    is_collective_K = events.type_K == NodeType.COMM_COLL
    for group in np.unique(events.group_K[is_collective_K]).tolist():
        of_group_K = is_collective_K & (events.group_K == group)
        one_K = of_group_K & (events.rank_K == events.rank_K[of_group_K].min())
        kinds = Counter(map(collective_name, events.comm_type_K[one_K].tolist()))
        found.append(
            GroupSummary(
                group=names[group] if group >= 0 else "?",
                size=sizes[group] if group >= 0 else 0,
                collectives=dict(kinds.most_common()),
                bytes_per_rank=_total(np.maximum(events.size_K[one_K], 0)),
            )
        )
    return tuple(found)


def collective_name(number: int) -> str:
    """Return the name of a ``CollectiveType``, or the number itself."""
    try:
        return CollectiveType(number).name
    except ValueError:
        return "no comm_type" if number < 0 else str(number)
