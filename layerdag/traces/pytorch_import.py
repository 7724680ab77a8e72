"""Import of PyTorch traces: host trace and measured durations in, Chakra data-flow trace out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from layerdag.errors import TraceError
from layerdag.traces.build import NodeSpec, build_trace
from layerdag.traces.collectives import COMMUNICATION, CommunicationOperator
from layerdag.traces.costs import operation_count
from layerdag.traces.dataflow import dependencies, in_turn, transitive_reduction
from layerdag.traces.host_operations import HostOperations, Operation, host_operations
from layerdag.traces.operators import PROCESS_GROUP_INIT, Role
from layerdag.traces.pytorch_et import read_host_nodes
from layerdag.traces.pytorch_groups import (
    WORLD,
    ProcessGroups,
    Ranks,
    number_groups,
    process_groups,
)
from layerdag.traces.tensors import UNKNOWN_DTYPE, Access
from layerdag.traces.timings import Timings
from layerdag.traces.trace import Attribute, CollectiveType, NodeType, Trace, Wire

UNTIMED = Timings({})


@dataclass(frozen=True)
class ImportResult:
    """An imported rank.

    Attributes:
        trace: The data-flow graph as a Chakra trace.
        groups: Ranks of each communicator group by its integer name; empty for one process.
        num_host_nodes: Nodes of the host trace.
        share_joined: Share of the trace's nodes with a measured duration, 0 without a device file.
        guessed_groups: Communication nodes whose group the trace does not name; they were given
            to the world.
    """

    trace: Trace
    groups: Mapping[str, tuple[int, ...]]
    num_host_nodes: int
    share_joined: float
    guessed_groups: int


def import_host(
    path: str | Path,
    timings: Timings = UNTIMED,
    group_names: Mapping[Ranks, str] | None = None,
) -> ImportResult:
    """Import one rank of a CPU run from its host trace and, if known, measured durations.

    Args:
        path: Host execution trace (JSON, plain or compressed).
        timings: Durations of the same step, joined by RecordFunction handle.
        group_names: Integer name of each communicator group of the job (`number_groups` over all
            ranks); by default the groups of this rank are numbered.

    Raises:
        TraceError: If the file is no host trace, contains no operation, or not one of its
            operations occurs in ``timings``.
    """
    host = read_host(path)
    names = number_groups([host.groups]) if group_names is None else group_names
    return import_operations(host, timings, names)


def host_groups(path: str | Path) -> Mapping[str, Ranks]:
    """Return the ranks of each process group that a host trace declares, by PyTorch's name.

    Raises:
        TraceError: If the file is no host trace.
    """
    declarations = (node for node in read_host_nodes(path) if node.name == PROCESS_GROUP_INIT)
    return host_operations(declarations, str(path)).groups


def read_host(path: str | Path) -> HostOperations:
    """Return the operations of a host trace that do work.

    Raises:
        TraceError: If the file is no host trace, or nothing in it computes or communicates.
    """
    host = host_operations(read_host_nodes(path), str(path))
    if all(op.role is Role.ALLOCATION for op in host.operations):
        raise TraceError(
            f"{path}: none of the {host.num_nodes} nodes is an operator that computes or "
            "communicates; trace a step that does some work."
        )
    return host


def import_operations(
    host: HostOperations, timings: Timings, group_names: Mapping[Ranks, str]
) -> ImportResult:
    """Make a Chakra trace of the operations of one rank.

    Args:
        host: The operations.
        timings: Durations of the same step; empty if unknown.
        group_names: Integer name of each communicator group of the job (`number_groups`).

    Raises:
        TraceError: If not one of the operations occurs in ``timings``.
    """
    nodes = [op for op in host.operations if op.role is not Role.ALLOCATION]
    groups = process_groups(host.groups, group_names)
    times = _times(nodes, host, timings)
    joined = sum(time is not None for time in times)
    if timings.of and not joined:
        raise TraceError(
            f"{host.source}: none of its {len(nodes)} operators occurs in {timings.source}; the "
            "two files are not of the same step (ExecutionTraceObserver and profiler must run "
            "together)."
        )
    queues = _collectives_by_group(nodes, groups)
    found = transitive_reduction(in_turn(dependencies(host.operations), queues))
    origin = min((time[0] for time in times if time is not None), default=0)
    specs = [
        _spec(at, op, (found.data[at], found.order[at]), _since(times[at], origin), groups)
        for at, op in enumerate(nodes)
    ]
    return ImportResult(
        build_trace(specs, source=host.source),
        groups.ranks,
        host.num_nodes,
        joined / len(nodes),
        sum(_is_guessed(op, groups) for op in nodes),
    )


Time = tuple[int, int] | None


def _since(time: Time, origin: int) -> Time:
    """Return (start, duration) with the start counted from ``origin``."""
    return None if time is None else (time[0] - origin, time[1])


def _times(nodes: Sequence[Operation], host: HostOperations, timings: Timings) -> list[Time]:
    """Return (start, duration) in ns of each node.

    A gloo communication returns at once and runs on another thread; its duration is that of its
    ``gloo:*`` span. Spans and communications come in the same order.
    """
    handles = [op.rf_id for op in nodes]
    spoken = [
        at
        for at, op in enumerate(nodes)
        if op.role is Role.COMMUNICATION and op.name != "c10d::barrier"
    ]
    if len(spoken) == len(host.spans):
        for at, (_, _, handle) in zip(spoken, host.spans, strict=True):
            handles[at] = handle if handle in timings.of else handles[at]
    return [timings.of.get(handle) for handle in handles]


def _spec(
    at: int,
    op: Operation,
    parents: tuple[tuple[int, ...], tuple[int, ...]],
    time: Time,
    groups: ProcessGroups,
) -> NodeSpec:
    """Return the Chakra node of one operation."""
    attributes = [
        Attribute("is_cpu_op", Wire.BOOL, False),
        *_tensor_attributes(op),
    ]
    if time is not None:
        attributes.append(Attribute("duration_ns", Wire.INT64, time[1]))
    known = COMMUNICATION.get(op.name)
    if known is not None:
        attributes.extend(_communication_attributes(op, known, groups))
    start, duration = time or (0, 0)
    return NodeSpec(
        id=at,
        name=op.name if known is None else known.name,
        type=NodeType.COMP if known is None else known.type,
        data_deps=parents[0],
        ctrl_deps=parents[1],
        start_us=max(start, 0) // 1000,
        duration_us=(duration + 500) // 1000,
        attributes=tuple(attributes),
    )


def _tensor_attributes(op: Operation) -> list[Attribute]:
    """Return what an operation's tensors say: device, dtype, operations, bytes."""
    tensors = (*op.arguments, *op.results)
    main = op.results[0] if op.results else max(tensors, key=_size, default=None)
    moved = sum(map(_size, dict.fromkeys(op.reads))) + sum(map(_size, dict.fromkeys(op.writes)))
    flops = 0 if op.role is Role.COMMUNICATION else _operation_count(op)
    return [
        Attribute("device", Wire.STRING, "cpu" if main is None else main.device),
        Attribute("dtype", Wire.STRING, UNKNOWN_DTYPE if main is None else main.dtype),
        Attribute("num_ops", Wire.INT64, flops),
        Attribute("tensor_size", Wire.UINT64, moved),
    ]


def _operation_count(op: Operation) -> int:
    """Return the floating-point operations of a compute operation."""
    return min(operation_count(op.name, op.arguments, op.results or op.writes), 2**63 - 1)


def _size(tensor: Access) -> int:
    """Return the bytes of a tensor."""
    return tensor.num_bytes


def _communication_attributes(
    op: Operation, known: CommunicationOperator, groups: ProcessGroups
) -> list[Attribute]:
    """Return type, size, group and peer of a communication."""
    name = _group(op, known, groups) or WORLD
    size = sum(map(_size, op.arguments if known.sent >= 0 else op.results))
    attributes = [Attribute("pg_name", Wire.STRING, name)]
    if known.type is NodeType.COMM_COLL:
        kind = known.collective
        size = 0 if kind is CollectiveType.BARRIER else size
        attributes.append(Attribute("comm_type", Wire.INT64, int(kind)))
    else:
        attributes.extend(_message_attributes(op, known, groups.ranks.get(name, ())))
    attributes.append(Attribute("comm_size", Wire.INT64, size))
    return attributes


def _message_attributes(
    op: Operation, known: CommunicationOperator, members: tuple[int, ...]
) -> list[Attribute]:
    """Return peer and tag of a send or receive; the peer is a global rank."""
    values = op.values or ()
    peer, tag = (values[at] if at < len(values) else None for at in (known.peer, known.peer + 1))
    if not isinstance(peer, int) or not isinstance(tag, int):
        # recv_any_source_ knows no peer: (tensors, group, tag).
        peer, tag = -1, peer if isinstance(peer, int) else 0
    peer = members[peer] if 0 <= peer < len(members) else peer
    side = "comm_dst" if known.type is NodeType.COMM_SEND else "comm_src"
    return [Attribute(side, Wire.INT32, peer), Attribute("comm_tag", Wire.INT32, tag)]


def _group(op: Operation, known: CommunicationOperator, groups: ProcessGroups) -> str | None:
    """Return the integer name of a communication's group, None if the trace does not say."""
    told = op.extra.get("pg_name")
    if told is None and known.group >= 0 and op.values and known.group < len(op.values):
        told = op.values[known.group]
    if isinstance(told, str) and told in groups.alias:
        return groups.alias[told]
    return groups.only()


def _collectives_by_group(nodes: Sequence[Operation], groups: ProcessGroups) -> list[list[int]]:
    """Return the positions of the collectives of each group."""
    queues: dict[str, list[int]] = {}
    for at, op in enumerate(nodes):
        known = COMMUNICATION.get(op.name)
        if known is not None and known.type is NodeType.COMM_COLL:
            queues.setdefault(_group(op, known, groups) or WORLD, []).append(at)
    return list(queues.values())


def _is_guessed(op: Operation, groups: ProcessGroups) -> bool:
    """Return whether an operation communicates in a group that had to be guessed."""
    known = COMMUNICATION.get(op.name)
    return known is not None and _group(op, known, groups) is None
