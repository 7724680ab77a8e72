"""Bring a trace into the form that both Chakra feeders and ASTRA-sim accept, or say why not.

Feeder v1 (mlcommons/chakra) reads each well-known attribute from exactly one alternative of the
oneof and silently takes 0 from any other; feeder v3 (ASTRA-sim) accepts every integer type, but
throws on floats and on missing values. Values keep; only their wire types change.
"""

from dataclasses import replace

import numpy as np

from layerdag.errors import TraceError
from layerdag.graph import expand_ranges, pointers
from layerdag.traces import AttributeTable, NodeType, Ragged, Trace, Wire, trace_layers, wire_name
from layerdag.traces.chakra._builder import ragged

FEEDER_WIRES = {
    "is_cpu_op": Wire.BOOL,
    "comm_type": Wire.INT64,
    "comm_size": Wire.INT64,
    "num_ops": Wire.INT64,
    "tensor_size": Wire.UINT64,
    "comm_src": Wire.INT32,
    "comm_dst": Wire.INT32,
    "comm_tag": Wire.INT32,
    "comm_priority": Wire.INT32,
}
"""The one wire type from which feeder v1 reads each attribute; any other reads as 0."""

_BOUNDS = {
    Wire.BOOL: (0, 1),
    Wire.INT32: (-(2**31), 2**31 - 1),
    Wire.INT64: (-(2**63), 2**63 - 1),
}
_UNSIGNED = (Wire.UINT64, Wire.FIXED64)
REQUIRED_ATTRIBUTES = {
    NodeType.COMM_COLL: ("comm_type", "comm_size"),
    NodeType.COMM_SEND: ("comm_dst", "comm_tag", "comm_size"),
    NodeType.COMM_RECV: ("comm_src", "comm_tag", "comm_size"),
    NodeType.MEM_LOAD: ("tensor_size",),
    NodeType.MEM_STORE: ("tensor_size",),
}
"""Attributes without which ASTRA-sim aborts."""


START_BYTES = 2**14
"""Bytes that a device or link of up to 16 TB/s moves in 1 ns or more. ASTRA-sim rounds times down
and aborts where a node takes 0 ns at tick 0."""

START_OPS = 2**24
"""Operations that a device of up to 16 PFLOPS does in 1 ns or more; see ``START_BYTES``."""


def normalize(trace: Trace) -> Trace:
    """Return the trace as feeders v1 and v3 read it without loss or abort.

    Well-known attributes get the wire type that feeder v1 reads. Communication is marked as not on
    the CPU. METADATA and INVALID nodes, on which ASTRA-sim stops, are taken out; what waited for
    them waits for what they waited for.

    Raises:
        TraceError: If ids repeat, dependencies dangle or form a cycle, or a communication lacks a
            value that ASTRA-sim requires; names the node.
    """
    trace = without_nodes(trace, trace.type_N <= NodeType.METADATA)
    trace_layers(trace)
    for name, wire in FEEDER_WIRES.items():
        trace = retyped(trace, name, wire)
    trace = off_the_cpu(trace)
    for kind, names in REQUIRED_ATTRIBUTES.items():
        for name in names:
            _require_attribute(trace, kind, name)
    _check_groups(trace)
    return trace


def _rows(trace: Trace, name: str) -> np.ndarray:
    """Return the attribute rows with the given name."""
    if name not in trace.strings:
        return np.zeros(0, np.int64)
    return np.flatnonzero(trace.attributes.name_A == trace.strings.index(name))


def _node_id(trace: Trace, row: int) -> int:
    """Return the id of the node that attribute ``row`` belongs to."""
    return int(trace.id_N[np.searchsorted(trace.attributes.ptr_N1, row, side="right") - 1])


def retyped(trace: Trace, name: str, wire: Wire) -> Trace:
    """Return the trace with every attribute ``name`` in wire type ``wire``; values keep.

    Raises:
        TraceError: If a node carries it as no integer, or a value does not fit; names the node.
    """
    row_A = _rows(trace, name)
    row_A = row_A[trace.attributes.wire_A[row_A] != wire]
    if not row_A.size:
        return trace
    trace.integers(name)  # raises where it is no integer
    word_A = trace.attributes.word_A[row_A]
    signed_A = word_A.view(np.int64)
    unsigned_A = np.isin(trace.attributes.wire_A[row_A], _UNSIGNED)
    if wire == Wire.UINT64:
        wrong_A = ~unsigned_A & (signed_A < 0)
    else:
        low, high = _BOUNDS[wire]
        wrong_A = (signed_A < low) | (signed_A > high) | (unsigned_A & (signed_A < 0))
    if wrong_A.any():
        first = int(np.argmax(wrong_A))
        value = (word_A if unsigned_A[first] else signed_A)[first]
        node = _node_id(trace, int(row_A[first]))
        raise TraceError(
            f"{trace.source}: node {node} carries '{name}' = {value}, which "
            f"does not fit into {wire_name(wire)}, the type that Chakra's feeder reads."
        )
    wire_A = trace.attributes.wire_A.copy()
    wire_A[row_A] = wire
    return replace(trace, attributes=replace(trace.attributes, wire_A=wire_A))


def off_the_cpu(trace: Trace) -> Trace:
    """Return the trace with ``is_cpu_op`` false on all communication: ASTRA-sim throws on true."""
    row_A = _rows(trace, "is_cpu_op")
    node_A = np.searchsorted(trace.attributes.ptr_N1, row_A, side="right") - 1
    row_A = row_A[trace.type_N[node_A] >= NodeType.COMM_SEND]
    if not trace.attributes.word_A[row_A].any():
        return trace
    word_A = trace.attributes.word_A.copy()
    word_A[row_A] = 0
    return replace(trace, attributes=replace(trace.attributes, word_A=word_A))


def _require_attribute(trace: Trace, kind: NodeType, name: str) -> None:
    """Raise TraceError where a node of ``kind`` lacks the attribute ``name``."""
    of_kind_N = trace.type_N == kind
    if not of_kind_N.any():
        return
    _, present_N = trace.integers(name)
    lacking_N = of_kind_N & ~present_N
    if lacking_N.any():
        raise TraceError(
            f"{trace.source}: node {trace.id_N[np.argmax(lacking_N)]} ({kind.name}) has no "
            f"attribute '{name}', without which ASTRA-sim stops; add it."
        )


def _check_groups(trace: Trace) -> None:
    """Raise TraceError where ``pg_name`` is not an integer in a string: ASTRA-sim parses it."""
    text_N, present_N = trace.texts("pg_name")
    for row in np.flatnonzero(present_N).tolist():
        text = text_N[row]
        if text and not (text.isascii() and text.isdigit()):
            raise TraceError(
                f"{trace.source}: node {trace.id_N[row]} communicates in group '{text[:40]}'; "
                "ASTRA-sim needs the group's integer name from the communicator-group file."
            )


def without_nodes(trace: Trace, gone_N: np.ndarray) -> Trace:
    """Return the trace without some nodes; their children inherit their dependencies.

    Args:
        trace: The trace.
        gone_N: Which nodes to take out.

    Raises:
        TraceError: If the dependencies are faulty.
    """
    if not gone_N.any():
        return trace
    keep = np.flatnonzero(~gone_N)
    heirs = _inheritance(trace, gone_N)
    return replace(
        trace,
        id_N=trace.id_N[keep],
        name_N=trace.name_N[keep],
        type_N=trace.type_N[keep],
        start_us_N=trace.start_us_N[keep],
        duration_us_N=trace.duration_us_N[keep],
        data_deps=_bridged(trace.data_deps, keep, heirs),
        ctrl_deps=_bridged(trace.ctrl_deps, keep, heirs),
        io_N6=trace.io_N6[keep],
        attributes=_attributes_of(trace.attributes, keep),
    )


def _inheritance(trace: Trace, gone_N: np.ndarray) -> dict[int, tuple[int, ...]]:
    """Return for the id of each node that goes the ids of kept nodes it waited for."""
    layer_N = trace_layers(trace)
    gone = np.flatnonzero(gone_N)
    heirs: dict[int, tuple[int, ...]] = {}
    for row in gone[np.argsort(layer_N[gone], kind="stable")].tolist():
        parents = [*trace.data_deps.of(row).tolist(), *trace.ctrl_deps.of(row).tolist()]
        heirs[int(trace.id_N[row])] = _inherited(parents, heirs)
    return heirs


def _inherited(parents: list[int], heirs: dict[int, tuple[int, ...]]) -> tuple[int, ...]:
    """Return the parents with each that goes replaced by what it waited for, each once."""
    found = (kept for parent in parents for kept in heirs.get(parent, (parent,)))
    return tuple(dict.fromkeys(found))


def _bridged(deps: Ragged, keep: np.ndarray, heirs: dict[int, tuple[int, ...]]) -> Ragged:
    """Return the dependencies of the kept nodes, led around the nodes that go."""
    return ragged([_inherited(deps.of(row).tolist(), heirs) for row in keep.tolist()])


def _attributes_of(table: AttributeTable, keep: np.ndarray) -> AttributeTable:
    """Return the attributes of the kept nodes."""
    count_N = np.diff(table.ptr_N1)[keep]
    row_A = expand_ranges(table.ptr_N1[:-1][keep], table.ptr_N1[1:][keep])
    return AttributeTable(
        ptr_N1=pointers(count_N),
        name_A=table.name_A[row_A],
        wire_A=table.wire_A[row_A],
        word_A=table.word_A[row_A],
        doc_A=table.doc_A[row_A],
        blobs=table.blobs,
    )
