"""Import a PyTorch execution trace and its profile as a Chakra trace.

A host trace becomes a trace in this order: its nodes are read (``host_trace``), those that do work
are found and depend on each other through memory and collectives (``host_dataflow``), and each
becomes a node here. With a profile, the nodes are the kernels (``device_import``), and the host
operations that launched them bring their data flow.

The two files are joined by the RecordFunction handle. Before PyTorch 2.3 a profile does not carry
it, and "External id" counts the same operators from another start and with other gaps (user scopes
count in one and not in the other), so equal numbers mean nothing: in a public Megatron-LM pair 333
of 5,422 agree in name, while following both in order joins every ATen kernel. Both files list a
thread's operators by start; where names differ, the nearest place is sought from which a few names
agree again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from layerdag.errors import TraceError, UsageError
from layerdag.hardware.collectives import PEER, CollectiveType
from layerdag.hardware.dtypes import UNKNOWN_DTYPE
from layerdag.hardware.operators import kernel_sizes, operation_count
from layerdag.runtime.notes import NoteCollector, NoteKind, merge_notes
from layerdag.traces.analysis import WORLD
from layerdag.traces.builder import NodeAppender, NodeSpec, build_trace, scalar_to_word
from layerdag.traces.pytorch.device_import import DeviceTrace, import_device
from layerdag.traces.pytorch.forward_calls import forward_calls
from layerdag.traces.pytorch.host_dataflow import (
    HostOperations,
    Operation,
    ProcessGroups,
    Ranks,
    dependencies,
    holds_memory,
    host_operations,
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
from layerdag.traces.pytorch.operators import BARRIER_BYTES, OpRole, TensorView
from layerdag.traces.trace import MAX_NUMBER, Attribute, NodeType, Trace, Wire

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

_NODE_TYPES = {"send": NodeType.COMM_SEND, "recv": NodeType.COMM_RECV}


def _add_operation(
    columns: NodeAppender,
    op: Operation,
    number: int,
    deps: tuple[Sequence[int], Sequence[int]],
    time: Time,
    groups: ProcessGroups,
) -> None:
    """Append the node of one operation. Raises TraceError if a size does not fit its attribute."""
    known = op.communication
    kind = NodeType.COMP if known is None else _NODE_TYPES.get(known.kind, NodeType.COMM_COLL)
    main = op.results[0] if op.results else max(op.arguments, key=_size, default=None)
    reads = dict.fromkeys(op.reads) if len(op.reads) > 1 else op.reads
    flops = 0 if known is not None else op.num_ops
    if flops is None:
        flops = operation_count(op.name, op.arguments, op.results or op.writes)
    columns.attribute("is_cpu_op", Wire.BOOL, 0)
    _add_text(columns, "device", "cpu" if main is None else main.device)
    _add_text(columns, "dtype", UNKNOWN_DTYPE if main is None else main.dtype)
    _add_number(columns, "num_ops", Wire.INT64, min(flops, MAX_NUMBER))
    _add_number(columns, "tensor_size", Wire.UINT64, _bytes(reads) + _bytes(op.writes))
    if op.role is OpRole.COMPUTE:
        for name, size in kernel_sizes(op.name, op.arguments, op.results or op.writes).items():
            _add_number(columns, name, Wire.INT64, size)
    start, duration = time or (0, 0)
    if time is not None:
        _add_number(columns, "duration_ns", Wire.INT64, duration)
    if known is not None:
        group = groups.of(op) or WORLD
        size = _bytes(op.arguments if known.sent >= 0 else op.results)
        _add_text(columns, "pg_name", group)
        if known.is_message:
            # The peer is a place in the group; a trace states the global rank.
            peer, tag = _ends(op)
            members = groups.ranks.get(group, ())
            peer = members[peer] if 0 <= peer < len(members) else peer
            side = "comm_dst" if kind is NodeType.COMM_SEND else "comm_src"
            _add_number(columns, side, Wire.INT32, peer)
            _add_number(columns, "comm_tag", Wire.INT32, tag)
        else:
            collective = known.type
            if collective is CollectiveType.BARRIER:
                collective, size = CollectiveType.ALL_REDUCE, BARRIER_BYTES
            _add_number(columns, "comm_type", Wire.INT64, int(collective))
        _add_number(columns, "comm_size", Wire.INT64, size)
    for name, text in op.labels:
        _add_text(columns, name, text)
    name = op.name if known is None else known.name
    times_us = (max(start, 0) // 1000, (duration + 500) // 1000)
    columns.add(number, name, kind, deps, times_us, op.io)


def _add_number(columns: NodeAppender, name: str, wire: Wire, value: int) -> None:
    small = 0 <= value < 2**31
    columns.attribute(name, wire, value if small else scalar_to_word(wire, value))


def _add_text(columns: NodeAppender, name: str, value: str) -> None:
    columns.attribute(name, Wire.STRING, columns.text(value))


def _size(tensor: TensorView) -> int:
    return tensor.num_bytes


def _bytes(tensors: Iterable[TensorView]) -> int:
    return sum([tensor.num_bytes for tensor in tensors])


def _ends(op: Operation) -> tuple[int, int]:
    """Return peer (in the group) and tag of a message; the peer is -1 where it is not known."""
    peer, tag = op.value(PEER), op.value(PEER + 1)
    if isinstance(peer, int) and isinstance(tag, int):
        return peer, tag
    # recv_any_source_ has no peer: (tensors, group, tag).
    return -1, peer if isinstance(peer, int) else 0


UNTIMED = Timings({})


@dataclass(frozen=True)
class ImportResult:
    """An imported rank.

    Attributes:
        groups: Ranks of each communicator group by its integer name; empty for one process.
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
    path: str | Path, timings: Timings = UNTIMED, *, keep_arguments: bool = False
) -> ImportResult:
    """Import one rank of a CPU run from its host trace and, if known, measured durations.

    Args:
        path: Host execution trace (JSON, plain or compressed).
        timings: Durations of the same step, joined by RecordFunction handle.
        keep_arguments: Whether the trace keeps the arguments of operators, and so its program.

    Raises:
        TraceError: If the file is not a host trace, contains no operation, or not one of its
            operations occurs in ``timings``.
    """
    host = read_host(path, keep_arguments=keep_arguments)
    return import_operations(host, timings, number_groups([host.groups]))


def read_host(path: str | Path, *, keep_arguments: bool = False) -> HostOperations:
    """Return the operations of a host trace that do work.

    Operators keep their arguments, and the forward calls are kept, if ``keep_arguments``.

    Raises:
        TraceError: If the file is not a host trace, or nothing in it computes or communicates.
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

    ``timings`` are of the same step, and empty if unknown; ``group_names`` are the integer names of
    the groups of the job (`number_groups`).

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
    collectives: dict[str, list[int]] = {}  # positions in ``nodes`` by group
    guessed = 0
    notes = NoteCollector(host.source)
    for at, op in enumerate(nodes):
        if op.communication is None:
            continue
        group = groups.of(op)
        guessed += group is None
        if not op.communication.is_message:
            collectives.setdefault(group or WORLD, []).append(at)
        elif _ends(op)[0] < 0:
            effect = "the trace does not tell the other end of the message; written as rank -1"
            notes.add(NoteKind.PEER, op.name, effect, where=f"node {op.id}")
    flow = queue_order(dependencies(host.operations), collectives.values())
    flow = transitive_reduction(flow)
    origin = min((time[0] for time in times if time is not None), default=0)
    calls = _host_calls(nodes, host.num_nodes)
    columns = NodeAppender(host.source)
    for at, (op, *deps, time) in enumerate(zip(nodes, flow.data, flow.order, times, strict=True)):
        if calls:
            columns.attribute("host_calls", Wire.INT64, calls[at])
        since = None if time is None else (time[0] - origin, time[1])
        try:
            _add_operation(columns, op, at, (deps[0], deps[1]), since, groups)
        except TraceError as error:
            raise TraceError(f"{host.source}: node {op.id} ({op.name}): {error}") from None
    trace = replace(
        columns.trace(),
        notes=merge_notes([*host.notes, *timings.notes, *notes.notes]),
        metadata=_metadata(host),
    )
    return ImportResult(trace, groups.ranks, host.num_nodes, joined / len(nodes), guessed)


def _metadata(host: HostOperations) -> tuple[Attribute, ...]:
    return () if host.forward is None else (host.forward,)


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


def import_pytorch(
    host: str | Path | None, device: str | Path | None = None, *, keep_arguments: bool = False
) -> ImportResult:
    """Import one rank from its host trace, its profile (Kineto), or both.

    ``keep_arguments`` is that of `import_host`.

    Raises:
        UsageError: If neither is given.
        TraceError: If a file is of another kind, damaged, or of an unknown version; if the two do
            not share one operator; or if a profile without device work comes without host trace.
    """
    if device is None:
        if host is None:
            raise UsageError("nothing to import: give a host trace, a profile, or both.")
        return import_host(host, keep_arguments=keep_arguments)
    profile = read_profile(device)
    if host is not None and not profile.kernels:
        result = import_host(host, read_timings(device), keep_arguments=keep_arguments)
        return replace(result, rank=profile.rank)
    found = import_device(profile)
    if host is None:
        share, shown = found.joined_fraction, replace(found, nodes=_with_shown_sizes(found))
        return ImportResult(shown.trace(), found.groups, 0, share, 0, profile.rank)
    result = _join(found, profile, read_host(host, keep_arguments=keep_arguments))
    return replace(result, rank=profile.rank)


def _join(device: DeviceTrace, profile: Profile, host: HostOperations) -> ImportResult:
    operations, kernels_of = _match(device, profile, host)
    if not kernels_of:
        raise TraceError(
            f"{host.source}: none of its operators launched one of the {device.num_kernels} "
            f"kernels of {device.source}; the two files are not of the same step. Run "
            "ExecutionTraceObserver and profiler together."
        )
    flow = dependencies(host.operations)
    nodes = list(device.nodes)
    untold, groups = dict(device.untold), dict(device.groups)
    of_host = process_groups(host.groups, number_groups([host.groups]))
    for position, kernels in kernels_of.items():
        op = operations[position]
        sources = [kernels_of.get(at, [])[-1:] for at in flow.data[position]]
        data = sorted(kernel for last in sources for kernel in last)
        longest = max(kernels, key=lambda at: nodes[at].duration_us)
        found = _communication_by_host(op, of_host, groups)
        if found is not None and longest in untold:
            del untold[longest]
            nodes[longest] = replace(
                nodes[longest],
                name=found[0],
                type=NodeType.COMM_COLL,
                attributes=nodes[longest].attributes + found[1],
            )
        for at in kernels:
            before = tuple(parent for parent in data if parent < at)
            nodes[at] = replace(
                nodes[at],
                data_deps=before,
                ctrl_deps=tuple(p for p in nodes[at].ctrl_deps if p not in before),
                attributes=_from_host(nodes[at], op, at == longest),
                io=op.io if at == longest else nodes[at].io,
            )
    device = replace(device, nodes=tuple(nodes), untold=untold)
    trace = replace(
        build_trace(nodes, metadata=_metadata(host), source=host.source),
        notes=merge_notes([*host.notes, *device.notes]),
    )
    share = sum(map(len, kernels_of.values())) / device.num_kernels
    return ImportResult(trace, groups, host.num_nodes, share, 0)


def _communication_by_host(
    op: Operation, host: ProcessGroups, groups: dict[str, Ranks]
) -> tuple[str, tuple[Attribute, ...]] | None:
    """Return name and attributes of the collective of a host operation; None if it lacks one.

    A group that only the host trace declares is added to ``groups``.
    """
    known = op.communication
    if known is None or known.is_message:
        return None
    size = _bytes(op.arguments if known.sent >= 0 else op.results)
    group = host.of(op)
    if not size or (group is None and len(groups) > 1):
        return None
    name = WORLD
    if group is not None:
        groups.setdefault(WORLD, host.ranks[WORLD])
        known_as = {members: name for name, members in groups.items()}
        name = known_as.get(host.ranks[group], str(len(groups)))
        groups[name] = host.ranks[group]
    return f"nccl::{known.kind}", (
        Attribute("comm_type", Wire.INT64, int(known.type)),
        Attribute("comm_size", Wire.INT64, size),
        Attribute("pg_name", Wire.STRING, name),
    )


def kernel_times(host: str | Path, device: str | Path) -> list[int]:
    """Return the nanoseconds of the kernels that each node of ``import_host(host)`` launched.

    ``device`` is the file of torch.profiler of the same step.

    Raises:
        TraceError: If a file is of another kind or damaged.
    """
    profile = read_profile(device)
    found = import_device(profile)
    operations, kernels_of = _match(found, profile, read_host(host))
    duration_N = found.trace().integers("duration_ns")[0]
    return [int(duration_N[kernels_of.get(at, [])].sum()) for at in range(len(operations))]


def _match(
    device: DeviceTrace, profile: Profile, host: HostOperations
) -> tuple[list[Operation], dict[int, list[int]]]:
    """Return the host operations that do work, and the ids of the kernels of each, by position.

    The operator that launched a kernel states its RecordFunction handle, or is found by its order.
    """
    operations = [op for op in host.operations if op.role is not OpRole.ALLOCATION]
    handles = {
        id(event): int(event.args[RECORD_FUNCTION])
        for event in device.operator_of.values()
        if event.args.get(RECORD_FUNCTION)
    }
    handles = handles or _handles_by_order(profile, host.source)
    at_handle = {op.rf_id: position for position, op in enumerate(operations)}
    kernels_of: dict[int, list[int]] = {}
    for node, event in device.operator_of.items():
        handle = handles.get(id(event), -1)
        passed: set[int] = set()  # a trace may give several operators one handle
        while handle not in at_handle and handle in host.inside and handle not in passed:
            passed.add(handle)
            handle = host.inside[handle]
        position = at_handle.get(handle)
        if position is not None:
            kernels_of.setdefault(position, []).append(node)
    return operations, kernels_of


def _handles_by_order(profile: Profile, host: str) -> dict[int, int]:
    """Return the RecordFunction handle of operators of a profile, by their ``id``."""
    found: list[tuple[int, int, str, int]] = []
    for block in read_host_blocks(host, lambda kind: False):
        columns = (block.nodes_N[name].tolist() for name in ("id", "tid", "kind", "rf_id"))
        found += [
            (number, tid, block.kinds[kind].name, handle)
            for number, tid, kind, handle in zip(*columns, strict=True)
            if block.kinds[kind].schema
        ]
    of_host: dict[int, list[tuple[str, int]]] = {}
    for _, tid, name, handle in sorted(found):
        of_host.setdefault(tid, []).append((name, handle))
    of_profile: dict[tuple[object, ...], list[Event]] = {}
    for event in profile.operators:
        if "::" in event.name and not event.name.startswith(("autograd::", "torch::")):
            of_profile.setdefault(event.lane, []).append(event)
    handles: dict[int, int] = {}
    for nodes, events in zip(of_host.values(), of_profile.values(), strict=False):
        pairs = align([name for name, _ in nodes], [event.name for event in events])
        handles.update((id(events[j]), nodes[i][1]) for i, j in pairs)
    return handles


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
        count = min(operation_count(event.name, reads, results), MAX_NUMBER)
        longest = max(kernels, key=lambda at: nodes[at].duration_us)
        moved = min(_bytes(reads) + _bytes(results or [max(reads, key=_size)]), MAX_NUMBER)
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
        moved = min(_bytes(dict.fromkeys(op.reads)) + _bytes(op.writes), MAX_NUMBER)
        attributes.append(Attribute("tensor_size", Wire.UINT64, moved if is_longest else 0))
        if is_longest:
            sizes = kernel_sizes(op.name, op.arguments, op.results or op.writes)
            attributes += [Attribute(name, Wire.INT64, size) for name, size in sizes.items()]
    return tuple(attributes)
