"""Import of what PyTorch wrote: a host trace, a profile, or both of the same step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from layerdag.errors import TraceError, UsageError
from layerdag.traces import Attribute, NodeType, Wire
from layerdag.traces.chakra import NodeSpec, build_trace
from layerdag.traces.pytorch._alignment import align
from layerdag.traces.pytorch._process_groups import Ranks
from layerdag.traces.pytorch.device import (
    RECORD_FUNCTION,
    DeviceTrace,
    Event,
    Profile,
    import_device,
    read_profile,
    read_timings,
)
from layerdag.traces.pytorch.host import (
    HostOperations,
    ImportResult,
    Operation,
    dependencies,
    import_host,
    read_host,
    read_host_blocks,
)
from layerdag.traces.pytorch.operators import UNKNOWN_DTYPE, OpRole, operation_count


def import_pytorch(
    host: str | Path | None,
    device: str | Path | None = None,
    group_names: Mapping[Ranks, str] | None = None,
) -> ImportResult:
    """Import one rank from its host trace, its profile, or both.

    Args:
        host: File of ExecutionTraceObserver, or None.
        device: File of torch.profiler (Kineto), or None.
        group_names: Integer name of each communicator group of the job (`number_groups` over all
            ranks); by default the groups of this rank are numbered.

    Raises:
        UsageError: If neither is given.
        TraceError: If a file is of another kind, damaged, or of an unknown version; if the two do
            not share one operator; or if a profile without device work comes without host trace.
    """
    if device is None:
        if host is None:
            raise UsageError("nothing to import: give a host trace, a profile, or both.")
        return import_host(host, group_names=group_names)
    profile = read_profile(device)
    if host is not None and not profile.kernels:
        return import_host(host, read_timings(device), group_names)
    found = import_device(profile)
    if host is None:
        return ImportResult(found.trace(), found.groups, 0, found.joined_fraction, 0)
    return _join(found, read_host(host), _handles(found, profile, host))


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
    """Give the kernels the data flow and tensors of the host operations that launched them."""
    joined = _match(device, host, handles)
    if not joined.position_of:
        raise TraceError(
            f"{host.source}: none of its operators launched one of the {device.num_kernels} "
            f"kernels of {device.source}; the two files are not of the same step. Run "
            "ExecutionTraceObserver and profiler together."
        )
    flow = dependencies(host.operations)
    nodes = list(device.nodes)
    for position, kernels in joined.kernels_of.items():
        sources = [joined.kernels_of.get(at, [])[-1:] for at in flow.data[position]]
        data = sorted(kernel for found in sources for kernel in found)
        longest = max(kernels, key=lambda at: nodes[at].duration_us)
        for at in kernels:
            before = tuple(parent for parent in data if parent < at)
            nodes[at] = replace(
                nodes[at],
                data_deps=before,
                ctrl_deps=tuple(p for p in nodes[at].ctrl_deps if p not in before),
                attributes=nodes[at].attributes
                + _from_host(nodes[at], joined.operations[position], at == longest),
            )
    return ImportResult(
        build_trace(nodes, source=host.source),
        device.groups,
        host.num_nodes,
        len(joined.position_of) / device.num_kernels,
        0,
    )


def _match(device: DeviceTrace, host: HostOperations, handles: Handles) -> _Joined:
    """Find the host operation of each kernel from the handle of the operator around its launch."""
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
    """Return the RecordFunction handle of each operator of the profile that launched a kernel."""
    stated = {
        id(event): int(event.args[RECORD_FUNCTION])
        for event in device.operator_of.values()
        if event.args.get(RECORD_FUNCTION)
    }
    return stated or _handles_by_order(profile, host)


def _handles_by_order(profile: Profile, host: str | Path) -> Handles:
    """Find the handles by following the operators of each thread in both files."""
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
    """Return (id, name, RecordFunction handle) of the operators of each thread, by id."""
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
    """Return the handle of the kept operation around a dropped one."""
    while handle in inside:
        handle = inside[handle]
    return handle


def _from_host(node: NodeSpec, op: Operation, is_longest: bool) -> tuple[Attribute, ...]:
    """Return what the host operation says about a kernel; operations count for the longest one."""
    main = op.results[0] if op.results else None
    dtype = UNKNOWN_DTYPE if main is None else main.dtype
    attributes = [Attribute("dtype", Wire.STRING, dtype)]
    if node.type == NodeType.COMP:
        count = operation_count(op.name, op.arguments, op.results or op.writes)
        attributes.append(Attribute("num_ops", Wire.INT64, count if is_longest else 0))
    return tuple(attributes)
