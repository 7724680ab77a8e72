"""Pictures of small graphs: layers from top to bottom, colors by kind, as SVG, PDF or PNG."""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from layerdag._runtime import atomic_path
from layerdag.viz._layout import LayeredLayout, layered_layout
from layerdag.viz._view import GraphView

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_NODES = 2000
_LABELED = 70
_MOST_INCHES = 100.0


def save_picture(view: GraphView, path: str | Path) -> None:
    """Draw a graph into a file whose suffix says the format (.svg, .png, .pdf).

    Up to 70 nodes carry their names; larger graphs show dots.

    Raises:
        UsageError: If there are more than 2,000 nodes.
    """
    view.require_at_most(MOST_NODES, "a picture", "Make a zoomable page instead: --out page.html.")
    import matplotlib as mpl
    from matplotlib.figure import Figure

    layout = layered_layout(view.num_nodes, view.edge_index_2E, layer_N=view.layer_N)
    named = view.num_nodes <= _LABELED
    step = (1.75, 0.62) if named else (0.22, 0.3)
    wide = min(max(3.2, step[0] * (layout.width + 1.4)), _MOST_INCHES)
    high = min(step[1] * max(layout.height, 1), _MOST_INCHES)
    rows = math.ceil((len(view.kinds) + 1) / _legend_columns(view, wide))
    above = 0.15 + 0.17 * rows
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "layerdag"}):
        figure = Figure(figsize=(wide, high + above))
        draw(figure.add_axes((0, 0, 1, high / (high + above))), view, layout)
        suffix = Path(path).suffix.lstrip(".").lower()
        metadata = {"Date": None} if suffix == "svg" else None
        with atomic_path(path) as draft:
            figure.savefig(draft, format=suffix, dpi=150, metadata=metadata)


def draw(axes: "Axes", view: GraphView, layout: LayeredLayout | None = None) -> None:
    """Draw a graph into matplotlib axes.

    Args:
        axes: Where to draw; ticks and frame are taken away.
        view: The graph.
        layout: Its layout, computed if absent.
    """
    if layout is None:
        layout = layered_layout(view.num_nodes, view.edge_index_2E, layer_N=view.layer_N)
    named = view.num_nodes <= _LABELED
    _draw_edges(axes, view, layout)
    (_draw_boxes if named else _draw_dots)(axes, view, layout)
    axes.set_xlim(-0.7, layout.width + 0.7)
    axes.set_ylim(max(layout.height, 1) - 0.4, -0.6)
    axes.set_axis_off()
    _draw_legend(axes, view)


def _draw_edges(axes: "Axes", view: GraphView, layout: LayeredLayout) -> None:
    """Draw every edge as a smooth line through its way points."""
    from matplotlib.collections import PathCollection
    from matplotlib.path import Path as Curve

    curves: tuple[list[Curve], list[Curve]] = ([], [])
    source_E, target_E = view.edge_index_2E
    for edge in range(source_E.size):
        ends = [
            (float(layout.x_N[row]), float(layout.layer_N[row]))
            for row in (int(source_E[edge]), int(target_E[edge]))
        ]
        points = [ends[0], *map(tuple, layout.route(edge).tolist()), ends[1]]
        curves[int(view.dashed_E[edge])].append(Curve(*smooth(points)))
    for dashed, style in ((0, "solid"), (1, (0, (3, 2)))):
        axes.add_collection(
            PathCollection(
                curves[dashed],
                facecolors="none",
                edgecolors="#00000059",
                linewidths=0.8,
                linestyles=[style],
                zorder=1,
            )
        )


def smooth(points: Sequence[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Return vertices and codes (matplotlib's) of cubic curves that leave and enter vertically."""
    vertices, codes = [points[0]], [1]
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        middle = (y0 + y1) / 2
        vertices += [(x0, middle), (x1, middle), (x1, y1)]
        codes += [4, 4, 4]
    return np.array(vertices), np.array(codes, dtype=np.uint8)


def _draw_dots(axes: "Axes", view: GraphView, layout: LayeredLayout) -> None:
    """Draw the nodes of a larger graph as dots."""
    colors = [view.colors[kind] for kind in view.kind_N.tolist()]
    axes.scatter(layout.x_N, layout.layer_N, s=22, c=colors, linewidths=0, zorder=2)


def _draw_boxes(axes: "Axes", view: GraphView, layout: LayeredLayout) -> None:
    """Draw the nodes of a small graph as boxes with their names."""
    for row, label in enumerate(view.labels):
        text = label or view.ids[row]
        axes.text(
            float(layout.x_N[row]),
            float(layout.layer_N[row]),
            # matplotlib reads text between dollar signs as a formula.
            (text if len(text) <= 22 else text[:10] + "…" + text[-11:]).replace("$", r"\$"),
            ha="center",
            va="center",
            fontsize=7,
            color="white",
            zorder=2,
            bbox={
                "boxstyle": "round,pad=0.35",
                "facecolor": view.colors[int(view.kind_N[row])],
                "edgecolor": "none",
            },
        )


def _legend_columns(view: GraphView, inches: float) -> int:
    """Return how many entries of the legend stand side by side in a picture of this width."""
    entry = 0.4 + 0.058 * max(map(len, view.kinds), default=1)
    return max(1, min(int(inches / entry), 4))


def _draw_legend(axes: "Axes", view: GraphView) -> None:
    """Name the colors."""
    from matplotlib.lines import Line2D

    marks = [
        Line2D([], [], marker="o", linestyle="", color=color, label=kind)
        for kind, color in zip(view.kinds, view.colors, strict=True)
    ]
    if view.dashed_E.any():
        marks.append(Line2D([], [], color="#00000059", linestyle=(0, (3, 2)), label="control"))
    if marks:
        inches = axes.get_window_extent().width / axes.figure.dpi
        axes.legend(
            handles=marks,
            loc="lower center",
            bbox_to_anchor=(0.5, 1.0),
            frameon=False,
            ncols=_legend_columns(view, inches),
            fontsize=7,
            handletextpad=0.2,
        )
