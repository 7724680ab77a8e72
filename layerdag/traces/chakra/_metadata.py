"""The GlobalMetadata message at the head of a Chakra trace: a version and a few attributes."""

from layerdag.errors import TraceError
from layerdag.traces import Attribute, Wire
from layerdag.traces.chakra._attributes import (
    decode_text,
    is_list,
    list_to_payload,
    payload_to_list,
    read_scalar,
    scalar_bytes,
    scalar_kind,
)
from layerdag.traces.chakra._protobuf import LENGTH, Cursor, length_delimited, tag


def decode_metadata(payload: bytes) -> tuple[str, tuple[Attribute, ...]]:
    """Return (version, attributes) of a GlobalMetadata message.

    Raises:
        TraceError: If the bytes are no such message.
    """
    version, attributes = "", []
    message = Cursor(payload)
    while not message.done:
        number, kind = message.tag()
        if number not in (1, 2) or kind != LENGTH:
            raise TraceError(f"field {number} is not part of GlobalMetadata")
        field = message.bytes()
        # Before the version took field 1, attributes stood there; these begin with a tag.
        if number == 1 and not field.startswith(b"\n"):
            version = decode_text(field)
        else:
            attributes.append(decode_attribute(field))
    return version, tuple(attributes)


def decode_attribute(payload: bytes) -> Attribute:
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
        else:
            wire, value = number, _value(number, kind, message)
    return Attribute(name, wire, value, doc)


def _value(number: int, kind: int, message: Cursor) -> object:
    """Return the value of field ``number`` of an AttributeProto."""
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
