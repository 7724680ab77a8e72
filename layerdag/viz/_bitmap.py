"""DAGs as bitmap pictures, for logs and for README; the report itself draws SVG."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from layerdag._runtime import atomic_path
from layerdag.graph import DAG
from layerdag.viz._layout import LayeredLayout, layered_layout

# Color-blind safe hues (Okabe and Ito); kinds beyond them wrap around.
COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#777777")


def write_picture(
    path: str | Path, dags: Sequence[DAG], titles: Sequence[str], *, column: int = 0
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
        _draw(axes, dag, column)
        axes.set_title(title, fontsize=10)
    figure.tight_layout()
    with atomic_path(path) as draft:
        figure.savefig(draft, format="png")


def _draw(axes: object, dag: DAG, column: int) -> None:
    """Draw one DAG into matplotlib axes."""
    from matplotlib.axes import Axes
    from matplotlib.collections import LineCollection

    assert isinstance(axes, Axes)
    layout = layered_layout(dag.num_nodes, dag.edge_index_2E.numpy(), layer_N=dag.layer_N.numpy())
    lines = _polylines(layout, dag.edge_index_2E.numpy())
    axes.add_collection(LineCollection(lines, colors="#9aa5b1", linewidths=0.5, zorder=1))
    color_N = [COLORS[code % len(COLORS)] for code in dag.x_NA[:, column].tolist()]
    size = float(np.clip(2500 / max(dag.num_nodes, 1), 6, 60))
    axes.scatter(layout.x_N, layout.layer_N, s=size, c=color_N, zorder=2, linewidths=0)
    axes.invert_yaxis()
    axes.set_axis_off()
    axes.margins(0.04)


def _polylines(layout: LayeredLayout, edge_index_2E: np.ndarray) -> list[np.ndarray]:
    """Return the way of each edge, source and target included."""
    ends_N2 = np.stack([layout.x_N, layout.layer_N], axis=1)
    return [
        np.concatenate([ends_N2[source][None], layout.route(edge), ends_N2[target][None]])
        for edge, (source, target) in enumerate(edge_index_2E.T.tolist())
    ]
