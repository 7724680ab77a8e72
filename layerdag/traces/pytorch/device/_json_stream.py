"""Large JSON files read as a stream: the objects of one list, one at a time.

Memory does not grow with the file. Files may be compressed with gzip or xz, recognized by content.
"""

import codecs
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from layerdag._runtime import Unpacked, open_unpacked
from layerdag.errors import TraceError

CHUNK = 1 << 20
LONGEST_OBJECT = 1 << 26
"""Characters of one object of a list; events and nodes have a few thousand."""

Raw = dict[str, Any]


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
    with open_unpacked(path, TraceError) as stream:
        try:
            yield _Window(stream, str(path))
        except UnicodeDecodeError as error:
            raise TraceError(
                f"{path}: the file is damaged or cut short ({error}); collect or copy it again."
            ) from error


_GAP = re.compile(r"[\s,]*")
_DECODE = json.JSONDecoder().raw_decode


class _Window:
    """A sliding window over a text stream, with a cursor."""

    def __init__(self, stream: Unpacked, source: str) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.source = source
        self.text = ""
        self.at = 0
        self.dropped = 0

    def grow(self) -> bool:
        """Drop what lies before the cursor and read on; False at the end of the stream."""
        held = len(self.text) - self.at
        if held > LONGEST_OBJECT:
            raise TraceError(
                f"{self.source}: the object at character {self.dropped + self.at} is longer than "
                f"{LONGEST_OBJECT >> 20} million characters; this is no trace, or a damaged one."
            )
        more = self._stream.read_full(max(CHUNK, held))
        self.dropped += self.at
        self.text = self.text[self.at :] + self._decoder.decode(more, final=not more)
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
            except ValueError as error:
                raise self._malformed(str(error)) from None
            except RecursionError:
                raise TraceError(f"{self.source}: values are nested too deeply.") from None
            else:
                if not isinstance(raw, dict):
                    raise TraceError(f"{self.source}: found {raw!r:.40} where an object belongs.")
                self.at = end
                return raw
            if not self.grow():
                raise self._malformed(fault)

    def _malformed(self, fault: str) -> TraceError:
        """Return the error for text at the cursor that is no JSON."""
        return TraceError(
            f"{self.source}: no valid JSON from character {self.dropped + self.at} on "
            f"({fault}); the trace is cut short or damaged, collect or copy it again."
        )
