"""Messages of storage nodes."""

from layerdag.traces.builder import VARINT, length_delimited, tag, varint
from layerdag.traces.chakra.storage import _OPERATIONS, _SIZE, LEVELS
from layerdag.traces.trace import STORAGE, Attribute, Wire


def storage_attribute(operation: str, num_bytes: int = 0) -> Attribute:
    """Return what a STORAGE node needs to be an operation such as "fs.read" of so many bytes."""
    layer, _, name = operation.partition(".")
    field, names = next((f, names) for f, (known, names) in _OPERATIONS.items() if known == layer)
    kind = next(number for number, each in names.items() if each == name)
    count, unit = _SIZE[field]
    assert num_bytes % unit == 0
    detail = _number(1, kind) + _number(count, num_bytes // unit)
    message = _number(1, LEVELS.index(layer.upper())) + length_delimited(field, detail)
    return Attribute(STORAGE, Wire.BYTES, message)


def _number(field: int, value: int) -> bytes:
    """Return a field with a number; 0 is left out."""
    return tag(field, VARINT) + varint(value) if value else b""
