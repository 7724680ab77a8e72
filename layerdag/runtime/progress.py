"""Progress: bars with the time left on a terminal, a line for each stage in a log elsewhere."""

import contextlib
import logging
import sys
import time
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

from layerdag.runtime.terminal import plain_stream

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
    """Writes to what is standard error at the time of each line."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a line."""
        sys.stderr.write(f"{self.format(record)}\n")
        sys.stderr.flush()
