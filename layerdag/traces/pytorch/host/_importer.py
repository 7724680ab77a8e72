"""Import of PyTorch traces: host trace and measured durations in, Chakra data-flow trace out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from layerdag.errors import TraceError
from layerdag.traces import NodeType, Trace
from layerdag.traces.analysis import WORLD
from layerdag.traces.chakra import NodeColumns
from layerdag.traces.pytorch import ProcessGroups, Ranks, number_groups, process_groups
from layerdag.traces.pytorch.device import Timings
from layerdag.traces.pytorch.host._dataflow import (
    Dependencies,
    dependencies,
    in_turn,
    transitive_reduction,
)
from layerdag.traces.pytorch.host._files import read_host_blocks
from layerdag.traces.pytorch.host._nodes import NodeContext, Time, add_operation, group_of
from layerdag.traces.pytorch.host._operation import Operation
from layerdag.traces.pytorch.host._operations import HostOperations, holds_memory, host_operations
from layerdag.traces.pytorch.operators import COMMUNICATION, OpRole

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
    """

    trace: Trace
    groups: Mapping[str, tuple[int, ...]]
    num_host_nodes: int
    joined_fraction: float
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
    return host_operations(read_host_blocks(path, holds_memory), str(path)).groups


def read_host(path: str | Path) -> HostOperations:
    """Return the operations of a host trace that do work.

    Raises:
        TraceError: If the file is no host trace, or nothing in it computes or communicates.
    """
    host = host_operations(read_host_blocks(path, holds_memory), str(path))
    if all(op.role is OpRole.ALLOCATION for op in host.operations):
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
    found = transitive_reduction(in_turn(dependencies(host.operations), queues))
    origin = min((time[0] for time in times if time is not None), default=0)
    return ImportResult(
        _trace(nodes, found, [_since(time, origin) for time in times], groups, host.source),
        groups.ranks,
        host.num_nodes,
        joined / len(nodes),
        sum(_is_guessed(op, groups) for op in nodes),
    )


def _trace(
    nodes: Sequence[Operation],
    found: Dependencies,
    times: Sequence[Time],
    groups: ProcessGroups,
    source: str,
) -> Trace:
    """Return the operations as a Chakra trace."""
    columns = NodeColumns(source)
    for at, (op, data, order, time) in enumerate(
        zip(nodes, found.data, found.order, times, strict=True)
    ):
        try:
            add_operation(columns, op, NodeContext(at, data, order, time), groups)
        except TraceError as error:
            raise TraceError(f"{source}: node {op.id} ({op.name}): {error}") from None
    return columns.trace()


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
        if op.role is OpRole.COMMUNICATION and op.name != "c10d::barrier"
    ]
    if len(spoken) == len(host.spans):
        for at, (_, _, handle) in zip(spoken, host.spans, strict=True):
            handles[at] = handle if handle in timings.of else handles[at]
    return [timings.of.get(handle) for handle in handles]


def _collectives_by_group(nodes: Sequence[Operation], groups: ProcessGroups) -> list[list[int]]:
    """Return the positions of the collectives of each group."""
    queues: dict[str, list[int]] = {}
    for at, op in enumerate(nodes):
        known = COMMUNICATION.get(op.name)
        if known is not None and known.type is NodeType.COMM_COLL:
            queues.setdefault(group_of(op, known, groups) or WORLD, []).append(at)
    return list(queues.values())


def _is_guessed(op: Operation, groups: ProcessGroups) -> bool:
    """Return whether an operation communicates in a group that had to be guessed."""
    known = COMMUNICATION.get(op.name)
    return known is not None and group_of(op, known, groups) is None
