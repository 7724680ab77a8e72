"""GraphML of other tools: any directed file becomes a graph with names and numbers.

The format is that of graphml.graphdrawing.org. Files that do not declare their keys, as those of
HatScheT's loop library, are read as well: the type of such an attribute is seen from its values.
"""

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from layerdag._runtime import read_parsed, write_bytes
from layerdag.codec import AttributedGraph
from layerdag.datasets.files._columns import columns_of, is_number
from layerdag.errors import GraphError
from layerdag.graph import Condition

_NUMBERS = ("int", "long", "float", "double")
# The attribute of an edge that gives its type, and the one that says it closes a loop.
_EDGE_TYPE = ("type", "deptype")
_DISTANCE = ("distance", "Distance")

Row = Mapping[str, str]


def write_graphml(path: str | Path, graph: AttributedGraph) -> None:
    """Write GraphML; absent numbers are left out of their node."""
    write_bytes(path, encode_graphml(graph))


def encode_graphml(graph: AttributedGraph) -> bytes:
    """Return the content of the file that ``write_graphml`` writes."""
    import networkx

    target = networkx.DiGraph(**dict(graph.conditions))
    for node in range(graph.num_nodes):
        attributes: dict[str, Any] = {k: column[node] for k, column in graph.categories.items()}
        values = {k: float(v[node]) for k, v in graph.numbers.items()}
        attributes.update({k: v for k, v in values.items() if not math.isnan(v)})
        target.add_node(str(node), **attributes)
    for (source, to), code in zip(
        graph.edge_index_2E.T.tolist(), graph.edge_type_E.tolist(), strict=True
    ):
        target.add_edge(str(source), str(to), type=graph.edge_type_names[code])
    content = io.BytesIO()
    networkx.write_graphml(target, content)
    return content.getvalue()


def read_graphml(path: str | Path) -> AttributedGraph:
    """Read a directed GraphML file: text attributes are categories, numbers are numbers.

    Edges with a positive "distance" (carried by a loop to a later iteration) are left out, as a DAG
    needs. An edge attribute "type" or "deptype" gives the edge type.

    Raises:
        GraphError: If the file is no directed GraphML, has no node, or contradicts itself.
    """
    return decode_graphml(read_parsed(path, GraphError), str(path))


def decode_graphml(content: bytes, path: str) -> AttributedGraph:
    """Return the graph in the content of the file ``path``; see ``read_graphml``."""
    try:
        root = ElementTree.fromstring(content)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise GraphError(f"{path}: is not readable GraphML ({error}); check the file.") from error
    space = root.tag.partition("}")[0] + "}" if root.tag.startswith("{") else ""
    body = root.find(f"{space}graph")
    if root.tag != f"{space}graphml" or body is None:
        raise GraphError(f"{path}: is XML, but no GraphML; check the file.")
    if body.get("edgedefault") == "undirected":
        raise GraphError(f"{path}: the graph is undirected; a DAG needs edgedefault='directed'.")
    keys = {
        str(key.get("id")): (str(key.get("attr.name", key.get("id"))), key.get("attr.type"))
        for key in root.iter(f"{space}key")
    }
    kinds = {name: kind for name, kind in keys.values() if kind is not None}
    nodes = list(body.iter(f"{space}node"))
    index_of = {str(node.get("id")): index for index, node in enumerate(nodes)}
    if len(index_of) != len(nodes):
        raise GraphError(f"{path}: two nodes have the same id; make ids unique.")
    edges = _edges(path, [(e, _row(e, space, keys)) for e in body.iter(f"{space}edge")], index_of)
    names = tuple(sorted({*edges.values(), "data"}))
    may_be_numbers = {name: kind in _NUMBERS for name, kind in kinds.items()}
    categories, numbers = columns_of([_row(node, space, keys) for node in nodes], may_be_numbers)
    conditions = {
        name: _value(text, kinds.get(name)) for name, text in _row(body, space, keys).items()
    }
    return AttributedGraph(
        name=Path(path).stem,
        categories=categories,
        numbers=numbers,
        edge_index_2E=np.array(list(edges), dtype=np.int64).reshape(-1, 2).T,
        edge_type_E=np.array([names.index(t) for t in edges.values()], dtype=np.int64),
        edge_type_names=names,
        conditions=conditions,
    ).checked()


def _row(
    element: ElementTree.Element, space: str, keys: Mapping[str, tuple[str, str | None]]
) -> dict[str, str]:
    """Return the data of a graph, node or edge by name."""
    found = {}
    for data in element.findall(f"{space}data"):
        key = str(data.get("key"))
        found[keys.get(key, (key, None))[0]] = (data.text or "").strip()
    return found


def _edges(
    path: str | Path,
    elements: Sequence[tuple[ElementTree.Element, Row]],
    index_of: Mapping[str, int],
) -> dict[tuple[int, int], str]:
    """Return the type of each edge that is not carried to a later iteration."""
    found = {}
    for element, row in elements:
        ends = str(element.get("source")), str(element.get("target"))
        for end in ends:
            if end not in index_of:
                raise GraphError(f"{path}: an edge names node '{end}', which does not exist.")
        distance = next((row[name] for name in _DISTANCE if name in row), "0")
        if not (is_number(distance) and float(distance) > 0):
            kind = next((row[name] for name in _EDGE_TYPE if name in row), "data")
            found[index_of[ends[0]], index_of[ends[1]]] = kind
    return found


def _value(text: str, kind: str | None) -> Condition:
    """Return a graph-level value as a number if it is one."""
    return float(text) if kind != "string" and is_number(text) else text
