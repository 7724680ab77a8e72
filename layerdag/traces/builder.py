"""Build traces from Python objects: attributes, values, protobuf primitives.

The bulk of a trace is scanned in C (``native/wire/read.c``); the primitives of the Protocol Buffers
encoding (protobuf.dev/programming-guides/encoding) are for file metadata, list values and the older
schema versions. Values of attributes are 64-bit words and list payloads, numbered as in
``AttributeProto`` (chakra ``et_def.proto``, schema 0.0.4 = 1.0.0): each alternative of the oneof is
a ``Wire`` value, and its list form is that value plus one.
"""

import struct
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from layerdag.errors import TraceError
from layerdag.graph.topology import pointers
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
        self.position = 0

    @property
    def done(self) -> bool:
        """Whether every byte was read."""
        return self.position >= len(self._data)

    def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes. Raises TraceError if there are fewer."""
        begin, self.position = self.position, self.position + size
        if self.position > len(self._data):
            raise TraceError(
                f"a field of {size} bytes stands {len(self._data) - begin} bytes before the end "
                "of its message"
            )
        return self._data[begin : self.position]

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
        TraceError: If ``value`` is not a number, or out of the range of ``wire``.
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


def value_kind(wire: int) -> int:
    """Return the protobuf wire type of a value: texts, bytes and lists are length-delimited."""
    if is_list(wire) or wire in (Wire.STRING, Wire.BYTES):
        return LENGTH
    if wire not in _FIXED:
        return VARINT
    return FIXED64 if struct.calcsize(_FIXED[Wire(wire)]) == 8 else FIXED32


def value_bytes(wire: int, value: object) -> bytes:
    """Return a value as it stands on the wire after its tag.

    Raises:
        TraceError: If the value does not fit the type.
    """
    if value_kind(wire) == LENGTH:
        if is_list(wire) and isinstance(value, tuple | list):
            data = list_to_payload(wire, value)
        elif wire == Wire.STRING and isinstance(value, str):
            data = encode_text(value)
        elif wire == Wire.BYTES and isinstance(value, bytes):
            data = value
        else:
            raise TraceError(f"{wire_name(wire)} cannot hold {value!r}.")
        return varint(len(data)) + data
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
    parts = [value_bytes(wire - 1, value) for value in values]
    if value_kind(wire - 1) == LENGTH:
        return b"".join(tag(1, LENGTH) + part for part in parts)
    return length_delimited(1, b"".join(parts)) if parts else b""


def payload_to_list(wire: int, payload: bytes) -> tuple[object, ...]:
    """Return the elements of a serialized list message, packed or not; ``wire`` is the list form.

    Raises:
        TraceError: If the payload is not a list of that type.
    """
    element, expected = wire - 1, value_kind(wire - 1)
    values: list[object] = []
    outer = Cursor(payload)
    while not outer.done:
        number, kind = outer.tag()
        if number != 1 or kind not in (LENGTH, expected):
            raise TraceError(f"{wire_name(wire)} holds an element of another type")
        if kind == expected:
            values.append(read_value(element, outer))
        else:
            inner = Cursor(outer.bytes())
            while not inner.done:
                values.append(read_value(element, inner))
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


def read_value(wire: int, cursor: Cursor) -> object:
    """Read what follows the tag of a value. Raises TraceError if it is damaged."""
    if value_kind(wire) == LENGTH:
        data = cursor.bytes()
        if is_list(wire):
            return payload_to_list(wire, data)
        return decode_text(data) if wire == Wire.STRING else data
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


@dataclass(frozen=True)
class NodeSpec:
    """One node of a trace to be built.

    Attributes:
        id: Unique in its trace, 0 <= id < 2**64. ASTRA-sim issues ready nodes by ascending id.
        type: A ``NodeType``.
        data_deps: Ids of nodes that must finish before this one starts.
        ctrl_deps: Ids of control dependencies; leave empty for ASTRA-sim, which enforces them too.
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
            a string is not text.
    """
    ids = [node.id for node in nodes]
    if len(set(ids)) < len(ids):
        twice = Counter(ids).most_common(1)[0][0]
        raise TraceError(
            f"{source}: two nodes have id {twice}; give every node of a rank its own id."
        )
    columns = NodeAppender(source)
    for node in nodes:
        columns.add_node(node)
    made = columns.trace()
    texts: list[object] = [*made.strings, version]
    for each in metadata:
        values = each.value if isinstance(each.value, tuple) else (each.value,)
        texts += (each.name, each.doc, *values)
    try:
        for text in texts:
            if isinstance(text, str):
                encode_text(text)
    except TraceError as error:
        raise TraceError(f"{source}: {error}") from None
    return replace(made, version=version, metadata=metadata)


class NodeAppender:
    """Nodes appended as plain numbers, for importers of many nodes: no object for an attribute."""

    def __init__(self, source: str = "<memory>") -> None:
        self._source = source
        self._strings: dict[str, int] = {}
        self._blobs: dict[bytes, int] = {}
        self._heads = tuple(array(code) for code in "QiBQQ")
        self._deps = (array("Q"), array("Q"))
        self._ends = (array("q", [0]), array("q", [0]), array("q", [0]))
        self._attributes = tuple(array(code) for code in "iBQi")
        self._io = array("i")

    def text(self, value: str) -> int:
        """Return the word of a string attribute."""
        return self._strings.setdefault(value, len(self._strings))

    def attribute(self, name: str, wire: int, word: int, doc: str = "") -> None:
        """Append an attribute to the node that `add` completes next; ``word`` as in `Trace`."""
        names, wires, words, docs = self._attributes
        names.append(self.text(name))
        wires.append(wire)
        words.append(word)
        docs.append(self.text(doc) if doc else -1)

    def add(
        self,
        number: int,
        name: str,
        kind: int,
        deps: tuple[Sequence[int], Sequence[int]],
        times_us: tuple[int, int],
        io: Sequence[str | None] = (None,) * 6,
    ) -> None:
        """Append a node with the attributes appended since the last one.

        ``deps`` are the ids of its data and control dependencies, ``times_us`` its start and
        duration in microseconds, ``io`` is as in ``NodeSpec``.

        Raises:
            TraceError: If a number does not fit its field.
        """
        head = (number, self.text(name), kind, *times_us)
        try:
            for column, value in zip(self._heads, head, strict=True):
                column.append(value)
            self._deps[0].extend(deps[0])
            self._deps[1].extend(deps[1])
        except OverflowError:
            names = zip(("id", "start_us", "duration_us"), (number, *times_us), strict=True)
            bad = [f"has {name} {value}" for name, value in names if not 0 <= value <= MASK64]
            bad += [f"names node {d}" for part in deps for d in part if not 0 <= d <= MASK64]
            raise TraceError(
                f"{self._source}: node {number} {bad[0]}; it must lie in 0 to 2**64 - 1."
            ) from None
        self._io.extend([-1 if text is None else self.text(text) for text in io])
        sizes = (len(self._deps[0]), len(self._deps[1]), len(self._attributes[0]))
        for ends, size in zip(self._ends, sizes, strict=True):
            ends.append(size)

    def add_node(self, node: NodeSpec) -> None:
        """Append a node as an object. Raises TraceError if a value does not fit its field."""
        if not 0 <= node.type < len(NodeType):
            raise TraceError(
                f"{self._source}: node {node.id} has type {node.type}; types are 0 to 10."
            )
        for each in node.attributes:
            try:
                self.attribute(each.name, each.wire, self._word(each.wire, each.value), each.doc)
            except TraceError as error:
                raise TraceError(f"{self._source}: attribute '{each.name}': {error}") from None
        times = (node.start_us, node.duration_us)
        self.add(node.id, node.name, node.type, (node.data_deps, node.ctrl_deps), times, node.io)

    def _word(self, wire: int, value: object) -> int:
        """Return the word of a value; strings, bytes and lists go into their pools."""
        if wire in _RANGE or wire in _FLOATS:
            return scalar_to_word(wire, value)
        if wire == Wire.UNSET:
            return 0
        if wire == Wire.STRING and isinstance(value, str):
            return self.text(value)
        if is_list(wire) and isinstance(value, tuple | list):
            value = list_to_payload(wire, value)
        if isinstance(value, bytes) and (is_list(wire) or wire == Wire.BYTES):
            return self._blobs.setdefault(value, len(self._blobs))
        raise TraceError(f"{wire_name(wire)} cannot hold {value!r}.")

    def trace(self) -> Trace:
        """Return the trace of all nodes; version 1.0.0."""
        id_N, name_N, type_N, start_N, duration_N = map(np.array, self._heads)
        data, ctrl = (
            Ragged(np.array(ends), np.array(deps))
            for ends, deps in zip(self._ends, self._deps, strict=False)
        )
        name_A, wire_A, word_A, doc_A = map(np.array, self._attributes)
        return Trace(
            id_N=id_N,
            name_N=name_N,
            type_N=type_N,
            start_us_N=start_N,
            duration_us_N=duration_N,
            data_deps=data,
            ctrl_deps=ctrl,
            io_N6=np.array(self._io).reshape(-1, 6),
            attributes=AttributeTable(
                np.array(self._ends[2]), name_A, wire_A, word_A, doc_A, tuple(self._blobs)
            ),
            strings=tuple(self._strings),
            version="1.0.0",
            source=self._source,
        )


def with_words(trace: Trace, name: str, wire: Wire, word_of: Mapping[int, int]) -> Trace:
    """Return the trace with an attribute of some nodes, given as words of the attribute table.

    ``word_of`` has a word by row of the node, a negative one as two's complement. Where a node has
    the attribute already, its value and type are replaced.
    """
    if not word_of:
        return trace
    strings = trace.strings if name in trace.strings else (*trace.strings, name)
    table = trace.attributes
    row_K, node_K = trace.attribute_rows(name)
    changed_K = np.isin(node_K, list(word_of))
    at, nodes = row_K[changed_K], node_K[changed_K].tolist()
    word_A = table.word_A.copy()
    word_A[at] = np.array([word_of[node] & MASK64 for node in nodes], dtype=np.uint64)
    if (table.wire_A[at] != wire).any():
        wire_A = table.wire_A.copy()
        wire_A[at] = wire
        table = replace(table, wire_A=wire_A)
    table = replace(table, word_A=word_A)
    new = np.array(sorted(word_of.keys() - {*nodes}), dtype=np.int64)
    if new.size:
        end_M = table.ptr_N1[new + 1]
        new_M = np.array([word_of[node] & MASK64 for node in new.tolist()], dtype=np.uint64)
        count_N = np.diff(table.ptr_N1)
        count_N[new] += 1
        table = replace(
            table,
            ptr_N1=pointers(count_N),
            name_A=np.insert(table.name_A, end_M, strings.index(name)),
            wire_A=np.insert(table.wire_A, end_M, int(wire)),
            word_A=np.insert(table.word_A, end_M, new_M),
            doc_A=np.insert(table.doc_A, end_M, -1),
        )
    return replace(trace, strings=strings, attributes=table)


def with_texts(trace: Trace, name: str, text_of: Mapping[int, str]) -> Trace:
    """Return the trace with a string attribute of some nodes, given by row of the node."""
    if not text_of:
        return trace
    known = {*trace.strings}
    strings = (*trace.strings, *(t for t in dict.fromkeys(text_of.values()) if t not in known))
    index = {text: at for at, text in enumerate(strings)}
    word_of = {row: index[text] for row, text in text_of.items()}
    return with_words(replace(trace, strings=strings), name, Wire.STRING, word_of)


def ragged(lists: Iterable[Sequence[int]]) -> Ragged:
    """Return lists of ids, each from 0 to 2**64 - 1, as one flat uint64 column."""
    held = list(lists)
    values = [value for ids in held for value in ids]
    return Ragged(pointers([len(ids) for ids in held]), np.array(values, dtype=np.uint64))
