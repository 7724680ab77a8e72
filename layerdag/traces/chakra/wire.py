"""The compiled scanner and writer of Chakra messages, with metadata and checks."""

import ctypes
import secrets
from collections.abc import Mapping
from contextlib import closing

import numpy as np

from layerdag.errors import TraceError
from layerdag.graph.topology import pointers
from layerdag.runtime.native import library
from layerdag.runtime.notes import NoteCollector, NoteKind
from layerdag.runtime.reading import available_memory
from layerdag.traces.builder import (
    LENGTH,
    Cursor,
    decode_text,
    length_delimited,
    read_value,
    tag,
    value_bytes,
    value_kind,
)
from layerdag.traces.trace import STORAGE, Attribute, AttributeTable, NodeType, Ragged, Trace, Wire

# Type and number of values of each column, in the order of columns_t in native/wire/wire.h.
_COLUMNS: Mapping[str, tuple[type[np.generic], str]] = {
    "id": (np.uint64, "nodes"),
    "name": (np.int32, "nodes"),
    "type": (np.uint8, "nodes"),
    "start_us": (np.uint64, "nodes"),
    "duration_us": (np.uint64, "nodes"),
    "data_ptr": (np.int64, "nodes + 1"),
    "data_deps": (np.uint64, "data_deps"),
    "ctrl_ptr": (np.int64, "nodes + 1"),
    "ctrl_deps": (np.uint64, "ctrl_deps"),
    "io": (np.int32, "6 nodes"),
    "attr_ptr": (np.int64, "nodes + 1"),
    "attr_name": (np.int32, "attributes"),
    "attr_wire": (np.uint8, "attributes"),
    "attr_word": (np.uint64, "attributes"),
    "attr_doc": (np.int32, "attributes"),
}


def _sizes(nodes: int, data_deps: int, ctrl_deps: int, attributes: int) -> dict[str, int]:
    """Return the number of values of each column."""
    size_of = {"nodes": nodes, "nodes + 1": nodes + 1, "6 nodes": 6 * nodes}
    size_of |= {"data_deps": data_deps, "ctrl_deps": ctrl_deps, "attributes": attributes}
    return {label: size_of[count] for label, (_, count) in _COLUMNS.items()}


def checked_columns(trace: Trace) -> dict[str, np.ndarray]:
    """Return the columns under the names that ``native/wire/wire.h`` gives them, contiguous.

    Raises:
        TraceError: If lengths, pointers or indexes contradict each other.
    """
    table, data, ctrl = trace.attributes, trace.data_deps, trace.ctrl_deps
    columns = dict(
        zip(
            _COLUMNS,
            (
                *(trace.id_N, trace.name_N, trace.type_N, trace.start_us_N, trace.duration_us_N),
                *(data.ptr_N1, data.values, ctrl.ptr_N1, ctrl.values, trace.io_N6),
                *(table.ptr_N1, table.name_A, table.wire_A, table.word_A, table.doc_A),
            ),
            strict=True,
        )
    )
    sizes = _sizes(trace.num_nodes, data.values.size, ctrl.values.size, table.wire_A.size)
    for label, size in sizes.items():
        found = columns[label].size
        _ensure(found == size, trace, f"column {label} has {found} values, not {size}")
    for label, last in (("data", "data_deps"), ("ctrl", "ctrl_deps"), ("attr", "attr_name")):
        ptr_N1, total = columns[f"{label}_ptr"], sizes[last]
        fine = ptr_N1[0] == 0 and ptr_N1[-1] == total and (np.diff(ptr_N1) >= 0).all()
        _ensure(fine, trace, f"the {label} pointers do not run from 0 to {total}")
    _check_indexes(trace)
    arrays = {
        label: np.ascontiguousarray(columns[label], kind) for label, (kind, _) in _COLUMNS.items()
    }
    if STORAGE in trace.strings:
        is_named_A = table.name_A == trace.strings.index(STORAGE)
        is_storage_A = is_named_A & (table.wire_A == Wire.BYTES)
        arrays["attr_name"] = np.where(is_storage_A, _STORAGE_ROW, table.name_A).astype(np.int32)
    return arrays


def _ensure(condition: object, trace: Trace, message: str) -> None:
    if not condition:
        raise TraceError(f"{trace.source}: {message}; the trace was put together wrongly.")


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
        TraceError: If the bytes are not such a message.
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
        elif number < Wire.DOUBLE:
            raise TraceError(f"field {number} is not part of an attribute")
        elif kind != value_kind(number):
            raise TraceError(f"field {number} of an attribute has wire type {kind}")
        else:
            wire, value = number, read_value(number, message)
    return Attribute(name, wire, value, doc)


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
    wire = attribute.wire
    if wire != Wire.UNSET:
        parts.append(tag(wire, value_kind(wire)) + value_bytes(wire, attribute.value))
    return b"".join(parts)


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


def scan_nodes(data: bytes, start: int, source: str, notes: NoteCollector) -> Trace:
    """Read the length-prefixed nodes in ``data[start:]``, where ``data`` is the whole plain file.

    Fields that no known schema has are left out and noted.

    Raises:
        TraceError: If a message is cut off, damaged, or has a field or type that the schema lacks;
            names the node and the byte.
    """
    native = library()
    totals, fault = _Totals(), _Fault()
    span = (ctypes.c_char_p(data), ctypes.c_int64(start), ctypes.c_int64(len(data)))
    status = native.wire_count(*span, ctypes.byref(totals), ctypes.byref(fault))
    _raise_fault(status, fault, source)
    _check_memory(totals, source)
    for new in totals.unknown[: totals.kinds_unknown]:
        note_field(notes, _MESSAGES[new.message], new.number, f"node number {new.node}", new.count)
    sizes = _sizes(totals.nodes, totals.data_deps, totals.ctrl_deps, totals.attributes)
    arrays = {label: np.empty(sizes[label], kind) for label, (kind, _) in _COLUMNS.items()}
    with closing(_Pool()) as strings, closing(_Pool()) as blobs:
        pools = (strings.handle, blobs.handle)
        status = native.wire_read(
            *span, ctypes.byref(_addresses(arrays)), *pools, ctypes.byref(fault)
        )
        _raise_fault(status, fault, source)
        parts, payloads = strings.slices(data), blobs.slices(data)
    try:
        texts = tuple([str(part, "utf-8") for part in parts])
    except UnicodeDecodeError as error:
        raise TraceError(
            f"{source}: the string at byte {data.find(error.object)} is not UTF-8; the file is "
            "damaged or no Chakra trace."
        ) from None
    is_storage_A = arrays["attr_name"] == _STORAGE_ROW
    if is_storage_A.any():
        texts = texts if STORAGE in texts else (*texts, STORAGE)
        arrays["attr_name"][is_storage_A] = texts.index(STORAGE)
    return Trace(
        id_N=arrays["id"],
        name_N=arrays["name"],
        type_N=arrays["type"],
        start_us_N=arrays["start_us"],
        duration_us_N=arrays["duration_us"],
        data_deps=Ragged(arrays["data_ptr"], arrays["data_deps"]),
        ctrl_deps=Ragged(arrays["ctrl_ptr"], arrays["ctrl_deps"]),
        io_N6=arrays["io"].reshape(-1, 6),
        attributes=AttributeTable(
            ptr_N1=arrays["attr_ptr"],
            name_A=arrays["attr_name"],
            wire_A=arrays["attr_wire"],
            word_A=arrays["attr_word"],
            doc_A=arrays["attr_doc"],
            blobs=payloads,
        ),
        strings=texts,
        source=source,
    )


def note_field(
    notes: NoteCollector, message: str, number: int, where: str = "", count: int = 1
) -> None:
    """Note a field of protobuf that no known schema has."""
    effect = "not known; the field is " + ("kept" if message == _MESSAGES[-1] else "left out")
    notes.add(NoteKind.KEY, f"field {number} of {message}", effect, where=where, count=count)


_STORAGE_ROW = -2
"""Name of storage rows in native/wire."""


def write_nodes(trace: Trace, head: bytes) -> bytes:
    """Return ``head`` and after it all nodes as length-prefixed messages in field order.

    Raises:
        TraceError: If the columns of the trace contradict each other.
    """
    arrays = checked_columns(trace)
    texts, blobs = [text.encode() for text in trace.strings], trace.attributes.blobs
    strings_ptr, blobs_ptr = (pointers([len(part) for part in held]) for held in (texts, blobs))
    joined_texts, joined_blobs = b"".join(texts), b"".join(blobs)
    native = library()
    native.wire_measure.restype = native.wire_write.restype = ctypes.c_int64
    columns = _addresses(arrays)
    arguments = (
        ctypes.c_int64(trace.num_nodes),
        ctypes.byref(columns),
        ctypes.byref(_texts(joined_texts, strings_ptr)),
        ctypes.byref(_texts(joined_blobs, blobs_ptr)),
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
        library().wire_pool_free(self.handle)

    def slices(self, data: bytes) -> tuple[bytes, ...]:
        """Return the strings, which stand in the file."""
        native = library()
        count = native.wire_pool_size(self.handle)
        offset, length = np.empty(count, np.int64), np.empty(count, np.int64)
        native.wire_pool_spans(
            self.handle, ctypes.c_void_p(offset.ctypes.data), ctypes.c_void_p(length.ctypes.data)
        )
        ends = (offset + length).tolist()
        return tuple([data[a:b] for a, b in zip(offset.tolist(), ends, strict=True)])


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


def _texts(joined: bytes, ptr: np.ndarray) -> _Texts:
    """Return the C view; the caller keeps both arguments alive."""
    return _Texts(ctypes.cast(ctypes.c_char_p(joined), ctypes.c_void_p), ptr.ctypes.data)


def _addresses(arrays: dict[str, np.ndarray]) -> _Columns:
    """Return the C view of the columns; the caller keeps the arrays alive."""
    return _Columns(*(arrays[name].ctypes.data for name in _COLUMNS))
