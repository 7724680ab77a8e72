"""The few primitives of the Protocol Buffers encoding that small or rare messages need.

The bulk of a trace is scanned in C (``native/wire/read.c``); this is for file metadata, list
values and the older schema versions. Facts: protobuf.dev/programming-guides/encoding.
"""

from layerdag.errors import TraceError

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
