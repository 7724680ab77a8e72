"""Worker processes that receive their work over a connection.

A process starts with small arguments alone: its function and its end of the connection. What it
works on is sent afterwards, so that one that dies while it starts is noticed instead of waited for:
arguments go through a pipe that this process holds open itself.

A process that has one thread, as on the command line, is copied, so that nothing is imported again.
Beside other threads a new one starts: a copy would have their locks, but not the threads.
"""

import ctypes
import os
import pickle
import signal
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

from layerdag.errors import LayerdagError

Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class Worker:
    """A process with the way to it.

    Attributes:
        process: The process.
        connection: This process's end.
    """

    process: BaseProcess
    connection: Connection

    @classmethod
    def start(cls, target: Callable[[Connection], object]) -> "Worker":
        """Start a process that calls a function of a module with its end of the connection."""
        here, there = Pipe()
        process: BaseProcess
        if _has_one_thread():
            begin = partial(_begin_copy, target, there, os.getpid())
            process = get_context("fork").Process(target=begin, daemon=True)
        else:
            process = get_context("spawn").Process(target=target, args=(there,), daemon=True)
        process.start()
        there.close()
        return cls(process, here)

    def send(self, sent: bytes) -> None:
        """Send what pickle wrote; a process that has ended says so where its answer is received.

        Bytes, because tensors would be handed over by file descriptors, more than a process may
        have.
        """
        with suppress(ConnectionError):
            self.connection.send_bytes(sent)

    def receive(self) -> Any:
        """Wait for an answer and return it. Raises EOFError if the process ended without one."""
        return pickle.loads(self.receive_bytes())

    def receive_bytes(self) -> bytes:
        """Wait for an answer and return it as it was sent. Raises as ``receive``."""
        wait([self.connection, self.process.sentinel])
        if not self.connection.poll():
            raise EOFError
        try:
            return self.connection.recv_bytes()
        except OSError:  # it ended on the way
            raise EOFError from None

    def stop(self) -> None:
        """End the process."""
        self.process.terminate()


_THREADS = Path("/proc/self/task")
_DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux's ``prctl``."""


def _has_one_thread() -> bool:
    """Return whether this process has no thread beside this one; False where nothing tells."""
    return _THREADS.is_dir() and len(os.listdir(_THREADS)) == 1


def _begin_copy(target: Callable[[Connection], object], there: Connection, parent: int) -> None:
    """Call a function in a copy of ``parent``, which ends with it.

    It has the open files of the other one: locks would be held, and ends of connections open.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() == parent:
        target(there)


def in_any_order(
    call: Callable[..., Result], arguments: Sequence[tuple[Any, ...]], processes: int
) -> Iterator[Result]:
    """Yield ``call(*one)`` of each tuple of arguments, as they are finished in other processes.

    With one process, or one call, they are made in this one, in order.

    Raises:
        LayerdagError: If a process ends early, or what ``call`` raises.
    """
    if processes <= 1 or len(arguments) <= 1:
        yield from (call(*one) for one in arguments)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        begun = [pool.submit(call, *one) for one in arguments]
        try:
            yield from (future.result() for future in as_completed(begun))
        except BrokenExecutor:
            raise LayerdagError(
                "A process that simulates ended early: it was killed, perhaps for lack of memory, "
                "or failed as said above. Ask for fewer with --processes. A script that asks for "
                "several must do so under 'if __name__ == \"__main__\":'."
            ) from None


def wait_for_any(workers: Collection[Worker], timeout_s: float | None = None) -> list[Worker]:
    """Wait until workers have answered or ended, or no longer than given; return them."""
    ends = [end for one in workers for end in (one.connection, one.process.sentinel)]
    found = wait(ends, timeout_s)
    return [one for one in workers if one.connection in found or one.process.sentinel in found]
