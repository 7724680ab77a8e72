"""The zoomable page of a graph, in which repeated blocks are drawn once.

A job of 126 layers is one layer, times 126. Blocks are found along the order of the nodes, by the
names of operators without their numbers. Of each run of equal blocks the first copy is kept, and
the others are laid over it, node by node; blocks inside a block, such as the layers of a
micro-batch, are found in the kept copy.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

import numpy as np

from layerdag.errors import UsageError
from layerdag.graph.repeats import repeated_runs
from layerdag.graph.topology import longest_path, longest_path_layers
from layerdag.simulator.analysis import critical_path as simulated_path
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.run import simulate
from layerdag.traces.trace import Trace, Workload, dependency_edges, trace_layers
from layerdag.viz.drawing import CLASS_COLORS, LayeredLayout, layered_layout
from layerdag.viz.views import GraphView, Timing, plain_details

MODULE, PHASE = "module", "phase"
LEAST_SHARE = 0.5
"""Share of nodes that must know their module."""

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, eq=False)
class ModuleGraph:
    """Groups of nodes that follow each other in one module.

    Attributes:
        view: A node for each group, named by module and phase.
        group_N: Group of each node.
        first_G: First node of each group.
    """

    view: GraphView
    group_N: np.ndarray
    first_G: np.ndarray


def module_graph(view: GraphView) -> ModuleGraph | None:
    """Return the graph of the modules; None if too few nodes know theirs, or hardly any share one.

    Nodes are grouped as they follow each other, so that no group waits for another that waits for
    it, as long as nodes are listed in an order in which they can run.
    """
    names = [_name(view, row) for row in range(view.num_nodes)]
    if sum(map(bool, names)) < max(LEAST_SHARE * view.num_nodes, 1):
        return None
    starts_N = np.array([i == 0 or name != names[i - 1] for i, name in enumerate(names)])
    group_N = np.cumsum(starts_N) - 1
    first_G = np.flatnonzero(starts_N)
    if 2 * first_G.size > view.num_nodes:
        return None
    edges_2E = group_N[view.edge_index_2E]
    ahead_E = edges_2E[0] < edges_2E[1]
    kept_2E, first_E = np.unique(edges_2E[:, ahead_E], axis=1, return_index=True)
    grouped = GraphView(
        title=view.title,
        ids=tuple(view.ids[row] for row in first_G),
        labels=tuple(names[row] or view.labels[row] for row in first_G),
        kind_N=np.array(
            [Counter(p.tolist()).most_common(1)[0][0] for p in np.split(view.kind_N, first_G[1:])],
            dtype=np.int64,
        ),
        kinds=view.kinds,
        colors=view.colors,
        edge_index_2E=kept_2E,
        dashed_E=view.dashed_E[ahead_E][first_E],
        details=tuple(view.details[row] for row in first_G),
    )
    return ModuleGraph(grouped, group_N, first_G)


def _name(view: GraphView, row: int) -> str:
    """Return module and phase of a node; "" if it states none."""
    path = str(view.details[row].get(MODULE, ""))
    phase = str(view.details[row].get(PHASE, ""))
    return f"{cut_path(path.split('.'))}{f', {phase}' if phase else ''}" if path else ""


def cut_path(parts: Sequence[str]) -> str:
    """Return the part of a path that says which piece of which layer it is.

    That is one name behind the first number ("layers.3.attention"), or the first two names.
    """
    numbered = [i for i, part in enumerate(parts) if _NUMBER.fullmatch(part)]
    return ".".join(parts[: numbered[0] + 2] if numbered else parts[:2])


LEAST_PERIOD, LEAST_SAVED = 2, 4
"""Nodes of a block, and nodes that rolling a run saves: less is not worth a frame."""

_COPY_NUMBER = re.compile(r"(?<![^\W_])([A-Za-z]|layer|block|stage)?\d+(?![^\W_])")


@dataclass(frozen=True)
class RolledBlock:
    """A block that is drawn once.

    Attributes:
        row_K: Its nodes as rows of the whole graph, nested copies left out.
        count: How often it occurs in a row.
        period: Nodes of one copy, nested copies included.
    """

    row_K: tuple[int, ...]
    count: int
    period: int


@dataclass(frozen=True, eq=False)
class RolledGraph:
    """The nodes that are drawn, M of N.

    Attributes:
        row_M: Rows of the whole graph.
        of_N: Which of the M nodes stands for each node.
        copies_M: How many nodes each stands for.
        layer_M: Layers of what is drawn.
        edge_index_2E: Edges between drawn nodes, in M.
        dashed_E: Which are dashed.
        back_2B: Edges from a copy to the next one that would close a cycle, in M.
        blocks: The blocks, outer ones first.
    """

    row_M: np.ndarray
    of_N: np.ndarray
    copies_M: np.ndarray
    layer_M: np.ndarray
    edge_index_2E: np.ndarray
    dashed_E: np.ndarray
    back_2B: np.ndarray
    blocks: tuple[RolledBlock, ...]


def rolled_graph(view: GraphView) -> RolledGraph:
    """Return the graph with the copies of each block laid over the first one."""
    stands_N, runs = _representatives(_colors(view))
    row_M, of_N = np.unique(stands_N, return_inverse=True)
    layer_N = (
        longest_path_layers(view.num_nodes, view.edge_index_2E)
        if view.layer_N is None
        else view.layer_N
    )
    edges_2E = of_N[view.edge_index_2E]
    deep_M = layer_N[row_M]
    between_E = edges_2E[0] != edges_2E[1]
    down_E = deep_M[edges_2E[0]] < deep_M[edges_2E[1]]
    kept_2E, first_E = np.unique(edges_2E[:, between_E & down_E], axis=1, return_index=True)
    back_2B = np.unique(edges_2E[:, between_E & ~down_E], axis=1)
    blocks = tuple(
        RolledBlock(_kept(row_M, start, period), count, period) for start, period, count in runs
    )
    return RolledGraph(
        row_M=row_M,
        of_N=of_N,
        copies_M=np.bincount(of_N, minlength=row_M.size),
        layer_M=longest_path_layers(row_M.size, kept_2E),
        edge_index_2E=kept_2E,
        dashed_E=view.dashed_E[between_E & down_E][first_E],
        back_2B=back_2B,
        blocks=blocks,
    )


def _kept(row_M: np.ndarray, start: int, period: int) -> tuple[int, ...]:
    return tuple(row_M[(row_M >= start) & (row_M < start + period)].tolist())


def _colors(view: GraphView) -> np.ndarray:
    names = [_COPY_NUMBER.sub(r"\1#", name) for name in view.labels]
    labels = [f"{kind} {name}" for kind, name in zip(view.kind_N.tolist(), names, strict=True)]
    return np.unique(labels, return_inverse=True)[1]


def _representatives(color_N: np.ndarray) -> tuple[np.ndarray, list[tuple[int, int, int]]]:
    stands_N = np.arange(color_N.size)
    runs: list[tuple[int, int, int]] = []
    todo = [(0, color_N.size)]
    while todo:
        low, high = todo.pop(0)
        for run in repeated_runs(color_N[low:high]):
            if run.period < LEAST_PERIOD or run.period * (run.count - 1) < LEAST_SAVED:
                continue
            start = low + run.start
            size = run.period * run.count
            stands_N[start : start + size] = start + np.arange(size) % run.period
            runs.append((start, run.period, run.count))
            todo.append((start, start + run.period))
    # A copy stands for its first one, whose nodes may stand for others in turn.
    while (stands_N[stands_N] != stands_N).any():
        stands_N = stands_N[stands_N]
    return stands_N, runs


MOST_NODES = 20_000
ROLLED_FROM, ROLLED_TO = 60, 0.7
"""From so many nodes on blocks are drawn once at first, if no more than this share is left."""

_KINDS = {
    "COMP": "computation",
    "COMM_COLL": "collective",
    "COMM_SEND": "send",
    "COMM_RECV": "receive",
    "MEM_LOAD": "memory load",
    "MEM_STORE": "memory store",
    "METADATA": "metadata",
    "INVALID": "without type",
}


def html_page(view: GraphView) -> str:
    """Return the page: pan, zoom, search, repeated blocks drawn once, times and critical path.

    Everything that comes from the graph is inserted as text, so that a name cannot run a script.

    Raises:
        UsageError: If there are more than 20,000 nodes.
    """
    view.require_at_most(
        MOST_NODES, "the page", "Write .graphml for Gephi, or a timeline with --to chrome."
    )
    text = json.dumps(_data(view), separators=(",", ":"), allow_nan=False)
    folder = resources.files("layerdag.viz")
    page = folder.joinpath("viewer.html").read_text("utf-8")
    for mark, name in (("/*STYLE*/", "viewer.css"), ("/*SCRIPT*/", "viewer.js")):
        page = page.replace(mark, folder.joinpath(name).read_text("utf-8"))
    # "<" is escaped so that no name can close the script element.
    return page.replace("/*DATA*/", text.replace("<", "\\u003c"))


def _data(view: GraphView) -> dict[str, object]:
    layout = layered_layout(view.num_nodes, view.edge_index_2E, layer_N=view.layer_N)
    whole = _drawing(layout, np.arange(view.num_nodes), view.edge_index_2E, view.dashed_E)
    data: dict[str, object] = {
        "title": view.title,
        "id": view.ids,
        "label": view.labels,
        "kind": view.kind_N.tolist(),
        "kinds": [_KINDS.get(name, name) for name in view.kinds],
        "slots": [min(slot, CLASS_COLORS - 1) for slot in range(len(view.kinds))],
        "details": [plain_details(details) for details in view.details],
        "layers": layout.height,
        "edges": int(view.edge_index_2E.shape[1]),
        "whole": whole,
        "rolled": None,
        "modules": _modules(view),
        "starts": "whole",
    }
    if view.timing is not None:
        row_P = np.flatnonzero(view.timing.critical_N)
        order_P = np.lexsort((view.timing.end_us_N[row_P], view.timing.start_us_N[row_P]))
        data["timing"] = {
            "source": view.timing.source,
            "start": view.timing.start_us_N.round(3).tolist(),
            "end": view.timing.end_us_N.round(3).tolist(),
            "path": row_P[order_P].tolist(),
        }
    rolled = rolled_graph(view)
    if rolled.blocks:
        data["rolled"] = _rolled(rolled)
        if view.num_nodes >= ROLLED_FROM and rolled.row_M.size <= ROLLED_TO * view.num_nodes:
            data["starts"] = "rolled"
    return data


def _modules(view: GraphView) -> dict[str, object] | None:
    """Return the drawing of modules, each repeated block of them once; None without modules."""
    grouped = module_graph(view)
    if grouped is None:
        return None
    rolled = rolled_graph(grouped.view)
    drawn_N = rolled.of_N[grouped.group_N]
    return {
        **_rolled(rolled),
        "row": grouped.first_G[rolled.row_M].tolist(),
        "of": drawn_N.tolist(),
        "copies": np.bincount(drawn_N, minlength=rolled.row_M.size).tolist(),
        "names": [grouped.view.labels[row] for row in rolled.row_M.tolist()],
    }


def _rolled(rolled: RolledGraph) -> dict[str, object]:
    layout = layered_layout(rolled.row_M.size, rolled.edge_index_2E, layer_N=rolled.layer_M)
    drawing = _drawing(layout, rolled.row_M, rolled.edge_index_2E, rolled.dashed_E)
    index_of = {row: at for at, row in enumerate(rolled.row_M.tolist())}
    return {
        **drawing,
        "of": rolled.of_N.tolist(),
        "copies": rolled.copies_M.tolist(),
        "back": rolled.back_2B.tolist(),
        "blocks": [
            {"nodes": [index_of[row] for row in block.row_K], "count": block.count,
             "period": block.period}
            for block in rolled.blocks
        ],
    }  # fmt: skip


def _drawing(
    layout: LayeredLayout, row_M: np.ndarray, edge_index_2E: np.ndarray, dashed_E: np.ndarray
) -> dict[str, object]:
    """Return places of nodes and routes of edges; nodes are rows of the whole graph."""
    return {
        "row": row_M.tolist(),
        "width": round(layout.width, 3),
        "height": layout.height,
        "x": layout.x_N.round(3).tolist(),
        "y": layout.layer_N.tolist(),
        "source": edge_index_2E[0].tolist(),
        "target": edge_index_2E[1].tolist(),
        "dashed": dashed_E.astype(int).tolist(),
        "ptr": layout.route_ptr_E1.tolist(),
        "routeX": layout.route_x_P.round(3).tolist(),
        "routeY": layout.route_layer_P.tolist(),
    }


def recorded_timing(trace: Trace) -> Timing | None:
    """Return the earliest times that durations and dependencies allow; None without durations.

    Raises:
        TraceError: If the dependencies dangle, repeat an id, or form a cycle.
    """
    duration_N = np.maximum(trace.duration_us_N.astype(np.float64), 0.0)
    if not duration_N.any():
        return None
    edge_index_2E, _ = dependency_edges(trace)
    path = longest_path(trace_layers(trace, edge_index_2E), edge_index_2E, duration_N)
    critical_N = np.zeros(trace.num_nodes, dtype=bool)
    critical_N[path.row_P] = True
    source = "the trace's durations, each node as early as its dependencies allow"
    return Timing(source, path.finish_N - duration_N, path.finish_N, critical_N)


def simulated_timing(
    workload: Workload, preset: str, rank: int, compute: str | None = None
) -> Timing:
    """Return when the nodes of a rank run on a described cluster.

    Args:
        workload: The whole job.
        preset: Name of the cluster.
        rank: Which rank's nodes.
        compute: Times of compute nodes, as ``simulate`` takes them; what suits the preset by
            default.

    Raises:
        UsageError: If there is no such preset.
        SimulationError: If the job cannot run to its end.
    """
    if not 0 <= rank < workload.num_ranks:
        raise UsageError(
            f"--rank {rank}: {workload.source} has ranks 0 to {workload.num_ranks - 1}."
        )
    result = simulate(workload, Cluster(preset), compute=compute)
    trace = workload.traces[rank]
    # Rows of a result are in ascending id, those of a trace in the order of its file.
    order_N = np.argsort(trace.id_N, kind="stable")
    start_N, end_N = np.empty(order_N.size), np.empty(order_N.size)
    start_N[order_N], end_N[order_N] = (ticks_N / 1e3 for ticks_N in result.ticks(rank))
    critical_N = np.zeros(order_N.size, dtype=bool)
    critical_N[order_N[[node.row for node in simulated_path(result) if node.rank == rank]]] = True
    device = f", compute {compute}" if compute else ""
    return Timing(f"simulated, cluster “{preset}”{device}, rank {rank}", start_N, end_N, critical_N)
