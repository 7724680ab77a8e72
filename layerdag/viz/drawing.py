"""Layered drawings of DAGs with matplotlib: few crossings, straight long edges.

The layout follows Sugiyama, Tagawa and Toda (IEEE Trans. SMC 11(2), 1981): an edge that spans
several layers is split by way points, the order inside each layer is improved by barycenter sweeps,
and coordinates are moved towards the neighbors' mean under a minimum distance, which is an isotonic
regression; one vectorized step for each layer of a sweep.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from layerdag.graph.topology import expand_ranges, group_by, longest_path_layers, pointers
from layerdag.runtime.files import atomic_path
from layerdag.viz.views import GraphView

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from layerdag.dag.dag import DAG


CLASS_COLORS = 8
"""Colors of kinds on pages, --k0 to --k7 of their style sheets; the last one is for the rest."""

_WAY_POINT_GAP = 0.35
_MAX_WAY_POINTS = 200_000
# Larger than any drawing is wide: keeps the layers apart inside one isotonic regression.
_FAR = 1e7


@dataclass(frozen=True, eq=False)
class LayeredLayout:
    """Coordinates in units of one node distance; y is the layer, growing downwards.

    Attributes:
        x_N: Horizontal position of each node, from 0.
        layer_N: Layer (vertical position) of each node.
        route_ptr_E1: int64; way points of edge e are rows ``route_ptr_E1[e]:route_ptr_E1[e+1]``.
        route_x_P: Horizontal position of each way point, in order from source to target.
        route_layer_P: Layer of each way point.
    """

    x_N: np.ndarray
    layer_N: np.ndarray
    route_ptr_E1: np.ndarray
    route_x_P: np.ndarray
    route_layer_P: np.ndarray

    @property
    def width(self) -> float:
        """Largest x of all nodes and way points."""
        return float(max(self.x_N.max(initial=0.0), self.route_x_P.max(initial=0.0)))

    @property
    def height(self) -> int:
        """Number of layers."""
        return int(self.layer_N.max(initial=-1)) + 1

    def route(self, edge: int) -> np.ndarray:
        """Return the way points of ``edge``, shape (P, 2), columns x and layer."""
        rows = slice(int(self.route_ptr_E1[edge]), int(self.route_ptr_E1[edge + 1]))
        return np.stack([self.route_x_P[rows], self.route_layer_P[rows]], axis=1)


@dataclass(frozen=True, eq=False)
class _Split:
    """The graph with way points as further nodes; every edge joins neighboring layers."""

    layer_M: np.ndarray
    source_K: np.ndarray
    target_K: np.ndarray
    route_ptr_E1: np.ndarray
    gap_M: np.ndarray


def layered_layout(
    num_nodes: int,
    edge_index_2E: np.ndarray,
    sweeps: int = 12,
    *,
    layer_N: np.ndarray | None = None,
) -> LayeredLayout:
    """Return a layered drawing of a DAG.

    Linear memory; each sweep sorts every layer once; 20,000 nodes take about a second. Where way
    points would outnumber 200,000 the longest edges are drawn straight.

    Args:
        num_nodes: N.
        edge_index_2E: Source and target of each edge.
        sweeps: Number of barycenter sweeps, downwards and upwards in turn.
        layer_N: Longest-path layer of each node, found from the edges if not given.

    Raises:
        GraphError: On a cycle or an endpoint out of range.
    """
    edge_index_2E = np.asarray(edge_index_2E, dtype=np.int64).reshape(2, -1)
    if layer_N is None:
        layer_N = longest_path_layers(num_nodes, edge_index_2E)
    split = _split_long_edges(layer_N, edge_index_2E)
    # The first sweep whose edges travel least sideways.
    rank_M = best_M = _ranks(split.layer_M, np.zeros(split.layer_M.size))
    least = _sideways_travel(split, rank_M)
    for sweep in range(sweeps):
        rank_M = _swept(split, rank_M, downwards=sweep % 2 == 0)
        travel = _sideways_travel(split, rank_M)
        if travel < least:
            best_M, least = rank_M, travel
    x_M = _coordinates(split, best_M, sweeps)
    return LayeredLayout(
        x_N=x_M[:num_nodes],
        layer_N=layer_N,
        route_ptr_E1=split.route_ptr_E1,
        route_x_P=x_M[num_nodes:],
        route_layer_P=split.layer_M[num_nodes:],
    )


def _split_long_edges(layer_N: np.ndarray, edge_index_2E: np.ndarray) -> _Split:
    source_E, target_E = edge_index_2E
    passed_E = layer_N[target_E] - layer_N[source_E] - 1
    longest_kept = np.sort(passed_E)[np.cumsum(np.sort(passed_E)) <= _MAX_WAY_POINTS].max(initial=0)
    passed_E = np.where(passed_E <= longest_kept, passed_E, 0)
    ptr_E1 = pointers(passed_E)
    first_E = layer_N[source_E] + 1
    layer_P = expand_ranges(first_E, first_E + passed_E)
    point_P = layer_N.size + np.arange(layer_P.size)
    # A chain source -> way points -> target: heads are the source and the points, tails follow.
    edge_K = np.concatenate(
        [np.arange(source_E.size), np.repeat(np.arange(passed_E.size), passed_E)]
    )
    position_K = np.concatenate([np.full(source_E.size, -1), point_P])
    order_K = np.lexsort((position_K, edge_K))
    head_K = np.concatenate([source_E, point_P])[order_K]
    last_K = np.append(edge_K[order_K][1:] != edge_K[order_K][:-1], True)[: head_K.size]
    tail_K = np.append(head_K[1:], -1)[: head_K.size]
    tail_K = np.where(last_K, target_E[edge_K[order_K]], tail_K)
    gap_M = np.concatenate([np.ones(layer_N.size), np.full(layer_P.size, _WAY_POINT_GAP)])
    return _Split(np.concatenate([layer_N, layer_P]), head_K, tail_K, ptr_E1, gap_M)


def _swept(split: _Split, rank_M: np.ndarray, *, downwards: bool) -> np.ndarray:
    near_K, far_K = split.source_K, split.target_K
    if not downwards:
        near_K, far_K = far_K, near_K
    num_layers = int(split.layer_M.max(initial=0)) + 1
    node_ptr, node_order = group_by(split.layer_M, num_layers)
    edge_ptr, edge_order = group_by(split.layer_M[far_K], num_layers)
    position_M = _centered(split, rank_M)
    count_M = np.maximum(np.bincount(far_K, minlength=position_M.size), 1)
    free_M = np.bincount(far_K, minlength=position_M.size) == 0
    layers = range(num_layers) if downwards else range(num_layers - 1, -1, -1)
    rank_M = rank_M.copy()
    for layer in layers:
        nodes = node_order[node_ptr[layer] : node_ptr[layer + 1]]
        edges = edge_order[edge_ptr[layer] : edge_ptr[layer + 1]]
        mean_M = np.where(free_M[nodes], position_M[nodes], 0.0)
        np.add.at(mean_M, np.searchsorted(nodes, far_K[edges]), position_M[near_K[edges]])
        order = np.argsort(mean_M / count_M[nodes], kind="stable")
        rank_M[nodes[order]] = np.arange(nodes.size)
        position_M[nodes[order]] = np.arange(nodes.size) - (nodes.size - 1) / 2
    return rank_M


def _centered(split: _Split, rank_M: np.ndarray) -> np.ndarray:
    return rank_M - (np.bincount(split.layer_M)[split.layer_M] - 1) / 2


def _ranks(layer_M: np.ndarray, key_M: np.ndarray) -> np.ndarray:
    order_M = np.lexsort((key_M, layer_M))
    starts_L = np.searchsorted(layer_M[order_M], np.arange(layer_M.max(initial=0) + 1))
    rank_M = np.empty(layer_M.size, dtype=np.int64)
    rank_M[order_M] = np.arange(layer_M.size) - starts_L[layer_M[order_M]]
    return rank_M


def _neighbor_mean(split: _Split, value_M: np.ndarray, *, downwards: bool) -> np.ndarray:
    """Return the mean value of parents (or children); a node without any keeps its own."""
    near_K, far_K = split.source_K, split.target_K
    if not downwards:
        near_K, far_K = far_K, near_K
    count_M = np.bincount(far_K, minlength=value_M.size)
    total_M = np.bincount(far_K, weights=value_M[near_K], minlength=value_M.size)
    return np.where(count_M > 0, total_M / np.maximum(count_M, 1), value_M)


def _sideways_travel(split: _Split, rank_M: np.ndarray) -> float:
    position_M = _centered(split, rank_M)
    return float(np.abs(position_M[split.source_K] - position_M[split.target_K]).sum())


def _coordinates(split: _Split, rank_M: np.ndarray, sweeps: int) -> np.ndarray:
    order_M = np.lexsort((rank_M, split.layer_M))
    layer_M = split.layer_M[order_M]
    # offset: where a node stands when its layer is packed; distances are half of either gap.
    gap_M = split.gap_M[order_M]
    step_M = np.concatenate(([0.0], (gap_M[1:] + gap_M[:-1]) / 2))[: gap_M.size]
    run_M = np.cumsum(step_M)
    starts_L = np.searchsorted(layer_M, np.arange(layer_M.max(initial=0) + 1))
    offset_M = run_M - run_M[starts_L][layer_M] if run_M.size else run_M
    packed_L = np.zeros(starts_L.size)
    np.maximum.at(packed_L, layer_M, offset_M)
    if not gap_M.size:
        return gap_M
    from scipy.optimize import isotonic_regression  # takes half a second to be imported

    x_M = np.empty(gap_M.size)
    x_M[order_M] = offset_M - packed_L[layer_M] / 2
    for sweep in range(2 * sweeps):
        wish_M = _neighbor_mean(split, x_M, downwards=sweep % 2 == 0)
        slack_M = wish_M[order_M] - offset_M + _FAR * layer_M
        x_M[order_M] = isotonic_regression(slack_M).x + offset_M - _FAR * layer_M
    return x_M - x_M.min()


# Color-blind safe hues (Okabe and Ito); kinds beyond them wrap around.
COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#777777")


def write_picture(
    path: str | Path, dags: "Sequence[DAG]", titles: Sequence[str], *, column: int = 0
) -> None:
    """Draw DAGs side by side, layers from top to bottom, and write a PNG.

    Args:
        path: PNG file.
        dags: What to draw.
        titles: One per DAG.
        column: Node attribute that gives the color.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(dags), 7.0), dpi=110)
    FigureCanvasAgg(figure)
    all_axes = np.atleast_1d(figure.subplots(1, len(dags)))
    for axes, dag, title in zip(all_axes, dags, titles, strict=True):
        layout = layered_layout(
            dag.num_nodes, dag.edge_index_2E.numpy(), layer_N=dag.layer_N.numpy()
        )
        draw_edges(axes, dag.edge_index_2E.numpy(), layout)
        color_N = [COLORS[code % len(COLORS)] for code in dag.x_NA[:, column].tolist()]
        size = float(np.clip(2500 / max(dag.num_nodes, 1), 6, 60))
        axes.scatter(layout.x_N, layout.layer_N, s=size, c=color_N, zorder=2, linewidths=0)
        axes.invert_yaxis()
        axes.set_axis_off()
        axes.margins(0.04)
        axes.set_title(title, fontsize=10)
    figure.tight_layout()
    with atomic_path(path) as draft:
        figure.savefig(draft, format="png")


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
    layout = layered_layout(view.num_nodes, view.edge_index_2E, layer_N=view.layer_N)
    step = (1.75, 0.62) if view.num_nodes <= _LABELED else (0.22, 0.3)
    wide = min(max(3.2, step[0] * (layout.width + 1.4)), _MOST_INCHES)
    high = min(step[1] * max(layout.height, 1), _MOST_INCHES)
    rows = math.ceil((len(view.kinds) + 1) / _legend_columns(view, wide))
    above = 0.15 + 0.17 * rows
    suffix = Path(path).suffix.lstrip(".").lower()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    figure = Figure(figsize=(wide, high + above))
    draw_figure(figure.add_axes((0, 0, 1, high / (high + above))), view, layout)
    # Text stays text in an SVG, and the same graph gives the same bytes.
    with (
        rc_context({"svg.fonttype": "none", "svg.hashsalt": "layerdag"}),
        atomic_path(path) as draft,
    ):
        figure.savefig(
            draft, format=suffix, dpi=150, metadata={"Date": None} if suffix == "svg" else None
        )


def _box_text(text: str) -> str:
    text = "".join(c if c.isprintable() else " " for c in text)
    text = text if len(text) <= 22 else text[:10] + "…" + text[-11:]
    return text.replace("$", r"\$")  # matplotlib reads text between dollar signs as a formula


def draw_figure(axes: "Axes", view: GraphView, layout: LayeredLayout | None = None) -> None:
    """Draw a graph into matplotlib axes.

    Args:
        axes: Where to draw; ticks and frame are taken away.
        view: The graph.
        layout: Its layout, computed if absent.
    """
    if layout is None:
        layout = layered_layout(view.num_nodes, view.edge_index_2E, layer_N=view.layer_N)
    named = view.num_nodes <= _LABELED
    draw_edges(axes, view.edge_index_2E, layout, view.dashed_E)
    if named:
        _draw_boxes(axes, view, layout)
    else:
        colors = [view.colors[kind] for kind in view.kind_N.tolist()]
        axes.scatter(layout.x_N, layout.layer_N, s=22, c=colors, linewidths=0, zorder=2)
    axes.set_xlim(-0.7, layout.width + 0.7)
    axes.set_ylim(max(layout.height, 1) - 0.4, -0.6)
    axes.set_axis_off()
    _draw_legend(axes, view)


def draw_edges(
    axes: "Axes",
    edge_index_2E: np.ndarray,
    layout: LayeredLayout,
    dashed_E: np.ndarray | None = None,
    color: str = "#00000059",
) -> None:
    """Draw the edges of a graph into matplotlib axes whose units are those of the layout.

    Args:
        axes: Where to draw.
        edge_index_2E: Source and target of each edge.
        layout: Places of nodes, and routes of edges.
        dashed_E: bool; which edges are dashed, none by default.
        color: Of the lines.
    """
    from matplotlib.collections import PathCollection
    from matplotlib.path import Path as Curve

    curves: tuple[list[Curve], list[Curve]] = ([], [])
    source_E, target_E = edge_index_2E
    for edge in range(source_E.size):
        ends = [
            (float(layout.x_N[row]), float(layout.layer_N[row]))
            for row in (int(source_E[edge]), int(target_E[edge]))
        ]
        points = [ends[0], *map(tuple, layout.route(edge).tolist()), ends[1]]
        dashed = dashed_E is not None and dashed_E[edge]
        curves[int(dashed)].append(Curve(*smooth(points)))
    for dashed, style in ((0, "solid"), (1, (0, (3, 2)))):
        axes.add_collection(
            PathCollection(
                curves[dashed],
                facecolors="none",
                edgecolors=color,
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


def _draw_boxes(axes: "Axes", view: GraphView, layout: LayeredLayout) -> None:
    for row, label in enumerate(view.labels):
        text = label or view.ids[row]
        axes.text(
            float(layout.x_N[row]),
            float(layout.layer_N[row]),
            _box_text(text),
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
    sources = {*view.edge_index_2E[0].tolist()}
    for row, result in enumerate(view.results):
        if row in sources and result:
            x, layer = float(layout.x_N[row]), float(layout.layer_N[row]) + 0.24
            box = {"facecolor": "white", "edgecolor": "none", "pad": 0.4}
            axes.text(x, layer, result, ha="center", va="center", fontsize=5.2, color="#444",
                      zorder=2, bbox=box)  # fmt: skip


def _legend_columns(view: GraphView, inches: float) -> int:
    entry = 0.4 + 0.058 * max(map(len, view.kinds), default=1)
    return max(1, min(int(inches / entry), 4))


def _draw_legend(axes: "Axes", view: GraphView) -> None:
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
