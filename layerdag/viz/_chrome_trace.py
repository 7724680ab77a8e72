"""Traces as Chrome-trace JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

One process per rank, tracks for computation, communication and memory; an arrow for each dependency
between tracks. Format: "Trace Event Format" (Google), events of phase X and flows s/f.
"""

import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from layerdag.graph import group_by
from layerdag.traces import NodeType, Trace, Workload
from layerdag.viz._view import GraphView, plain_details, view_of_trace

_ROWS = ("computation", "communication", "memory", "other")
_ROW_OF_TYPE = np.array([3, 3, 2, 2, 0, 1, 1, 1])
_MOST_FLOWS = 100_000
# Parallel slices of a row get neighboring track numbers; at least so many are kept for each row.
_LANES = 1000


@dataclass(frozen=True, eq=False)
class _Timeline:
    """One distinct trace, placed in time (microseconds) and on tracks."""

    view: GraphView
    start_N: np.ndarray
    duration_N: np.ndarray
    track_N: np.ndarray
    type_N: np.ndarray
    lanes: int


def chrome_trace(workload: Workload) -> str:
    """Return the timeline of a workload.

    Where a trace states start times, they are used, and slices that overlap get tracks of their
    own. Else a node starts when its dependencies have ended and its row is free. A node without
    duration lasts one microsecond, so that it can be seen.

    Raises:
        TraceError: If the dependencies of a trace are faulty.
    """
    events: list[str] = []
    known: dict[int, _Timeline] = {}
    for rank, trace in enumerate(workload.traces):
        if id(trace) not in known:
            known[id(trace)] = _timeline(trace)
        timeline = known[id(trace)]
        events += map(json.dumps, _names(rank, timeline))
        events += map(json.dumps, _slices(rank, timeline))
        events += map(json.dumps, _arrows(rank, timeline))
    body = ",\n".join(events)
    return f'{{"displayTimeUnit": "ms", "traceEvents": [\n{body}\n]}}\n'


def _timeline(trace: Trace) -> _Timeline:
    """Place the nodes of a trace."""
    view = view_of_trace(trace)
    duration_N = np.maximum(trace.duration_us_N.astype(np.float64), 1.0)
    row_N = _ROW_OF_TYPE[trace.type_N]
    if trace.start_us_N.any():
        start_N = trace.start_us_N.astype(np.float64)
    else:
        start_N = _serial_start(view.edge_index_2E, duration_N, row_N, trace.id_N)
    lane_N = _lanes(start_N, duration_N, row_N)
    lanes = max(_LANES, int(lane_N.max(initial=0)) + 1)
    return _Timeline(view, start_N, duration_N, row_N * lanes + lane_N, trace.type_N, lanes)


def _serial_start(
    edge_index_2E: np.ndarray, duration_N: np.ndarray, row_N: np.ndarray, id_N: np.ndarray
) -> np.ndarray:
    """Return start times when each row runs one node at a time, first come, first served."""
    source_E, target_E = edge_index_2E
    size = duration_N.size
    ptr, order_E = group_by(source_E, size)
    children = target_E[order_E].tolist()
    waiting = np.bincount(target_E, minlength=size).tolist()
    ready = [0.0] * size
    start_N = np.zeros(size)
    free = [0.0] * len(_ROWS)
    queue = [(0.0, int(id_N[at]), at) for at in range(size) if not waiting[at]]
    heapq.heapify(queue)
    while queue:
        _, _, at = heapq.heappop(queue)
        row = int(row_N[at])
        start_N[at] = max(ready[at], free[row])
        free[row] = end = float(start_N[at] + duration_N[at])
        for child in children[ptr[at] : ptr[at + 1]]:
            ready[child] = max(ready[child], end)
            waiting[child] -= 1
            if not waiting[child]:
                heapq.heappush(queue, (ready[child], int(id_N[child]), child))
    return start_N


def _lanes(start_N: np.ndarray, duration_N: np.ndarray, row_N: np.ndarray) -> np.ndarray:
    """Return the lowest free lane of its row for each node, so that no two slices overlap."""
    lane_N = np.zeros(start_N.size, dtype=np.int64)
    busy: list[list[tuple[float, int]]] = [[] for _ in _ROWS]
    spare: list[list[int]] = [[] for _ in _ROWS]
    opened = [0] * len(_ROWS)
    for at in np.lexsort((-duration_N, start_N)).tolist():
        row = int(row_N[at])
        while busy[row] and busy[row][0][0] <= start_N[at]:
            heapq.heappush(spare[row], heapq.heappop(busy[row])[1])
        if not spare[row]:
            heapq.heappush(spare[row], opened[row])
            opened[row] += 1
        lane_N[at] = heapq.heappop(spare[row])
        heapq.heappush(busy[row], (float(start_N[at] + duration_N[at]), int(lane_N[at])))
    return lane_N


def _names(rank: int, timeline: _Timeline) -> Iterator[dict[str, object]]:
    """Yield the events that name process and tracks of a rank."""
    yield {"ph": "M", "pid": rank, "name": "process_name", "args": {"name": f"rank {rank}"}}
    for track in np.unique(timeline.track_N).tolist():
        row, lane = divmod(track, timeline.lanes)
        name = _ROWS[row] if lane == 0 else f"{_ROWS[row]} {lane + 1}"
        yield {"ph": "M", "pid": rank, "tid": track, "name": "thread_name", "args": {"name": name}}


def _slices(rank: int, timeline: _Timeline) -> Iterator[dict[str, object]]:
    """Yield the slices of a rank in order of time."""
    view = timeline.view
    for at in np.argsort(timeline.start_N, kind="stable").tolist():
        yield {
            "ph": "X",
            "pid": rank,
            "tid": int(timeline.track_N[at]),
            "name": view.labels[at] or view.ids[at],
            "cat": NodeType(int(timeline.type_N[at])).name,
            "ts": float(timeline.start_N[at]),
            "dur": float(timeline.duration_N[at]),
            "args": {"id": view.ids[at], **plain_details(view.details[at])},
        }


def _arrows(rank: int, timeline: _Timeline) -> Iterator[dict[str, object]]:
    """Yield an arrow for each dependency between tracks, at most 100,000."""
    source_E, target_E = timeline.view.edge_index_2E
    track_N, start_N = timeline.track_N, timeline.start_N
    crossing = np.flatnonzero(track_N[source_E] != track_N[target_E])[:_MOST_FLOWS]
    for number in crossing.tolist():
        source, target = int(source_E[number]), int(target_E[number])
        flow = {"pid": rank, "cat": "dependency", "name": "dependency", "id": f"{rank}.{number}"}
        # An arrow binds to the slice that encloses its time stamp.
        leaves = float(start_N[source] + timeline.duration_N[source]) - 0.001
        yield {**flow, "ph": "s", "tid": int(track_N[source]), "ts": leaves}
        arrives = float(start_N[target])
        yield {**flow, "ph": "f", "bp": "e", "tid": int(track_N[target]), "ts": arrives}
