"""Flow graphs as pictures: what the drawing tools of traces need of them."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from layerdag.codec import AttributedGraph
from layerdag.viz._view import KIND_COLORS, GraphView

_TELLING = ("operator", "op", "name", "kind", "type")


def view_of_graph(graph: AttributedGraph) -> GraphView:
    """Return the view of a flow graph.

    Nodes are colored and named by the first categorical attribute whose name says what a node
    does, such as "op" or "kind", else by the first one. The seven most frequent categories get a
    color each, the others share one.

    Raises:
        GraphError: If the edges form a cycle.
    """
    layer_N = graph.layer_N  # raises on a cycle, before any work
    telling = (*(name for name in _TELLING if name in graph.categories), *graph.categories)
    categories = graph.categories[telling[0]] if telling else ["node"] * graph.num_nodes
    kind_N, kinds = _kinds(categories)
    return GraphView(
        title=graph.name,
        ids=tuple(map(str, range(graph.num_nodes))),
        labels=tuple(categories),
        kind_N=kind_N,
        kinds=kinds,
        colors=KIND_COLORS[: len(kinds)],
        edge_index_2E=graph.edge_index_2E,
        dashed_E=graph.edge_type_E != 0,
        details=tuple(_details(graph, row) for row in range(graph.num_nodes)),
        layer_N=layer_N,
    )


def _kinds(categories: Sequence[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the kind of each node and the names of the kinds."""
    counts = Counter(categories).most_common()
    kinds = [category for category, _ in counts[: len(KIND_COLORS)]]
    if len(counts) > len(kinds):
        kinds[-1] = "other"
    position = {category: at for at, category in enumerate(kinds)}
    last = len(kinds) - 1
    return np.array(
        [position.get(category, last) for category in categories], dtype=np.int64
    ), tuple(kinds)


def _details(graph: AttributedGraph, row: int) -> dict[str, object]:
    """Return the values of one node; absent numbers are left out."""
    found: dict[str, object] = {
        name: categories[row] for name, categories in graph.categories.items()
    }
    for name, values in graph.numbers.items():
        value = float(values[row])
        if not np.isnan(value):
            found[name] = value
    return found
