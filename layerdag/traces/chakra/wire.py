"""The compiled scanner and writer of Chakra messages, with metadata and checks."""

import ctypes
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from layerdag.errors import TraceError
from layerdag.runtime.native import library
from layerdag.runtime.notes import NoteCollector, NoteKind
from layerdag.runtime.reading import available_memory
from layerdag.traces.builder import (
    LENGTH,
    Cursor,
    decode_text,
    is_list,
    length_delimited,
    list_to_payload,
    payload_to_list,
    read_scalar,
    scalar_bytes,
    scalar_kind,
    tag,
)
from layerdag.traces.trace import (
    STORAGE,
    Attribute,
    AttributeTable,
    NodeType,
    Ragged,
    Trace,
    Wire,
)


def checked_columns(trace: Trace) -> dict[str, np.ndarray]:
    """Return the columns under the names that ``native/wire/wire.h`` gives them, contiguous.

    Raises:
        TraceError: If lengths, pointers or indexes contradict each other.
    """
    table, nodes = trace.attributes, trace.num_nodes
    columns = {
        "id": (trace.id_N, np.uint64, nodes),
        "name": (trace.name_N, np.int32, nodes),
        "type": (trace.type_N, np.uint8, nodes),
        "start_us": (trace.start_us_N, np.uint64, nodes),
        "duration_us": (trace.duration_us_N, np.uint64, nodes),
        "data_ptr": (trace.data_deps.ptr_N1, np.int64, nodes + 1),
        "data_deps": (trace.data_deps.values, np.uint64, trace.data_deps.values.size),
        "ctrl_ptr": (trace.ctrl_deps.ptr_N1, np.int64, nodes + 1),
        "ctrl_deps": (trace.ctrl_deps.values, np.uint64, trace.ctrl_deps.values.size),
        "io": (trace.io_N6, np.int32, 6 * nodes),
        "attr_ptr": (table.ptr_N1, np.int64, nodes + 1),
        "attr_name": (table.name_A, np.int32, table.wire_A.size),
        "attr_wire": (table.wire_A, np.uint8, table.wire_A.size),
        "attr_word": (table.word_A, np.uint64, table.wire_A.size),
        "attr_doc": (table.doc_A, np.int32, table.wire_A.size),
    }
    for label, (column, _, size) in columns.items():
        _ensure(column.size == size, trace, f"column {label} has {column.size} values, not {size}")
    for label in ("data", "ctrl", "attr"):
        ends = "name" if label == "attr" else "deps"
        _check_pointers(columns[f"{label}_ptr"][0], columns[f"{label}_{ends}"][2], label, trace)
    _check_indexes(trace)
    arrays = {label: np.ascontiguousarray(column, t) for label, (column, t, _) in columns.items()}
    if STORAGE in trace.strings:
        is_named_A = table.name_A == trace.strings.index(STORAGE)
        is_storage_A = is_named_A & (table.wire_A == Wire.BYTES)
        arrays["attr_name"] = np.where(is_storage_A, _STORAGE_ROW, table.name_A).astype(np.int32)
    return arrays


def _ensure(condition: object, trace: Trace, message: str) -> None:
    """Raise TraceError unless ``condition``."""
    if not condition:
        raise TraceError(f"{trace.source}: {message}; the trace was put together wrongly.")


def _check_pointers(ptr_N1: np.ndarray, total: int, label: str, trace: Trace) -> None:
    """Check that a pointer column starts at 0, never falls, and ends at ``total``."""
    fine = ptr_N1[0] == 0 and ptr_N1[-1] == total and (np.diff(ptr_N1) >= 0).all()
    _ensure(fine, trace, f"the {label} pointers do not run from 0 to {total}")


def _check_indexes(trace: Trace) -> None:
    table, pool = trace.attributes, len(trace.strings)
    for label, column in (
        ("name", trace.name_N),
        ("io", trace.io_N6),
        ("attribute name", table.name_A),
        ("attribute doc", table.doc_A),
    ):
        low, high = column.min(initial=-1), column.max(initial=-1)
        _ensure(low >= -1 and high < pool, trace, f"a {label} points outside the string pool")
    types_fit = trace.type_N.max(initial=0) < len(NodeType)
    _ensure(types_fit, trace, "a node type lies outside 0 to 10")
    wire_A = table.wire_A
    wires_fit = ((wire_A == Wire.UNSET) | ((wire_A >= Wire.DOUBLE) & (wire_A <= 32))).all()
    _ensure(wires_fit, trace, "an attribute has a wire number outside 3 to 32")
    text_A = wire_A == Wire.STRING
    blob_A = (wire_A == Wire.BYTES) | ((wire_A % 2 == 0) & (wire_A > 0))
    for label, chosen_A, size in (
        ("string", text_A, pool),
        ("list or bytes", blob_A, len(table.blobs)),
    ):
        fits = not chosen_A.any() or table.word_A[chosen_A].max() < size
        _ensure(fits, trace, f"a {label} attribute points outside its pool")


def decode_metadata(payload: bytes, notes: NoteCollector) -> tuple[str, tuple[Attribute, ...]]:
    """Return (version, attributes) of a GlobalMetadata message; unknown fields are noted.

    Raises:
        TraceError: If the bytes are no such message.
    """
    version, attributes = "", []
    message = Cursor(payload)
    while not message.done:
        number, kind = message.tag()
        if number > 2 and version:  # without a version it may be a node of an older schema
            message.skip(kind)
            note_field(notes, "GlobalMetadata", number)
            continue
        if number not in (1, 2) or kind != LENGTH:
            raise TraceError(f"field {number} is not part of GlobalMetadata")
        field = message.bytes()
        # Before the version took field 1, attributes stood there; these begin with a tag.
        if number == 1 and not field.startswith(b"\n"):
            version = decode_text(field)
        else:
            attributes.append(decode_attribute(field, notes))
    return version, tuple(attributes)


def decode_attribute(payload: bytes, notes: NoteCollector) -> Attribute:
    """Return one AttributeProto message. Raises TraceError if it is damaged."""
    name = doc = ""
    wire, value = int(Wire.UNSET), None
    message = Cursor(payload)
    while not message.done:
        number, kind = message.tag()
        if number == 1 and kind == LENGTH:
            name = decode_text(message.bytes())
        elif number == 2 and kind == LENGTH:
            doc = decode_text(message.bytes())
        elif number > Wire.BYTES + 1:
            message.skip(kind)
            note_field(notes, "AttributeProto", number)
        else:
            wire, value = number, _value(number, kind, message)
    return Attribute(name, wire, value, doc)


def _value(number: int, kind: int, message: Cursor) -> object:
    text = number in (Wire.STRING, Wire.BYTES)
    if not Wire.DOUBLE <= number <= Wire.BYTES + 1:
        raise TraceError(f"field {number} is not part of an attribute")
    if kind != (LENGTH if text or is_list(number) else scalar_kind(number)):
        raise TraceError(f"field {number} of an attribute has wire type {kind}")
    if is_list(number):
        return payload_to_list(number, message.bytes())
    if text:
        data = message.bytes()
        return decode_text(data) if number == Wire.STRING else data
    return read_scalar(number, message)


def encode_metadata(version: str, attributes: tuple[Attribute, ...]) -> bytes:
    """Return the GlobalMetadata message.

    Raises:
        TraceError: If an attribute's value does not fit its type.
    """
    parts = [length_delimited(1, version.encode())] if version else []
    parts += [length_delimited(2, encode_attribute(attribute)) for attribute in attributes]
    return b"".join(parts)


def encode_attribute(attribute: Attribute) -> bytes:
    """Return one AttributeProto message."""
    parts = [length_delimited(1, attribute.name.encode())] if attribute.name else []
    if attribute.doc:
        parts.append(length_delimited(2, attribute.doc.encode()))
    wire, value = attribute.wire, attribute.value
    if is_list(wire) and isinstance(value, tuple | list):
        parts.append(length_delimited(wire, list_to_payload(wire, value)))
    elif isinstance(value, str) and wire == Wire.STRING:
        parts.append(length_delimited(wire, value.encode()))
    elif isinstance(value, bytes) and wire == Wire.BYTES:
        parts.append(length_delimited(wire, value))
    elif wire != Wire.UNSET:
        parts.append(tag(wire, scalar_kind(wire)) + scalar_bytes(wire, value))
    return b"".join(parts)


# In the order of columns_t in native/wire/wire.h.
_COLUMNS = (
    *("id", "name", "type", "start_us", "duration_us"),
    *("data_ptr", "data_deps", "ctrl_ptr", "ctrl_deps", "io"),
    *("attr_ptr", "attr_name", "attr_wire", "attr_word", "attr_doc"),
)


# Columns of so many bytes are taken without asking what is left.
_SMALL = 1 << 26


class _Fault(ctypes.Structure):
    _fields_ = (
        ("offset", ctypes.c_int64),
        ("node", ctypes.c_int64),
        ("id", ctypes.c_uint64),
        ("has_id", ctypes.c_int64),
        ("detail", ctypes.c_int64),
    )


class _Unknown(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int64) for name in ("message", "number", "count", "node"))


_MESSAGES = ("Node", "AttributeProto", "IOInfo", "StorageInfo")
"""The messages that may hold unknown fields, in the order of native/wire/read.c."""


class _Totals(ctypes.Structure):
    _fields_ = (
        *(
            (name, ctypes.c_int64)
            for name in ("nodes", "data_deps", "ctrl_deps", "attributes", "kinds_unknown")
        ),
        ("unknown", _Unknown * 16),
    )


class _Columns(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_void_p) for name in _COLUMNS)


class _Texts(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_void_p), ("ptr", ctypes.c_void_p))


_REASONS = {
    1: "is cut off; the file is truncated or no Chakra trace, copy or collect it again",
    2: "holds an integer or length that is too long; the file is damaged, copy it again",
    3: "has field {detail}, which no version of the Chakra schema has in this place; the file is "
    "damaged or of another format",
    4: "has node type {detail}; Chakra defines types 0 to 10",
    5: "does not fit into memory; free some memory or cut the trace",
    6: "brings more than two billion distinct strings; cut the trace",
    7: "has a list with a string that is not UTF-8; the file is damaged or no Chakra trace",
}


@dataclass(frozen=True, eq=False)
class ScannedNodes:
    """The nodes of a file as columns; the same fields as in ``Trace``."""

    id_N: np.ndarray
    name_N: np.ndarray
    type_N: np.ndarray
    start_us_N: np.ndarray
    duration_us_N: np.ndarray
    data_deps: Ragged
    ctrl_deps: Ragged
    io_N6: np.ndarray
    attributes: AttributeTable
    strings: tuple[str, ...]


def scan_nodes(data: bytes, start: int, source: str, notes: NoteCollector) -> ScannedNodes:
    """Read the length-prefixed nodes in ``data[start:]`` into columns.

    Args:
        data: The whole file, unpacked.
        start: Where the first node's length prefix stands.
        source: File name for messages.
        notes: Takes the fields that no known schema has; they are left out.

    Raises:
        TraceError: If a message is cut off, damaged, or has a field or type that the schema lacks;
            names the node and the byte.
    """
    native = library()
    totals, fault = _Totals(), _Fault()
    address = ctypes.c_char_p(data)
    span = (address, ctypes.c_int64(start), ctypes.c_int64(len(data)))
    status = native.wire_count(*span, ctypes.byref(totals), ctypes.byref(fault))
    _raise_fault(status, fault, source)
    _check_memory(totals, source)
    for new in totals.unknown[: totals.kinds_unknown]:
        where = f"node number {new.node}"
        message = _MESSAGES[new.message]
        note_field(notes, message, new.number, where, new.count)
    arrays = _allocate(totals)
    strings, blobs = _Pool(), _Pool()
    try:
        pools = (strings.handle, blobs.handle)
        status = native.wire_read(
            *span, ctypes.byref(_addresses(arrays)), *pools, ctypes.byref(fault)
        )
        _raise_fault(status, fault, source)
        texts, payloads = strings.texts(data, source), blobs.slices(data)
    finally:
        strings.close()
        blobs.close()
    return _assemble(arrays, _with_storage(arrays, texts), payloads)


def note_field(
    notes: NoteCollector, message: str, number: int, where: str = "", count: int = 1
) -> None:
    """Note a field of protobuf that no known schema has."""
    effect = "not known; the field is " + ("kept" if message == _MESSAGES[-1] else "left out")
    notes.add(NoteKind.KEY, f"field {number} of {message}", effect, where=where, count=count)


def _with_storage(arrays: dict[str, np.ndarray], texts: tuple[str, ...]) -> tuple[str, ...]:
    is_storage_A = arrays["attr_name"] == _STORAGE_ROW
    if not is_storage_A.any():
        return texts
    strings = texts if STORAGE in texts else (*texts, STORAGE)
    arrays["attr_name"][is_storage_A] = strings.index(STORAGE)
    return strings


_STORAGE_ROW = -2
"""Name of storage rows in native/wire."""


def write_nodes(trace: Trace, head: bytes) -> bytes:
    """Return ``head`` and after it all nodes as length-prefixed messages in field order.

    Raises:
        TraceError: If the columns of the trace contradict each other.
    """
    arrays = checked_columns(trace)
    strings, strings_ptr = _join([text.encode() for text in trace.strings])
    blobs, blobs_ptr = _join(trace.attributes.blobs)
    native = library()
    native.wire_measure.restype = native.wire_write.restype = ctypes.c_int64
    columns = _addresses(arrays)
    arguments = (
        ctypes.c_int64(trace.num_nodes),
        ctypes.byref(columns),
        ctypes.byref(_texts(strings, strings_ptr)),
        ctypes.byref(_texts(blobs, blobs_ptr)),
    )
    size = native.wire_measure(*arguments)
    if size < 0:
        raise TraceError(
            f"{trace.source}: node {int(trace.id_N[-1 - size])} needs more than 2 GiB, which "
            "protobuf forbids; shorten its strings or lists."
        )
    out = np.empty(len(head) + size, dtype=np.uint8)
    out[: len(head)] = np.frombuffer(head, dtype=np.uint8)
    written = native.wire_write(*arguments, ctypes.c_void_p(out.ctypes.data + len(head)))
    assert written == size, (written, size)
    return out.tobytes()


class _Pool:
    def __init__(self) -> None:
        native = library()
        native.wire_pool_new.restype = ctypes.c_void_p
        native.wire_pool_size.restype = ctypes.c_int64
        made = native.wire_pool_new(ctypes.c_uint64(secrets.randbits(64)))
        if not made:
            raise MemoryError("no memory for the string pool of a trace")
        self.handle = ctypes.c_void_p(made)

    def close(self) -> None:
        """Give the memory back."""
        library().wire_pool_free(self.handle)

    def _spans(self) -> tuple[np.ndarray, np.ndarray]:
        """Return where each string starts in the file, and its length."""
        native = library()
        count = native.wire_pool_size(self.handle)
        offset, length = np.empty(count, np.int64), np.empty(count, np.int64)
        native.wire_pool_spans(
            self.handle, ctypes.c_void_p(offset.ctypes.data), ctypes.c_void_p(length.ctypes.data)
        )
        return offset, length

    def slices(self, data: bytes) -> tuple[bytes, ...]:
        """Return the strings as bytes."""
        offset, length = self._spans()
        ends = (offset + length).tolist()
        return tuple([data[a:b] for a, b in zip(offset.tolist(), ends, strict=True)])

    def texts(self, data: bytes, source: str) -> tuple[str, ...]:
        """Return the strings as text. Raises TraceError where one is not UTF-8."""
        offset, length = self._spans()
        begins, ends = offset.tolist(), (offset + length).tolist()
        try:
            return tuple([str(data[a:b], "utf-8") for a, b in zip(begins, ends, strict=True)])
        except UnicodeDecodeError as error:
            bad = data.find(error.object)
            raise TraceError(
                f"{source}: the string at byte {bad} is not UTF-8; the file is damaged or no "
                "Chakra trace."
            ) from None


def _raise_fault(status: int, fault: _Fault, source: str) -> None:
    if status:
        known = f" (id {fault.id})" if fault.has_id else ""
        reason = _REASONS[status].format(detail=fault.detail)
        raise TraceError(
            f"{source}: node number {fault.node}{known} at byte {fault.offset} {reason}."
        )


def _check_memory(totals: _Totals, source: str) -> None:
    needed = 100 * totals.nodes + 8 * (totals.data_deps + totals.ctrl_deps)
    needed += 20 * totals.attributes
    if needed > _SMALL and needed > available_memory() // 2:
        raise TraceError(
            f"{source}: {totals.nodes:,} nodes with {totals.attributes:,} attributes need "
            f"{needed / 2**30:.1f} GiB, more than half of the memory that is free; cut the trace."
        )


def _allocate(totals: _Totals) -> dict[str, np.ndarray]:
    nodes, attributes = totals.nodes, totals.attributes
    return {
        "id": np.empty(nodes, np.uint64),
        "name": np.empty(nodes, np.int32),
        "type": np.empty(nodes, np.uint8),
        "start_us": np.empty(nodes, np.uint64),
        "duration_us": np.empty(nodes, np.uint64),
        "data_ptr": np.empty(nodes + 1, np.int64),
        "data_deps": np.empty(totals.data_deps, np.uint64),
        "ctrl_ptr": np.empty(nodes + 1, np.int64),
        "ctrl_deps": np.empty(totals.ctrl_deps, np.uint64),
        "io": np.empty((nodes, 6), np.int32),
        "attr_ptr": np.empty(nodes + 1, np.int64),
        "attr_name": np.empty(attributes, np.int32),
        "attr_wire": np.empty(attributes, np.uint8),
        "attr_word": np.empty(attributes, np.uint64),
        "attr_doc": np.empty(attributes, np.int32),
    }


def _assemble(
    arrays: dict[str, np.ndarray], strings: tuple[str, ...], blobs: tuple[bytes, ...]
) -> ScannedNodes:
    return ScannedNodes(
        id_N=arrays["id"],
        name_N=arrays["name"],
        type_N=arrays["type"],
        start_us_N=arrays["start_us"],
        duration_us_N=arrays["duration_us"],
        data_deps=Ragged(arrays["data_ptr"], arrays["data_deps"]),
        ctrl_deps=Ragged(arrays["ctrl_ptr"], arrays["ctrl_deps"]),
        io_N6=arrays["io"],
        attributes=AttributeTable(
            ptr_N1=arrays["attr_ptr"],
            name_A=arrays["attr_name"],
            wire_A=arrays["attr_wire"],
            word_A=arrays["attr_word"],
            doc_A=arrays["attr_doc"],
            blobs=blobs,
        ),
        strings=strings,
    )


def _join(parts: Sequence[bytes]) -> tuple[bytes, np.ndarray]:
    ptr = np.zeros(len(parts) + 1, dtype=np.int64)
    np.cumsum([len(part) for part in parts], out=ptr[1:])
    return b"".join(parts), ptr


def _texts(joined: bytes, ptr: np.ndarray) -> _Texts:
    """Return the C view; the caller keeps both arguments alive."""
    return _Texts(ctypes.cast(ctypes.c_char_p(joined), ctypes.c_void_p), ptr.ctypes.data)


def _addresses(arrays: dict[str, np.ndarray]) -> _Columns:
    """Return the C view of the columns; the caller keeps the arrays alive."""
    return _Columns(*(arrays[name].ctypes.data for name in _COLUMNS))
