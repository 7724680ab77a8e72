"""GraphML both ways, node-link JSON.

GraphML of other tools: any directed file becomes a graph with names and numbers.

The format is that of graphml.graphdrawing.org. Files that do not declare their keys, as those of
HatScheT's loop library, are read as well: the type of such an attribute is seen from its values.

Node-link JSON, as networkx and ProGraML write it and HLS data sets use it.

``{"directed": true, "graph": {...}, "nodes": [{"id": 0, ...}], "links": [{"source": 0, "target":
1, ...}]}``; "edges" for "links" is read as well. Control flow has loops: edges that close one are
left out, and counted as the graph-level value ``loop_edges``.
"""

import io
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from layerdag.errors import GraphError
from layerdag.graph.attributed_graph import AttributedGraph, Condition
from layerdag.graph.formats.rows import GraphRows, columns_of, is_number
from layerdag.runtime.files import write_bytes
from layerdag.runtime.reading import read_parsed

_NUMBERS = ("int", "long", "float", "double")
# The attribute of an edge that gives its type, and the one that says it closes a loop.
_EDGE_TYPE = ("type", "deptype", "dependency")
_DISTANCE = ("distance", "Distance")

Row = Mapping[str, str]


_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_graphml(path: str | Path, graph: AttributedGraph | GraphRows) -> None:
    """Write GraphML; absent numbers are left out of their node."""
    write_bytes(path, encode_graphml(graph))


def encode_graphml(graph: AttributedGraph | GraphRows) -> bytes:
    """Return the content of the file that ``write_graphml`` writes."""
    import networkx

    table = graph if isinstance(graph, GraphRows) else GraphRows.from_graph(graph)
    target = networkx.DiGraph(**{k: _xml(v) for k, v in table.conditions.items()})
    for key, row in zip(table.ids, table.rows, strict=True):
        target.add_node(_xml(key), **{_xml(name): _xml(value) for name, value in row.items()})
    for source, to, kind in table.edges:
        target.add_edge(_xml(table.ids[source]), _xml(table.ids[to]), type=_xml(kind))
    content = io.BytesIO()
    networkx.write_graphml(target, content)
    return _with_small_booleans(content.getvalue())


def _with_small_booleans(content: bytes) -> bytes:
    """Return GraphML with "true" and "false", as XML has them, where networkx writes Python's."""
    keys = re.findall(rb'<key id="(d\d+)"[^>]*attr\.type="boolean"', content)
    if not keys:
        return content
    pattern = rb'(<data key="(?:' + b"|".join(keys) + rb')">)(True|False)<'
    return re.sub(pattern, lambda found: found[1] + found[2].lower() + b"<", content)


def _xml(value: Any) -> Any:
    """Return a value with what XML cannot hold replaced."""
    return _NOT_XML.sub("\ufffd", value) if isinstance(value, str) else value


def read_graphml(path: str | Path) -> AttributedGraph:
    """Read a directed GraphML file: text attributes are categories, numbers are numbers.

    Edges with a positive "distance" (carried by a loop to a later iteration) are left out, as a DAG
    needs. An edge attribute "type", "deptype" or "dependency" gives the edge type.

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


MOST_VALUES = 16
"""A list of more values than this is no attribute."""

_NODE_LINK_EDGE_TYPE = ("type", "flow", "edge_type", "etype", "deptype", "kind")
_FLOWS = {"0": "control", "1": "data", "2": "call"}
_BACK = ("is_back_edge", "back_edge", "distance")

Json = Mapping[str, Any]
Edges = dict[tuple[int, int], str]


def read_node_link(path: str | Path) -> AttributedGraph:
    """Read a directed graph; the file is not trusted.

    Texts and truth values of nodes are categories, numbers numbers; a short list becomes
    ``name_0``, ``name_1``, ..., a nested object ``name.key``. Scalars under "graph" are graph-level
    values, "label" among them.

    Raises:
        GraphError: If it is no such JSON, is undirected, has no node, or contradicts itself.
    """
    try:
        document = json.loads(read_parsed(path, GraphError))
        if document.get("directed") is False:
            raise GraphError(f"{path}: the graph is undirected; a DAG needs directed edges.")
        links = document.get("links", document.get("edges", ()))
        return _graph(path, document["nodes"], links, document.get("graph"))
    except KeyError as error:
        raise GraphError(f"{path}: is no node-link JSON: {error} is missing.") from error
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise GraphError(f"{path}: is no node-link JSON ({error}); check the file.") from error


def _graph(
    path: str | Path, nodes: Sequence[Json], links: Sequence[Json], values: object
) -> AttributedGraph:
    """Return the graph."""
    index_of = {str(node.get("id", at)): at for at, node in enumerate(nodes)}
    if len(index_of) != len(nodes):
        raise GraphError(f"{path}: two nodes have the same id; make ids unique.")
    edges, loops = _without_loops(len(nodes), *_edges_node_link(path, links, index_of))
    categories, numbers = columns_of(
        [dict(_flat("", {k: v for k, v in node.items() if k != "id"})) for node in nodes]
    )
    types = tuple(sorted({*edges.values(), "data"}))
    conditions: dict[str, Condition] = {"loop_edges": float(loops)} if loops else {}
    for name, text in _flat("", values if isinstance(values, dict) else {}):
        conditions[name] = float(text) if is_number(text) else text
    return AttributedGraph(
        name=Path(path).name.partition(".json")[0],
        categories=categories,
        numbers=numbers,
        edge_index_2E=np.array(sorted(edges), dtype=np.int64).reshape(-1, 2).T,
        edge_type_E=np.array([types.index(edges[edge]) for edge in sorted(edges)], dtype=np.int64),
        edge_type_names=types,
        conditions=conditions,
    ).checked()


def _flat(prefix: str, row: Json) -> Iterator[tuple[str, str]]:
    """Yield attributes as text; what is absent or no attribute is left out."""
    for name, value in row.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and not prefix.count("."):
            yield from _flat(f"{key}.", value)
        elif isinstance(value, list) and len(value) <= MOST_VALUES:
            single = len(value) == 1
            parts = {key if single else f"{key}_{i}": part for i, part in enumerate(value)}
            yield from ((k, _text(v)) for k, v in parts.items() if _is_scalar(v))
        elif _is_scalar(value):
            yield key, _text(value)


def _is_scalar(value: object) -> bool:
    """Return whether a value is a text, a truth value or a finite number."""
    return isinstance(value, str | bool | int) or (
        isinstance(value, float) and math.isfinite(value)
    )


def _text(value: object) -> str:
    """Return a scalar as text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _edges_node_link(
    path: str | Path, links: Sequence[Json], index_of: Mapping[str, int]
) -> tuple[Edges, int]:
    """Return the type of each edge, and how many are marked as closing a loop.

    Edges of several types between two nodes become one, whose type names them all.
    """
    types: dict[tuple[int, int], set[str]] = {}
    loops = 0
    for link in links:
        ends = str(link["source"]), str(link["target"])
        for end in ends:
            if end not in index_of:
                raise GraphError(f"{path}: an edge names node '{end}', which does not exist.")
        if any(is_number(_text(link.get(k, ""))) and float(link[k]) > 0 for k in _BACK) or any(
            link.get(k) is True for k in _BACK
        ):
            loops += 1
        else:
            types.setdefault((index_of[ends[0]], index_of[ends[1]]), set()).add(_type(link))
    return {edge: "+".join(sorted(found)) for edge, found in types.items()}, loops


def _type(link: Json) -> str:
    """Return the type of an edge."""
    for name in _NODE_LINK_EDGE_TYPE:
        if name in link and _is_scalar(link[name]):
            word = _text(link[name])
            return _FLOWS.get(word, word) if name == "flow" else word
    return "data"


def _without_loops(num_nodes: int, edges: Edges, loops: int) -> tuple[Edges, int]:
    """Leave out the edges to a node that is still being visited, depth first in order of ids."""
    targets: list[list[int]] = [[] for _ in range(num_nodes)]
    for source, target in sorted(edges):
        targets[source].append(target)
    state = bytearray(num_nodes)  # 0 new, 1 being visited, 2 done
    back: set[tuple[int, int]] = set()
    for root in range(num_nodes):
        stack = [(root, iter(targets[root]))] if not state[root] else []
        if stack:
            state[root] = 1
        while stack:
            node, rest = stack[-1]
            after = next(rest, None)
            if after is None:
                state[node] = 2
                stack.pop()
            elif state[after] == 1:
                back.add((node, after))
            elif not state[after]:
                state[after] = 1
                stack.append((after, iter(targets[after])))
    kept = {edge: kind for edge, kind in edges.items() if edge not in back}
    return kept, loops + len(back)
