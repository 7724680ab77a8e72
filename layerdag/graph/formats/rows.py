"""A graph as rows of attributes, as other tools hold it; graphs of networkx, both ways.

networkx is imported when it is needed.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from layerdag.errors import GraphError
from layerdag.graph.attributed_graph import AttributedGraph, Condition

if TYPE_CHECKING:
    import networkx as nx


def columns_of(
    rows: Sequence[Mapping[str, str]], kinds: Mapping[str, bool] | None = None
) -> tuple[dict[str, list[str]], dict[str, np.ndarray]]:
    """Return the attributes of all nodes as categories and numbers; there is at least one category.

    Args:
        rows: Attributes of each node as text; what a node lacks is "" or NaN.
        kinds: Whether an attribute may be numeric, where that is known.
    """
    categories: dict[str, list[str]] = {}
    numbers: dict[str, np.ndarray] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        present = [row[name] for row in rows if name in row]
        if (kinds or {}).get(name, True) and all(map(is_number, present)):
            numbers[name] = np.array([float(row.get(name, "nan")) for row in rows])
        else:
            categories[name] = [row.get(name, "") for row in rows]
    if not categories:
        categories["kind"] = ["node"] * len(rows)
    return categories, numbers


def is_number(text: str) -> bool:
    """Return whether a text is a finite number."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


Value = str | bool | int | float


@dataclass(frozen=True, eq=False)
class GraphRows:
    """A graph as writers of other tools' formats see it.

    Attributes:
        name: Of the graph.
        ids: Name of each node in the file.
        rows: Attributes of each node; what a node lacks is left out.
        edges: Source, target and type of each edge.
        conditions: Graph-level values.
        looks: Attributes of each node for drawing, which a format may leave out; none if empty.
    """

    name: str
    ids: Sequence[str]
    rows: Sequence[Mapping[str, Value]]
    edges: Sequence[tuple[int, int, str]]
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    looks: Sequence[Mapping[str, str]] = ()

    @classmethod
    def from_graph(cls, graph: AttributedGraph) -> "GraphRows":
        """Return the rows of a graph, whose nodes are numbered from 0."""
        numbers = {name: value_N.tolist() for name, value_N in graph.numbers.items()}
        rows = []
        for node in range(graph.num_nodes):
            row: dict[str, Value] = {k: column[node] for k, column in graph.categories.items()}
            values = {name: column[node] for name, column in numbers.items()}
            row.update({name: float(v) for name, v in values.items() if not math.isnan(v)})
            rows.append(row)
        kinds = graph.edge_type_E.tolist()
        pairs = zip(graph.edge_index_2E.T.tolist(), kinds, strict=True)
        return cls(
            name=graph.name,
            ids=tuple(map(str, range(graph.num_nodes))),
            rows=rows,
            edges=[(a, b, graph.edge_type_names[kind]) for (a, b), kind in pairs],
            conditions=graph.conditions,
        )


_EDGE_TYPE = ("type", "deptype")


def is_networkx(thing: object) -> bool:
    """Return whether something is a graph of networkx, without importing networkx."""
    networkx = sys.modules.get("networkx")
    return networkx is not None and isinstance(thing, networkx.Graph)


def from_networkx(graph: "nx.DiGraph", name: str = "") -> AttributedGraph:
    """Return a directed graph of networkx: texts of nodes are categories, numbers are numbers.

    Nodes keep their order. An attribute that is None is absent. An edge attribute "type" or
    "deptype" gives the edge type; attributes of the whole graph are conditions.

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
    nodes = [
        {key: value for key, value in values.items() if value is not None}
        for _, values in graph.nodes(data=True)
    ]
    kinds = {key: all(map(_is_numeric, _values(nodes, key))) for row in nodes for key in row}
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


def _is_numeric(value: object) -> bool:
    """Return whether a value is a number and no truth value."""
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _conditions(values: dict[Any, Any]) -> dict[str, Condition]:
    """Return the numbers and texts among the attributes of a whole graph, without its name."""
    return {
        str(key): value if isinstance(value, str) else float(value)
        for key, value in values.items()
        if key != "name" and (isinstance(value, str) or _is_numeric(value))
    }
