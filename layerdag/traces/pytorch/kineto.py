"""Read Kineto profiles (Chrome-trace JSON of ``torch.profiler``), and measured times from them.

``{"schemaVersion", "deviceProperties", "distributedInfo", "traceEvents": [...], ...}``: an event
of phase X has ``ts`` and ``dur`` in microseconds. Category ``cpu_op`` holds operators;
``cuda_runtime`` and ``cuda_driver`` hold calls (also HIP's), ``xpu_runtime`` and ``xpu_driver``
those of Intel, ``privateuse1_runtime`` and ``privateuse1_driver`` those of a vendor's own device;
they are tied to the ``kernel``, ``gpu_memcpy`` or ``gpu_memset`` that they start by
``args.correlation``.

The file is read as a stream, one object of the list at a time, so that memory does not grow with
it; it may be compressed with gzip or xz, recognized by content. Profilers write names of frames as
they are: with raw control characters, single backslashes (paths of Windows), quotes, and bytes that
are not UTF-8 (pytorch#98432, pytorch#113001, kineto#1459). Where an object is not JSON for such
a reason, it is read all the same and noted, or left out and noted if its name cannot be separated
from the rest and it is not needed.
"""

import codecs
import contextlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from layerdag.errors import TraceError
from layerdag.runtime.json_shape import (
    doubled_name,
    found_value,
    plain_reason,
    require_shape,
)
from layerdag.runtime.notes import Note, NoteCollector, NoteKind
from layerdag.runtime.reading import Unpacked, open_unpacked

CHUNK = 1 << 20
MAX_OBJECT_LENGTH = 1 << 26
"""Characters of one object of a list; events and nodes have a few thousand."""
_SHOWN = 40

Raw = dict[str, Any]


def stream_objects(
    path: str | Path,
    key: str,
    notes: NoteCollector | None = None,
    needed: Callable[[str], bool] = lambda category: True,
) -> Iterator[Raw]:
    """Yield the objects of the list ``key`` of the outermost object.

    Args:
        path: JSON file, plain or compressed.
        key: Name of the list; it must begin within the first million characters.
        notes: Takes what is not JSON and was read or left out all the same.
        needed: Whether objects of a category (``cat``) matter. One that cannot be read is left out
            if it does not, else it is an error.

    Raises:
        TraceError: If the file is missing, damaged or cut short, or has no such list.
    """
    with open_unpacked(path, TraceError) as stream:
        window = _Window(stream, notes or NoteCollector(str(path)), str(path), needed)
        window.enter(key)
        while (raw := window.next_object()) is not None:
            yield raw
        window.note_rest(key)


def read_head(path: str | Path, key: str) -> str:
    """Return the text before the list ``key``; errors as in `stream_objects`."""
    with open_unpacked(path, TraceError) as stream:
        window = _Window(stream, NoteCollector(str(path)), str(path), lambda category: True)
        return window.enter(key)


_GAP = re.compile(r"[\s,]*")
_DECODE = json.JSONDecoder().raw_decode
_DECODE_RAW = json.JSONDecoder(strict=False).raw_decode
_NEXT_OBJECT = re.compile(r'\}(?=\s*,\s*\{\s*"(?:ph|cat|name|args|ts|pid|tid|dur|id|bp|s)"\s*:)')
_END_OF_LIST = re.compile(r'\}(?=\s*\]\s*(?:,\s*"[^"]*"\s*:|\}\s*\Z))')
_NAME = re.compile(
    r'"name"\s*:\s*"(.*?)"(?=\s*(?:,\s*"(?:ph|cat|pid|tid|ts|dur|args|id)"\s*:|\}\s*\Z))', re.DOTALL
)
_CATEGORY = re.compile(r'"cat"\s*:\s*"([^"]*)"')
_LONE_BACKSLASH = re.compile(r'\\(?:(["\\/bfnrt]|u[0-9a-fA-F]{4})|)')

_NO_NUMBER = re.compile(r"([:\[,]\s*)-?(?:inf|nan)(?=\s*[,}\]])")

CONTROL, NUMBER, ESCAPE, QUOTE, BYTES = (
    *("raw control character", "inf or nan for a number", "lone backslash"),
    *("unescaped quote", "bytes that are no UTF-8"),
)


class _Window:
    """A stretch of the text of a file, read on as the objects of a list are taken from it."""

    def __init__(
        self, stream: Unpacked, notes: NoteCollector, source: str, needed: Callable[[str], bool]
    ) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._notes, self._needed = notes, needed
        self.source = source
        self.text = ""
        self.at = 0
        self.dropped = 0

    def grow(self) -> bool:
        """Drop what lies before the cursor and read on; False at the end of the stream."""
        held = len(self.text) - self.at
        if held > MAX_OBJECT_LENGTH:
            raise TraceError(
                f"{self.source}: the object at character {self.dropped + self.at} is longer than "
                f"{MAX_OBJECT_LENGTH >> 20} million characters; this is no trace, or a damaged one."
            )
        more = self._stream.read_full(max(CHUNK, held))
        self.dropped += self.at
        self.text = self.text[self.at :] + self._decoded(more)
        self.at = 0
        return bool(more)

    def _decoded(self, data: bytes) -> str:
        """Return the next text; bytes that are not UTF-8 become U+FFFD, and are noted."""
        pending = self._decoder.getstate()[0]
        try:
            return self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            if not data:
                raise TraceError(
                    f"{self.source}: the file is damaged or cut short ({error}); collect or copy "
                    "it again."
                ) from None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._note(BYTES, "those letters became U+FFFD")
        return self._decoder.decode(pending + data)

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
            try:
                raw, end = _DECODE(self.text, self.at)
            except json.JSONDecodeError as error:
                found = self._read_on(error)
                if found is None:
                    continue
                return found
            except ValueError as error:
                raise self._malformed(str(error)) from None
            except RecursionError:
                raise TraceError(f"{self.source}: values are nested too deeply.") from None
            if not isinstance(raw, dict):
                raise TraceError(
                    f"{self.source}: found {found_value(raw)} where an event belongs; it is none "
                    "that a profiler writes, remove it."
                )
            self.at = end
            return raw

    def note_rest(self, key: str) -> None:
        """Note what follows the list and does not end its object, such as a second profile."""
        self.at += 1
        while True:
            start = '{"": 0'
            try:
                rest, end = _DECODE(start + self.text[self.at :])
                break
            except (ValueError, RecursionError):
                if len(self.text) - self.at > MAX_OBJECT_LENGTH or not self.grow():
                    # Names of files have lone backslashes there; nothing of it is needed.
                    text = start + self.text[self.at :].rstrip()
                    if not any(used == len(written) for _, written, _, used in _readings(text)):
                        effect = "the object around the list does not end there"
                        self._note(f"end of '{key}'", effect)
                    return
        for late in sorted({key, "distributedInfo"} & rest.keys()):
            place = f"character {self.dropped + self.at}"
            effect = f"stands behind the list '{key}', where it is not read"
            self._notes.add(NoteKind.KEY, late, effect, where=place)
        self.at += end - len(start)
        while not self.text[self.at :].strip():
            self.at = len(self.text)
            if not self.grow():
                return
        behind = self.text[self.at :].strip()
        self._note(behind[:_SHOWN], f"stands behind the object with '{key}'; not read")

    def _read_on(self, error: json.JSONDecodeError) -> Raw | None:
        """Read on where an object is not whole yet, or return what one that is not JSON means."""
        behind = error.pos - self.at
        found = _NEXT_OBJECT.search(self.text, error.pos)
        if found is None and self.grow():
            return None
        found = found or _END_OF_LIST.search(self.text, self.at + behind)
        if found is None:
            cut = self.at + behind >= len(self.text)
            raise self._malformed("the file ends inside the list" if cut else error.msg)
        return self._mended(found.end(), error.msg)

    def _mended(self, end: int, fault: str) -> Raw | None:
        """Return the object up to ``end``, which is not JSON, or None where it is not needed."""
        text = self.text[self.at : end]
        for word, written, raw, used in _readings(text):
            if used == len(written) and isinstance(raw, dict):
                self._note(word, "no JSON, but read as it stands")
                self.at = end
                return raw
        category = _CATEGORY.search(text)
        if category is None:
            raise self._malformed(fault)
        if self._needed(category[1]):
            raise TraceError(
                f"{self.source}: the event at character {self.dropped + self.at} is no valid JSON "
                f"({fault}): {text[:80]!r}; correct or remove it."
            )
        self._note(QUOTE, f"no JSON; the event, of category {category[1][:40]}, is left out")
        self.at = end
        return None

    def _note(self, word: str, effect: str) -> None:
        place = f"character {self.dropped + self.at}"
        self._notes.add(NoteKind.ENCODING, word, effect, where=place)

    def _malformed(self, fault: str) -> TraceError:
        return TraceError(
            f"{self.source}: no valid JSON from character {self.dropped + self.at} on "
            f"({fault}); the trace is cut short or damaged, collect or copy it again."
        )


def _readings(text: str) -> Iterator[tuple[str, str, Any, int]]:
    """Yield what is wrong with a text, its correction, what that means, and how much is read."""
    escaped = _LONE_BACKSLASH.sub(lambda found: found[0] if found[1] else r"\\", text)
    quoted = _NAME.sub(lambda found: f'"name": {json.dumps(found[1])}', text, count=1)
    for word, written in (
        (CONTROL, text),
        (NUMBER, _NO_NUMBER.sub(r"\1null", text)),
        (ESCAPE, escaped),
        (QUOTE, quoted),
    ):
        with contextlib.suppress(ValueError, RecursionError):
            yield word, written, *_DECODE_RAW(written)


@dataclass(frozen=True)
class Timings:
    """Start and duration of each operator of one rank, in ns, by RecordFunction handle."""

    of: Mapping[int, tuple[int, int]]
    source: str = "<memory>"
    notes: tuple[Note, ...] = ()


RECORD_FUNCTION = "Record function id"
EXTERNAL = "External id"
CORRELATION = "correlation"

# The second names are those of PyTorch 1.8 to 1.11.
_CALLS = {
    "cuda_runtime": "cuda",
    "cuda_driver": "cuda",
    "hip_runtime": "cuda",
    "Runtime": "cuda",
    "xpu_runtime": "xpu",
    "xpu_driver": "xpu",
    "privateuse1_runtime": "privateuseone",
    "privateuse1_driver": "privateuseone",
}
"""Categories of calls, with PyTorch's name of the device that they are for (HIP's is "cuda")."""

DEVICE_CATEGORIES = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"})
_KINDS = {
    **dict.fromkeys(DEVICE_CATEGORIES, "kernels"),
    **dict.fromkeys(_CALLS, "calls"),
    **dict.fromkeys(("cpu_op", "Operator"), "operators"),
}
# Categories of libkineto (``ActivityType``) and of torch that do not say what ran where.
_BESIDE = frozenset(
    {
        *("user_annotation", "gpu_user_annotation", "python_function", "cpu_instant_event"),
        *("external_correlation", "overhead", "cuda_event", "cuda_profiler_range", "itt"),
        *("ac2g", "async_cpu_to_gpu", "fwdbwd", "forward_backward", "Trace", "memory"),
        *("cuda_sync", "cuda_synchronization", "xpu_sync", "user_defined", "PyTorch Profiler"),
        *("python_module", "gpu_pm_counter", "", "async_task", "kernel_launch_params", "Legend"),
    }
)
# Devices whose activity has categories of its own, which are not read.
_FOREIGN = {"mtia_": "MTIA (Meta's accelerator)", "hpu_": "HPU (Gaudi)", "glow_": "Glow"}


@dataclass(frozen=True, slots=True)
class Event:
    """One operator, runtime call or kernel, in nanoseconds.

    Attributes:
        lane: Thread of a host event; (device, stream) of a device event.
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
        device: PyTorch's name of the device that calls and kernels are of.
    """

    operators: tuple[Event, ...]
    calls: tuple[Event, ...]
    kernels: tuple[Event, ...]
    distributed: dict[str, Any] = field(default_factory=dict)
    source: str = "<memory>"
    device: str = "cuda"
    notes: tuple[Note, ...] = ()

    @property
    def rank(self) -> int | None:
        """The rank that the profile itself states, None if it does not."""
        return stated_rank(self.distributed)

    @property
    def world_size(self) -> int:
        """The number of ranks that the profile states, 1 if it does not."""
        size = self.distributed.get("world_size")
        return size if type(size) is int and size > 0 else 1


def stated_rank(distributed: Mapping[str, Any]) -> int | None:
    """Return the rank in a ``distributedInfo`` object, None if there is none that makes sense."""
    rank, size = distributed.get("rank"), distributed.get("world_size")
    sound = type(rank) is int and rank >= 0 and (type(size) is not int or rank < size)
    return rank if sound else None


def read_profile(path: str | Path) -> Profile:
    """Read the events of a profile that matter for an execution trace.

    Raises:
        TraceError: If the file is not a profile, or holds no operator, call or kernel.
    """
    notes = NoteCollector(str(path))
    found: dict[str, list[Event]] = {"operators": [], "calls": [], "kernels": []}
    beside: Counter[str] = Counter()
    for raw in stream_objects(path, "traceEvents", notes, _KINDS.__contains__):
        if raw.get("ph") != "X" or "dur" not in raw:
            continue
        category = raw.get("cat")
        kind = _KINDS.get(category) if isinstance(category, str) else None
        if kind is None:
            beside["" if category is None else str(category)] += 1
            continue
        try:
            event = _event(raw, notes)
        except _MALFORMED as error:
            raise _malformed(path, raw, error) from error
        if event is not None:
            found[kind].append(event)
    if not any(found.values()):
        raise TraceError(
            f"{path}: no operator, runtime call or kernel among its events{_listed(beside)}; give "
            "a profile of torch.profiler with CPU or device activities."
        )
    for prefix, maker in _FOREIGN.items() if not found["kernels"] else ():
        own = Counter({name: n for name, n in beside.items() if name.startswith(prefix)})
        if own:
            raise TraceError(
                f"{path}: is a profile of {maker}{_listed(own)}; layerdag reads the activity of "
                "CUDA, ROCm, XPU and PrivateUse1 devices. Give the host trace of the step."
            )
    for category in sorted(beside.keys() - _BESIDE):
        effect = "not known; its events are left out"
        notes.add(NoteKind.CATEGORY, category, effect, count=beside[category])
    settled = _settled({kind: sorted(events, key=_order) for kind, events in found.items()}, notes)
    distributed = _distributed(read_head(path, "traceEvents"), notes)
    called = Counter(_CALLS[call.category] for call in found["calls"])
    if called:
        device = called.most_common(1)[0][0]
    else:  # SYCL's queues are of XPU
        device = "xpu" if any(_QUEUE in kernel.args for kernel in found["kernels"]) else "cuda"
    return Profile(
        **settled,
        distributed=distributed,
        source=str(path),
        device=device,
        notes=notes.notes,
    )


def _order(event: Event) -> tuple[int, int]:
    """Sort by start; of events that start together the longer one is outside."""
    return (event.start, -event.end)


def _listed(categories: Counter[str]) -> str:
    shown = ", ".join(
        f"'{name[:40]}' {count:,}" if name else f"none {count:,}"
        for name, count in categories.most_common(5)
    )
    return f", which are of the categories {shown}" if shown else ""


_QUEUE = "sycl queue"


def _event(raw: dict[str, Any], notes: NoteCollector) -> Event | None:
    """Return one event, None where it has no time; one that never ended ends at `_NEVER`."""
    args = _args(raw)
    if "external id" in args:
        args[EXTERNAL] = args["external id"]  # so written by PyTorch 1.8 to 1.11
    for name in (CORRELATION, EXTERNAL, RECORD_FUNCTION):
        _number(args, name)
    name = str(raw["name"])
    lane = (raw.get("pid"), raw.get("tid"))
    if raw["cat"] in DEVICE_CATEGORIES:
        stream = args.get("stream", args.get(_QUEUE, raw.get("tid")))
        lane = (args.get("device", raw.get("pid")), stream)
    if any(isinstance(part, list | dict) for part in lane):
        raise TypeError(f"{lane} names no thread or stream")
    start, length = _nanoseconds(raw["ts"]), _nanoseconds(raw["dur"])
    where = f"event '{name[:40]}'"
    if start is None:
        effect = "no time of a trace; the event is left out"
        notes.add(NoteKind.TIME, f"{raw['ts']} us", effect, where=where)
        return None
    if length is None and not raw["dur"] < 0:
        return Event(name, raw["cat"], start, _NEVER, lane, args)
    if length is None or length < 0:
        effect = "the event was not finished; it ends where it starts"
        notes.add(NoteKind.TIME, "negative duration", effect, where=where)
        length = 0
    return Event(name, raw["cat"], start, start + length, lane, args)


_NEVER = 1 << 62
_OVERLAP = 1000
"""Nanoseconds by which kernels of a stream may overlap: times used to be whole microseconds."""


def _settled(
    found: Mapping[str, list[Event]], notes: NoteCollector
) -> dict[str, tuple[Event, ...]]:
    """Return the events with ends that can be; each list comes by start."""
    ends = [e.end for events in found.values() for e in events if e.end < _NEVER]
    starts = [e.start for events in found.values() for e in events]
    last = max([*ends, *starts], default=0)
    settled = {kind: list(events) for kind, events in found.items()}
    _clip_kernels(settled["kernels"], notes)
    for events in settled.values():
        for at, event in enumerate(events):
            if event.end >= _NEVER:
                effect = "no duration of an event; it ends with the profile"
                where = f"event '{event.name[:40]}'"
                notes.add(NoteKind.TIME, "impossible duration", effect, where=where)
                events[at] = replace(event, end=last)
    return {kind: tuple(sorted(events, key=_order)) for kind, events in settled.items()}


def _clip_kernels(kernels: list[Event], notes: NoteCollector) -> None:
    """Clip kernels that outlast the next one of their stream, which is not possible.

    A kernel may start a little before the one before it ends (programmatic launch); the kernels of
    one graph launch share a stream in profiles and run side by side.
    """
    before: dict[tuple[object, ...], int] = {}
    clipped: list[tuple[str, int]] = []
    overlaps: list[tuple[str, int]] = []
    for at, kernel in enumerate(kernels):
        first = before.get(kernel.lane)
        before[kernel.lane] = at
        if first is None:
            continue
        other = kernels[first]
        excess = other.end - kernel.start
        if excess <= _OVERLAP or other.correlation == kernel.correlation != 0:
            continue
        if other.end > kernel.end:
            kernels[first] = replace(other, end=kernel.start)
        (clipped if other.end > kernel.end else overlaps).append((other.name, min(excess, _NEVER)))
    for which, word, effect in (
        (clipped, "kernel outlasts the next one of its stream", "clipped where that starts"),
        (overlaps, "kernel runs into the next one of its stream", "kept as recorded"),
    ):
        if which:
            total = sum(excess for _, excess in which) / 1000
            where = f"kernel '{which[0][0][:40]}', {total:,.0f} us too long in all"
            notes.add(NoteKind.TIME, word, effect, where=where, count=len(which))


_MALFORMED = (TypeError, ValueError, KeyError, OverflowError)
_EVENT = {
    "name": str,
    "ts": float,
    "dur": float,
    "args?": ({"External id?": int, "correlation?": int, "device?": int, "stream?": int}, None),
}


def _malformed(path: str | Path, raw: dict[str, Any], error: Exception) -> TraceError:
    try:
        require_shape(raw, _EVENT)
        reason = plain_reason(error)
    except ValueError as fault:
        reason = str(fault)
    name = raw.get("name")
    named = f"event '{name[:80]}'" if isinstance(name, str) else "an event without a name"
    return TraceError(f"{path}: {named} is malformed ({reason}); export it again.")


def _args(raw: dict[str, Any]) -> dict[str, Any]:
    args = raw.get("args") or {}
    if not isinstance(args, dict):
        raise ValueError(f"'args' is {found_value(args)}, not an object")
    return args


def _nanoseconds(value: Any) -> int | None:
    """Return a time that a file gives in microseconds, None for a number that can be none."""
    number = value if isinstance(value, int) else float(value)
    if not abs(number) < 2**62 / 1000:
        return None
    return number * 1000 if isinstance(number, int) else round(number * 1000)


def _number(args: dict[str, Any], name: str) -> int:
    """Return an integer detail, 0 where it is absent."""
    return int(args.get(name, 0) or 0)


def read_distributed(path: str | Path) -> dict[str, Any]:
    """Return the ``distributedInfo`` object of a profile, empty if it has no sound one.

    Raises:
        TraceError: If the file is not a profile.
    """
    return _distributed(read_head(path, "traceEvents"), NoteCollector(str(path)))


def _distributed(head: str, notes: NoteCollector) -> dict[str, Any]:
    if twice := doubled_name(head.rstrip().rstrip(",") + "}"):
        notes.add(NoteKind.KEY, twice, "stands twice; readers differ in which they take")
    version = re.search(r'"schemaVersion"\s*:\s*([^,\s}]+)', head)
    if version is not None and version[1] != "1":
        notes.add(NoteKind.VERSION, version[1], "profiles of schema 1 are known; read as such")
    found = re.search(r'"distributedInfo"\s*:\s*', head)
    if found is None:
        return {}
    try:
        value, _ = _DECODE(head, found.end())
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        notes.add(NoteKind.KEY, "distributedInfo", "no JSON object; rank and groups are not known")
        return {}
    if value.get("rank") is not None and stated_rank(value) is None:
        notes.add(NoteKind.RANK, value["rank"], "no rank of its job; it is left out")
    rows = value.get("pg_config")
    for row in rows if isinstance(rows, list) else () if rows is None else (rows,):
        if not isinstance(row, dict) or "pg_name" not in row:
            notes.add(NoteKind.GROUP, found_value(row), "no group with a 'pg_name'; left out")
        elif row.get("ranks") and not ranks_in(row["ranks"]) and "..." not in str(row["ranks"]):
            effect = "no list of ranks; who is in the group is not known from it"
            where = f"group '{row['pg_name']!s:.40}'"
            notes.add(NoteKind.GROUP, found_value(row["ranks"]), effect, where=where)
    return value


def ranks_in(value: object) -> tuple[int, ...]:
    """Return the ranks in a text such as "[0, 1, 2]"; cut-off lists ("...") count as unknown."""
    try:
        ranks: Any = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return ()
    known = isinstance(ranks, list) and all(type(rank) is int and rank >= 0 for rank in ranks)
    return tuple(ranks) if known else ()


def read_timings(path: str | Path) -> Timings:
    """Return start and duration of each operator of a profile by RecordFunction handle.

    Raises:
        TraceError: If the file is not a profile, an event is malformed, or none has a
            RecordFunction handle (the profiler ran without ExecutionTraceObserver in that step).
    """
    of: dict[int, tuple[int, int]] = {}
    notes = NoteCollector(str(path))
    for event in stream_objects(path, "traceEvents", notes, _KINDS.__contains__):
        try:
            handle = _number(_args(event), RECORD_FUNCTION)
            if not handle or "dur" not in event:
                continue
            start, length = _nanoseconds(event["ts"]), _nanoseconds(event["dur"])
        except _MALFORMED as error:
            raise _malformed(path, event, error) from error
        if start is None or length is None or length < 0:
            effect = "no time of a trace; the operator has no duration"
            where = f"event '{str(event.get('name'))[:40]}'"
            notes.add(NoteKind.TIME, f"{event['ts']}, {event['dur']} us", effect, where=where)
        else:
            of[handle] = (start, length)
    if not of:
        raise TraceError(
            f"{path}: no event carries '{RECORD_FUNCTION}', so nothing can be joined to a host "
            "trace; run the profiler and the ExecutionTraceObserver in the same step "
            "(PyTorch 2.3 or later)."
        )
    return Timings(of, str(path), notes.notes)
