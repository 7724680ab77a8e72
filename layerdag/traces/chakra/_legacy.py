"""Chakra traces of the proto2 schema versions 0.0.1 to 0.0.3 (June to October 2023) as 1.0.0.

Facts: ``et_def.proto`` of mlcommons/chakra at these versions. Enumerations are renumbered to those
of 1.0.0, the one kind of dependency (``parent``) becomes data dependencies, run times become
``duration_micros``, and every other field becomes an attribute under its name of 1.0.0.
"""

import struct
from collections.abc import Iterator, Mapping

from layerdag._runtime import require_memory
from layerdag.errors import TraceError
from layerdag.traces import Attribute, CollectiveType, NodeType, Trace, Wire
from layerdag.traces.chakra._attributes import decode_text
from layerdag.traces.chakra._builder import NodeSpec, build_trace
from layerdag.traces.chakra._protobuf import FIXED32, FIXED64, LENGTH, VARINT, Cursor

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
# Field of AttributeProto -> type: 0.0.2 has no unsigned integers, 0.0.3 inserts them as field 6.
_VALUES_002 = {4: Wire.BOOL, 5: Wire.FLOAT, 6: Wire.INT64, 7: Wire.STRING}
_LISTS_002 = {8: Wire.BOOL, 9: Wire.FLOAT, 10: Wire.INT64, 11: Wire.STRING}
_VALUES_003 = {4: Wire.BOOL, 5: Wire.FLOAT, 6: Wire.UINT64, 7: Wire.INT64, 8: Wire.STRING}
_LISTS_003 = {9: Wire.BOOL, 10: Wire.FLOAT, 11: Wire.UINT64, 12: Wire.INT64, 13: Wire.STRING}

# Messages between two looks at the memory that is left.
_LOOK = 1 << 16

_DURATIONS = ("runtime", "simulated_run_time")


def decode_legacy(data: bytes, schema_version: str, source: str) -> Trace:
    """Read a trace of schema version "0.0.1", "0.0.2" or "0.0.3".

    Args:
        data: The whole plain file.
        schema_version: What ``detect_schema_version`` said.
        source: File name for messages.

    Raises:
        TraceError: If the file is damaged; names the message.
    """
    messages = list(frames(data, source))
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


def frames(data: bytes, source: str) -> Iterator[bytes]:
    """Yield the messages of a length-prefixed file. Raises TraceError where one is cut off."""
    at, number = 0, 0
    while at < len(data):
        try:
            head = Cursor(data[at : at + 10])
            size = head.varint()
        except TraceError as error:
            raise TraceError(f"{source}: message {number} has no length ({error}).") from None
        begin = at + head.position
        if begin + size > len(data):
            raise TraceError(
                f"{source}: message {number} at byte {at} is cut off; the file is truncated or no "
                "Chakra trace, copy or collect it again."
            )
        if number % _LOOK == _LOOK - 1:
            require_memory(source, TraceError)
        yield data[begin : begin + size]
        at, number = begin + size, number + 1


def _fields(message: bytes) -> Fields:
    """Return the values of each field of a message: integers, or bytes."""
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
    """Return an integer field or raise."""
    if isinstance(value, int):
        return value
    raise TraceError("a number is expected where bytes stand")


def _bytes(value: int | bytes) -> bytes:
    """Return a bytes field or raise."""
    if isinstance(value, bytes):
        return value
    raise TraceError("bytes are expected where a number stands")


def _integers(values: list[int | bytes]) -> list[int]:
    """Return repeated integers, packed or not."""
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


def _name(row: Fields) -> str:
    """Return the node's name."""
    return decode_text(_bytes(row[2][-1])) if 2 in row else ""


def _is_draft(row: Fields) -> bool:
    """Return whether a node must come from the drafts before 0.0.1, by its type number."""
    kind = _last(row, 3)
    return kind == 7 or (kind == 4 and 7 in row and 17 not in row)


def _lookup(number: int, table: Mapping[int, int], what: str) -> int:
    """Return ``table[number]`` or raise."""
    if number not in table:
        raise TraceError(f"{what} {number} does not exist in this schema version")
    return table[number]


def _node_001(row: Fields, types: tuple[NodeType, ...]) -> NodeSpec:
    """Return a node of 0.0.1."""
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
        name=_name(row),
        type=_lookup(_last(row, 3), dict(enumerate(types)), "node type"),
        data_deps=tuple(_integers(row.get(4, []))),
        duration_us=_last(row, 7),
        attributes=tuple(attributes),
    )


def _node_002(row: Fields, schema_version: str) -> NodeSpec:
    """Return a node of 0.0.2 or 0.0.3."""
    attributes = [_attribute(_bytes(value), schema_version) for value in row.get(11, [])]
    durations = [a.value for a in attributes if a.name in _DURATIONS]
    texts = (decode_text(_bytes(row[n][-1])) if n in row else None for n in range(5, 11))
    return NodeSpec(
        id=_last(row, 1),
        name=_name(row),
        type=_lookup(_last(row, 3), {t: t for t in NodeType}, "node type"),
        data_deps=tuple(_integers(row.get(4, []))),
        duration_us=_duration(durations),
        attributes=tuple(a for a in attributes if a.name not in _DURATIONS),
        io=tuple(texts),
    )


def _duration(found: list[object]) -> int:
    """Return the run time in microseconds, rounded, 0 where there is none."""
    value = found[-1] if found else 0
    if not isinstance(value, int | float) or not 0 <= value < 2**63:
        raise TraceError(f"the run time is {value!r}, not a number of microseconds")
    return round(value)


def _attribute(message: bytes, schema_version: str) -> Attribute:
    """Return one attribute of 0.0.2 or 0.0.3."""
    row = _fields(message)
    name = decode_text(_bytes(row[1][-1])) if 1 in row else ""
    doc = decode_text(_bytes(row[3][-1])) if 3 in row else ""
    old = schema_version == "0.0.2"
    for number, wire in (_VALUES_002 if old else _VALUES_003).items():
        if number in row:
            return _renumbered(name, wire, _value(row[number][-1], wire), doc)
    for number, wire in (_LISTS_002 if old else _LISTS_003).items():
        if number in row:
            return Attribute(name, wire + 1, tuple(_elements(row[number], wire)), doc)
    return Attribute(name, Wire.UNSET, None, doc)


def _renumbered(name: str, wire: Wire, value: object, doc: str) -> Attribute:
    """Return a scalar attribute, the type of a collective in the numbering of 1.0.0."""
    if name == "comm_type" and isinstance(value, int):
        return Attribute(name, Wire.INT64, _lookup(value, _COLLECTIVES_002, "collective type"), doc)
    return Attribute(name, wire, value, doc)


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
    """Return the Python value of a raw field."""
    if wire == Wire.STRING:
        return decode_text(_bytes(raw))
    if wire == Wire.FLOAT:
        data = _bytes(raw)
        if len(data) != 4:
            raise TraceError("a float does not have 4 bytes")
        return struct.unpack("<f", data)[0]
    return bool(_int(raw)) if wire == Wire.BOOL else _signed(_int(raw), wire)


def _signed(word: int, wire: Wire) -> int:
    """Return the number that a 64-bit varint stands for."""
    return word - 2**64 if wire in (Wire.INT32, Wire.INT64) and word >= 2**63 else word
