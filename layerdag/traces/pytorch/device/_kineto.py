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
from layerdag.traces.pytorch.device._json_stream import read_head, stream_objects
from layerdag.traces.pytorch.device._timings import Timings

RECORD_FUNCTION = "Record function id"
EXTERNAL = "External id"
CORRELATION = "correlation"

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
        return _number(self.args, CORRELATION)


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
            except _MALFORMED as error:
                raise _malformed(path, raw, error) from error
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
    if not isinstance(category, str):
        return None
    if category in _DEVICE:
        return "kernels"
    if category in _CALLS:
        return "calls"
    return "operators" if category in _OPERATORS else None


def _event(raw: dict[str, Any]) -> Event:
    """Return one event."""
    args = _args(raw)
    if "external id" in args:
        args[EXTERNAL] = args["external id"]  # so written by PyTorch 1.8 to 1.11
    for name in (CORRELATION, EXTERNAL, RECORD_FUNCTION):
        _number(args, name)
    start = _nanoseconds(raw["ts"])
    lane = (raw.get("pid"), raw.get("tid"))
    if raw["cat"] in _DEVICE:
        lane = (args.get("device", raw.get("pid")), args.get("stream", raw.get("tid")))
    if any(isinstance(part, list | dict) for part in lane):
        raise TypeError(f"{lane} names no thread or stream")
    end = start + max(_nanoseconds(raw["dur"]), 0)
    return Event(str(raw["name"]), raw["cat"], start, end, lane, args)


_MALFORMED = (TypeError, ValueError, KeyError, OverflowError)


def _malformed(path: str | Path, raw: dict[str, Any], error: Exception) -> TraceError:
    """Return the sentence for an event that is not as Kineto writes it."""
    return TraceError(
        f"{path}: event '{str(raw.get('name'))[:80]}' is malformed ({error}); export it again."
    )


def _args(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the details of an event, empty where there are none."""
    args = raw.get("args") or {}
    if not isinstance(args, dict):
        raise TypeError(f"'args' is {args!r:.40}, not an object")
    return args


def _nanoseconds(value: Any) -> int:
    """Return a time that a file gives in microseconds."""
    time = value * 1000 if isinstance(value, int) else round(float(value) * 1000)
    if abs(time) >= 2**62:
        raise OverflowError(f"{value!r:.40} microseconds are no time of a trace")
    return time


def _number(args: dict[str, Any], name: str) -> int:
    """Return an integer detail, 0 where it is absent."""
    return int(args.get(name, 0) or 0)


def _distributed(head: str) -> dict[str, Any]:
    """Return the ``distributedInfo`` object from the text before the events."""
    found = re.search(r'"distributedInfo"\s*:\s*', head)
    if found is None:
        return {}
    try:
        value, _ = json.JSONDecoder().raw_decode(head, found.end())
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def read_timings(path: str | Path) -> Timings:
    """Return start and duration of each operator of a profile by RecordFunction handle.

    Raises:
        TraceError: If the file is no profile, an event is malformed, or none has a RecordFunction
            handle (the profiler ran without an ExecutionTraceObserver in the same step).
    """
    of: dict[int, tuple[int, int]] = {}
    for event in stream_objects(path, "traceEvents"):
        try:
            handle = _number(_args(event), RECORD_FUNCTION)
            if handle and "dur" in event:
                of[handle] = (_nanoseconds(event["ts"]), _nanoseconds(event["dur"]))
        except _MALFORMED as error:
            raise _malformed(path, event, error) from error
    if not of:
        raise TraceError(
            f"{path}: no event carries '{RECORD_FUNCTION}', so nothing can be joined to a host "
            "trace; run the profiler and the ExecutionTraceObserver in the same step "
            "(PyTorch 2.3 or later)."
        )
    return Timings(of, str(path))
