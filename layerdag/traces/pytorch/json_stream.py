"""Large JSON files read as a stream: the objects of one list, one at a time.

Memory does not grow with the file. Files may be compressed with gzip or xz, recognized by content.

Profilers write names of frames as they are: with raw control characters, single backslashes (paths
of Windows), quotes, and bytes that are no UTF-8 (pytorch#98432, pytorch#113001, kineto#1459). Where
an object is no JSON for such a reason, it is read all the same and noted, or left out and noted if
its name cannot be told from the rest and nobody needs it.
"""

import codecs
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from layerdag.errors import TraceError
from layerdag.runtime.notes import NoteCollector, NoteKind
from layerdag.runtime.reading import Unpacked, open_unpacked

CHUNK = 1 << 20
LONGEST_OBJECT = 1 << 26
"""Characters of one object of a list; events and nodes have a few thousand."""
_SHOWN = 40

Raw = dict[str, Any]


def stream_objects(
    path: str | Path,
    key: str,
    notes: NoteCollector | None = None,
    needed: Callable[[str], bool] = lambda category: True,
) -> Iterator[Raw]:
    """Yield the objects of the list ``key`` of the outermost object.

    Args:
        path: JSON file, plain or compressed.
        key: Name of the list; it must begin within the first million characters.
        notes: Takes what is no JSON and was read or left out all the same.
        needed: Whether objects of a category (``cat``) matter. One that cannot be read is left out
            if it does not, else it is an error.

    Raises:
        TraceError: If the file is missing, damaged or cut short, or has no such list.
    """
    with _window(path, notes or NoteCollector(str(path)), needed) as window:
        window.enter(key)
        while (raw := window.next_object()) is not None:
            yield raw
        window.note_rest(key)


def read_head(path: str | Path, key: str) -> str:
    """Return the text before the list ``key``; errors as in `stream_objects`."""
    with _window(path, NoteCollector(str(path)), lambda category: True) as window:
        return window.enter(key)


@contextmanager
def _window(
    path: str | Path, notes: NoteCollector, needed: Callable[[str], bool]
) -> Iterator["_Window"]:
    """Open a file as a window; say in one sentence what is wrong with its encoding."""
    with open_unpacked(path, TraceError) as stream:
        yield _Window(stream, str(path), notes, needed)


_GAP = re.compile(r"[\s,]*")
_DECODE = json.JSONDecoder().raw_decode
_DECODE_RAW = json.JSONDecoder(strict=False).raw_decode
_NEXT_OBJECT = re.compile(r'\}(?=\s*,\s*\{\s*"(?:ph|cat|name|args|ts|pid|tid|dur|id|bp|s)"\s*:)')
_END_OF_LIST = re.compile(r'\}(?=\s*\]\s*(?:,\s*"[^"]*"\s*:|\}\s*\Z))')
_NAME = re.compile(
    r'"name"\s*:\s*"(.*?)"(?=\s*(?:,\s*"(?:ph|cat|pid|tid|ts|dur|args|id)"\s*:|\}\s*\Z))', re.DOTALL
)
_CATEGORY = re.compile(r'"cat"\s*:\s*"([^"]*)"')
_LONE_BACKSLASH = re.compile(r'\\(?:(["\\/bfnrt]|u[0-9a-fA-F]{4})|)')

CONTROL, ESCAPE, QUOTE, BYTES = (
    *("raw control character", "lone backslash"),
    *("unescaped quote", "bytes that are no UTF-8"),
)


class _Window:
    """A sliding window over a text stream, with a cursor."""

    def __init__(
        self, stream: Unpacked, source: str, notes: NoteCollector, needed: Callable[[str], bool]
    ) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._notes, self._needed = notes, needed
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
        self.text = self.text[self.at :] + self._decoded(more)
        self.at = 0
        return bool(more)

    def _decoded(self, data: bytes) -> str:
        """Return the next text; bytes that are no UTF-8 become U+FFFD, and are noted."""
        pending = self._decoder.getstate()[0]
        try:
            return self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            if not data:
                raise TraceError(
                    f"{self.source}: the file is damaged or cut short ({error}); collect or copy "
                    "it again."
                ) from None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._note(BYTES, "those letters became U+FFFD")
        return self._decoder.decode(pending + data)

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
            try:
                raw, end = _DECODE(self.text, self.at)
            except json.JSONDecodeError as error:
                found = self._read_on(error)
                if found is None:
                    continue
                return found
            except ValueError as error:
                raise self._malformed(str(error)) from None
            except RecursionError:
                raise TraceError(f"{self.source}: values are nested too deeply.") from None
            if not isinstance(raw, dict):
                raise TraceError(f"{self.source}: found {raw!r:.40} where an object belongs.")
            self.at = end
            return raw

    def note_rest(self, key: str) -> None:
        """Note what follows the list and does not end its object, such as a second profile."""
        self.at += 1
        while True:
            start = '{"": 0'
            try:
                _, end = _DECODE(start + self.text[self.at :])
                break
            except (ValueError, RecursionError):
                if len(self.text) - self.at > LONGEST_OBJECT or not self.grow():
                    # Names of files have lone backslashes there; nothing of it is needed.
                    if not _is_readable(start + self.text[self.at :].rstrip()):
                        effect = "the object around the list does not end there"
                        self._note(f"end of '{key}'", effect)
                    return
        self.at += end - len(start)
        while not self.text[self.at :].strip():
            self.at = len(self.text)
            if not self.grow():
                return
        behind = self.text[self.at :].strip()
        self._note(behind[:_SHOWN], f"stands behind the object with '{key}'; not read")

    def _read_on(self, error: json.JSONDecodeError) -> Raw | None:
        """Read on where an object is not whole yet, or return what one that is no JSON means."""
        behind = error.pos - self.at
        found = _NEXT_OBJECT.search(self.text, error.pos)
        if found is None and self.grow():
            return None
        found = found or _END_OF_LIST.search(self.text, self.at + behind)
        if found is None:
            cut = self.at + behind >= len(self.text)
            raise self._malformed("the file ends inside the list" if cut else error.msg)
        return self._mended(found.end(), error.msg)

    def _mended(self, end: int, fault: str) -> Raw | None:
        """Return the object up to ``end``, which is no JSON, or None where it is not needed."""
        text = self.text[self.at : end]
        for word, candidate in _candidates(text):
            try:
                raw, used = _DECODE_RAW(candidate)
            except (ValueError, RecursionError):
                continue
            if used == len(candidate) and isinstance(raw, dict):
                self._note(word, "no JSON, but read as it stands")
                self.at = end
                return raw
        category = _CATEGORY.search(text)
        if category is None:
            raise self._malformed(fault)
        if self._needed(category[1]):
            raise TraceError(
                f"{self.source}: the event at character {self.dropped + self.at} is no valid JSON "
                f"({fault}): {text[:80]!r}; correct or remove it."
            )
        self._note(QUOTE, f"no JSON; the event, of category {category[1][:40]}, is left out")
        self.at = end
        return None

    def _note(self, word: str, effect: str) -> None:
        """Note an object that is no JSON."""
        place = f"character {self.dropped + self.at}"
        self._notes.add(NoteKind.ENCODING, word, effect, where=place)

    def _malformed(self, fault: str) -> TraceError:
        """Return the error for text at the cursor that is no JSON."""
        return TraceError(
            f"{self.source}: no valid JSON from character {self.dropped + self.at} on "
            f"({fault}); the trace is cut short or damaged, collect or copy it again."
        )


def _is_readable(text: str) -> bool:
    """Return whether a text is one JSON value, but for letters that writers did not escape."""
    for _, candidate in _candidates(text):
        try:
            json.loads(candidate, strict=False)
        except (ValueError, RecursionError):
            continue
        return True
    return False


def _candidates(text: str) -> Iterator[tuple[str, str]]:
    """Yield what an object may have been meant to be, with what is wrong with it."""
    yield CONTROL, text
    escaped = _LONE_BACKSLASH.sub(lambda found: found[0] if found[1] else r"\\", text)
    yield ESCAPE, escaped
    yield QUOTE, _NAME.sub(lambda found: f'"name": {json.dumps(found[1])}', text, count=1)
