"""Read Kineto profiles as a stream, and measured times from them.

Large JSON files read as a stream: the objects of one list, one at a time.

Memory does not grow with the file. Files may be compressed with gzip or xz, recognized by content.

Reader of Kineto profiles (Chrome-trace JSON of ``torch.profiler``).

``{"schemaVersion", "deviceProperties", "distributedInfo", "traceEvents": [...], ...}``: an event
of phase X has ``ts`` and ``dur`` in microseconds. Category ``cpu_op`` holds operators;
``cuda_runtime`` and ``cuda_driver`` hold calls (also HIP's), which are tied to the ``kernel``,
``gpu_memcpy`` or ``gpu_memset`` they start by ``args.correlation``.
"""

import codecs
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from layerdag.errors import TraceError
from layerdag.runtime.files import write_text
from layerdag.runtime.reading import Unpacked, open_unpacked, read_parsed

CHUNK = 1 << 20
LONGEST_OBJECT = 1 << 26
"""Characters of one object of a list; events and nodes have a few thousand."""

Raw = dict[str, Any]


def stream_objects(path: str | Path, key: str) -> Iterator[Raw]:
    """Yield the objects of the list ``key`` of the outermost object.

    Args:
        path: JSON file, plain or compressed.
        key: Name of the list; it must begin within the first million characters.

    Raises:
        TraceError: If the file is missing, damaged or cut short, or has no such list.
    """
    with _window(path) as window:
        window.enter(key)
        while (raw := window.next_object()) is not None:
            yield raw


def read_head(path: str | Path, key: str) -> str:
    """Return the text before the list ``key``; errors as in `stream_objects`."""
    with _window(path) as window:
        return window.enter(key)


@contextmanager
def _window(path: str | Path) -> Iterator["_Window"]:
    """Open a file as a window; say in one sentence what is wrong with its encoding."""
    with open_unpacked(path, TraceError) as stream:
        try:
            yield _Window(stream, str(path))
        except UnicodeDecodeError as error:
            raise TraceError(
                f"{path}: the file is damaged or cut short ({error}); collect or copy it again."
            ) from error


_GAP = re.compile(r"[\s,]*")
_DECODE = json.JSONDecoder().raw_decode


class _Window:
    """A sliding window over a text stream, with a cursor."""

    def __init__(self, stream: Unpacked, source: str) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.source = source
        self.text = ""
        self.at = 0
        self.dropped = 0

    def grow(self) -> bool:
        """Drop what lies before the cursor and read on; False at the end of the stream."""
        held = len(self.text) - self.at
        if held > LONGEST_OBJECT:
            raise TraceError(
                f"{self.source}: the object at character {self.dropped + self.at} is longer than "
                f"{LONGEST_OBJECT >> 20} million characters; this is no trace, or a damaged one."
            )
        more = self._stream.read_full(max(CHUNK, held))
        self.dropped += self.at
        self.text = self.text[self.at :] + self._decoder.decode(more, final=not more)
        self.at = 0
        return bool(more)

    def enter(self, key: str) -> str:
        """Move to the first element of the list ``key`` and return the text before it."""
        self.grow()
        start = re.search(rf'"{key}"\s*:\s*\[', self.text)
        if start is None:
            raise TraceError(
                f"{self.source}: no list '{key}' in the first {CHUNK} characters; this is no "
                "trace of the expected kind, or it is empty."
            )
        self.at = start.end()
        return self.text[: start.start()]

    def next_object(self) -> Raw | None:
        """Return the next object of the list, or None at its closing bracket."""
        while True:
            gap = _GAP.match(self.text, self.at)
            assert gap is not None, "the pattern matches the empty string"
            self.at = gap.end()
            if self.text.startswith("]", self.at):
                return None
            fault = "the file ends inside the list"
            try:
                raw, end = _DECODE(self.text, self.at)
            except json.JSONDecodeError as error:
                fault = error.msg
            except ValueError as error:
                raise self._malformed(str(error)) from None
            except RecursionError:
                raise TraceError(f"{self.source}: values are nested too deeply.") from None
            else:
                if not isinstance(raw, dict):
                    raise TraceError(f"{self.source}: found {raw!r:.40} where an object belongs.")
                self.at = end
                return raw
            if not self.grow():
                raise self._malformed(fault)

    def _malformed(self, fault: str) -> TraceError:
        """Return the error for text at the cursor that is no JSON."""
        return TraceError(
            f"{self.source}: no valid JSON from character {self.dropped + self.at} on "
            f"({fault}); the trace is cut short or damaged, collect or copy it again."
        )


@dataclass(frozen=True)
class Timings:
    """Start and duration of each operator of one rank.

    Attributes:
        of: RecordFunction handle -> (start, duration), both in nanoseconds.
        source: File name for messages.
    """

    of: Mapping[int, tuple[int, int]]
    source: str = "<memory>"


def read_durations(path: str | Path) -> Timings:
    """Read a table ``{"cols": ["rf_id", "ts_us", "dur_us", ...], "rows": [...]}``.

    Raises:
        TraceError: If the file is missing or not such a table.
    """
    text = read_parsed(path, TraceError)
    try:
        table = json.loads(text)
        columns = {name: at for at, name in enumerate(table["cols"])}
        handle, start, length = columns["rf_id"], columns["ts_us"], columns["dur_us"]
        of = {
            row[handle]: (round(row[start] * 1000), round(row[length] * 1000))
            for row in table["rows"]
        }
    except (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError) as error:
        raise TraceError(
            f"{path} is no table of durations ({error}); give a JSON object with 'cols' "
            "(rf_id, ts_us, dur_us) and 'rows'."
        ) from error
    return Timings(of, str(path))


def write_durations(timings: Timings, path: str | Path) -> None:
    """Write a table that `read_durations` reads."""
    rows = [[rf_id, start / 1000, length / 1000] for rf_id, (start, length) in timings.of.items()]
    write_text(path, json.dumps({"cols": ["rf_id", "ts_us", "dur_us"], "rows": rows}))


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
