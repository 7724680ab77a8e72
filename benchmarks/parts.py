"""Parts of a benchmark, each in a process of its own with a limit of time.

A part makes rows. What fails, hangs or kills its process is a row with an ``error``, and the other
parts are measured all the same.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

Row = dict[str, Any]
Emit = Callable[[Row], None]


@dataclass(frozen=True)
class Measurement:
    """One row.

    Attributes:
        label: What is measured, the first columns of the row.
        work: Returns the other columns.
    """

    label: Mapping[str, Any]
    work: Callable[[], Mapping[str, Any]]


@dataclass(frozen=True)
class Part:
    """Rows that one process makes, one after the other.

    Attributes:
        name: Of the part.
        seconds: Its limit.
        measurements: In the order of their worth: the last ones are lost when time is up.
        threads: Of torch; 0 leaves torch's own choice.
    """

    name: str
    seconds: float
    measurements: Sequence[Measurement]
    threads: int = 0


def run_parts(parts: Sequence[Part], seconds: float, emit: Emit, method: str = "fork") -> None:
    """Run parts one after the other; none begins when the time is used up.

    Args:
        parts: In the order of their worth.
        seconds: Of all together.
        emit: Takes each row as soon as it is there.
        method: How processes are started; "fork" spares each the imports of this one.
    """
    end = time.monotonic() + seconds
    for part in parts:
        left = end - time.monotonic()
        if left <= 0:
            late = f"not begun: the {seconds:g} s of all parts are used up"
            for measurement in part.measurements:
                emit({"part": part.name, **measurement.label, "error": late})
        else:
            _run_part(part, min(left, part.seconds), emit, method)


def _run_part(part: Part, seconds: float, emit: Emit, method: str) -> None:
    """Run a part in a new process, which is killed when its time is up."""
    context = multiprocessing.get_context(method)
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(part, sender))  # type: ignore[attr-defined]
    start = time.monotonic()
    process.start()
    sender.close()
    done = 0
    try:
        while receiver.poll(max(0.0, start + seconds - time.monotonic())):
            try:
                row = receiver.recv()
            except EOFError:
                process.join()
                break
            emit({"part": part.name, **row})
            done += 1
    finally:
        ended = process.exitcode is not None
        _kill(process)
        receiver.close()
    why = (
        f"the process ended with code {process.exitcode}"
        if ended
        else f"not done in {seconds:.0f} s"
    )
    for measurement in part.measurements[done:]:
        emit({"part": part.name, **measurement.label, "error": why})


def _kill(process: BaseProcess) -> None:
    """End the process of a part and those that it has started."""
    assert process.pid is not None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()


def _measure(part: Part, sender: Connection) -> None:
    """Make the rows of a part and send them."""
    os.setsid()  # what it starts is killed with it
    if part.threads:
        import torch

        torch.set_num_threads(part.threads)
    for measurement in part.measurements:
        start = time.monotonic()
        try:
            found: Mapping[str, Any] = measurement.work()
        except Exception as error:  # a row of its own, whatever it is
            traceback.print_exc()
            found = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
        seconds = time.monotonic() - start
        sender.send({**measurement.label, **found, "row_s": seconds})
        if "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized():
            sys.modules["torch"].cuda.empty_cache()
    sender.close()
