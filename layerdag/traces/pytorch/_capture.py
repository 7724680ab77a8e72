"""Capture of a running training step: host trace and profile of the same step, imported at once.

The one module of the traces that needs torch. ExecutionTraceObserver gives operators with their
tensors, the profiler gives durations; both run in the same step, so that they can be joined by
RecordFunction handle::

    for step in range(5):
        with capture("traces/mine") if step == 3 else nullcontext():
            train_one_step()
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import distributed
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile

from layerdag.errors import TraceError
from layerdag.traces import rank_file, require_free_prefix, standing_files, write_groups
from layerdag.traces.chakra import write_trace
from layerdag.traces.pytorch._process_groups import Ranks, number_groups
from layerdag.traces.pytorch.device import read_timings
from layerdag.traces.pytorch.host import ImportResult, import_operations, read_host


@dataclass
class Capture:
    """What a captured step has become; filled when the ``with`` block ends.

    Attributes:
        rank: This process's rank, 0 without torch.distributed.
        world_size: Number of ranks.
        result: The imported trace of this rank, None while the step runs.
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


@contextmanager
def capture(prefix: str | Path, *, overwrite: bool = False) -> Iterator[Capture]:
    """Trace the work of the ``with`` block and write ``PREFIX.<rank>.et``.

    Under torch.distributed every rank must enter the block; each writes its own file, and rank 0
    writes ``PREFIX.comm_group.json`` beside them where there are groups besides all ranks. Warm up
    first: a first step also shows lazy initialization.

    Args:
        prefix: Path of the workload without rank and ending.
        overwrite: Whether a workload of that prefix may be replaced.

    Raises:
        UsageError: If a workload of that prefix is there and may not be replaced; the block is not
            entered.
        TraceError: If the block did no work that could be traced.
    """
    require_free_prefix(prefix, overwrite=overwrite)
    older = standing_files(prefix)
    with record() as captured:
        yield captured
    result = captured.imported()
    if captured.rank == 0:
        # Other ranks may have written theirs already: only what no rank writes is removed.
        written = {rank_file(prefix, rank) for rank in range(captured.world_size)}
        for path in set(older) - written:
            path.unlink(missing_ok=True)
    captured.path = rank_file(prefix, captured.rank)
    write_trace(result.trace, captured.path)
    if captured.rank == 0 and result.groups:
        write_groups(result.groups, f"{prefix}.comm_group.json")


@contextmanager
def record_raw(host_path: Path, device_path: Path) -> Iterator[None]:
    """Write the raw host trace and profile of the ``with`` block (JSON), without an import."""
    observer = ExecutionTraceObserver().register_callback(str(host_path))
    try:
        with profile(
            activities=_activities(), record_shapes=True, execution_trace_observer=observer
        ) as profiler:
            yield
    finally:
        observer.unregister_callback()
    profiler.export_chrome_trace(str(device_path))


@contextmanager
def record() -> Iterator[Capture]:
    """Trace the work of the ``with`` block and import it, without writing a trace file.

    Raises:
        TraceError: If the block did no work that could be traced.
    """
    captured = Capture(*_place())
    with tempfile.TemporaryDirectory(prefix="layerdag-") as folder:
        host_path, device_path = Path(folder, "host.json"), Path(folder, "device.json")
        with record_raw(host_path, device_path):
            yield captured
        host = replace(read_host(host_path), source=f"captured step of rank {captured.rank}")
        names = number_groups(_of_all_ranks(host.groups, captured.world_size))
        captured.result = import_operations(host, read_timings(device_path), names)


def _of_all_ranks(groups: Mapping[str, Ranks], world_size: int) -> list[Mapping[str, Ranks]]:
    """Return what every rank declares: a rank declares only the groups that it belongs to."""
    if world_size == 1:
        return [groups]
    gathered: list[Mapping[str, Ranks]] = [{}] * world_size
    distributed.all_gather_object(gathered, dict(groups))
    return gathered


def _activities() -> list[ProfilerActivity]:
    """Return what there is to profile on this machine."""
    if torch.cuda.is_available():
        return [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    return [ProfilerActivity.CPU]


def _place() -> tuple[int, int]:
    """Return rank and world size."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1
