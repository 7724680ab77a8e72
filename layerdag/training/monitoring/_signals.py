"""SIGTERM and SIGINT ask the training loop to stop after the running step, with a checkpoint."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class StopRequest:
    """Whether the run was asked to stop, and by which signal."""

    def __init__(self) -> None:
        self.signal_name: str | None = None

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Note the signal; a second one breaks off at once."""
        if self.signal_name is not None:
            raise KeyboardInterrupt
        self.signal_name = signal.Signals(number).name


@contextlib.contextmanager
def listening() -> Iterator[StopRequest]:
    """Catch both signals inside the block (in the main thread; elsewhere nothing is caught)."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    numbers = (signal.SIGTERM, signal.SIGINT)
    previous = [signal.signal(number, request.handle) for number in numbers]
    try:
        yield request
    finally:
        for number, handler in zip(numbers, previous, strict=True):
            signal.signal(number, handler)
