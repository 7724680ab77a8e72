"""Reader of Kineto profiles (Chrome-trace JSON of ``torch.profiler``).

``{"schemaVersion", "deviceProperties", "distributedInfo", "traceEvents": [...], ...}``: an event
of phase X has ``ts`` and ``dur`` in microseconds. Category ``cpu_op`` holds operators;
``cuda_runtime`` and ``cuda_driver`` hold calls (also HIP's), which are tied to the ``kernel``,
``gpu_memcpy`` or ``gpu_memset`` they start by ``args.correlation``.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from layerdag.errors import TraceError
from layerdag.traces import read_head, stream_objects
from layerdag.traces.pytorch.device._timings import Timings

RECORD_FUNCTION = "Record function id"
EXTERNAL = "External id"

# The second names are those of PyTorch 1.8 to 1.11.
_CALLS = frozenset({"cuda_runtime", "cuda_driver", "hip_runtime", "Runtime"})
_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"})
_OPERATORS = frozenset({"cpu_op", "Operator"})


@dataclass(frozen=True, slots=True)
class Event:
    """One event with a duration.

    Attributes:
        name: Operator, runtime call or kernel.
        category: Kineto's category.
        start: Nanoseconds.
        end: Nanoseconds.
        lane: Thread of a host event; (device, stream) of a device event.
        args: Kineto's details.
    """

    name: str
    category: str
    start: int
    end: int
    lane: tuple[object, ...]
    args: dict[str, Any]

    @property
    def correlation(self) -> int:
        """What ties a runtime call to the device event it starts; 0 if nothing does."""
        return int(self.args.get("correlation", 0) or 0)


@dataclass(frozen=True)
class Profile:
    """One profile, by kind of event.

    Attributes:
        operators: Operators on the host, by start; outer ones first.
        calls: Runtime and driver calls, by start.
        kernels: Kernels, copies and fills on the device, by start.
        distributed: The ``distributedInfo`` object, empty if there is none.
        source: File name for messages.
    """

    operators: tuple[Event, ...]
    calls: tuple[Event, ...]
    kernels: tuple[Event, ...]
    distributed: dict[str, Any] = field(default_factory=dict)
    source: str = "<memory>"


def read_profile(path: str | Path) -> Profile:
    """Read the events of a profile that matter for an execution trace.

    Raises:
        TraceError: If the file is no profile, or holds no operator, call or kernel.
    """
    found: dict[str, list[Event]] = {"operators": [], "calls": [], "kernels": []}
    for raw in stream_objects(path, "traceEvents"):
        kind = _kind(raw.get("cat"))
        if kind and raw.get("ph") == "X" and "dur" in raw:
            try:
                found[kind].append(_event(raw))
            except (TypeError, ValueError, KeyError) as error:
                raise TraceError(
                    f"{path}: event '{raw.get('name')}' is malformed ({error}); export it again."
                ) from error
    if not any(found.values()):
        raise TraceError(
            f"{path}: no operator, runtime call or kernel among its events; profile with CPU or "
            "device activities."
        )
    ordered = {kind: tuple(sorted(events, key=_order)) for kind, events in found.items()}
    head = read_head(path, "traceEvents")
    return Profile(**ordered, distributed=_distributed(head), source=str(path))


def _order(event: Event) -> tuple[int, int]:
    """Sort by start; of events that start together the longer one is outside."""
    return (event.start, -event.end)


def _kind(category: object) -> str | None:
    """Return the list that an event of a category belongs to."""
    if category in _DEVICE:
        return "kernels"
    if category in _CALLS:
        return "calls"
    return "operators" if category in _OPERATORS else None


def _event(raw: dict[str, Any]) -> Event:
    """Return one event."""
    args = raw.get("args") or {}
    if "external id" in args:
        args[EXTERNAL] = args["external id"]  # so written by PyTorch 1.8 to 1.11
    start = round(float(raw["ts"]) * 1000)
    lane = (raw.get("pid"), raw.get("tid"))
    if raw["cat"] in _DEVICE:
        lane = (args.get("device", raw.get("pid")), args.get("stream", raw.get("tid")))
    end = start + max(round(float(raw["dur"]) * 1000), 0)
    return Event(str(raw["name"]), raw["cat"], start, end, lane, args)


def _distributed(head: str) -> dict[str, Any]:
    """Return the ``distributedInfo`` object from the text before the events."""
    found = re.search(r'"distributedInfo"\s*:\s*', head)
    if found is None:
        return {}
    try:
        value, _ = json.JSONDecoder().raw_decode(head, found.end())
    except json.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def read_timings(path: str | Path) -> Timings:
    """Return start and duration of each operator of a profile by RecordFunction handle.

    Raises:
        TraceError: If the file is no profile, or none of its events carries a RecordFunction
            handle (the profiler ran without an ExecutionTraceObserver in the same step).
    """
    of: dict[int, tuple[int, int]] = {}
    for event in stream_objects(path, "traceEvents"):
        handle = event.get("args", {}).get(RECORD_FUNCTION, 0)
        if handle and "dur" in event:
            of[int(handle)] = (round(event["ts"] * 1000), round(event["dur"] * 1000))
    if not of:
        raise TraceError(
            f"{path}: no event carries '{RECORD_FUNCTION}', so nothing can be joined to a host "
            "trace; run the profiler and the ExecutionTraceObserver in the same step "
            "(PyTorch 2.3 or later)."
        )
    return Timings(of, str(path))
