"""SIGTERM ends a verb as Ctrl-C does: drafts are cleared, and the exit code says which it was."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM
"""Conventional exit codes of a process that a signal stopped."""


class Terminated(KeyboardInterrupt):
    """The process got SIGTERM."""


def exit_code(stop: KeyboardInterrupt) -> int:
    """Return the exit code of a process that was stopped."""
    return TERMINATED if isinstance(stop, Terminated) else INTERRUPTED


@contextlib.contextmanager
def terminating() -> Iterator[None]:
    """Raise ``Terminated`` on SIGTERM inside the block (in the main thread; elsewhere nothing)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated
