"""One Chakra node of one operation of a host trace: durations, tensors, communication."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from layerdag.traces import CollectiveType, NodeType, Wire
from layerdag.traces.analysis import WORLD
from layerdag.traces.chakra import NodeColumns, scalar_to_word
from layerdag.traces.pytorch import ProcessGroups
from layerdag.traces.pytorch.host._operation import Operation
from layerdag.traces.pytorch.operators import (
    COMMUNICATION,
    UNKNOWN_DTYPE,
    CommunicationOperator,
    OpRole,
    TensorView,
    operation_count,
)

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
    columns: NodeColumns, op: Operation, context: NodeContext, groups: ProcessGroups
) -> None:
    """Append the node of one operation.

    Raises:
        TraceError: If a size does not fit its attribute.
    """
    known = COMMUNICATION.get(op.name)
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
    )


def _add_number(columns: NodeColumns, name: str, wire: Wire, value: int) -> None:
    """Append a number of any size that its wire type holds."""
    small = 0 <= value < 2**31
    columns.attribute(name, wire, value if small else scalar_to_word(wire, value))


def _add_text(columns: NodeColumns, name: str, value: str) -> None:
    """Append a string."""
    columns.attribute(name, Wire.STRING, columns.text(value))


def _add_tensors(columns: NodeColumns, op: Operation) -> None:
    """Append what an operation's tensors say: device, dtype, operations, bytes."""
    main = op.results[0] if op.results else max(op.arguments, key=_size, default=None)
    reads = dict.fromkeys(op.reads) if len(op.reads) > 1 else op.reads
    flops = 0 if op.role is OpRole.COMMUNICATION else _operation_count(op)
    _add_text(columns, "device", "cpu" if main is None else main.device)
    _add_text(columns, "dtype", UNKNOWN_DTYPE if main is None else main.dtype)
    _add_number(columns, "num_ops", Wire.INT64, flops)
    _add_number(columns, "tensor_size", Wire.UINT64, _bytes(reads) + _bytes(op.writes))


def _operation_count(op: Operation) -> int:
    """Return the floating-point operations of a compute operation."""
    if op.num_ops is not None:
        return op.num_ops
    return min(operation_count(op.name, op.arguments, op.results or op.writes), 2**63 - 1)


def _size(tensor: TensorView) -> int:
    """Return the bytes of a tensor."""
    return tensor.num_bytes


def _bytes(tensors: Iterable[TensorView]) -> int:
    """Return the bytes of some tensors."""
    return sum([tensor.num_bytes for tensor in tensors])


def _add_communication(
    columns: NodeColumns, op: Operation, known: CommunicationOperator, groups: ProcessGroups
) -> None:
    """Append type, size, group and peer of a communication."""
    name = group_of(op, known, groups) or WORLD
    size = _bytes(op.arguments if known.sent >= 0 else op.results)
    _add_text(columns, "pg_name", name)
    if known.type is NodeType.COMM_COLL:
        kind = known.collective
        size = 0 if kind is CollectiveType.BARRIER else size
        _add_number(columns, "comm_type", Wire.INT64, int(kind))
    else:
        _add_message(columns, op, known, groups.ranks.get(name, ()))
    _add_number(columns, "comm_size", Wire.INT64, size)


def _add_message(
    columns: NodeColumns, op: Operation, known: CommunicationOperator, members: tuple[int, ...]
) -> None:
    """Append peer and tag of a send or receive; the peer is a global rank."""
    values = op.values or ()
    peer, tag = (values[at] if at < len(values) else None for at in (known.peer, known.peer + 1))
    if not isinstance(peer, int) or not isinstance(tag, int):
        # recv_any_source_ has no peer: (tensors, group, tag).
        peer, tag = -1, peer if isinstance(peer, int) else 0
    peer = members[peer] if 0 <= peer < len(members) else peer
    side = "comm_dst" if known.type is NodeType.COMM_SEND else "comm_src"
    _add_number(columns, side, Wire.INT32, peer)
    _add_number(columns, "comm_tag", Wire.INT32, tag)


def group_of(op: Operation, known: CommunicationOperator, groups: ProcessGroups) -> str | None:
    """Return the integer name of a communication's group, None if the trace does not say."""
    group_name: Any = op.group
    if group_name is None and known.group >= 0 and op.values and known.group < len(op.values):
        group_name = op.values[known.group]
    if isinstance(group_name, str) and group_name in groups.alias:
        return groups.alias[group_name]
    return groups.only()
