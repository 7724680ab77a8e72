"""Output in which names from outside command no terminal."""

import contextlib
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TextIO, cast

# C0 and C1 but tab and end of line, marks of direction, and separators of lines.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def escaped(text: str) -> str:
    """Return text with control characters as JSON writes them, by their number."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def one_line(word: str) -> str:
    """Return a word from outside as it stands in a line: ends of lines are escaped, too."""
    return escaped(word).replace("\n", "\\u000a").replace("\t", "\\u0009")


class EscapedStream:
    """A text stream on which control characters are written as ``escaped`` has them.

    Args:
        stream: Where the text goes; all but writing is left to it.
    """

    def __init__(self, stream: Any) -> None:
        self.plain = stream

    def write(self, text: str) -> int:
        """Write text."""
        return self.plain.write(escaped(text))

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts one after the other."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        """Return what the stream has."""
        return getattr(self.plain, name)


def plain_stream(stream: Any) -> Any:
    """Return the stream below, for progress bars, which move the cursor."""
    return stream.plain if isinstance(stream, EscapedStream) else stream


@contextlib.contextmanager
def escaped_output() -> Iterator[None]:
    """Escape what is written on standard output and standard error inside the block."""
    out, err = sys.stdout, sys.stderr
    sys.stdout = cast(TextIO, EscapedStream(plain_stream(out)))
    sys.stderr = cast(TextIO, EscapedStream(plain_stream(err)))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err
