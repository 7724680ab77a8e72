"""What a workload contains: counts, layers, critical path, communication, memory."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np

from layerdag.traces import (
    DATA,
    CollectiveType,
    NodeType,
    Trace,
    Workload,
    dependency_edges,
    trace_layers,
)
from layerdag.traces.analysis._critical_path import critical_path
from layerdag.traces.analysis._matching import match_communication
from layerdag.traces.analysis._program_order import CommEvents, gather_communication

_CALL_NUMBER = re.compile(r"[#(]\d+\)?$")
_TOP = 12


@dataclass(frozen=True)
class RankSummary:
    """One distinct trace of a workload.

    Attributes:
        ranks: The ranks that run it.
        nodes: Number of nodes.
        data_edges: Number of distinct data dependencies.
        control_edges: Number of further control dependencies.
        types: Number of nodes of each ``NodeType`` that occurs.
        operators: The most frequent node names (call numbers cut off) and their counts.
        layers: Number of longest-path layers.
        widest_layer: Number of nodes of the widest layer.
        mean_width: Nodes / layers.
        duration_us: Sum of all durations, in microseconds.
        critical_path_us: Longest path by duration, in microseconds.
        critical_path_nodes: Number of nodes on it.
        communication_us: Sum of the durations recorded for communication, in microseconds.
        tensor_bytes: Sum of ``tensor_size``, in bytes; None where no node has it.
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


@dataclass(frozen=True)
class GroupSummary:
    """The communication inside one group, over all its ranks.

    Attributes:
        group: Name of the group; "all ranks" for the world, "?" for groups that are not described.
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
        source: Where it was read from.
        version: Chakra version that the file states, "" for none.
        num_ranks: Number of ranks.
        distinct_traces: How many of the rank's traces differ.
        nodes: Nodes over all ranks.
        ranks: One entry for each distinct trace.
        groups: One entry for each group that communicates.
        messages: Number of matched send and receive pairs.
        message_bytes: Their bytes.
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
        return asdict(self)


def summarize(workload: Workload) -> WorkloadSummary:
    """Summarize a workload.

    Raises:
        TraceError: If the dependencies of a trace dangle, repeat an id, or form a cycle.
    """
    ranks_of: dict[int, list[int]] = {}
    for rank, trace in enumerate(workload.traces):
        ranks_of.setdefault(id(trace), []).append(rank)
    distinct = [(workload.traces[ranks[0]], tuple(ranks)) for ranks in ranks_of.values()]
    events = gather_communication(workload)
    matched = match_communication(workload)
    return WorkloadSummary(
        source=workload.source,
        version=workload.traces[0].version if workload.traces else "",
        num_ranks=workload.num_ranks,
        distinct_traces=len(distinct),
        nodes=sum(trace.num_nodes for trace in workload.traces),
        ranks=tuple(summarize_trace(trace, ranks) for trace, ranks in distinct),
        groups=_groups(workload, events),
        messages=matched.bytes_M.size,
        message_bytes=int(np.maximum(matched.bytes_M, 0).sum()),
        mismatches=tuple(mismatch.message for mismatch in matched.mismatches),
    )


def summarize_trace(trace: Trace, ranks: tuple[int, ...] = (0,)) -> RankSummary:
    """Summarize one trace that the given ranks run; raises TraceError like ``summarize``."""
    edge_index_2E, kind_E = dependency_edges(trace)
    layer_N = trace_layers(trace, edge_index_2E)
    path = critical_path(layer_N, edge_index_2E, trace.duration_us_N.astype(np.float64))
    width_L = np.bincount(layer_N)
    type_count = np.bincount(trace.type_N, minlength=len(NodeType)).tolist()
    operators = Counter(_CALL_NUMBER.sub("", name) for name in trace.names())
    size_N, sized_N = trace.integers("tensor_size")
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
        communication_us=int(trace.duration_us_N[trace.type_N >= NodeType.COMM_SEND].sum()),
        tensor_bytes=int(size_N.sum()) if sized_N.any() else None,
    )


def _groups(workload: Workload, events: CommEvents) -> tuple[GroupSummary, ...]:
    """Summarize the collectives of each group, as one member sees them."""
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
                bytes_per_rank=int(np.maximum(events.size_K[one_K], 0).sum()),
            )
        )
    return tuple(found)


def collective_name(number: int) -> str:
    """Return the name of a ``CollectiveType``, or the number itself."""
    try:
        return CollectiveType(number).name
    except ValueError:
        return "no comm_type" if number < 0 else str(number)
