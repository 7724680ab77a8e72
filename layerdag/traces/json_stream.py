"""Large JSON files read as a stream: the objects of one list, one at a time.

Memory does not grow with the file. Files may be compressed with gzip or xz, recognised by content.
"""

import gzip
import json
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from layerdag.errors import TraceError

CHUNK = 1 << 20

Raw = dict[str, Any]


@runtime_checkable
class Readable(Protocol):
    """Bytes that can be read from front to back: a file, plain or being unpacked."""

    def read(self, size: int = -1, /) -> bytes:
        """Return up to ``size`` bytes, none at the end."""


def stream_objects(path: str | Path, key: str) -> Iterator[Raw]:
    """Yield the objects of the list ``key`` of the outermost object.

    Args:
        path: JSON file, plain or compressed.
        key: Name of the list; it must begin within the first million characters.

    Raises:
        TraceError: If the file is missing, damaged or cut short, or has no such list.
    """
    with _window(path) as window:
        window.enter(key)
        while (raw := window.next_object()) is not None:
            yield raw


def read_head(path: str | Path, key: str) -> str:
    """Return the text before the list ``key``; errors as in `stream_objects`."""
    with _window(path) as window:
        return window.enter(key)


@contextmanager
def _window(path: str | Path) -> Iterator["_Window"]:
    """Open a file as a window; say in one sentence what is wrong with its encoding."""
    with open_text(path) as stream, damage_told(path):
        yield _Window(stream, str(path))


@contextmanager
def damage_told(path: str | Path) -> Iterator[None]:
    """Turn the errors of a damaged archive or text into one sentence.

    Raises:
        TraceError: If what is read inside turns out damaged or cut short.
    """
    try:
        yield
    except (OSError, EOFError, lzma.LZMAError, zlib.error, UnicodeDecodeError) as error:
        raise TraceError(
            f"{path}: the file is damaged or cut short ({error}); collect or copy it again."
        ) from error


@contextmanager
def open_text(path: str | Path) -> Iterator[TextIOWrapper]:
    """Open a text file that may be compressed with gzip or xz.

    Raises:
        TraceError: If there is no such file.
    """
    with _open(path) as stream, TextIOWrapper(stream, encoding="utf-8") as text:
        yield text


@contextmanager
def open_binary(path: str | Path) -> Iterator["Readable"]:
    """Open the unpacked bytes of a file that may be compressed with gzip or xz.

    Raises:
        TraceError: If there is no such file.
    """
    with _open(path) as stream:
        yield stream


def _open(path: str | Path) -> Any:
    """Open a file with what unpacks it."""
    path = Path(path)
    if not path.is_file():
        raise TraceError(f"{path} does not exist or is no file; check the path.")
    with path.open("rb") as handle:
        magic = handle.read(6)
    return _opener(magic)(path, "rb")


def _opener(magic: bytes) -> Callable[..., Any]:
    """Return the function that opens a file which starts with ``magic``."""
    if magic[:2] == b"\x1f\x8b":
        return gzip.open
    return lzma.open if magic == b"\xfd7zXZ\x00" else open


_GAP = re.compile(r"[\s,]*")
_DECODE = json.JSONDecoder().raw_decode


class _Window:
    """A sliding window over a text stream, with a cursor."""

    def __init__(self, stream: TextIOWrapper, source: str) -> None:
        self._stream = stream
        self.source = source
        self.text = ""
        self.at = 0
        self.dropped = 0

    def grow(self) -> bool:
        """Drop what lies before the cursor and read on; False at the end of the stream."""
        more = self._stream.read(max(CHUNK, len(self.text) - self.at))
        self.dropped += self.at
        self.text = self.text[self.at :] + more
        self.at = 0
        return bool(more)

    def enter(self, key: str) -> str:
        """Move to the first element of the list ``key`` and return the text before it."""
        self.grow()
        start = re.search(rf'"{key}"\s*:\s*\[', self.text)
        if start is None:
            raise TraceError(
                f"{self.source}: no list '{key}' in the first {CHUNK} characters; this is no "
                "trace of the expected kind, or it is empty."
            )
        self.at = start.end()
        return self.text[: start.start()]

    def next_object(self) -> Raw | None:
        """Return the next object of the list, or None at its closing bracket."""
        while True:
            gap = _GAP.match(self.text, self.at)
            assert gap is not None, "the pattern matches the empty string"
            self.at = gap.end()
            if self.text.startswith("]", self.at):
                return None
            fault = "the file ends inside the list"
            try:
                raw, end = _DECODE(self.text, self.at)
            except json.JSONDecodeError as error:
                fault = error.msg
            except RecursionError:
                raise TraceError(f"{self.source}: values are nested too deeply.") from None
            else:
                if not isinstance(raw, dict):
                    raise TraceError(f"{self.source}: found {raw!r:.40} where an object belongs.")
                self.at = end
                return raw
            if not self.grow():
                raise TraceError(
                    f"{self.source}: no valid JSON from character {self.dropped + self.at} on "
                    f"({fault}); the trace is cut short or damaged, collect or copy it again."
                )
