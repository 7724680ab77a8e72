"""The bytes of a file, whether it is plain, gzip or xz; recognised by content, never by name."""

import lzma
import zlib
from pathlib import Path

from layerdag.errors import TraceError

MAX_BYTES = 8 << 30
_STEP = 1 << 24


def read_unpacked(path: str | Path, limit: int = MAX_BYTES) -> bytes:
    """Return the content of ``path``, unpacked if it starts with the magic of gzip or xz.

    Args:
        path: A file.
        limit: Refuse to unpack to more bytes than this, so that a small hostile file cannot fill
            the memory.

    Raises:
        TraceError: If the file does not exist, is a folder, is empty, is a damaged archive, or
            unpacks to more than ``limit`` bytes.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise TraceError(f"{path}: there is no such file; check the path.") from None
    except IsADirectoryError:
        raise TraceError(f"{path}: this is a folder; name a file in it.") from None
    if not data:
        raise TraceError(f"{path}: the file is empty; copy or collect it again.")
    try:
        if data[:2] == b"\x1f\x8b":
            return _gunzip(data, path, limit)
        if data[:6] == b"\xfd7zXZ\x00":
            return _unxz(data, path, limit)
    except (zlib.error, lzma.LZMAError) as error:
        raise TraceError(
            f"{path}: the archive is damaged ({str(error).rstrip('.')}); copy the file again."
        ) from None
    return data


def _gunzip(data: bytes, path: Path, limit: int) -> bytes:
    """Unpack all members of a gzip file."""
    parts: list[bytes] = []
    room = limit
    while data:
        # 16 + MAX_WBITS: a gzip header is expected and its checksum verified.
        inflater = zlib.decompressobj(16 + zlib.MAX_WBITS)
        while data and not inflater.eof:
            parts.append(inflater.decompress(data, min(_STEP, room + 1)))
            data = inflater.unconsumed_tail
            room = _remaining(room, parts[-1], path, limit)
        if not inflater.eof:
            raise TraceError(f"{path}: the archive is cut off; copy the file again.")
        data = inflater.unused_data.lstrip(b"\x00")
    return b"".join(parts)


def _unxz(data: bytes, path: Path, limit: int) -> bytes:
    """Unpack all streams of an xz file."""
    parts: list[bytes] = []
    room = limit
    while data:
        inflater = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=1 << 30)
        chunk = data
        while not inflater.eof:
            parts.append(inflater.decompress(chunk, min(_STEP, room + 1)))
            chunk = b""
            room = _remaining(room, parts[-1], path, limit)
            if inflater.needs_input and not inflater.eof:
                raise TraceError(f"{path}: the archive is cut off; copy the file again.")
        data = inflater.unused_data.lstrip(b"\x00")
    return b"".join(parts)


def _remaining(room: int, part: bytes, path: Path, limit: int) -> int:
    """Return the room left after ``part``, or refuse the file."""
    if len(part) > room:
        raise TraceError(
            f"{path}: unpacks to more than {limit >> 20} MiB; unpack it yourself if you trust it."
        )
    return room - len(part)
