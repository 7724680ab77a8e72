"""Values of Chakra attributes as 64-bit words and list payloads, and back.

Field numbers and encodings are those of ``AttributeProto`` (chakra ``et_def.proto``, schema 0.0.4 =
1.0.0): each alternative of the oneof is a ``Wire`` value, and its list form is that value plus one.
"""

import struct
from collections.abc import Iterable

from layerdag.errors import TraceError
from layerdag.traces import Attribute, AttributeTable, Wire, wire_name
from layerdag.traces.chakra._protobuf import (
    FIXED32,
    FIXED64,
    LENGTH,
    VARINT,
    Cursor,
    length_delimited,
    varint,
)

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
    """Return the bytes of a string or bytes element."""
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
