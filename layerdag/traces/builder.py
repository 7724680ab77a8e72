"""Build traces from Python objects: attributes, values, protobuf primitives.

The bulk of a trace is scanned in C (``native/wire/read.c``); the primitives of the Protocol Buffers
encoding are for file metadata, list values and the older schema versions. Facts:
protobuf.dev/programming-guides/encoding.

Values of attributes are 64-bit words and list payloads. Field numbers and encodings are those of
``AttributeProto`` (chakra ``et_def.proto``, schema 0.0.4 = 1.0.0): each alternative of the oneof is
a ``Wire`` value, and its list form is that value plus one.
"""

import struct
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

from layerdag.errors import TraceError
from layerdag.traces.trace import (
    Attribute,
    AttributeTable,
    NodeType,
    Ragged,
    Trace,
    Wire,
    wire_name,
)

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5


def varint(value: int) -> bytes:
    """Return ``value`` (0 <= value < 2**64) as a base-128 varint, low group first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def tag(number: int, kind: int) -> bytes:
    """Return the tag of field ``number`` with wire type ``kind``."""
    return varint(number << 3 | kind)


def length_delimited(number: int, payload: bytes) -> bytes:
    """Return field ``number`` holding ``payload`` (string, bytes, message or packed list)."""
    return tag(number, LENGTH) + varint(len(payload)) + payload


class Cursor:
    """A bounds-checked reader over the bytes of one message."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def done(self) -> bool:
        """Whether every byte was read."""
        return self._at >= len(self._data)

    @property
    def position(self) -> int:
        """Number of bytes read so far."""
        return self._at

    def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes. Raises TraceError if there are fewer."""
        end = self._at + size
        if end > len(self._data):
            raise TraceError(
                f"a field of {size} bytes stands {len(self._data) - self._at} bytes before the end "
                "of its message"
            )
        chunk = self._data[self._at : end]
        self._at = end
        return chunk

    def varint(self) -> int:
        """Return the next varint, cut to 64 bits. Raises TraceError beyond 10 bytes."""
        value = 0
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & (1 << 64) - 1
        raise TraceError("a variable-length integer has more than 10 bytes")

    def tag(self) -> tuple[int, int]:
        """Return (field number, wire type). Raises TraceError on field number 0."""
        word = self.varint()
        if word >> 3 == 0:
            raise TraceError("a field has number 0, which no schema uses")
        return word >> 3, word & 7

    def bytes(self) -> "bytes":
        """Return the payload of a length-delimited field."""
        return self.take(self.varint())

    def skip(self, kind: int) -> None:
        """Skip one field of wire type ``kind``. Raises TraceError on an unknown wire type."""
        if kind == VARINT:
            self.varint()
        elif kind == LENGTH:
            self.bytes()
        elif kind in (FIXED64, FIXED32):
            self.take(8 if kind == FIXED64 else 4)
        else:
            raise TraceError(f"wire type {kind} is not part of this format")


MASK64 = (1 << 64) - 1

_FIXED = {
    Wire.DOUBLE: "<d",
    Wire.FLOAT: "<f",
    Wire.FIXED32: "<I",
    Wire.FIXED64: "<Q",
    Wire.SFIXED32: "<i",
    Wire.SFIXED64: "<q",
}
_RANGE = {
    Wire.INT32: (-(2**31), 2**31 - 1),
    Wire.SINT32: (-(2**31), 2**31 - 1),
    Wire.SFIXED32: (-(2**31), 2**31 - 1),
    Wire.INT64: (-(2**63), 2**63 - 1),
    Wire.SINT64: (-(2**63), 2**63 - 1),
    Wire.SFIXED64: (-(2**63), 2**63 - 1),
    Wire.UINT32: (0, 2**32 - 1),
    Wire.FIXED32: (0, 2**32 - 1),
    Wire.UINT64: (0, 2**64 - 1),
    Wire.FIXED64: (0, 2**64 - 1),
    Wire.BOOL: (0, 1),
}
_FLOATS = (Wire.DOUBLE, Wire.FLOAT)
_ZIGZAG = (Wire.SINT32, Wire.SINT64)


def is_list(wire: int) -> bool:
    """Return whether ``wire`` is the list form of an alternative."""
    return wire != Wire.UNSET and wire % 2 == 0


def scalar_to_word(wire: int, value: object) -> int:
    """Return the 64-bit word of a number or bool, as ``AttributeTable.word_A`` holds it.

    Raises:
        TraceError: If ``value`` is no number, or out of the range of ``wire``.
    """
    if not isinstance(value, int | float):
        raise TraceError(f"{wire_name(wire)} needs a number, found {value!r}.")
    if wire in _FLOATS:
        try:
            packed = struct.pack(_FIXED[Wire(wire)], value)
        except (OverflowError, struct.error):
            raise TraceError(f"{value!r} does not fit into {wire_name(wire)}.") from None
        return int.from_bytes(packed, "little")
    low, high = _RANGE[Wire(wire)]
    whole = isinstance(value, int) or value.is_integer()
    if not whole or not low <= value <= high:
        raise TraceError(
            f"{value!r} does not fit into {wire_name(wire)}; it holds integers {low} to {high}."
        )
    return int(value) & MASK64


def word_to_scalar(wire: int, word: int) -> float | int | bool:
    """Return the number or bool that ``scalar_to_word`` turned into ``word``."""
    if wire == Wire.BOOL:
        return bool(word)
    if wire in _FLOATS:
        size = struct.calcsize(_FIXED[Wire(wire)])
        return float(struct.unpack(_FIXED[Wire(wire)], word.to_bytes(size, "little"))[0])
    low, _ = _RANGE[Wire(wire)]
    return word - (1 << 64) if low < 0 and word >> 63 else word


def scalar_kind(wire: int) -> int:
    """Return the protobuf wire type of a number or bool."""
    if wire not in _FIXED:
        return VARINT
    return FIXED64 if struct.calcsize(_FIXED[Wire(wire)]) == 8 else FIXED32


def scalar_bytes(wire: int, value: object) -> bytes:
    """Return a number or bool as it stands on the wire after its tag, or in a packed list."""
    word = scalar_to_word(wire, value)
    if wire in _FIXED:
        size = struct.calcsize(_FIXED[Wire(wire)])
        return (word & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    if wire in _ZIGZAG:
        word = (word << 1 ^ (MASK64 if word >> 63 else 0)) & MASK64
    return varint(word)


def list_to_payload(wire: int, values: Iterable[object]) -> bytes:
    """Return the serialized list message ``{repeated values = 1}``; ``wire`` is the list form.

    Raises:
        TraceError: If an element does not have the element type.
    """
    scalar = wire - 1
    if scalar in (Wire.STRING, Wire.BYTES):
        return b"".join(length_delimited(1, _text_bytes(scalar, value)) for value in values)
    packed = b"".join(scalar_bytes(scalar, value) for value in values)
    return length_delimited(1, packed) if packed else b""


def _text_bytes(wire: int, value: object) -> bytes:
    if wire == Wire.STRING and isinstance(value, str):
        return encode_text(value)
    if wire == Wire.BYTES and isinstance(value, bytes):
        return value
    raise TraceError(f"{wire_name(wire)} cannot hold {value!r}.")


def payload_to_list(wire: int, payload: bytes) -> tuple[object, ...]:
    """Return the elements of a serialized list message, packed or not; ``wire`` is the list form.

    Raises:
        TraceError: If the payload is not a list of that type.
    """
    scalar = wire - 1
    is_text = scalar in (Wire.STRING, Wire.BYTES)
    values: list[object] = []
    outer = Cursor(payload)
    while not outer.done:
        number, kind = outer.tag()
        if number != 1 or (kind != LENGTH and (is_text or kind != scalar_kind(scalar))):
            raise TraceError(f"{wire_name(wire)} holds an element of another type")
        if is_text:
            data = outer.bytes()
            values.append(decode_text(data) if scalar == Wire.STRING else data)
        elif kind == LENGTH:
            inner = Cursor(outer.bytes())
            while not inner.done:
                values.append(read_scalar(scalar, inner))
        else:
            values.append(read_scalar(scalar, outer))
    return tuple(values)


def encode_text(text: str) -> bytes:
    """Return text as UTF-8, or raise TraceError for half of a surrogate pair."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise TraceError(
            f"the string {text!r:.60} holds half of a surrogate pair, which no Chakra trace can "
            "hold; correct it."
        ) from None


def decode_text(data: bytes) -> str:
    """Return UTF-8 bytes as text, or raise TraceError."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise TraceError("a string is not UTF-8") from None


def read_scalar(wire: int, cursor: Cursor) -> object:
    """Read one number or bool of type ``wire``."""
    if wire in _FIXED:
        code = _FIXED[Wire(wire)]
        return struct.unpack(code, cursor.take(struct.calcsize(code)))[0]
    word = cursor.varint()
    if wire in _ZIGZAG:
        return (word >> 1) ^ -(word & 1)
    if wire in (Wire.INT32, Wire.UINT32):
        word &= (1 << 32) - 1
        return word - (1 << 32) if wire == Wire.INT32 and word >> 31 else word
    return word_to_scalar(wire, word)


def value_of(table: AttributeTable, row: int, strings: tuple[str, ...]) -> object:
    """Return the Python value of attribute ``row``: number, bool, str, bytes, tuple, or None."""
    wire, word = int(table.wire_A[row]), int(table.word_A[row])
    if wire == Wire.UNSET:
        return None
    if wire == Wire.STRING:
        return strings[word]
    if wire == Wire.BYTES:
        return table.blobs[word]
    if is_list(wire):
        return payload_to_list(wire, table.blobs[word])
    return word_to_scalar(wire, word)


def attribute_at(table: AttributeTable, row: int, strings: tuple[str, ...]) -> Attribute:
    """Return attribute ``row`` of the table as a self-contained ``Attribute``."""
    name, doc = int(table.name_A[row]), int(table.doc_A[row])
    return Attribute(
        name="" if name < 0 else strings[name],
        wire=int(table.wire_A[row]),
        value=value_of(table, row, strings),
        doc="" if doc < 0 else strings[doc],
    )


T = TypeVar("T")


@dataclass(frozen=True)
class NodeSpec:
    """One node of a trace to be built.

    Attributes:
        id: Unique in its trace, 0 <= id < 2**64. ASTRA-sim issues ready nodes by ascending id.
        name: Node name.
        type: A ``NodeType``.
        data_deps: Ids of nodes that must finish before this one starts.
        ctrl_deps: Ids of control dependencies; leave empty for ASTRA-sim, which enforces them too.
        start_us: Start in microseconds.
        duration_us: Duration in microseconds.
        attributes: Further attributes, in file order.
        io: inputs.values/shapes/types and outputs.values/shapes/types; None for absent.
    """

    id: int
    name: str
    type: int
    data_deps: tuple[int, ...] = ()
    ctrl_deps: tuple[int, ...] = ()
    start_us: int = 0
    duration_us: int = 0
    attributes: tuple[Attribute, ...] = ()
    io: tuple[str | None, ...] = (None,) * 6


class ValueTable(Generic[T]):
    """Distinct values in order of first use."""

    def __init__(self) -> None:
        self._index: dict[T, int] = {}

    def add(self, value: T) -> int:
        """Return the index of ``value``."""
        return self._index.setdefault(value, len(self._index))

    def values(self) -> tuple[T, ...]:
        """Return all values by index."""
        return tuple(self._index)


def build_trace(
    nodes: Sequence[NodeSpec],
    *,
    metadata: tuple[Attribute, ...] = (),
    version: str = "1.0.0",
    source: str = "<memory>",
) -> Trace:
    """Return the trace with the given nodes, in their order.

    Dependencies are not resolved here: a dangling or cyclic one is found by
    ``layerdag.traces.trace.dependency_edges``.

    Raises:
        TraceError: If a value does not fit its field, or an id occurs twice, naming the node; or if
            a string is no text.
    """
    _check_distinct([node.id for node in nodes], source)
    strings: ValueTable[str] = ValueTable()
    rows = [_node_row(node, strings, source) for node in nodes]
    table = attribute_table([node.attributes for node in nodes], strings, source)
    texts = (text for attribute in metadata for text in _texts(attribute))
    _check_texts((*strings.values(), version, *texts), source)
    head_N5 = np.array([row[:5] for row in rows], dtype=np.uint64).reshape(-1, 5)
    return Trace(
        id_N=head_N5[:, 0].copy(),
        name_N=head_N5[:, 1].astype(np.int32),
        type_N=head_N5[:, 2].astype(np.uint8),
        start_us_N=head_N5[:, 3].copy(),
        duration_us_N=head_N5[:, 4].copy(),
        data_deps=ragged([node.data_deps for node in nodes], source),
        ctrl_deps=ragged([node.ctrl_deps for node in nodes], source),
        io_N6=np.array([row[5:] for row in rows], dtype=np.int32).reshape(-1, 6),
        attributes=table,
        strings=strings.values(),
        version=version,
        metadata=metadata,
        source=source,
    )


class NodeAppender:
    """Nodes appended as plain numbers, for importers of many nodes: no object for an attribute."""

    def __init__(self, source: str = "<memory>") -> None:
        self._source = source
        self._strings: ValueTable[str] = ValueTable()
        self._heads = tuple(array(code) for code in "QiBQQ")
        self._deps = (array("Q"), array("Q"))
        self._ends = (array("q", [0]), array("q", [0]), array("q", [0]))
        self._attributes = tuple(array(code) for code in "iBQ")
        self._io = array("i")

    def text(self, value: str) -> int:
        """Return the word of a string attribute."""
        return self._strings.add(value)

    def attribute(self, name: str, wire: int, word: int) -> None:
        """Append an attribute to the node that `add` completes next; ``word`` as in `Trace`."""
        names, wires, words = self._attributes
        names.append(self._strings.add(name))
        wires.append(wire)
        words.append(word)

    def add(
        self,
        number: int,
        name: str,
        kind: NodeType,
        deps: tuple[Sequence[int], Sequence[int]],
        times_us: tuple[int, int],
        io: Sequence[str | None] = (None,) * 6,
    ) -> None:
        """Append a node with the attributes appended since the last one.

        Args:
            number: Its id.
            name: Its name.
            kind: Its type.
            deps: Ids of its data and of its control dependencies.
            times_us: Start and duration in microseconds.
            io: As in ``NodeSpec``.

        Raises:
            TraceError: If a number does not fit its field.
        """
        head = (number, self._strings.add(name), kind, *times_us)
        try:
            for column, value in zip(self._heads, head, strict=True):
                column.append(value)
            self._deps[0].extend(deps[0])
            self._deps[1].extend(deps[1])
        except OverflowError as error:
            raise TraceError(f"{self._source}: node {number}: {error}.") from None
        self._io.extend([-1 if text is None else self._strings.add(text) for text in io])
        sizes = (len(self._deps[0]), len(self._deps[1]), len(self._attributes[0]))
        for ends, size in zip(self._ends, sizes, strict=True):
            ends.append(size)

    def trace(self) -> Trace:
        """Return the trace of all nodes; version 1.0.0."""
        id_N, name_N, type_N, start_N, duration_N = map(_array, self._heads)
        data, ctrl = (
            Ragged(_array(ends), _array(deps))
            for ends, deps in zip(self._ends, self._deps, strict=False)
        )
        name_A, wire_A, word_A = map(_array, self._attributes)
        return Trace(
            id_N=id_N,
            name_N=name_N,
            type_N=type_N,
            start_us_N=start_N,
            duration_us_N=duration_N,
            data_deps=data,
            ctrl_deps=ctrl,
            io_N6=_array(self._io).reshape(-1, 6),
            attributes=AttributeTable(
                _array(self._ends[2]),
                name_A,
                wire_A,
                word_A,
                np.full(name_A.size, -1, np.int32),
                (),
            ),
            strings=self._strings.values(),
            version="1.0.0",
            source=self._source,
        )


def _array(column: "array[int]") -> np.ndarray:
    return np.array(column)


def with_integers(trace: Trace, name: str, rows: np.ndarray, value_M: np.ndarray) -> Trace:
    """Return a trace in which some nodes have one more attribute, a signed integer.

    Args:
        trace: None of these nodes has the attribute.
        name: Of the attribute.
        rows: Positions of the nodes, ascending, int64 (M,).
        value_M: Their values, int64.
    """
    table = trace.attributes
    strings = trace.strings if name in trace.strings else (*trace.strings, name)
    end_M = table.ptr_N1[rows + 1]
    added_N = np.zeros(trace.num_nodes, dtype=np.int64)
    added_N[rows] = 1
    ptr_N1 = table.ptr_N1 + np.concatenate([[0], np.cumsum(added_N)])
    changed = replace(
        table,
        ptr_N1=ptr_N1,
        name_A=np.insert(table.name_A, end_M, strings.index(name)),
        wire_A=np.insert(table.wire_A, end_M, int(Wire.INT64)),
        word_A=np.insert(table.word_A, end_M, value_M.astype(np.int64).view(np.uint64)),
        doc_A=np.insert(table.doc_A, end_M, -1),
    )
    return replace(trace, attributes=changed, strings=strings)


def ragged(lists: Iterable[Sequence[int]], source: str = "<memory>") -> Ragged:
    """Return lists of ids as one flat uint64 column.

    Raises:
        TraceError: If an id does not fit into 64 unsigned bits.
    """
    held = list(lists)
    ptr_N1 = np.zeros(len(held) + 1, dtype=np.int64)
    np.cumsum([len(ids) for ids in held], out=ptr_N1[1:])
    flat = [value for ids in held for value in ids]
    try:
        return Ragged(ptr_N1, np.array(flat, dtype=np.uint64))
    except OverflowError:
        bad = next(value for value in flat if not 0 <= value <= MASK64)
        raise TraceError(
            f"{source}: a dependency names node {bad}; ids lie between 0 and 2**64 - 1."
        ) from None


def _texts(attribute: Attribute) -> Iterator[str]:
    value = attribute.value
    yield from (attribute.name, attribute.doc)
    for part in value if isinstance(value, tuple) else (value,):
        if isinstance(part, str):
            yield part


def _check_texts(texts: Iterable[str], source: str) -> None:
    """Raise TraceError where a string has no UTF-8 form, which half of a surrogate pair has not."""
    for text in texts:
        try:
            encode_text(text)
        except TraceError as error:
            raise TraceError(f"{source}: {error}") from None


def _check_distinct(ids: list[int], source: str) -> None:
    """Raise TraceError, naming the id, if one occurs twice."""
    if len(set(ids)) == len(ids):
        return
    twice = Counter(ids).most_common(1)[0][0]
    raise TraceError(f"{source}: two nodes have id {twice}; give every node of a rank its own id.")


def _node_row(node: NodeSpec, strings: ValueTable[str], source: str) -> tuple[int, ...]:
    for label, value in (
        ("id", node.id),
        ("start_us", node.start_us),
        ("duration_us", node.duration_us),
    ):
        if not 0 <= value <= MASK64:
            raise TraceError(
                f"{source}: node {node.id} has {label} {value}; it must lie in 0 to 2**64 - 1."
            )
    if not 0 <= node.type < len(NodeType):
        raise TraceError(f"{source}: node {node.id} has type {node.type}; types are 0 to 10.")
    io = (-1 if text is None else strings.add(text) for text in node.io)
    name = strings.add(node.name)
    return (node.id, name, int(node.type), node.start_us, node.duration_us, *io)


def attribute_table(
    lists: Sequence[Sequence[Attribute]], strings: ValueTable[str], source: str
) -> AttributeTable:
    """Return the attributes of all nodes as one table; new strings are added to the pool."""
    ptr_N1 = np.zeros(len(lists) + 1, dtype=np.int64)
    np.cumsum([len(attributes) for attributes in lists], out=ptr_N1[1:])
    flat = [attribute for attributes in lists for attribute in attributes]
    blobs: ValueTable[bytes] = ValueTable()
    try:
        words = [_word(attribute, strings, blobs) for attribute in flat]
    except TraceError as error:
        raise TraceError(f"{source}: {error}") from None
    return AttributeTable(
        ptr_N1=ptr_N1,
        name_A=np.array([strings.add(attribute.name) for attribute in flat], dtype=np.int32),
        wire_A=np.array([attribute.wire for attribute in flat], dtype=np.uint8),
        word_A=np.array(words, dtype=np.uint64),
        doc_A=np.array(
            [strings.add(attribute.doc) if attribute.doc else -1 for attribute in flat],
            dtype=np.int32,
        ),
        blobs=blobs.values(),
    )


def _word(attribute: Attribute, strings: ValueTable[str], blobs: ValueTable[bytes]) -> int:
    """Return the word of one attribute; strings and lists go into their pools."""
    wire, value = attribute.wire, attribute.value
    try:
        if wire == Wire.UNSET:
            return 0
        if is_list(wire) and isinstance(value, tuple | list):
            return blobs.add(list_to_payload(wire, value))
        if wire == Wire.STRING and isinstance(value, str):
            return strings.add(value)
        if wire == Wire.BYTES and isinstance(value, bytes):
            return blobs.add(value)
        if is_list(wire) or wire in (Wire.STRING, Wire.BYTES):
            raise TraceError(f"{wire_name(wire)} cannot hold {value!r}.")
        return scalar_to_word(wire, value)
    except TraceError as error:
        raise TraceError(f"attribute '{attribute.name}': {error}") from None
