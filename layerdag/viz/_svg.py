"""A DAG as inline SVG: layers from top to bottom, colored by class, edges as smooth curves."""

import html

import numpy as np

from layerdag.viz._drawing import Picture
from layerdag.viz._layout import LayeredLayout, layered_layout
from layerdag.viz._markup import Markup

CLASS_COLORS = 8
STEP_X, STEP_Y, RADIUS, MARGIN = 18.0, 26.0, 5.5, 14.0
MOST_STRETCH = 3.2


def classes_by_size(pictures: tuple[Picture, ...]) -> dict[str, int]:
    """Return the color slot of each node class, the most frequent first; the rest share the last.

    One table for all pictures, so that a color means the same everywhere.
    """
    counts: dict[str, int] = {}
    for picture in pictures:
        for name in picture.class_N:
            counts[name] = counts.get(name, 0) + 1
    names = sorted(counts, key=lambda name: (-counts[name], name))
    return {name: min(slot, CLASS_COLORS - 1) for slot, name in enumerate(names)}


def draw(picture: Picture, slot_of: dict[str, int]) -> Markup:
    """Return the drawing as a figure.

    Raises:
        GraphError: If the graph has a cycle.
    """
    dag = picture.dag
    layout = layered_layout(dag.num_nodes, dag.edge_index_2E.numpy(), layer_N=dag.layer_N.numpy())
    # Deep graphs are drawn with less air between layers, so that the page stays readable.
    step_y = float(
        np.clip(MOST_STRETCH * STEP_X * layout.width / max(layout.height, 1), 15, STEP_Y)
    )
    width = 2 * MARGIN + STEP_X * layout.width
    height = 2 * MARGIN + step_y * max(layout.height - 1, 0)
    position_N2 = np.stack([layout.x_N * STEP_X, layout.layer_N * step_y], axis=1) + MARGIN
    edges = "".join(
        _edge(layout, position_N2, step_y, edge, pair)
        for edge, pair in enumerate(dag.edge_index_2E.T.tolist())
    )
    nodes = "".join(
        f'<circle class="k{slot_of[kind]}" cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}">'
        f"<title>{html.escape(label)}</title></circle>"
        for (x, y), kind, label in zip(
            position_N2.tolist(), picture.class_N, picture.label_N, strict=True
        )
    )
    facts = f"{dag.num_nodes} nodes, {dag.num_edges} edges, {layout.height} layers"
    # Narrow graphs keep their natural size; wide ones shrink to the column.
    style = f"max-width:{width * 1.5:.0f}px"
    return Markup(
        f'<figure class="dag"><figcaption>{html.escape(picture.title)} '
        f"<span>{facts}</span></figcaption>"
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" style="{style}" role="img" '
        f'aria-label="{html.escape(picture.title)}: {facts}">'
        f'<g class="edges">{edges}</g><g class="nodes">{nodes}</g></svg></figure>'
    )


def class_legend(slot_of: dict[str, int]) -> Markup:
    """Return the key to the colors; classes that share the last color are named together."""
    by_slot: dict[int, list[str]] = {}
    for name, slot in slot_of.items():
        by_slot.setdefault(slot, []).append(name)
    keys = []
    for slot, names in sorted(by_slot.items()):
        shown = names[0] if len(names) == 1 else f"others ({len(names)} classes)"
        keys.append(
            f'<li><svg viewBox="0 0 12 12" aria-hidden="true"><circle class="k{slot}" cx="6" '
            f'cy="6" r="5"/></svg>{html.escape(shown)}</li>'
        )
    return Markup(f'<ul class="legend">{"".join(keys)}</ul>')


def _edge(
    layout: LayeredLayout, position_N2: np.ndarray, step_y: float, edge: int, pair: list[int]
) -> str:
    """Return one edge as a path through its way points."""
    between = layout.route(edge) * [STEP_X, step_y] + MARGIN
    points = np.concatenate([position_N2[pair[:1]], between, position_N2[pair[1:]]])
    x, y = points[:, 0], points[:, 1]
    path = [f"M{x[0]:.1f} {y[0]:.1f}"]
    for i in range(1, len(points)):
        middle = (y[i - 1] + y[i]) / 2
        path.append(f"C{x[i - 1]:.1f} {middle:.1f} {x[i]:.1f} {middle:.1f} {x[i]:.1f} {y[i]:.1f}")
    return f'<path d="{"".join(path)}"/>'
