"""What a picture of a graph needs, whatever the graph comes from."""

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from layerdag.errors import UsageError
from layerdag.traces import CONTROL, NodeType, Trace, dependency_edges, trace_layers
from layerdag.traces.chakra import value_of

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
        title: Heading.
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
    """Return times and attributes of a node, long values cut."""
    found: dict[str, object] = {}
    if trace.start_us_N[row]:
        found["start_us"] = int(trace.start_us_N[row])
    if trace.duration_us_N[row]:
        found["duration_us"] = int(trace.duration_us_N[row])
    table = trace.attributes
    for at in range(int(table.ptr_N1[row]), int(table.ptr_N1[row + 1])):
        name = int(table.name_A[at])
        found[trace.strings[name] if name >= 0 else ""] = _short(value_of(table, at, trace.strings))
    return found


def _short(value: object) -> object:
    """Return numbers as they are and anything else as a short text."""
    if isinstance(value, bool | int | float):
        return value
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 3] + "..."


def plain_details(details: Mapping[str, object]) -> dict[str, object]:
    """Return the values of a node as JSON; numbers that JSON or a browser lacks become text."""
    return {name: value if _is_plain(value) else str(value) for name, value in details.items()}


def _is_plain(value: object) -> bool:
    """Return whether every reader of JSON gets the same value."""
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or abs(value) <= _EXACT
