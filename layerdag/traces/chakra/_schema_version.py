"""Which version of the Chakra schema a file was written with, detected from its fields."""

from layerdag.errors import TraceError
from layerdag.traces.chakra._protobuf import FIXED32, FIXED64, LENGTH, VARINT, Cursor

CURRENT = "1.0.0"
_LOOK_AT = 64


def detect_schema_version(data: bytes, source: str) -> str:
    """Return "0.0.1", "0.0.2", "0.0.3" or "1.0.0" (which is 0.0.4 on the wire).

    Only the first messages are looked at, and no more of each than its tags. What cannot be parsed
    counts as 1.0.0, whose reader gives the better message.

    Raises:
        TraceError: If nodes of 1.0.0 stand at the very beginning, where metadata must be.
    """
    shapes = _first_shapes(data)
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


def _first_shapes(data: bytes) -> list[set[tuple[int, int]]]:
    """Return (field number, wire type) pairs of the first messages, as far as they parse."""
    shapes: list[set[tuple[int, int]]] = []
    at = 0
    try:
        while at < len(data) and len(shapes) < _LOOK_AT:
            head = Cursor(data[at : at + 10])
            size = head.varint()
            begin = at + head.position
            if begin + size > len(data):
                break
            shapes.append(_shape(data[begin : begin + size]))
            at = begin + size
    except TraceError:
        pass
    return shapes


def _shape(message: bytes) -> set[tuple[int, int]]:
    """Return the (field number, wire type) pairs of a message."""
    found = set()
    cursor = Cursor(message)
    while not cursor.done:
        number, kind = cursor.tag()
        if kind not in (VARINT, LENGTH, FIXED32, FIXED64):
            raise TraceError("unknown wire type")
        found.add((number, kind))
        cursor.skip(kind)
    return found
