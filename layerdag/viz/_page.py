"""A zoomable page of a graph: one self-contained HTML file that needs no network."""

import json
from importlib import resources

from layerdag.viz._layout import layered_layout
from layerdag.viz._view import GraphView, plain_details

MOST_NODES = 20_000


def html_page(view: GraphView) -> str:
    """Return the page: pan, zoom, search, and the values of a node on click.

    Everything that comes from the graph is inserted as text, so that a name cannot run a script.

    Raises:
        UsageError: If there are more than 20,000 nodes.
    """
    view.require_at_most(
        MOST_NODES, "the page", "Write .graphml for Gephi, or a timeline with --to chrome."
    )
    layout = layered_layout(view.num_nodes, view.edge_index_2E, layer_N=view.layer_N)
    data = {
        "title": view.title,
        "width": round(layout.width, 3),
        "height": layout.height,
        "x": layout.x_N.round(3).tolist(),
        "y": layout.layer_N.tolist(),
        "id": view.ids,
        "label": view.labels,
        "kind": view.kind_N.tolist(),
        "kinds": view.kinds,
        "colors": view.colors,
        "details": [plain_details(details) for details in view.details],
        "source": view.edge_index_2E[0].tolist(),
        "target": view.edge_index_2E[1].tolist(),
        "dashed": view.dashed_E.astype(int).tolist(),
        "ptr": layout.route_ptr_E1.tolist(),
        "routeX": layout.route_x_P.round(3).tolist(),
        "routeY": layout.route_layer_P.tolist(),
    }
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    template = resources.files("layerdag.viz").joinpath("viewer.html").read_text("utf-8")
    # "<" is escaped so that no name can close the script element.
    return template.replace("/*DATA*/", text.replace("<", "\\u003c"))
