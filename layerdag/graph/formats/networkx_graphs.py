"""networkx graphs to attributed graphs and back; networkx is imported when it is needed."""

import math
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from layerdag.errors import GraphError
from layerdag.graph.attributed_graph import AttributedGraph, Condition
from layerdag.graph.formats.registry import columns_of

if TYPE_CHECKING:
    import networkx as nx

_EDGE_TYPE = ("type", "deptype")


def is_networkx(thing: object) -> bool:
    """Return whether something is a graph of networkx, without importing networkx."""
    networkx = sys.modules.get("networkx")
    return networkx is not None and isinstance(thing, networkx.Graph)


def from_networkx(graph: "nx.DiGraph", name: str = "") -> AttributedGraph:
    """Return a directed graph of networkx: texts of nodes are categories, numbers are numbers.

    Nodes keep their order. An edge attribute "type" or "deptype" gives the edge type; attributes
    of the whole graph are conditions.

    Args:
        graph: A ``DiGraph``; of a ``MultiDiGraph`` one edge of each pair is kept.
        name: Of the graph; its own by default.

    Raises:
        GraphError: If it is undirected, or has no node.
    """
    name = name or str(graph.name or "graph")
    if not graph.is_directed():
        raise GraphError(
            f"{name}: the networkx graph is undirected; a DAG needs a networkx.DiGraph."
        )
    nodes = [dict(values) for _, values in graph.nodes(data=True)]
    kinds = {key: all(map(_is_number, _values(nodes, key))) for row in nodes for key in row}
    rows = [{str(key): str(value) for key, value in row.items()} for row in nodes]
    categories, numbers = columns_of(rows, {str(key): kind for key, kind in kinds.items()})
    index_of = {node: at for at, node in enumerate(graph.nodes)}
    edges = {
        (index_of[source], index_of[target]): next(
            (str(values[key]) for key in _EDGE_TYPE if key in values), "data"
        )
        for source, target, values in graph.edges(data=True)
    }
    types = tuple(sorted({*edges.values(), "data"}))
    return AttributedGraph(
        name=name,
        categories=categories,
        numbers=numbers,
        edge_index_2E=np.array(list(edges), dtype=np.int64).reshape(-1, 2).T,
        edge_type_E=np.array([types.index(kind) for kind in edges.values()], dtype=np.int64),
        edge_type_names=types,
        conditions=_conditions(graph.graph),
    ).checked()


def to_networkx(graph: AttributedGraph) -> "nx.DiGraph":
    """Return a ``networkx.DiGraph`` with nodes 0, 1, ..., their names and numbers, and edge types.

    Numbers that a node does not have are left out; conditions are attributes of the graph.
    """
    import networkx as nx

    target = nx.DiGraph(**{"name": graph.name, **dict(graph.conditions)})
    for node in range(graph.num_nodes):
        values = {key: float(column[node]) for key, column in graph.numbers.items()}
        words = {key: column[node] for key, column in graph.categories.items()}
        target.add_node(node, **words, **{k: v for k, v in values.items() if not math.isnan(v)})
    for (source, to), code in zip(
        graph.edge_index_2E.T.tolist(), graph.edge_type_E.tolist(), strict=True
    ):
        target.add_edge(source, to, type=graph.edge_type_names[code])
    return target


def _values(rows: list[dict[Any, Any]], key: object) -> list[Any]:
    """Return the values of an attribute at the nodes that have it."""
    return [row[key] for row in rows if key in row]


def _is_number(value: object) -> bool:
    """Return whether a value is a number and no truth value."""
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _conditions(values: dict[Any, Any]) -> dict[str, Condition]:
    """Return the numbers and texts among the attributes of a whole graph, without its name."""
    return {
        str(key): value if isinstance(value, str) else float(value)
        for key, value in values.items()
        if key != "name" and (isinstance(value, str) or _is_number(value))
    }
