"""Reading files from outside, plain, gzip or xz, and limits on what is read and written.

A file that was handed in is not trusted: ten megabytes of gzip can hold ten gigabytes. What is
packed is recognized by content, never by name, is unpacked a piece at a time, and may not hold more
than ``MAX_RATIO`` times its own size (or ``FREE_BYTES``, if that is more). What is read as a whole
may not take more than half of the memory that is left, nor ``MAX_BYTES``.

A job is written as one file per rank, and a checkpoint or trace from outside can state any number
of ranks that share one program, so ``Limits`` bounds output, too.
"""

import io
import lzma
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from layerdag.errors import DataError, LayerdagError, UsageError

# Bytes of a node, measured on jobs of the corpus and samples of the checkpoints. "step" is the
# trace of one rank, per node of the program that the step is derived from.
NODE_BYTES = {
    "et": 135,
    "graphml": 550,
    "json": 135,
    "program": 130,
    "step": 560,
    "feeder-json": 500,
    "parquet": 12,
}


@dataclass(frozen=True)
class Limits:
    """The most that may be written.

    Attributes:
        max_ranks: Ranks of a job, which are its files.
        max_bytes: Bytes of all files together, as estimated.

    Raises:
        UsageError: If one is below 1.
    """

    max_ranks: int = 4096
    max_bytes: int = 16_000_000_000

    def __post_init__(self) -> None:
        for name, value in (("max_ranks", self.max_ranks), ("max_bytes", self.max_bytes)):
            if value < 1:
                raise UsageError(f"'{name}' must be at least 1, found {value}.")


def written_bytes(nodes: int, file_format: str) -> int:
    """Return about how many bytes the nodes of all ranks take together."""
    return nodes * NODE_BYTES[file_format]


def require_few_ranks(num_ranks: int, limits: Limits, what: str) -> None:
    """Refuse a job of more ranks than allowed, before it is unfolded.

    Raises:
        UsageError: Names the job and the setting.
    """
    if num_ranks > limits.max_ranks:
        raise UsageError(
            f"{what}: {num_ranks:,} ranks are more than max_ranks, {limits.max_ranks:,}; ask for "
            "fewer, or raise max_ranks."
        )


def require_few_bytes(num_bytes: int, limits: Limits, what: str) -> None:
    """Refuse to write more than allowed.

    Raises:
        UsageError: Names what was to be written and the setting.
    """
    if num_bytes > limits.max_bytes:
        raise UsageError(
            f"{what}: about {format_size(num_bytes)} are more than max_bytes, "
            f"{format_size(limits.max_bytes)}; ask for less, or raise max_bytes."
        )


def format_size(size: int) -> str:
    """Return a size in the unit that people use for it."""
    for factor, unit in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB")):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size / 1000:,.1f} kB"


# Where nothing says how much is free.
_UNKNOWN = 4 << 30


def available_memory() -> int:
    """Return the bytes that this process can still take without swapping or being refused.

    The minimum of free memory, the limit of the control group (container) and the process's own
    limits (``ulimit -v``, ``ulimit -d``).
    """
    known = [found for found in (_free(), _group_left(), *_process_left()) if found is not None]
    return max(0, min(known, default=_UNKNOWN))


def _free() -> int | None:
    found = _table(Path("/proc/meminfo")).get("MemAvailable")
    if found is not None:
        return found
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def _group_left() -> int | None:
    root = Path("/sys/fs/cgroup")
    for most, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        limit, taken = _number(root / most), _number(root / used)
        if limit is not None and taken is not None:
            return limit - taken
    return None


def _process_left() -> list[int]:
    try:
        import resource
    except ImportError:  # Windows
        return []
    status = _table(Path("/proc/self/status"))
    left = []
    for kind, used in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        limit = resource.getrlimit(kind)[0]
        if limit != resource.RLIM_INFINITY:
            left.append(limit - status.get(used, 0))
    return left


def _table(path: Path) -> dict[str, int]:
    """Return the lines ``name: n kB`` of a file of the kernel, in bytes."""
    try:
        rows = (line.split() for line in path.read_text().splitlines())
        return {row[0][:-1]: int(row[1]) << 10 for row in rows if row[2:] == ["kB"]}
    except (OSError, ValueError):
        return {}


def _number(path: Path) -> int | None:
    """Return the number in a file of the kernel; None for "max" or a missing file."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


MAX_RATIO = 200
"""Real traces and tables pack to a thirtieth, the most regular CSV to a 180th."""

FREE_BYTES = 256 << 20
"""An archive may unpack to so many bytes whatever its size."""

MAX_BYTES = 8 << 30
"""No file is held as a whole beyond this size."""

PARSED_GROWTH = 32
"""JSON or XML of tiny values takes so many times its size when it is parsed."""

MAX_PARSED = 1 << 30
"""No JSON, XML or CSV is parsed as a whole beyond this size."""

SPARE_BYTES = 256 << 20
"""No file is read any further when less memory than this is left."""

_PIECE = 1 << 16
_LOOK = 1 << 24
_STEP = 1 << 20
_WHOLE_STEP = 1 << 24
_UNASKED = 1 << 20  # to ask how much memory is free takes ten times as long as to read a small file
_XZ_MEMORY = 1 << 30


class _Gunzip:
    """zlib with the attributes of ``lzma.LZMADecompressor``."""

    needs_input, eof, unused_data = True, False, b""

    def __init__(self) -> None:
        # 16 + MAX_WBITS: a gzip header is expected and its checksum verified.
        self._inflater = zlib.decompressobj(16 + zlib.MAX_WBITS)

    def decompress(self, data: bytes, max_length: int) -> bytes:
        found = self._inflater.decompress(self._inflater.unconsumed_tail + data, max_length)
        self.needs_input = not self._inflater.unconsumed_tail
        self.eof, self.unused_data = self._inflater.eof, self._inflater.unused_data
        return found


_Decompressor = _Gunzip | lzma.LZMADecompressor


class Unpacked:
    """A stream of the content of an open file, which may be packed.

    Args:
        file: Plain, gzip or xz, of one or several members or streams.
        source: Its name for messages.
        size: Its length in bytes, which bounds the unpacked size.
        error: Class of the error if it is damaged or unpacks to too much.
    """

    def __init__(self, file: BinaryIO, source: str, size: int, error: type[LayerdagError]) -> None:
        self._file, self._source, self._error = file, source, error
        self._rest = file.read(_PIECE)
        self._new_member = _decompressor(self._rest)
        self._member = self._new_member() if self._new_member else None
        self._limit = max(FREE_BYTES, MAX_RATIO * size)
        self._taken = 0

    def read(self, size: int) -> bytes:
        """Return up to ``size`` bytes, at least one before the end.

        Raises:
            LayerdagError: Of the kind asked for, if the archive is damaged, cut off or too large.
        """
        if self._new_member is None:
            found, self._rest = self._rest[:size], self._rest[size:]
            return self._counted(found or self._file.read(size))
        try:
            found = self._counted(self._unpack(min(size, _STEP)))
        except (zlib.error, lzma.LZMAError) as error:
            raise self._error(
                f"{self._source}: the archive is damaged ({str(error).rstrip('.')}); copy the file "
                "again."
            ) from None
        if self._taken > self._limit:
            raise self._error(
                f"{self._source}: unpacks to more than {self._limit >> 20} MiB, far more than "
                "traces and tables of its size do; unpack it yourself if you trust it."
            )
        return found

    def _counted(self, found: bytes) -> bytes:
        """Return ``found``; what the reader made of all before it must have left some memory."""
        before = self._taken // _LOOK
        self._taken += len(found)
        if self._taken // _LOOK > before:
            require_memory(self._source, self._error)
        return found

    def read_full(self, size: int) -> bytes:
        """Return ``size`` bytes, fewer only at the end; errors as in ``read``."""
        parts = []
        while size and (part := self.read(size)):
            parts.append(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _unpack(self, size: int) -> bytes:
        while self._member is not None:
            hungry, data = self._member.needs_input, b""
            if hungry:
                data, self._rest = self._rest or self._file.read(_PIECE), b""
            found = self._member.decompress(data, size)
            if self._member.eof:
                self._rest = self._member.unused_data
                self._member = self._next_member()
            elif hungry and not data and not found:
                raise self._error(f"{self._source}: the archive is cut off; copy the file again.")
            if found:
                return found
        return b""

    def _next_member(self) -> _Decompressor | None:
        """Return the decompressor of the next member, after padding; None at the end."""
        self._rest = self._rest.lstrip(b"\x00")
        while not self._rest and (more := self._file.read(_PIECE)):
            self._rest = more.lstrip(b"\x00")
        return self._new_member() if self._rest and self._new_member else None


def _decompressor(start: bytes) -> Callable[[], _Decompressor] | None:
    """Return the decompressor of a file by its first bytes; None for a plain one."""
    if start[:2] == b"\x1f\x8b":
        return _Gunzip
    if start[:6] == b"\xfd7zXZ\x00":
        return partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, _XZ_MEMORY)
    return None


@contextmanager
def open_unpacked(path: str | Path, error: type[LayerdagError] = DataError) -> Iterator[Unpacked]:
    """Open a file that may be compressed with gzip or xz.

    Raises:
        LayerdagError: ``error``, if there is no such file; while it is read, if it is damaged or
            unpacks to too much.
    """
    try:
        with Path(path).open("rb") as file:
            yield Unpacked(file, str(path), os.fstat(file.fileno()).st_size, error)
    except FileNotFoundError:
        raise error(f"{path}: there is no such file; check the path.") from None
    except IsADirectoryError:
        raise error(f"{path}: this is a folder; name a file in it.") from None
    except OSError as fault:
        raise error(f"{path}: cannot be read ({fault.strerror or fault}).") from None


def read_whole(
    path: str | Path, limit: int | None = None, error: type[LayerdagError] = DataError
) -> bytes:
    """Return the content of a file, unpacked if it is gzip or xz.

    Raises:
        LayerdagError: ``error``, if the file does not exist, is a folder, is empty, is a damaged
            archive, or holds more than ``limit`` bytes (by default ``MAX_BYTES`` or half of the
            free memory).
    """
    whole, most = io.BytesIO(), MAX_BYTES if limit is None else limit
    with open_unpacked(path, error) as stream:
        while part := stream.read(min(_WHOLE_STEP, most + 1 - whole.tell())):
            whole.write(part)
            if limit is None and whole.tell() > _UNASKED:
                most = min(MAX_BYTES, available_memory() // 2)
            if whole.tell() > most:
                raise error(_too_large(path, most))
    if not whole.tell():
        raise error(f"{path}: the file is empty; copy or collect it again.")
    return whole.getvalue()


def read_parsed(path: str | Path, error: type[LayerdagError] = DataError) -> bytes:
    """Return the content of a file that is to be parsed as a whole: JSON, XML, CSV.

    Raises:
        LayerdagError: As ``read_whole``; the limit is what fits into memory once it is parsed.
    """
    return read_whole(path, parsed_limit(), error)


def parsed_limit() -> int:
    """Return how many bytes of text fit into memory once they are parsed."""
    return min(MAX_PARSED, available_memory() // PARSED_GROWTH)


def require_parsable(data: bytes, source: str, error: type[LayerdagError] = DataError) -> None:
    """Refuse text that was read as a whole and is too long to be parsed as a whole.

    Raises:
        LayerdagError: Of the kind asked for, beyond ``parsed_limit``.
    """
    limit = parsed_limit()
    if len(data) > limit:
        raise error(_too_large(source, limit))


def require_memory(source: str, error: type[LayerdagError] = DataError) -> None:
    """Refuse to go on reading where what was read so far has nearly filled the memory.

    Raises:
        LayerdagError: Of the kind asked for, if less than ``SPARE_BYTES`` are left.
    """
    if available_memory() < SPARE_BYTES:
        raise error(
            f"{source}: does not fit into memory, of which {SPARE_BYTES >> 20} MiB must stay free; "
            "give a shorter trace, or use a machine with more."
        )


def path_within(folder: str | Path, name: str, error: type[LayerdagError] = DataError) -> Path:
    """Return the path of what a file in ``folder`` calls ``name``.

    Raises:
        LayerdagError: Of the kind asked for, if the path leaves the folder: an absolute one, one
            with "..", or one through a symbolic link to elsewhere.
    """
    path = Path(folder) / name
    try:
        home, target = Path(folder).resolve(), path.resolve()
    except (OSError, ValueError, RuntimeError) as fault:  # a null byte, a loop of links
        raise error(f"{folder}: the name {name!r:.200} is no path ({fault}).") from None
    if target == home or not target.is_relative_to(home):
        raise error(
            f"{folder}: the name {name!r:.200} leads out of the folder; what belongs to a folder "
            "must lie in it."
        )
    return path


def require_plain_archive(path: str | Path, error: type[LayerdagError] = DataError) -> None:
    """Refuse a zip archive (as ``torch.save`` writes) whose members are packed or larger than it.

    torch stores tensors as they are, so that no file of its own is larger inside than outside. A
    file that is no zip archive passes.

    Raises:
        LayerdagError: Of the kind asked for.
    """
    try:
        if not zipfile.is_zipfile(path):
            return
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (OSError, zipfile.BadZipFile, ValueError) as fault:
        raise error(f"{path}: the archive is damaged ({fault}); copy the file again.") from None
    packed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
    if packed or sum(member.file_size for member in members) > Path(path).stat().st_size:
        raise error(
            f"{path}: claims to hold more than its own size, as no file that torch writes does; "
            "get it from its source again."
        )


def _too_large(source: object, limit: int) -> str:
    return (
        f"{source}: holds more than {limit / 2**20:,.0f} MiB, the most that is read of such a file "
        "on this machine; give a smaller one."
    )
