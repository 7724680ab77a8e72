"""Calls of CUDA's runtime that a piece of work makes: launches, waits, copies; time of kernels."""

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch")
"""How the names of calls that start kernels begin."""

WAITS = ("cudaStreamSynchronize", "cudaEventSynchronize")
"""Calls in which the host waits. Whoever measures waits for the whole device, which is another."""

COPIES = ("Memcpy", "Memset")


@dataclass
class DeviceCalls:
    """What the profiler saw.

    Attributes:
        calls: Calls of the runtime by name.
        kernels: Kernels that ran.
        copies: Copies and fills of memory that ran, by direction.
        kernel_us: Time of all kernels together, microseconds.
    """

    calls: Counter[str] = field(default_factory=Counter)
    kernels: int = 0
    copies: Counter[str] = field(default_factory=Counter)
    kernel_us: float = 0.0

    def add(self, events: Iterable[Any]) -> None:
        """Take in the profiler's sums by name (``key_averages``)."""
        for event in events:
            if event.device_type.name == "CPU":
                if event.key.startswith("cu"):
                    self.calls[event.key] += event.count
            elif event.key.startswith(COPIES):
                self.copies[event.key] += event.count
            elif not getattr(event, "is_user_annotation", False):
                self.kernels += event.count
                self.kernel_us += event.self_device_time_total

    def per(self, times: int, before: "DeviceCalls | None" = None) -> dict[str, float]:
        """Return figures a time.

        Args:
            times: Steps or positions.
            before: Figures to take off, such as those of a shorter run.
        """
        less = before or DeviceCalls()
        return {
            "launches": (_sum(self.calls, LAUNCHES) - _sum(less.calls, LAUNCHES)) / times,
            "stream_waits": (_sum(self.calls, WAITS) - _sum(less.calls, WAITS)) / times,
            "device_kernels": (self.kernels - less.kernels) / times,
            "copies": (self.copies.total() - less.copies.total()) / times,
            "kernel_ms": (self.kernel_us - less.kernel_us) / 1e3 / times,
        }


def _sum(calls: Counter[str], beginnings: tuple[str, ...]) -> int:
    """Return the calls whose name begins with one of ``beginnings``."""
    return sum(count for name, count in calls.items() if name.startswith(beginnings))


@contextlib.contextmanager
def profiled() -> Iterator[DeviceCalls]:
    """Observe the block; the figures are there when it is left."""
    found = DeviceCalls()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as watcher:
        yield found
        torch.cuda.synchronize()
    found.add(watcher.key_averages())
