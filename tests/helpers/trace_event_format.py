"""The rules of the Trace Event Format that viewers rely on, as a checker for tests.

Source: "Trace Event Format" (Google), and what Perfetto's importer of JSON does with slices that
overlap in one track without nesting: it drops or misplaces them.
"""

import itertools
import math
from collections import defaultdict
from typing import Any

_NEEDED = {
    "X": {"name", "ts", "dur", "pid", "tid"},
    "M": {"name", "pid", "args"},
    "s": {"name", "cat", "id", "ts", "pid", "tid"},
    "f": {"name", "cat", "id", "ts", "pid", "tid", "bp"},
    "C": {"name", "ts", "pid", "args"},
}
_METADATA = {"process_name", "process_sort_index", "thread_name", "thread_sort_index"}


def faults(trace: dict[str, Any]) -> list[str]:
    """Return one sentence for each rule that a loaded Chrome trace breaks."""
    events = trace["traceEvents"]
    found = list(itertools.chain.from_iterable(map(_of_event, events)))
    return found or [*_of_tracks(events), *_of_names(events), *_of_flows(events)]


def _of_event(event: dict[str, Any]) -> list[str]:
    """Check the fields of one event."""
    phase = event.get("ph")
    if phase not in _NEEDED:
        return [f"phase {phase!r} is not one of {sorted(_NEEDED)}"]
    found = [f"{phase} lacks {name}" for name in sorted(_NEEDED[phase] - event.keys())]
    for name in ("ts", "dur"):
        value = event.get(name, 0)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            found.append(f"{name} is {value!r}, not a number")
        elif value < 0:
            found.append(f"{name} is {value}, negative")
    for name in ("pid", "tid"):
        if not isinstance(event.get(name, 0), int):
            found.append(f"{name} is {event[name]!r}, not an integer")
    if phase == "M" and event.get("name") not in _METADATA:
        found.append(f"metadata {event.get('name')!r} is unknown")
    return found


def _slices(events: list[dict[str, Any]]) -> dict[tuple[int, int], list[dict[str, Any]]]:
    """Return the slices of each track by start, longer ones first."""
    of_track = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            of_track[event["pid"], event["tid"]].append(event)
    return {t: sorted(found, key=lambda e: (e["ts"], -e["dur"])) for t, found in of_track.items()}


def _of_tracks(events: list[dict[str, Any]], slack: float = 1e-6) -> list[str]:
    """Check that the slices of a track nest or follow each other."""
    found = []
    for track, slices in _slices(events).items():
        ends: list[float] = []
        for event in slices:
            end = event["ts"] + event["dur"]
            while ends and ends[-1] <= event["ts"] + slack:
                ends.pop()
            if ends and end > ends[-1] + slack:
                found.append(f"track {track}: {event['name']} at {event['ts']} overlaps in part")
            ends.append(end)
    return found


def _of_names(events: list[dict[str, Any]]) -> list[str]:
    """Check that every process and track with slices has a name, once."""
    named = [(e["name"], e["pid"], e.get("tid")) for e in events if e["ph"] == "M"]
    found = [f"{key} is named twice" for key in {key for key in named if named.count(key) > 1}]
    for pid, tid in _slices(events):
        if ("thread_name", pid, tid) not in named:
            found.append(f"track {pid}, {tid} has no name")
        if not any(name == "process_name" and of == pid for name, of, _ in named):
            found.append(f"process {pid} has no name")
    return found


def _of_flows(events: list[dict[str, Any]], slack: float = 1e-6) -> list[str]:
    """Check that each arrow has one start and one end, forward in time, each inside a slice."""
    ends: dict[object, dict[str, dict[str, Any]]] = defaultdict(dict)
    found, slices = [], _slices(events)
    for event in events:
        if event["ph"] not in ("s", "f"):
            continue
        if event["ph"] in ends[event["id"]]:
            found.append(f"arrow {event['id']} has two ends of phase {event['ph']}")
        ends[event["id"]][event["ph"]] = event
        on = slices.get((event["pid"], event["tid"]), ())
        inside = (e["ts"] - slack <= event["ts"] <= e["ts"] + e["dur"] + slack for e in on)
        if not any(inside):
            found.append(f"arrow {event['id']} at {event['ts']} touches no slice")
    for number, pair in ends.items():
        if set(pair) != {"s", "f"}:
            found.append(f"arrow {number} has only {sorted(pair)}")
        elif pair["s"]["ts"] > pair["f"]["ts"] + slack:
            found.append(f"arrow {number} points back in time")
    return found
