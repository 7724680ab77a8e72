"""Capture of a running training step: host trace and profile of the same step, imported at once.

The one module of the traces that needs torch. ExecutionTraceObserver gives operators with their
tensors, the profiler gives durations; both run in the same step, so that they can be joined by
RecordFunction handle.
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import distributed
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile

from layerdag.errors import TraceError
from layerdag.traces.kineto import read_timings
from layerdag.traces.pytorch_import import ImportResult, import_host


@dataclass
class Capture:
    """What a captured step has become; filled when the ``with`` block ends.

    Attributes:
        result: The imported trace of this rank, None while the step runs.
        rank: This process's rank, 0 without torch.distributed.
        world_size: Number of ranks.
    """

    rank: int
    world_size: int
    result: ImportResult | None = None

    def imported(self) -> ImportResult:
        """Return the import. Raises TraceError while the step still runs."""
        if self.result is None:
            raise TraceError(
                f"rank {self.rank}: the captured step has not ended; read the result after the "
                "'with' block."
            )
        return self.result


@contextmanager
def record() -> Iterator[Capture]:
    """Trace the work of the ``with`` block and import it, without writing a trace file.

    Warm up first: a first step also shows allocations and lazy initialisation.

    Raises:
        TraceError: If the block did no work that could be traced.
    """
    capture = Capture(*_place())
    with tempfile.TemporaryDirectory(prefix="layerdag-") as folder:
        host, device = Path(folder, "host.json"), Path(folder, "device.json")
        observer = ExecutionTraceObserver().register_callback(str(host))
        try:
            with profile(
                activities=_activities(), record_shapes=True, execution_trace_observer=observer
            ) as profiler:
                yield capture
        finally:
            observer.unregister_callback()
        profiler.export_chrome_trace(str(device))
        capture.result = import_host(host, read_timings(device))


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


Groups = Mapping[str, tuple[int, ...]]
