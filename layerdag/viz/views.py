"""What a picture or file needs of a trace or graph, and traces as Chrome-trace JSON.

Perfetto (ui.perfetto.dev) and chrome://tracing open the latter: one process per rank, tracks for
computation, communication and memory; an arrow for each dependency between tracks. Format: "Trace
Event Format" (Google), events of phase X and flows s/f.
"""

import heapq
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from layerdag.errors import UsageError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.graph.formats.program_json import CALL, is_program, operator_of
from layerdag.graph.formats.rows import GraphRows, Value
from layerdag.graph.topology import group_by
from layerdag.traces.builder import value_of
from layerdag.traces.chakra.storage import StorageOperation
from layerdag.traces.trace import (
    CONTROL,
    STORAGE,
    NodeType,
    Trace,
    Workload,
    dependency_edges,
    trace_layers,
)

# Okabe and Ito's colors, which people with color blindness can tell apart, then lighter ones.
_COMPUTATION = "#0072B2"
_KIND_COLOR = {
    NodeType.COMM_COLL: "#D55E00",
    NodeType.COMM_SEND: "#009E73",
    NodeType.COMM_RECV: "#CC79A7",
    NodeType.MEM_LOAD: "#E69F00",
    NodeType.MEM_STORE: "#B8860B",
    NodeType.METADATA: "#7F7F7F",
    NodeType.INVALID: "#7F7F7F",
    NodeType.COMP: "#56779B",
    NodeType.STORAGE: "#6A51A3",
    NodeType.BATCH: "#9E9AC8",
    NodeType.CHECKPOINT: "#807DBA",
}
_OPERATOR_COLORS = (_COMPUTATION, "#5B4FC4", "#2A9D8F", "#8A6FB0", "#3F8FC8", "#6A8D3A")
KIND_COLORS = (*_OPERATOR_COLORS, "#D55E00", "#7F7F7F")
"""Colors for kinds that are not node types."""
_CALL_NUMBER = re.compile(r"[#(]\d+\)?$")
_LONGEST_TEXT = 60
_EXACT = 2**53
"""A browser reads integers from here on as their nearest float."""


@dataclass(frozen=True, eq=False)
class Timing:
    """When each node of a view runs, and which nodes decide how long it all takes.

    Attributes:
        source: Where the times are from, in words.
        start_us_N: Start of each node in microseconds.
        end_us_N: End of each node.
        critical_N: bool; on the critical path.
    """

    source: str
    start_us_N: np.ndarray
    end_us_N: np.ndarray
    critical_N: np.ndarray


@dataclass(frozen=True, eq=False)
class GraphView:
    """A directed acyclic graph ready to be drawn or written as a graph file.

    Attributes:
        ids: Text id of each node.
        labels: Short name of each node.
        kind_N: int64; index into ``kinds``.
        kinds: Name of each kind of node.
        colors: Color of each kind, ``#rrggbb``.
        edge_index_2E: Source and target row.
        dashed_E: bool; edges drawn dashed (control dependencies).
        details: Further values of each node by name.
        layer_N: Longest-path layer of each node; a layout finds it from the edges if it is None.
        timing: When each node runs; None if nothing says so.
        results: What each node hands on along its edges, such as a shape; empty if nothing says so.
    """

    title: str
    ids: tuple[str, ...]
    labels: tuple[str, ...]
    kind_N: np.ndarray
    kinds: tuple[str, ...]
    colors: tuple[str, ...]
    edge_index_2E: np.ndarray
    dashed_E: np.ndarray
    details: tuple[Mapping[str, object], ...]
    layer_N: np.ndarray | None = None
    timing: Timing | None = None
    results: tuple[str, ...] = ()

    @property
    def num_nodes(self) -> int:
        """Number of nodes (N)."""
        return len(self.ids)

    def require_at_most(self, limit: int, what: str, instead: str) -> None:
        """Raise UsageError if there are more than ``limit`` nodes, too many for ``what``."""
        if self.num_nodes > limit:
            raise UsageError(
                f"{self.title} has {self.num_nodes:,} nodes; {what} shows at most {limit:,}. "
                f"{instead}"
            )


def view_of_trace(trace: Trace) -> GraphView:
    """Return the view of one rank's trace.

    Raises:
        TraceError: If the dependencies dangle, repeat an id, or form a cycle.
    """
    edge_index_2E, kind_E = dependency_edges(trace)
    layer_N = trace_layers(trace, edge_index_2E)
    labels = trace.names()
    kind_N, kinds = _kinds(trace, labels)
    return GraphView(
        title=Path(trace.source).name,
        ids=tuple(map(str, trace.id_N.tolist())),
        labels=tuple(labels),
        kind_N=kind_N,
        kinds=tuple(name for name, _ in kinds),
        colors=tuple(color for _, color in kinds),
        edge_index_2E=edge_index_2E,
        dashed_E=kind_E == CONTROL,
        details=tuple(_details(trace, row) for row in range(trace.num_nodes)),
        layer_N=layer_N,
    )


def _kinds(trace: Trace, labels: list[str]) -> tuple[np.ndarray, list[tuple[str, str]]]:
    """Return (kind_N, (name, color) of each kind).

    Kinds are node types; where a few operators recur and make up much of the computation they are
    kinds of their own, so that a trace of one node type is not all of one color.
    """
    names = [NodeType(number).name for number in trace.type_N.tolist()]
    computes = [name == NodeType.COMP.name for name in names]
    operators = [_CALL_NUMBER.sub("", label) for label in labels]
    counts = Counter(op for op, comp in zip(operators, computes, strict=True) if comp)
    top = counts.most_common(len(_OPERATOR_COLORS))
    colors = {kind.name: color for kind, color in _KIND_COLOR.items()}
    often = sum(count for _, count in top)
    if len(counts) > 1 and often >= max(0.3 * sum(computes), 2 * len(top)):
        colors |= {op: c for (op, _), c in zip(top, _OPERATOR_COLORS, strict=False)}
        chosen = {op for op, _ in top}
        rest = "other computation" if len(counts) > len(top) else NodeType.COMP.name
        colors[rest] = _KIND_COLOR[NodeType.COMP]
        names = [
            (op if op in chosen else rest) if comp else name
            for name, op, comp in zip(names, operators, computes, strict=True)
        ]
    else:
        colors[NodeType.COMP.name] = _COMPUTATION
    order = {name: at for at, (name, _) in enumerate(Counter(names).most_common())}
    kind_N = np.array([order[name] for name in names], dtype=np.int64)
    return kind_N, [(name, colors[name]) for name in order]


def _details(trace: Trace, row: int) -> dict[str, object]:
    found: dict[str, object] = {}
    if trace.start_us_N[row]:
        found["start_us"] = int(trace.start_us_N[row])
    if trace.duration_us_N[row]:
        found["duration_us"] = int(trace.duration_us_N[row])
    table = trace.attributes
    for at in range(int(table.ptr_N1[row]), int(table.ptr_N1[row + 1])):
        index = int(table.name_A[at])
        name = trace.strings[index] if index >= 0 else ""
        value = value_of(table, at, trace.strings)
        if name == STORAGE and isinstance(value, bytes):
            value = StorageOperation.from_bytes(value).text
        found[name] = _short(value)
    return found


def _short(value: object) -> object:
    if isinstance(value, bool | int | float):
        return value
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 3] + "..."


def plain_details(details: Mapping[str, object]) -> dict[str, object]:
    """Return the values of a node as JSON; numbers that JSON or a browser lacks become text."""
    return {name: value if _is_plain(value) else str(value) for name, value in details.items()}


def _is_plain(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or abs(value) <= _EXACT


_ROWS = ("computation", "communication", "memory", "other")
_ROW_OF_TYPE = np.array([3, 3, 2, 2, 0, 1, 1, 1])
_MOST_FLOWS = 100_000
# Parallel slices of a row get neighboring track numbers; at least so many are kept for each row.
_LANES = 1000


@dataclass(frozen=True, eq=False)
class _Timeline:
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
    yield {"ph": "M", "pid": rank, "name": "process_name", "args": {"name": f"rank {rank}"}}
    for track in np.unique(timeline.track_N).tolist():
        row, lane = divmod(track, timeline.lanes)
        name = _ROWS[row] if lane == 0 else f"{_ROWS[row]} {lane + 1}"
        yield {"ph": "M", "pid": rank, "tid": track, "name": "thread_name", "args": {"name": name}}


def _slices(rank: int, timeline: _Timeline) -> Iterator[dict[str, object]]:
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


_TELLING = ("operator", "op", "name", "kind", "type")


def view_of_graph(graph: AttributedGraph, results: Sequence[str] = ()) -> GraphView:
    """Return the view of a flow graph.

    Nodes are colored and named by the first categorical attribute whose name says what a node
    does, such as "op" or "kind", else by the first one. The seven most frequent categories get a
    color each, the others share one.

    Args:
        graph: The graph.
        results: What each node hands on along its edges, if that is known.

    Raises:
        GraphError: If the edges form a cycle.
    """
    layer_N = graph.layer_N  # raises on a cycle, before any work
    telling = (*(name for name in _TELLING if name in graph.categories), *graph.categories)
    categories = graph.categories[telling[0]] if telling else ["node"] * graph.num_nodes
    dashed_E = graph.edge_type_E != 0
    if is_program(graph):  # patterns of arguments fit no box, all edges carry data
        categories = [operator_of(call) for call in graph.categories[CALL]]
        dashed_E = np.zeros_like(dashed_E)
    counts = Counter(categories).most_common()
    kinds = tuple(category for category, _ in counts[: len(KIND_COLORS)])
    if len(counts) > len(kinds):
        kinds = (*kinds[:-1], "other")
    position = {category: at for at, category in enumerate(kinds)}
    kind_N = [position.get(category, len(kinds) - 1) for category in categories]
    details: list[dict[str, object]] = []
    for row in range(graph.num_nodes):
        words = {name: column[row] for name, column in graph.categories.items()}
        values = {name: float(column[row]) for name, column in graph.numbers.items()}
        known = {name: value for name, value in values.items() if not math.isnan(value)}
        details.append({**words, **known, **({"result": results[row]} if results else {})})
    return GraphView(
        title=graph.name,
        ids=tuple(map(str, range(graph.num_nodes))),
        labels=tuple(categories),
        kind_N=np.array(kind_N, dtype=np.int64),
        kinds=kinds,
        colors=KIND_COLORS[: len(kinds)],
        edge_index_2E=graph.edge_index_2E,
        dashed_E=dashed_E,
        details=tuple(details),
        layer_N=layer_N,
        results=tuple(results),
    )


def graph_rows(view: GraphView) -> GraphRows:
    """Return a trace's view for writers of GraphML: name, kind and details of each node.

    A value that has several types, or is a whole number beyond 64 bits, is written as text.
    """
    rows: list[dict[str, Value]] = [
        {"name": label, "kind": view.kinds[kind], **{k: _plain(v) for k, v in details.items()}}
        for label, kind, details in zip(
            view.labels, view.kind_N.tolist(), view.details, strict=True
        )
    ]
    types: dict[str, set[type]] = {}
    for row in rows:
        for name, value in row.items():
            types.setdefault(name, set()).add(type(value))
    mixed = {name for name, kinds in types.items() if len(kinds) > 1}
    edges = zip(*view.edge_index_2E.tolist(), view.dashed_E.tolist(), strict=True)
    return GraphRows(
        name=view.title,
        ids=view.ids,
        rows=[
            {
                # As GraphML writes truth values, though Python's texts have capitals.
                k: (str(v).lower() if isinstance(v, bool) else str(v)) if k in mixed else v
                for k, v in row.items()
            }
            for row in rows
        ],
        edges=[(a, b, "control" if dashed else "data") for a, b, dashed in edges],
    )


def drawn_rows(view: GraphView, rows: GraphRows | None = None) -> GraphRows:
    """Return the rows of a view for writers of DOT, colored like the pictures.

    Args:
        view: What gives labels and colors.
        rows: The attributes, those of a trace's view where not given; its label is the name.
    """
    table = graph_rows(view) if rows is None else rows
    looks = [
        {"label": label, "fillcolor": view.colors[kind], "tooltip": view.kinds[kind]}
        for label, kind in zip(view.labels, view.kind_N.tolist(), strict=True)
    ]
    named = [{k: v for k, v in row.items() if k != "name"} for row in table.rows]
    return replace(table, rows=named if rows is None else table.rows, looks=looks)


def _plain(value: object) -> Value:
    if isinstance(value, bool | float):
        return value
    return value if isinstance(value, int) and -(2**63) <= value < 2**63 else str(value)
