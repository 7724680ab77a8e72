"""The terminal: control characters are escaped, and bars show progress and the time left.

Where there is no terminal, a log gets a line for each stage.
"""

import contextlib
import logging
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, TextIO, TypeVar, cast

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


Item = TypeVar("Item")

_LOG = logging.getLogger("layerdag.stages")
QUIET_SECONDS = 30.0
"""Seconds after which a log hears of work that goes on."""
_BAR: ContextVar[Any] = ContextVar("bar", default=None)


def track(items: Iterable[Item], label: str, total: int | None = None) -> Iterator[Item]:
    """Yield ``items`` while a bar on standard error shows how many are done and the time left.

    Where that is no terminal, the log says every ``QUIET_SECONDS`` how many are done.

    Args:
        items: What to go through.
        label: The few words before the bar.
        total: Number of items, where ``items`` has no length.
    """
    from tqdm import tqdm

    hidden, out = not sys.stderr.isatty(), plain_stream(sys.stderr)
    bar = tqdm(items, desc=label, total=total, disable=hidden, leave=False, file=out)
    last = time.monotonic()
    for done, item in enumerate(bar):
        if hidden and time.monotonic() - last >= QUIET_SECONDS:
            last = time.monotonic()
            _LOG.info("%s: %d%s", label, done, "" if bar.total is None else f" of {bar.total}")
        yield item


@contextlib.contextmanager
def stages(total: int) -> Iterator[None]:
    """Show all that ``stage`` tells inside on one bar with the time left, on a terminal.

    Args:
        total: Sum of the weights of the stages.
    """
    from tqdm import tqdm

    shape = "{desc}{percentage:3.0f}%|{bar}| {elapsed}<{remaining}"
    hidden = not sys.stderr.isatty()
    out = plain_stream(sys.stderr)
    with tqdm(total=total, bar_format=shape, disable=hidden, leave=False, file=out) as bar:
        token = _BAR.set(bar)
        try:
            yield
        finally:
            _BAR.reset(token)


@contextlib.contextmanager
def stage(label: str, weight: int = 1) -> Iterator[None]:
    """Tell that a stage is at work, and log how long it took.

    Args:
        label: What is done, in a few words.
        weight: About how much of the work it is, in units of the total of ``stages``.
    """
    bar, start = _BAR.get(), time.monotonic()
    if bar is not None:
        bar.set_description(label)
    yield
    if bar is not None:
        bar.update(weight)
    _LOG.info("%s: %.1f s", label, time.monotonic() - start)


def log_stages() -> None:
    """Print a line on standard error for each stage from now on, unless that is a terminal."""
    _LOG.disabled = False  # Hydra's configuration of logging switches off what was there before
    if sys.stderr.isatty() or _LOG.handlers:
        return
    handler = _Lines()
    handler.setFormatter(logging.Formatter("layerdag: %(message)s"))
    _LOG.addHandler(handler)
    _LOG.setLevel(logging.INFO)
    _LOG.propagate = False


class _Lines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        """Print a line."""
        sys.stderr.write(f"{self.format(record)}\n")
        sys.stderr.flush()


def counted(count: int, thing: str) -> str:
    """Return "1 rank", "2 ranks", "1,024 ranks"; "2 classes" for "class"."""
    plural = thing + ("es" if thing.endswith("s") else "s")
    return f"{count:,} {thing if count == 1 else plural}"


def group_equal_rows(rows: Iterable[Sequence[Any]]) -> list[tuple[str, Sequence[Any]]]:
    """Return each distinct row once, with the ranks that have it: "0-3,8"."""
    ranks: dict[tuple[Any, ...], list[int]] = {}
    for rank, row in enumerate(rows):
        ranks.setdefault(tuple(row), []).append(rank)
    return [(rank_spans(found, 2), row) for row, found in ranks.items()]


def rank_spans(ranks: Sequence[int], most: int | None = None) -> str:
    """Return ranks with runs joined, "0-3,8"; those after ``most`` spans as "..."."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    shown = [str(a) if a == b else f"{a}-{b}" for a, b in spans[:most]]
    return ",".join(shown) + (",..." if len(spans) > len(shown) else "")
