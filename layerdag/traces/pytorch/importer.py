"""Import a PyTorch execution trace and its profile as a Chakra trace.

Joining a host trace and a profile that share no id, by the order and names of operators.

Before PyTorch 2.3 a profile does not carry the RecordFunction handle. "External id" counts the same
operators, but from another start and with other gaps (user scopes count in one and not in the
other), so equal numbers mean nothing: in a public Megatron-LM pair 333 of 5,422 agree in name,
while following both in order joins every ATen kernel. Both files list a thread's operators by
start; where names differ, the nearest place is sought from which a few names agree again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from layerdag.errors import TraceError, UsageError
from layerdag.hardware.collectives import CollectiveType
from layerdag.hardware.dtypes import UNKNOWN_DTYPE
from layerdag.hardware.operators import kernel_sizes, operation_count
from layerdag.runtime.notes import NoteCollector, NoteKind, merge_notes
from layerdag.traces.analysis import WORLD
from layerdag.traces.builder import NodeAppender, NodeSpec, build_trace, scalar_to_word
from layerdag.traces.pytorch.device_import import DeviceTrace, import_device
from layerdag.traces.pytorch.forward_calls import forward_calls
from layerdag.traces.pytorch.host_dataflow import (
    Dependencies,
    HostOperations,
    Operation,
    ProcessGroups,
    Ranks,
    dependencies,
    holds_memory,
    host_operations,
    listed_ranks,
    number_groups,
    process_groups,
    queue_order,
    transitive_reduction,
)
from layerdag.traces.pytorch.host_trace import read_host_blocks
from layerdag.traces.pytorch.kernel_communication import shown_tensors
from layerdag.traces.pytorch.kernel_shapes import shown_results
from layerdag.traces.pytorch.kineto import (
    RECORD_FUNCTION,
    Event,
    Profile,
    Timings,
    read_profile,
    read_timings,
)
from layerdag.traces.pytorch.operators import (
    BARRIER_BYTES,
    COMMUNICATION_OPERATORS,
    CommunicationOperator,
    OpRole,
    TensorView,
)
from layerdag.traces.trace import Attribute, NodeType, Trace, Wire

WINDOW = 60
RUN = 3


def align(left: Sequence[str], right: Sequence[str]) -> list[tuple[int, int]]:
    """Return pairs of positions with equal names, ascending in both.

    The cost is linear where the sequences agree and WINDOW**2 at each place where they do not.
    """
    pairs = []
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i] == right[j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
            continue
        i, j = _resume(left, right, i, j)
    return pairs


def _resume(left: Sequence[str], right: Sequence[str], i: int, j: int) -> tuple[int, int]:
    """Return the nearest positions from which both agree again; the ends if there are none."""
    for total in range(1, WINDOW):
        for skip in range(total + 1):
            a, b = i + skip, j + total - skip
            ahead = left[a : a + RUN]
            if ahead and list(ahead) == list(right[b : b + RUN]):
                return a, b
    # Nothing near: leave out a stretch of both.
    return i + WINDOW // 2, j + WINDOW // 2


Time = tuple[int, int] | None
"""Start and duration in nanoseconds, None where nothing was measured."""


@dataclass(frozen=True, slots=True)
class NodeContext:
    """Where an operation stands in the graph.

    Attributes:
        id: Its position among the nodes.
        data_deps: Positions of the nodes whose results it uses.
        ctrl_deps: Positions of the other nodes that it waits for.
        time: When it ran.
    """

    id: int
    data_deps: tuple[int, ...]
    ctrl_deps: tuple[int, ...]
    time: Time


def add_operation(
    columns: NodeAppender, op: Operation, context: NodeContext, groups: ProcessGroups
) -> None:
    """Append the node of one operation.

    Raises:
        TraceError: If a size does not fit its attribute.
    """
    known = COMMUNICATION_OPERATORS.get(op.name)
    columns.attribute("is_cpu_op", Wire.BOOL, 0)
    _add_tensors(columns, op)
    start, duration = context.time or (0, 0)
    if context.time is not None:
        _add_number(columns, "duration_ns", Wire.INT64, duration)
    if known is not None:
        _add_communication(columns, op, known, groups)
    for name, text in op.labels:
        _add_text(columns, name, text)
    columns.add(
        context.id,
        op.name if known is None else known.name,
        NodeType.COMP if known is None else known.type,
        (context.data_deps, context.ctrl_deps),
        (max(start, 0) // 1000, (duration + 500) // 1000),
        op.io,
    )


def _add_number(columns: NodeAppender, name: str, wire: Wire, value: int) -> None:
    small = 0 <= value < 2**31
    columns.attribute(name, wire, value if small else scalar_to_word(wire, value))


def _add_text(columns: NodeAppender, name: str, value: str) -> None:
    columns.attribute(name, Wire.STRING, columns.text(value))


def _add_tensors(columns: NodeAppender, op: Operation) -> None:
    main = op.results[0] if op.results else max(op.arguments, key=_size, default=None)
    reads = dict.fromkeys(op.reads) if len(op.reads) > 1 else op.reads
    flops = 0 if op.role is OpRole.COMMUNICATION else _operation_count(op)
    _add_text(columns, "device", "cpu" if main is None else main.device)
    _add_text(columns, "dtype", UNKNOWN_DTYPE if main is None else main.dtype)
    _add_number(columns, "num_ops", Wire.INT64, flops)
    _add_number(columns, "tensor_size", Wire.UINT64, _bytes(reads) + _bytes(op.writes))
    if op.role is OpRole.COMPUTE:
        for name, size in kernel_sizes(op.name, op.arguments, op.results or op.writes).items():
            _add_number(columns, name, Wire.INT64, size)


def _operation_count(op: Operation) -> int:
    if op.num_ops is not None:
        return op.num_ops
    return min(operation_count(op.name, op.arguments, op.results or op.writes), 2**63 - 1)


def _size(tensor: TensorView) -> int:
    return tensor.num_bytes


def _bytes(tensors: Iterable[TensorView]) -> int:
    return sum([tensor.num_bytes for tensor in tensors])


def _add_communication(
    columns: NodeAppender, op: Operation, known: CommunicationOperator, groups: ProcessGroups
) -> None:
    name = group_of(op, known, groups) or WORLD
    size = _bytes(op.arguments if known.sent >= 0 else op.results)
    _add_text(columns, "pg_name", name)
    if known.type is NodeType.COMM_COLL:
        kind = known.collective
        if kind is CollectiveType.BARRIER:
            kind, size = CollectiveType.ALL_REDUCE, BARRIER_BYTES
        _add_number(columns, "comm_type", Wire.INT64, int(kind))
    else:
        _add_message(columns, op, known, groups.ranks.get(name, ()))
    _add_number(columns, "comm_size", Wire.INT64, size)


def _add_message(
    columns: NodeAppender, op: Operation, known: CommunicationOperator, members: tuple[int, ...]
) -> None:
    """Append peer and tag of a send or receive; the peer is a global rank."""
    peer, tag = _ends(op, known)
    peer = members[peer] if 0 <= peer < len(members) else peer
    side = "comm_dst" if known.type is NodeType.COMM_SEND else "comm_src"
    _add_number(columns, side, Wire.INT32, peer)
    _add_number(columns, "comm_tag", Wire.INT32, tag)


def _ends(op: Operation, known: CommunicationOperator) -> tuple[int, int]:
    """Return peer (in the group) and tag of a message; the peer is -1 where it is not told."""
    values = op.values or ()
    peer, tag = (values[at] if at < len(values) else None for at in (known.peer, known.peer + 1))
    if isinstance(peer, int) and isinstance(tag, int):
        return peer, tag
    # recv_any_source_ has no peer: (tensors, group, tag).
    return -1, peer if isinstance(peer, int) else 0


def group_of(op: Operation, known: CommunicationOperator, groups: ProcessGroups) -> str | None:
    """Return the integer name of a communication's group, None if the trace does not say."""
    group_name: Any = op.group
    if group_name is None and known.group >= 0 and op.values and known.group < len(op.values):
        group_name = op.values[known.group]
    if isinstance(group_name, list):
        group_name = str(listed_ranks(op, known))
    if isinstance(group_name, str) and group_name in groups.alias:
        return groups.alias[group_name]
    return groups.only()


UNTIMED = Timings({})


@dataclass(frozen=True)
class ImportResult:
    """An imported rank.

    Attributes:
        trace: The data-flow graph as a Chakra trace.
        groups: Ranks of each communicator group by its integer name; empty for one process.
        num_host_nodes: Nodes of the host trace.
        joined_fraction: Fraction of the trace's nodes with a measured duration, 0 without a device
            file.
        guessed_groups: Communication nodes whose group the trace does not name; they were given
            to the world.
        rank: The rank that the files themselves state, None if they do not.
    """

    trace: Trace
    groups: Mapping[str, tuple[int, ...]]
    num_host_nodes: int
    joined_fraction: float
    guessed_groups: int
    rank: int | None = None


def import_host(
    path: str | Path,
    timings: Timings = UNTIMED,
    group_names: Mapping[Ranks, str] | None = None,
    *,
    keep_arguments: bool = False,
) -> ImportResult:
    """Import one rank of a CPU run from its host trace and, if known, measured durations.

    Args:
        path: Host execution trace (JSON, plain or compressed).
        timings: Durations of the same step, joined by RecordFunction handle.
        group_names: Integer name of each communicator group of the job (`number_groups` over all
            ranks); by default the groups of this rank are numbered.
        keep_arguments: Whether the trace keeps the arguments of operators, and so its program.

    Raises:
        TraceError: If the file is no host trace, contains no operation, or not one of its
            operations occurs in ``timings``.
    """
    host = read_host(path, keep_arguments=keep_arguments)
    names = number_groups([host.groups]) if group_names is None else group_names
    return import_operations(host, timings, names)


def read_host(path: str | Path, *, keep_arguments: bool = False) -> HostOperations:
    """Return the operations of a host trace that do work.

    Args:
        path: Host execution trace.
        keep_arguments: Whether to keep the arguments of operators and the forward calls.

    Raises:
        TraceError: If the file is no host trace, or nothing in it computes or communicates.
    """
    blocks = read_host_blocks(path, holds_memory)
    host = host_operations(blocks, str(path), keep_arguments=keep_arguments)
    if all(op.role is OpRole.ALLOCATION for op in host.operations):
        raise TraceError(
            f"{path}: none of the {host.num_nodes} nodes is an operator that computes or "
            "communicates; trace a step that does some work."
        )
    return replace(host, forward=forward_calls(path)) if keep_arguments else host


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
    nodes = [op for op in host.operations if op.role is not OpRole.ALLOCATION]
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
    found = transitive_reduction(queue_order(dependencies(host.operations), queues))
    origin = min((time[0] for time in times if time is not None), default=0)
    calls = _host_calls(nodes, host.num_nodes)
    timed = [_since(time, origin) for time in times]
    trace = _trace(nodes, found, timed, calls, groups, host.source)
    notes = NoteCollector(host.source)
    for op in nodes:
        known = COMMUNICATION_OPERATORS.get(op.name)
        if known is not None and known.type is not NodeType.COMM_COLL and _ends(op, known)[0] < 0:
            effect = "the trace does not tell the other end of the message; written as rank -1"
            notes.add(NoteKind.PEER, op.name, effect, where=f"node {op.id}")
    return ImportResult(
        replace(
            trace,
            notes=merge_notes([*host.notes, *timings.notes, *notes.notes]),
            metadata=_metadata(host),
        ),
        groups.ranks,
        host.num_nodes,
        joined / len(nodes),
        sum(_is_guessed(op, groups) for op in nodes),
    )


def _metadata(host: HostOperations) -> tuple[Attribute, ...]:
    return () if host.forward is None else (host.forward,)


def _trace(
    nodes: Sequence[Operation],
    found: Dependencies,
    times: Sequence[Time],
    calls: Sequence[int],
    groups: ProcessGroups,
    source: str,
) -> Trace:
    columns = NodeAppender(source)
    for at, (op, data, order, time) in enumerate(
        zip(nodes, found.data, found.order, times, strict=True)
    ):
        if calls:
            columns.attribute("host_calls", Wire.INT64, calls[at])
        try:
            add_operation(columns, op, NodeContext(at, data, order, time), groups)
        except TraceError as error:
            raise TraceError(f"{source}: node {op.id} ({op.name}): {error}") from None
    return columns.trace()


def _host_calls(nodes: Sequence[Operation], num_host_nodes: int) -> list[int]:
    """Return how many operators and autograd functions the host entered for each operation.

    Ids of a host trace count entries, so that those from one operation to the next are what the
    host did for the first: its own parts, then wrappers, views and allocations. Traces that were
    not observed (a captured step) have no such ids.
    """
    ids = np.array([op.id for op in nodes])
    if num_host_nodes <= len(nodes):
        return []
    order = np.argsort(ids, kind="stable")
    last = max(int(ids.max()) + 1, num_host_nodes)
    counts = np.empty(len(ids), dtype=np.int64)
    counts[order] = np.diff(ids[order], append=last)
    counts[order[0]] += ids[order[0]]
    return np.clip(counts, 0, 2**20).tolist()


def _since(time: Time, origin: int) -> Time:
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
        if op.role is OpRole.COMMUNICATION and op.name != "c10d::barrier"
    ]
    if len(spoken) == len(host.spans):
        for at, (_, _, handle) in zip(spoken, host.spans, strict=True):
            handles[at] = handle if handle in timings.of else handles[at]
    return [timings.of.get(handle) for handle in handles]


def _collectives_by_group(nodes: Sequence[Operation], groups: ProcessGroups) -> list[list[int]]:
    queues: dict[str, list[int]] = {}
    for at, op in enumerate(nodes):
        known = COMMUNICATION_OPERATORS.get(op.name)
        if known is not None and known.type is NodeType.COMM_COLL:
            queues.setdefault(group_of(op, known, groups) or WORLD, []).append(at)
    return list(queues.values())


def _is_guessed(op: Operation, groups: ProcessGroups) -> bool:
    known = COMMUNICATION_OPERATORS.get(op.name)
    return known is not None and group_of(op, known, groups) is None


def import_pytorch(
    host: str | Path | None,
    device: str | Path | None = None,
    group_names: Mapping[Ranks, str] | None = None,
    *,
    keep_arguments: bool = False,
) -> ImportResult:
    """Import one rank from its host trace, its profile, or both.

    Args:
        host: File of ExecutionTraceObserver, or None.
        device: File of torch.profiler (Kineto), or None.
        group_names: Integer name of each communicator group of the job (`number_groups` over all
            ranks); by default the groups of this rank are numbered.
        keep_arguments: As in `import_host`.

    Raises:
        UsageError: If neither is given.
        TraceError: If a file is of another kind, damaged, or of an unknown version; if the two do
            not share one operator; or if a profile without device work comes without host trace.
    """
    if device is None:
        if host is None:
            raise UsageError("nothing to import: give a host trace, a profile, or both.")
        return import_host(host, group_names=group_names, keep_arguments=keep_arguments)
    profile = read_profile(device)
    if host is not None and not profile.kernels:
        timings = read_timings(device)
        result = import_host(host, timings, group_names, keep_arguments=keep_arguments)
        return replace(result, rank=profile.rank)
    found = import_device(profile)
    if host is None:
        share, shown = found.joined_fraction, replace(found, nodes=_with_shown_sizes(found))
        return ImportResult(shown.trace(), found.groups, 0, share, 0, profile.rank)
    operations = read_host(host, keep_arguments=keep_arguments)
    result = _join(found, operations, _handles(found, profile, host))
    return replace(result, rank=profile.rank)


Handles = Mapping[int, int]
"""Identity of an operator of the profile -> RecordFunction handle of the host trace."""


@dataclass(frozen=True)
class _Joined:
    """Which host operation each kernel belongs to.

    Attributes:
        operations: The host operations that do work.
        position_of: Node id of a kernel -> position of its operation.
        kernels_of: Position of an operation -> node ids of its kernels, ascending.
    """

    operations: Sequence[Operation]
    position_of: Mapping[int, int]
    kernels_of: Mapping[int, list[int]]


def _join(device: DeviceTrace, host: HostOperations, handles: Handles) -> ImportResult:
    joined = _match(device, host, handles)
    if not joined.position_of:
        raise TraceError(
            f"{host.source}: none of its operators launched one of the {device.num_kernels} "
            f"kernels of {device.source}; the two files are not of the same step. Run "
            "ExecutionTraceObserver and profiler together."
        )
    flow = dependencies(host.operations)
    nodes = list(device.nodes)
    untold, groups = dict(device.untold), dict(device.groups)
    of_host = process_groups(host.groups, number_groups([host.groups]))
    for position, kernels in joined.kernels_of.items():
        sources = [joined.kernels_of.get(at, [])[-1:] for at in flow.data[position]]
        data = sorted(kernel for found in sources for kernel in found)
        longest = max(kernels, key=lambda at: nodes[at].duration_us)
        told = _told_by_host(joined.operations[position], of_host, groups)
        if told is not None and longest in untold:
            del untold[longest]
            nodes[longest] = replace(
                nodes[longest],
                name=told.name,
                type=told.type,
                attributes=nodes[longest].attributes + told.attributes,
            )
        for at in kernels:
            before = tuple(parent for parent in data if parent < at)
            nodes[at] = replace(
                nodes[at],
                data_deps=before,
                ctrl_deps=tuple(p for p in nodes[at].ctrl_deps if p not in before),
                attributes=_from_host(nodes[at], joined.operations[position], at == longest),
                io=joined.operations[position].io if at == longest else nodes[at].io,
            )
    device = replace(device, nodes=tuple(nodes), untold=untold)
    notes = merge_notes([*host.notes, *device.notes])
    return ImportResult(
        replace(build_trace(nodes, metadata=_metadata(host), source=host.source), notes=notes),
        groups,
        host.num_nodes,
        len(joined.position_of) / device.num_kernels,
        0,
    )


@dataclass(frozen=True)
class _ToldCommunication:
    name: str
    type: NodeType
    attributes: tuple[Attribute, ...]


def _told_by_host(
    op: Operation, host: ProcessGroups, groups: dict[str, Ranks]
) -> _ToldCommunication | None:
    """Return collective, size and group of a host operation; None if it does not tell them all.

    A group that only the host trace declares is added to ``groups``.
    """
    known = COMMUNICATION_OPERATORS.get(op.name)
    if known is None or known.type is not NodeType.COMM_COLL:
        return None
    size = _bytes(op.arguments if known.sent >= 0 else op.results)
    group = group_of(op, known, host)
    if not size or (group is None and len(groups) > 1):
        return None
    name = WORLD if group is None else _name_in(groups, host.ranks[group], host.ranks[WORLD])
    return _ToldCommunication(
        f"nccl::{known.collective.name.lower()}",
        known.type,
        (
            Attribute("comm_type", Wire.INT64, int(known.collective)),
            Attribute("comm_size", Wire.INT64, size),
            Attribute("pg_name", Wire.STRING, name),
        ),
    )


def _name_in(groups: dict[str, Ranks], ranks: Ranks, world: Ranks) -> str:
    groups.setdefault(WORLD, world)
    known = {members: name for name, members in groups.items()}
    if ranks not in known:
        known[ranks] = str(len(groups))
        groups[known[ranks]] = ranks
    return known[ranks]


def kernel_times(host: str | Path, device: str | Path) -> list[int]:
    """Return the nanoseconds of the kernels that each node of ``import_host(host)`` launched.

    Args:
        host: File of ExecutionTraceObserver.
        device: File of torch.profiler of the same step.

    Raises:
        TraceError: If a file is of another kind or damaged.
    """
    profile = read_profile(device)
    found = import_device(profile)
    joined = _match(found, read_host(host), _handles(found, profile, host))
    times = [0] * len(joined.operations)
    duration_N = found.trace().integers("duration_ns")[0].tolist()
    for node, position in joined.position_of.items():
        times[position] += duration_N[node]
    return times


def _match(device: DeviceTrace, host: HostOperations, handles: Handles) -> _Joined:
    operations = [op for op in host.operations if op.role is not OpRole.ALLOCATION]
    at_handle = {op.rf_id: position for position, op in enumerate(operations)}
    position_of: dict[int, int] = {}
    kernels_of: dict[int, list[int]] = {}
    for node, event in device.operator_of.items():
        handle = handles.get(id(event), -1)
        position = at_handle.get(handle, at_handle.get(_outermost(handle, host.inside), -1))
        if position >= 0:
            position_of[node] = position
            kernels_of.setdefault(position, []).append(node)
    return _Joined(operations, position_of, kernels_of)


def _handles(device: DeviceTrace, profile: Profile, host: str | Path) -> Handles:
    stated = {
        id(event): int(event.args[RECORD_FUNCTION])
        for event in device.operator_of.values()
        if event.args.get(RECORD_FUNCTION)
    }
    return stated or _handles_by_order(profile, host)


def _handles_by_order(profile: Profile, host: str | Path) -> Handles:
    of_host = _operators_of_threads(host)
    of_profile: dict[tuple[object, ...], list[Event]] = {}
    for event in profile.operators:
        if "::" in event.name and not event.name.startswith(("autograd::", "torch::")):
            of_profile.setdefault(event.lane, []).append(event)
    handles: dict[int, int] = {}
    for nodes, events in zip(of_host.values(), of_profile.values(), strict=False):
        pairs = align([name for _, name, _ in nodes], [event.name for event in events])
        handles.update((id(events[j]), nodes[i][2]) for i, j in pairs)
    return handles


def _operators_of_threads(host: str | Path) -> dict[int, list[tuple[int, str, int]]]:
    found: list[tuple[int, int, str, int]] = []
    for block in read_host_blocks(host, lambda kind: False):
        columns = (block.nodes_N[name].tolist() for name in ("id", "tid", "kind", "rf_id"))
        found += [
            (number, tid, block.kinds[kind].name, handle)
            for number, tid, kind, handle in zip(*columns, strict=True)
            if block.kinds[kind].schema
        ]
    of_thread: dict[int, list[tuple[int, str, int]]] = {}
    for number, tid, name, handle in sorted(found):
        of_thread.setdefault(tid, []).append((number, name, handle))
    return of_thread


def _outermost(handle: int, inside: Mapping[int, int]) -> int:
    while handle in inside:
        handle = inside[handle]
    return handle


def _with_shown_sizes(device: DeviceTrace) -> tuple[NodeSpec, ...]:
    """Return the nodes of a profile with what the shapes of operators' arguments say of kernels.

    As in a joined trace it stands at the longest kernel of an operator, and others have 0
    operations and bytes. A profile shows no results: those that do not follow from the arguments
    (``layerdag.traces.pytorch.kernel_shapes``) are taken to be as large as the largest of these.
    """
    nodes = list(device.nodes)
    kernels_of: dict[int, list[int]] = {}
    for node, event in device.operator_of.items():
        if nodes[node].type == NodeType.COMP:
            kernels_of.setdefault(id(event), []).append(node)
    for kernels in kernels_of.values():
        event = device.operator_of[kernels[0]]
        reads = shown_tensors(event.args)
        if not reads:
            continue
        results = shown_results(event.name, event.args, reads)
        sizes = kernel_sizes(event.name, reads, results)
        count = min(operation_count(event.name, reads, results), 2**63 - 1)
        longest = max(kernels, key=lambda at: nodes[at].duration_us)
        moved = min(_bytes(reads) + _bytes(results or [max(reads, key=_size)]), 2**63 - 1)
        for at in kernels:
            numbers = {"num_ops": count, **sizes} if at == longest else {"num_ops": 0}
            told = [each for each in nodes[at].attributes if each.name != "tensor_size"]
            told += [Attribute(name, Wire.INT64, value) for name, value in numbers.items()]
            told.append(Attribute("tensor_size", Wire.UINT64, moved if at == longest else 0))
            told.append(Attribute("dtype", Wire.STRING, reads[0].dtype))
            nodes[at] = replace(nodes[at], attributes=tuple(told))
    return tuple(nodes)


def _from_host(node: NodeSpec, op: Operation, is_longest: bool) -> tuple[Attribute, ...]:
    """Return the attributes of a kernel with what the host operation says about it.

    Operations and bytes count for the longest one. A profile alone knows no results.
    """
    main = op.results[0] if op.results else None
    dtype = UNKNOWN_DTYPE if main is None else main.dtype
    attributes = [*node.attributes, Attribute("dtype", Wire.STRING, dtype)]
    if node.type == NodeType.COMP:
        attributes = [each for each in attributes if each.name != "tensor_size"]
        count = operation_count(op.name, op.arguments, op.results or op.writes)
        attributes.append(Attribute("num_ops", Wire.INT64, count if is_longest else 0))
        moved = min(_bytes(dict.fromkeys(op.reads)) + _bytes(op.writes), 2**63 - 1)
        attributes.append(Attribute("tensor_size", Wire.UINT64, moved if is_longest else 0))
        if is_longest:
            sizes = kernel_sizes(op.name, op.arguments, op.results or op.writes)
            attributes += [Attribute(name, Wire.INT64, size) for name, size in sizes.items()]
    return tuple(attributes)
