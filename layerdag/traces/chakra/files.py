"""Chakra ``.et`` files: every schema version is read into one normal form, schema 1.0.0 is written.

A file is a sequence of length-prefixed messages: one GlobalMetadata, then one Node each. The
schema versions look as follows (mlcommons/chakra, ``et_def.proto`` over time):

======================  =======================  =============================================
schema version          first message            a Node has
======================  =======================  =============================================
0.0.1 (2023-06)         Node                     numbers in fields 5 to 7 and from 12 on
0.0.2 (2023-07)         Node                     strings in fields 5 to 10, attributes in 11
0.0.3 (2023-08)         GlobalMetadata           strings in fields 5 to 10, attributes in 11
0.0.4 = 1.0.0           GlobalMetadata           packed ids in 4 and 5, attributes in 10
with storage (2026)     GlobalMetadata           types 8 to 10, Node.storage in 11 (chakra#216)
======================  =======================  =============================================

Fields that are newer still are left out and noted. The first files of 0.0.4 held the metadata
attributes in field 1, before the version took it; that is read, too. In the proto2 versions 0.0.1
to 0.0.3 enumerations are renumbered to those of 1.0.0, the one kind of dependency (``parent``)
becomes data dependencies, run times become ``duration_micros``, and every other field becomes an
attribute under its name of 1.0.0.

``normalize`` brings a trace into the form that both Chakra feeders and ASTRA-sim accept, or says
why not. Feeder v1 (mlcommons/chakra) reads each well-known attribute from exactly one alternative
of the oneof and silently takes 0 from any other; feeder v3 (ASTRA-sim) accepts every integer type,
but throws on floats and on missing values. Values keep; only their wire types change.
"""

import contextlib
import itertools
import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from layerdag.errors import TraceError
from layerdag.graph.topology import expand_ranges
from layerdag.hardware.collectives import CollectiveType
from layerdag.runtime.files import write_bytes
from layerdag.runtime.notes import NoteCollector, NoteKind
from layerdag.runtime.reading import read_whole, require_memory
from layerdag.traces.builder import (
    FIXED32,
    FIXED64,
    LENGTH,
    VARINT,
    Cursor,
    NodeSpec,
    build_trace,
    decode_text,
    ragged,
    varint,
    with_texts,
)
from layerdag.traces.chakra.storage import note_storage
from layerdag.traces.chakra.wire import decode_metadata, encode_metadata, scan_nodes, write_nodes
from layerdag.traces.trace import (
    IS_UNSIGNED,
    Attribute,
    NodeType,
    Trace,
    Wire,
    communicates,
    trace_layers,
    wire_name,
)

Fields = dict[int, list[int | bytes]]

_LOAD, _STORE, _COMP = NodeType.MEM_LOAD, NodeType.MEM_STORE, NodeType.COMP
_SEND, _RECV, _COLL = NodeType.COMM_SEND, NodeType.COMM_RECV, NodeType.COMM_COLL
# The schema 0.0.1 and the drafts before it (with a fused load and computation) number differently.
_TYPES_001 = (NodeType.INVALID, _LOAD, _STORE, _COMP, _SEND, _RECV, _COLL)
_TYPES_DRAFT = (NodeType.INVALID, _LOAD, _COMP, _STORE, _COMP, _SEND, _RECV, _COLL)

_AR, _A2A = CollectiveType.ALL_REDUCE, CollectiveType.ALL_TO_ALL
_AG, _RS = CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER
_COLLECTIVES_001 = {1: _AR, 2: _A2A, 3: _AG, 4: _RS}
_COLLECTIVES_002 = {0: _AR, 1: _A2A, 2: _AG, 3: _RS, 4: CollectiveType.BROADCAST}

_FIELDS_001 = {
    5: ("tensor_loc", Wire.INT32),
    6: ("tensor_size", Wire.UINT64),
    8: ("input_tensor_loc", Wire.INT32),
    9: ("input_tensor_size", Wire.UINT64),
    10: ("output_tensor_loc", Wire.INT32),
    11: ("output_tensor_size", Wire.UINT64),
    12: ("num_ops", Wire.INT64),
    16: ("comm_src", Wire.INT32),
    17: ("comm_dst", Wire.INT32),
    18: ("comm_size", Wire.INT64),
    19: ("comm_tag", Wire.INT32),
    20: ("comm_priority", Wire.INT32),
    21: ("callback_after", Wire.UINT64),
    22: ("local_mem_access_completed", Wire.BOOL),
}
# Types of the fields of AttributeProto from 4 on, then those of their lists in the same order:
# 0.0.2 has no unsigned integers, 0.0.3 inserts them as field 6.
_FIRST_VALUE = 4
_WIRES_002 = (Wire.BOOL, Wire.FLOAT, Wire.INT64, Wire.STRING)
_WIRES_003 = (Wire.BOOL, Wire.FLOAT, Wire.UINT64, Wire.INT64, Wire.STRING)

# Messages between two looks at the memory that is left.
_LOOK = 1 << 16

_DURATIONS = ("runtime", "simulated_run_time")


def decode_legacy(data: bytes, schema_version: str, source: str) -> Trace:
    """Read a trace of schema version "0.0.1", "0.0.2" or "0.0.3".

    Raises:
        TraceError: If the file is damaged; names the message.
    """
    messages = list(length_prefixed_messages(data, source))
    metadata: tuple[Attribute, ...] = ()
    try:
        if schema_version == "0.0.3":
            head = _fields(b"".join(messages[:1]))
            metadata = tuple(_attribute(_bytes(a), schema_version) for a in head.get(1, []))
            messages = messages[1:]
        rows = [_fields(message) for message in messages]
        types = _TYPES_DRAFT if any(map(_is_draft, rows)) else _TYPES_001
        nodes = [
            _node_001(row, types) if schema_version == "0.0.1" else _node_002(row, schema_version)
            for row in rows
        ]
    except TraceError as error:
        raise TraceError(
            f"{source}: is no sound Chakra trace of schema version {schema_version} ({error}); "
            "copy or collect it again."
        ) from None
    origin = Attribute("converted_from_schema", Wire.STRING, schema_version)
    return build_trace(nodes, metadata=(*metadata, origin), source=source)


def length_prefixed_messages(data: bytes, source: str) -> Iterator[bytes]:
    """Yield the messages of a length-prefixed file. Raises TraceError where one is cut off."""
    cursor, number = Cursor(data), 0
    while not cursor.done:
        at = cursor.position
        try:
            size = cursor.varint()
        except TraceError as error:
            raise TraceError(f"{source}: message {number} has no length ({error}).") from None
        if cursor.position + size > len(data):
            raise TraceError(
                f"{source}: message {number} at byte {at} is cut off; the file is truncated or no "
                "Chakra trace, copy or collect it again."
            )
        if number % _LOOK == _LOOK - 1:
            require_memory(source, TraceError)
        yield cursor.take(size)
        number += 1


def _fields(message: bytes) -> Fields:
    found: Fields = {}
    cursor = Cursor(message)
    while not cursor.done:
        number, kind = cursor.tag()
        if kind == VARINT:
            value: int | bytes = cursor.varint()
        elif kind == LENGTH:
            value = cursor.bytes()
        elif kind in (FIXED32, FIXED64):
            value = cursor.take(4 if kind == FIXED32 else 8)
        else:
            raise TraceError(f"wire type {kind} is not part of this format")
        found.setdefault(number, []).append(value)
    return found


def _int(value: int | bytes) -> int:
    if isinstance(value, int):
        return value
    raise TraceError("a number is expected where bytes stand")


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, bytes):
        return value
    raise TraceError("bytes are expected where a number stands")


def _integers(values: list[int | bytes]) -> list[int]:
    found: list[int] = []
    for value in values:
        if isinstance(value, int):
            found.append(value)
            continue
        packed = Cursor(value)
        while not packed.done:
            found.append(packed.varint())
    return found


def _last(row: Fields, number: int) -> int:
    """Return an integer field, 0 where it is absent."""
    return _int(row[number][-1]) if number in row else 0


def _text(row: Fields, number: int) -> str:
    """Return a text field, "" where it is absent."""
    return decode_text(_bytes(row[number][-1])) if number in row else ""


def _is_draft(row: Fields) -> bool:
    """Return whether a node must come from the drafts before 0.0.1, by its type number."""
    kind = _last(row, 3)
    return kind == 7 or (kind == 4 and 7 in row and 17 not in row)


def _lookup(number: int, table: Mapping[int, int], what: str) -> int:
    if number not in table:
        raise TraceError(f"{what} {number} does not exist in this schema version")
    return table[number]


def _node_001(row: Fields, types: tuple[NodeType, ...]) -> NodeSpec:
    attributes = [
        Attribute(name, wire, _signed(_last(row, number), wire))
        for number, (name, wire) in _FIELDS_001.items()
        if number in row
    ]
    if _last(row, 13):
        kind = _lookup(_last(row, 13), _COLLECTIVES_001, "collective type")
        attributes.append(Attribute("comm_type", Wire.INT64, kind))
    if 14 in row:
        dims = tuple(bool(value) for value in _integers(row[14]))
        attributes.append(Attribute("involved_dim", Wire.BOOL + 1, dims))
    if 15 in row:
        attributes.append(Attribute("pg_name", Wire.STRING, str(_last(row, 15))))
    return NodeSpec(
        id=_last(row, 1),
        name=_text(row, 2),
        type=_lookup(_last(row, 3), dict(enumerate(types)), "node type"),
        data_deps=tuple(_integers(row.get(4, []))),
        duration_us=_last(row, 7),
        attributes=tuple(attributes),
    )


def _node_002(row: Fields, schema_version: str) -> NodeSpec:
    attributes = [_attribute(_bytes(value), schema_version) for value in row.get(11, [])]
    duration = next((a.value for a in reversed(attributes) if a.name in _DURATIONS), 0)
    if not isinstance(duration, int | float) or not 0 <= duration < 2**63:
        raise TraceError(f"the run time is {duration!r}, not a number of microseconds")
    texts = (_text(row, number) if number in row else None for number in range(5, 11))
    return NodeSpec(
        id=_last(row, 1),
        name=_text(row, 2),
        type=_lookup(_last(row, 3), {t: t for t in NodeType if t <= _COLL}, "node type"),
        data_deps=tuple(_integers(row.get(4, []))),
        duration_us=round(duration),
        attributes=tuple(a for a in attributes if a.name not in _DURATIONS),
        io=tuple(texts),
    )


def _attribute(message: bytes, schema_version: str) -> Attribute:
    row = _fields(message)
    name, doc = _text(row, 1), _text(row, 3)
    wires = _WIRES_002 if schema_version == "0.0.2" else _WIRES_003
    for number, wire in enumerate(wires, start=_FIRST_VALUE):
        if number in row:
            value = _value(row[number][-1], wire)
            if name == "comm_type" and isinstance(value, int):
                wire, value = Wire.INT64, _lookup(value, _COLLECTIVES_002, "collective type")
            return Attribute(name, wire, value, doc)
    for number, wire in enumerate(wires, start=_FIRST_VALUE + len(wires)):
        if number in row:
            return Attribute(name, wire + 1, tuple(_elements(row[number], wire)), doc)
    return Attribute(name, Wire.UNSET, None, doc)


def _elements(values: list[int | bytes], wire: Wire) -> Iterator[object]:
    """Yield the elements of a list; proto2 does not pack, but a reader must accept both."""
    for value in values:
        if wire == Wire.FLOAT and isinstance(value, bytes):
            yield from (x for (x,) in struct.iter_unpack("<f", value[: len(value) & ~3]))
        elif wire != Wire.STRING and isinstance(value, bytes):
            yield from (_value(number, wire) for number in _integers([value]))
        else:
            yield _value(value, wire)


def _value(raw: int | bytes, wire: Wire) -> object:
    if wire == Wire.STRING:
        return decode_text(_bytes(raw))
    if wire == Wire.FLOAT:
        data = _bytes(raw)
        if len(data) != 4:
            raise TraceError("a float does not have 4 bytes")
        return struct.unpack("<f", data)[0]
    return bool(_int(raw)) if wire == Wire.BOOL else _signed(_int(raw), wire)


def _signed(word: int, wire: Wire) -> int:
    """Return the number that a 64-bit varint encodes."""
    return word - 2**64 if wire in (Wire.INT32, Wire.INT64) and word >= 2**63 else word


CURRENT = "1.0.0"
_LOOK_AT = 64
_STORAGE_FIELD = 11


def detect_schema_version(data: bytes, source: str) -> str:
    """Return "0.0.1", "0.0.2", "0.0.3" or "1.0.0" (which is 0.0.4 on the wire).

    Only the first messages are looked at, and no more of each than its tags. What cannot be parsed
    counts as 1.0.0, whose reader gives the better message.

    Raises:
        TraceError: If nodes of 1.0.0 stand at the very beginning, where metadata must be.
    """
    shapes = []
    with contextlib.suppress(TraceError):
        for message in itertools.islice(length_prefixed_messages(data, source), _LOOK_AT):
            shapes.append(_shape(message))
    if not shapes:
        return CURRENT
    nodes = set().union(*shapes[1:])
    if (1, VARINT) not in shapes[0]:
        is_old = nodes & {(6, LENGTH), (7, LENGTH), (11, LENGTH)}
        return "0.0.3" if is_old else CURRENT
    nodes |= shapes[0]
    if nodes & {(6, LENGTH), (7, LENGTH), (11, LENGTH)}:
        return "0.0.2"
    if nodes & {(4, LENGTH), (5, LENGTH), (8, LENGTH), (9, LENGTH), (10, LENGTH)}:
        raise TraceError(
            f"{source}: begins with a node instead of metadata, so that every consumer would lose "
            "that node; put an empty GlobalMetadata message (one zero byte) before it."
        )
    return "0.0.1"


def _shape(message: bytes) -> set[tuple[int, int]]:
    found = set()
    cursor = Cursor(message)
    while not cursor.done:
        number, kind = cursor.tag()
        if kind not in (VARINT, LENGTH, FIXED32, FIXED64):
            raise TraceError("unknown wire type")
        if number == _STORAGE_FIELD and kind == LENGTH:
            # Attributes of the older schemas begin with their name, Node.storage does not.
            if cursor.bytes().startswith(b"\n"):
                found.add((number, kind))
            continue
        found.add((number, kind))
        cursor.skip(kind)
    return found


VERSIONS = ("", "0.0.4", "1.0.0")
"""Values of ``GlobalMetadata.version`` that share the wire format of schema 1.0.0."""
KNOWN_VERSIONS = ", ".join(filter(None, VERSIONS))


def read_trace(path: str | Path) -> Trace:
    """Read one Chakra trace of any schema version, plain, gzip or xz.

    Only the encoding is checked here. Dangling and cyclic dependencies and double ids are kept as
    they are, so that a faulty trace can be looked at; ``trace.dependency_edges`` finds them.

    Raises:
        TraceError: If the file is missing, empty, cut off, damaged, or of an unknown version;
            names the file, and the node and byte where there is one.
    """
    return decode_trace(read_whole(path, error=TraceError), str(path))


def decode_trace(data: bytes, source: str = "<memory>") -> Trace:
    """Read a Chakra trace from the bytes of a plain file; see ``read_trace``."""
    try:
        return _decode_current(data, source)
    except TraceError:
        # Old files are rare, and telling schema versions apart costs more than a small file's scan.
        schema_version = detect_schema_version(data, source)
        if schema_version == CURRENT:
            raise
    return decode_legacy(data, schema_version, source)


def _decode_current(data: bytes, source: str) -> Trace:
    notes = NoteCollector(source)
    version, metadata, start = _head(data, source, notes)
    nodes = scan_nodes(data, start, source, notes)
    trace = replace(nodes, version=version, metadata=metadata)
    note_storage(trace, notes)
    note_collectives(trace, notes)
    if not trace.num_nodes:
        notes.add(
            NoteKind.NODE, "0 nodes", "the file holds metadata alone, so the rank does nothing"
        )
    return replace(trace, notes=notes.notes) if notes.notes else trace


_COLLECTIVES = frozenset(CollectiveType) - {CollectiveType.INVALID}


def note_collectives(trace: Trace, notes: NoteCollector) -> None:
    """Note collectives of a type that the schema does not have, and those of none."""
    row_C = np.flatnonzero(trace.type_N == NodeType.COMM_COLL)
    if not row_C.size:
        return
    kind_N, stated_N = trace.integers("comm_type")
    strange_C = row_C[~(stated_N & np.isin(kind_N, [*_COLLECTIVES]))[row_C]]
    for row in strange_C.tolist():
        word = f"comm_type {kind_N[row]}" if stated_N[row] else "no comm_type"
        effect = "no collective of Chakra; kept as it is, and cannot be simulated"
        notes.add(NoteKind.COLLECTIVE, word, effect, where=f"node {trace.id_N[row]}")


def _head(data: bytes, source: str, notes: NoteCollector) -> tuple[str, tuple[Attribute, ...], int]:
    """Return version and attributes of the GlobalMetadata, and where the first node starts."""
    try:
        prefix = Cursor(data)
        size = prefix.varint()
        start = prefix.position
        if start + size > len(data):
            raise TraceError("its first message is cut off")
        version, metadata = decode_metadata(prefix.take(size), notes)
    except TraceError as error:
        if data.lstrip()[:1] in (b"{", b"["):
            raise TraceError(
                f"{source}: is JSON, no Chakra trace (.et); make such of it with 'layerdag convert "
                f"{source} --out PREFIX', or read it with ld.read."
            ) from None
        raise TraceError(
            f"{source}: does not begin with Chakra metadata ({error}); the file is damaged or no "
            "Chakra trace."
        ) from None
    if version not in VERSIONS:
        raise TraceError(
            f"{source}: has Chakra version '{version[:40]}'; known are {KNOWN_VERSIONS}. "
            "Convert it with the tool that wrote it."
        )
    return version, metadata, start + size


def write_trace(trace: Trace, path: str | Path) -> None:
    """Write ``trace`` as a plain ``.et`` of schema 1.0.0, whole or not at all.

    Every field and attribute is kept with its wire type, so that reading the file gives the same
    trace again. Nothing is corrected; ``workload.write_workload`` does that.

    Raises:
        TraceError: If the columns of the trace contradict each other, or a node exceeds 2 GiB.
    """
    write_bytes(path, encode_trace(trace))


def encode_trace(trace: Trace) -> bytes:
    """Return the bytes of a plain ``.et`` of schema 1.0.0; see ``write_trace``."""
    metadata = encode_metadata(trace.version, trace.metadata)
    return write_nodes(trace, varint(len(metadata)) + metadata)


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

_BOUNDS = {Wire.BOOL: (0, 1), Wire.INT32: (-(2**31), 2**31 - 1), Wire.INT64: (-(2**63), 2**63 - 1)}
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
        trace = with_wire_type(trace, name, wire)
    trace = with_communication_off_cpu(trace)
    for kind, names in REQUIRED_ATTRIBUTES.items():
        of_kind_N = trace.type_N == kind
        for name in names if of_kind_N.any() else ():
            lacking_N = of_kind_N & ~trace.integers(name)[1]
            if lacking_N.any():
                raise TraceError(
                    f"{trace.source}: node {trace.id_N[np.argmax(lacking_N)]} ({kind.name}) has no "
                    f"attribute '{name}', without which ASTRA-sim stops; add it."
                )
    return _with_texts_of_groups(trace)


def with_wire_type(trace: Trace, name: str, wire: Wire) -> Trace:
    """Return the trace with every attribute ``name`` in wire type ``wire``; values keep.

    Raises:
        TraceError: If a node carries it as no integer, or a value does not fit; names the node.
    """
    row_A, node_A = trace.attribute_rows(name)
    other_A = trace.attributes.wire_A[row_A] != wire
    row_A, node_A = row_A[other_A], node_A[other_A]
    if not row_A.size:
        return trace
    trace.require_integers(name)
    word_A = trace.attributes.word_A[row_A]
    signed_A = word_A.view(np.int64)
    unsigned_A = IS_UNSIGNED[trace.attributes.wire_A[row_A]]
    if wire == Wire.UINT64:
        wrong_A = ~unsigned_A & (signed_A < 0)
    else:
        low, high = _BOUNDS[wire]
        wrong_A = (signed_A < low) | (signed_A > high) | (unsigned_A & (signed_A < 0))
    if wrong_A.any():
        first = int(np.argmax(wrong_A))
        value = (word_A if unsigned_A[first] else signed_A)[first]
        raise TraceError(
            f"{trace.source}: node {trace.id_N[node_A[first]]} carries '{name}' = {value}, which "
            f"does not fit into {wire_name(wire)}, the type that Chakra's feeder reads."
        )
    wire_A = trace.attributes.wire_A.copy()
    wire_A[row_A] = wire
    return trace.with_columns(wire_A=wire_A)


def with_communication_off_cpu(trace: Trace) -> Trace:
    """Return the trace with ``is_cpu_op`` false on all communication: ASTRA-sim throws on true."""
    row_A, node_A = trace.attribute_rows("is_cpu_op")
    row_A = row_A[communicates(trace.type_N[node_A])]
    if not trace.attributes.word_A[row_A].any():
        return trace
    word_A = trace.attributes.word_A.copy()
    word_A[row_A] = 0
    return trace.with_columns(word_A=word_A)


def _with_texts_of_groups(trace: Trace) -> Trace:
    """Return the trace with ``pg_name`` as ASTRA-sim parses it: an integer in a string."""
    text_N, present_N = trace.texts("pg_name", numbers=True)
    for row in np.flatnonzero(present_N).tolist():
        text = text_N[row]
        if text and not (text.isascii() and text.isdigit()):
            raise TraceError(
                f"{trace.source}: node {trace.id_N[row]} communicates in group '{text[:40]}'; "
                "ASTRA-sim needs the group's integer name from the communicator-group file."
            )
    row_A, node_A = trace.attribute_rows("pg_name")
    other_A = trace.attributes.wire_A[row_A] != Wire.STRING
    return with_texts(trace, "pg_name", {row: text_N[row] for row in node_A[other_A].tolist()})


def without_nodes(trace: Trace, gone_N: np.ndarray) -> Trace:
    """Return the trace without the nodes ``gone_N``; their children inherit their dependencies.

    Raises:
        TraceError: If the dependencies are faulty.
    """
    if not gone_N.any():
        return trace
    layer_N = trace_layers(trace)
    keep, gone = np.flatnonzero(~gone_N), np.flatnonzero(gone_N)
    heirs: dict[int, tuple[int, ...]] = {}
    for row in gone[np.argsort(layer_N[gone], kind="stable")].tolist():
        parents = [*trace.data_deps.of(row).tolist(), *trace.ctrl_deps.of(row).tolist()]
        heirs[int(trace.id_N[row])] = _inherited(parents, heirs)
    data, ctrl = (
        ragged([_inherited(deps.of(row).tolist(), heirs) for row in keep.tolist()])
        for deps in (trace.data_deps, trace.ctrl_deps)
    )
    table = trace.attributes
    row_A = expand_ranges(table.ptr_N1[:-1][keep], table.ptr_N1[1:][keep])
    return replace(
        trace,
        id_N=trace.id_N[keep],
        name_N=trace.name_N[keep],
        type_N=trace.type_N[keep],
        start_us_N=trace.start_us_N[keep],
        duration_us_N=trace.duration_us_N[keep],
        data_deps=data,
        ctrl_deps=ctrl,
        io_N6=trace.io_N6[keep],
        attributes=table.select(row_A, np.diff(table.ptr_N1)[keep]),
    )


def _inherited(parents: list[int], heirs: dict[int, tuple[int, ...]]) -> tuple[int, ...]:
    found = (kept for parent in parents for kept in heirs.get(parent, (parent,)))
    return tuple(dict.fromkeys(found))
