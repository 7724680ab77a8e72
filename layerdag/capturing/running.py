"""Capture a running training step: ``ld.capture``, and what ``layerdag collect`` injects.

ExecutionTraceObserver gives operators with their
tensors, the profiler gives durations; both run in the same step, so that they can be joined by
RecordFunction handle::

    for step in range(5):
        with capture("traces/mine") if step == 3 else nullcontext():
            train_one_step()
"""

import itertools
import os
import runpy
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile

from layerdag.capturing.scopes import module_scopes
from layerdag.errors import DataError, LayerdagError, TraceError
from layerdag.runtime.files import write_bytes, write_files
from layerdag.traces.chakra.files import encode_trace
from layerdag.traces.chakra.workload import (
    existing_files,
    groups_in_place,
    rank_file,
    require_free_prefix,
)
from layerdag.traces.pytorch.host_dataflow import number_groups
from layerdag.traces.pytorch.importer import ImportResult, import_operations, read_host
from layerdag.traces.pytorch.kineto import read_timings


@dataclass
class Capture:
    """A captured step of this process's rank.

    Attributes:
        result: The imported trace; None while the step runs.
        path: The file it was written to, None if it was not written.
    """

    rank: int
    world_size: int
    result: ImportResult | None = None
    path: Path | None = None

    def imported(self) -> ImportResult:
        """Return the import. Raises TraceError while the step still runs."""
        if self.result is None:
            raise TraceError(
                f"rank {self.rank}: the captured step has not ended; read the result after the "
                "'with' block."
            )
        return self.result


HOST_TRACE = "host.json"
"""Name of the raw host trace in a folder of raw files."""


@contextmanager
def capture(
    prefix: str | Path,
    *,
    overwrite: bool = False,
    after: Callable[[Capture, Path], object] | None = None,
) -> Iterator[Capture]:
    """Trace the work of the ``with`` block and write ``PREFIX.<rank>.et``.

    Under torch.distributed every rank must enter the block; each writes its own file, and rank 0
    writes ``PREFIX.comm_group.json`` where there are groups other than that of all ranks. Warm up
    first: a first step also shows lazy initialization.

    Args:
        prefix: Path of the workload without rank and ending.
        overwrite: Whether a workload of that prefix may be replaced.
        after: Called at the end with the capture and its raw host trace, which then has scopes that
            name the modules; its file goes after the call.

    Raises:
        UsageError: If a workload of that prefix is there and may not be replaced; the block is not
            entered.
        TraceError: If the block did no work that could be traced.
    """
    require_free_prefix(prefix, overwrite=overwrite)
    program = Path(f"{prefix}.program.json")
    older = [*existing_files(prefix), *([program] if after and program.exists() else ())]
    with tempfile.TemporaryDirectory(prefix="layerdag-") as folder:
        with module_scopes() if after else nullcontext(), record(folder) as captured:
            yield captured
        _write(captured, prefix, older)
        if after is not None:
            after(captured, Path(folder, HOST_TRACE))


def _write(captured: Capture, prefix: str | Path, older: Sequence[Path]) -> None:
    """Write the files of all ranks, and the groups, in place of older ones.

    Rank 0 puts the files of all ranks in their places at once, so that no kill leaves those of two
    runs together. Where ranks have disks of their own, each puts its file there.
    """
    result = captured.imported()
    place = rank_file(prefix, captured.rank)
    data = encode_trace(result.trace)
    if captured.rank:
        write_bytes(_staged(place), data)
    _gathered(None)  # all ranks have written
    try:
        if captured.rank == 0:
            ranks = range(captured.world_size - 1, 0, -1)
            others = [path for rank in ranks if _staged(path := rank_file(prefix, rank)).exists()]
            groups = groups_in_place(result.groups, Path(f"{prefix}.comm_group.json"))
            read = ((path, _staged(path).read_bytes()) for path in others)
            write_files(prefix, itertools.chain(groups, read, [(place, data)]), older)
            for path in others:
                _staged(path).unlink()
    finally:
        _gathered(None)
    if captured.rank and _staged(place).exists():
        os.replace(_staged(place), place)
    captured.path = place


def _staged(place: Path) -> Path:
    """Return where a rank leaves its file for rank 0."""
    return place.with_name(f".{place.name}.part")


@contextmanager
def record_raw(host_path: Path, device_path: Path) -> Iterator[None]:
    """Write the raw host trace and profile of the ``with`` block (JSON), without an import."""
    observer = ExecutionTraceObserver().register_callback(str(host_path))
    activities = [ProfilerActivity.CPU]
    activities += [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
    try:
        with profile(
            activities=activities, record_shapes=True, execution_trace_observer=observer
        ) as profiler:
            yield
    finally:
        observer.unregister_callback()
    profiler.export_chrome_trace(str(device_path))


@contextmanager
def record(kept: str | Path | None = None) -> Iterator[Capture]:
    """Trace the work of the ``with`` block and import it, without writing a trace file.

    Args:
        kept: Folder for the raw files; by default they are removed. With it the trace keeps the
            arguments of operators.

    Raises:
        TraceError: If the block did no work that could be traced.
    """
    place = (distributed.get_rank(), distributed.get_world_size()) if _in_use() else (0, 1)
    captured = Capture(*place)
    with tempfile.TemporaryDirectory(prefix="layerdag-") as scratch:
        folder = Path(kept or scratch)
        host_path, device_path = folder / HOST_TRACE, folder / "device.json"
        with record_raw(host_path, device_path):
            yield captured
        read = read_host(host_path, keep_arguments=kept is not None)
        host = replace(read, source=f"captured step of rank {captured.rank}")
        names = number_groups(_gathered(dict(host.groups)))
        captured.result = import_operations(host, read_timings(device_path), names)


def _in_use() -> bool:
    return distributed.is_available() and distributed.is_initialized()


def _gathered(value: Any) -> list[Any]:
    """Return the values of all ranks; each waits for the others."""
    if not _in_use():
        return [value]
    found = [None] * distributed.get_world_size()
    distributed.all_gather_object(found, value)
    return found


StartCapture = Callable[[], AbstractContextManager[Capture]]


@dataclass(frozen=True)
class CollectedStep:
    """A step that was traced."""

    path: Path  # the file of this rank's trace
    nodes: int
    rank: int
    world_size: int
    # Wall time of the steps that were measured without the profiler, the slowest rank of each
    step_times_s: tuple[float, ...]
    # What the script left behind. Taking its distributed modules apart can wait for ever for
    # threads of torch, so that a rank of several ends while this is held.
    left: object = field(default=None, repr=False)


class _Done(BaseException):
    """Stops the script once its trace is written; no handler of the script's should catch it."""


class _StepHook:
    def __init__(self, start: StartCapture, step: int, repeats: int, keep_going: bool) -> None:
        self.start = start
        self.step = step
        self.repeats = repeats
        self.times: list[float] = []
        self.last = 0.0
        self.keep_going = keep_going
        self.seen = 0
        self.first: Optimizer | None = None
        self.open = ExitStack()
        self.captured: Capture | None = None

    def __call__(self, optimizer: Optimizer, args: object, kwargs: object) -> None:
        """Called by torch after each optimizer step; only the first optimizer counts."""
        self.first = self.first or optimizer
        if optimizer is not self.first:
            return
        self.seen += 1
        if self.seen == self.step - 1:
            self.captured = self.open.enter_context(self.start())
        elif self.seen == self.step:
            self.open.close()
        elif self.seen > self.step + 1 and len(self.times) < self.repeats:
            # The step right after the traced one still pays for the end of the profiler.
            self.times.append(_now() - self.last)
            if len(self.times) == self.repeats:
                every = _gathered(self.times)
                self.times = [max(step) for step in zip(*every, strict=False)]
        if self.seen >= self.step and len(self.times) == self.repeats and not self.keep_going:
            raise _Done
        self.last = _now()


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def collect_step(
    script: Path,
    arguments: list[str],
    start: StartCapture,
    step: int,
    *,
    repeats: int = 0,
    keep_going: bool = False,
) -> CollectedStep:
    """Run a script and capture its ``step``-th training step.

    ``repeats`` later steps are measured without the profiler, fewer if the script ends. It runs on
    afterwards if it is to ``keep_going``.

    Raises:
        DataError: If the script fails, or ends before the step.
    """
    hook = _StepHook(start, step, repeats, keep_going)
    handle = register_optimizer_step_post_hook(hook)
    left: object = None
    try:
        left = _run_script(script, arguments)
    except _Done as done:
        left = done  # its traceback holds the globals of the script
    except DataError as error:
        if keep_going or hook.captured is None or hook.captured.path is None:
            raise  # else the trace is written, and what came later is not asked for
        left = error
    finally:
        handle.remove()
    captured = hook.captured
    if captured is None or captured.path is None:
        raise DataError(
            f"{script} ended after {hook.seen} optimizer steps, before step {step} was traced; "
            "let it do more steps, lower --step, or mark the step in the script with "
            "layerdag.capturing.running.capture()."
        )
    nodes = captured.imported().trace.num_nodes
    times = tuple(hook.times)
    return CollectedStep(captured.path, nodes, captured.rank, captured.world_size, times, left)


def _run_script(script: Path, arguments: list[str]) -> dict[str, object]:
    """Run the script as the main program and return its globals; its faults become one sentence."""
    old_argv, old_path = sys.argv, list(sys.path)
    sys.argv, sys.path[0] = [str(script), *arguments], str(script.resolve().parent)
    try:
        return runpy.run_path(str(script), run_name="__main__")
    except LayerdagError:
        raise
    except SystemExit as stop:
        if stop.code not in (None, 0):
            raise DataError(f"{script} stopped itself with exit code {stop.code}.") from None
        return {"stop": stop}
    except Exception as error:
        what = ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])
        raise DataError(f"{script} failed{_line(error, script)}: {what}") from error
    finally:
        sys.argv, sys.path[:] = old_argv, old_path


def _line(error: Exception, script: Path) -> str:
    if isinstance(error, SyntaxError):
        return "" if error.lineno is None else f" at line {error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).name == script.name]
    return f" at line {lines[-1]}" if lines else ""
