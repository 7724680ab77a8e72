"""The page: what is drawn as JSON, in a template of its own style and script."""

import json
from collections.abc import Sequence
from importlib import resources

import numpy as np

from layerdag.viz import (
    CLASS_COLORS,
    GraphView,
    LayeredLayout,
    Timing,
    layered_layout,
    plain_details,
)
from layerdag.viz.viewer._modules import module_graph
from layerdag.viz.viewer._rolled import RolledGraph, rolled_graph

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
    folder = resources.files("layerdag.viz.viewer")
    page = folder.joinpath("viewer.html").read_text("utf-8")
    for mark, name in (("/*STYLE*/", "viewer.css"), ("/*SCRIPT*/", "viewer.js")):
        page = page.replace(mark, folder.joinpath(name).read_text("utf-8"))
    # "<" is escaped so that no name can close the script element.
    return page.replace("/*DATA*/", text.replace("<", "\\u003c"))


def _data(view: GraphView) -> dict[str, object]:
    """Return what the script of the page reads."""
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
        data["timing"] = {
            "source": view.timing.source,
            "start": _microseconds(view.timing.start_us_N),
            "end": _microseconds(view.timing.end_us_N),
            "path": _in_time(view.timing),
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
    """Return the drawing with every block once."""
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


def _in_time(timing: Timing) -> list[int]:
    """Return the rows on the critical path in the order in which they run."""
    row_P = np.flatnonzero(timing.critical_N)
    order_P = np.lexsort((timing.end_us_N[row_P], timing.start_us_N[row_P]))
    found: list[int] = row_P[order_P].tolist()
    return found


def _microseconds(time_us_N: np.ndarray) -> Sequence[float]:
    found: list[float] = np.round(time_us_N, 3).tolist()
    return found
