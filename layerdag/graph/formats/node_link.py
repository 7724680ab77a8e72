"""Node-link JSON, as networkx and ProGraML write it and HLS data sets use it, and related formats.

``{"directed": true, "graph": {...}, "nodes": [{"id": 0, ...}], "links": [{"source": 0, "target":
1, ...}]}``, or "edges" for "links". Edges name their ends by the ids of nodes or, if none of them
is an id, by positions in the list, as D3 and older networkx do. Edges that close a loop, as control
flow has, are left out and counted as the graph-level value ``loop_edges``.

Cytoscape.js (nodes and edges under "elements"), the JSON Graph Format (under "graph"), graphology
("key", "attributes") and vis.js ("from", "to") are read as well.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from layerdag.errors import GraphError
from layerdag.graph.attributed_graph import AttributedGraph, Condition
from layerdag.graph.formats.rows import ListedEdges, is_number, listed_graph, positions_of
from layerdag.runtime.json_shape import found_value, parse_json, plain_reason, require_shape
from layerdag.runtime.notes import NoteCollector, NoteKind
from layerdag.runtime.reading import read_parsed

MAX_VALUES = 16
"""A longer list is not read as an attribute."""

_EDGE_TYPE = ("type", "flow", "edge_type", "etype", "deptype", "kind")
_FLOWS = {"0": "control", "1": "data", "2": "call"}
_BACK = ("is_back_edge", "back_edge", "distance")
_OF_EDGES = {"source", "target", "id", "key", "position", *_EDGE_TYPE, *_BACK}
_OF_DOCUMENTS = {"directed", "multigraph", "graph", "nodes", "links", "edges", "name"}

Json = Mapping[str, Any]


def read_node_link(path: str | Path) -> AttributedGraph:
    """Read a directed graph; the file is not trusted.

    Texts and truth values of nodes are categories, numbers numbers; a short list becomes
    ``name_0``, ``name_1``, ..., a nested object ``name.key``. Scalars under "graph" are graph-level
    values, "label" among them.

    Raises:
        GraphError: If it is not such JSON, is undirected, has no node, or contradicts itself.
    """
    try:
        document = _in_node_link(parse_json(read_parsed(path, GraphError)))
        require_shape(document, _SHAPE)
        directed = document.get("directed", True)
        if type(directed) is not bool:
            raise GraphError(
                f"{path}: 'directed' is {found_value(directed)}; it must be true or false."
            )
        if not directed:
            raise GraphError(f"{path}: the graph is undirected; a DAG needs directed edges.")
        return _Reader(str(path), document).graph()
    except (ValueError, OverflowError, RecursionError) as error:
        raise GraphError(
            f"{path}: is no node-link JSON ({plain_reason(error)}); check the file."
        ) from error


_END = (str, int, float)
_LINKS = ([{"source": _END, "target": _END}], None)
_SHAPE = {"nodes": [dict], "links?": _LINKS, "edges?": _LINKS}
_CYTOSCAPE = {"nodes": [{"data": dict}], "edges": [{"data": dict}]}
_JSON_GRAPH = {
    "nodes": {str: {"metadata?": (dict, None)}},
    "edges": [{"metadata?": (dict, None)}],
    "metadata?": (dict, None),
}
_GRAPHOLOGY_SHAPE = {
    "nodes": [{"attributes?": (dict, None)}],
    "edges": [{"attributes?": (dict, None)}],
    "attributes?": (dict, None),
}


def _in_node_link(document: Any) -> Json:
    """Return a document of a related format as node-link JSON, any other one unchanged."""
    require_shape(document, dict)
    inside = document.get("elements")
    if "nodes" not in document and isinstance(inside, dict | list):
        return _of_cytoscape(document, inside)
    graph = document.get("graph")
    if "nodes" not in document and isinstance(graph, dict) and isinstance(graph.get("nodes"), dict):
        return {**_unknown(document, set()), **_of_json_graph_format(graph)}
    nodes, edges = document.get("nodes"), document.get("edges")
    if not isinstance(nodes, list) or not isinstance(edges, list) or document.get("links"):
        return dict(document)
    if nodes and all(
        isinstance(node, dict) and {"key"} <= node.keys() <= _GRAPHOLOGY for node in nodes
    ):
        return _of_graphology(document)
    if edges and all(isinstance(edge, dict) and {"from", "to"} <= edge.keys() for edge in edges):
        renamed = {"from": "source", "to": "target"}
        links = [{renamed.get(k, k): v for k, v in edge.items()} for edge in edges]
        return {**document, "edges": links}
    return dict(document)


_GRAPHOLOGY = {"key", "attributes"}
_DISPLAY = {
    *("format_version", "generated_by", "target_cytoscapejs_version", "style", "zoom", "pan"),
    *("zoomingEnabled", "userZoomingEnabled", "minZoom", "maxZoom", "panningEnabled", "renderer"),
    *("userPanningEnabled", "boxSelectionEnabled", "textureOnViewport", "motionBlur", "layout"),
    *("wheelSensitivity", "hideEdgesOnViewport"),
}
"""What Cytoscape's exports say of themselves and of the display."""


def _of_cytoscape(document: Json, inside: Any) -> Json:
    if isinstance(inside, list):
        require_shape(inside, [{"data": dict}], "elements")
        inside = {
            "nodes": [one for one in inside if "source" not in one["data"]],
            "edges": [one for one in inside if "source" in one["data"]],
        }
    require_shape(inside, _CYTOSCAPE, "elements")
    return {
        **_unknown(document, {"data", "elements", *_DISPLAY}),
        "graph": document.get("data", {}),
        "nodes": [one["data"] for one in inside["nodes"]],
        "links": [one["data"] for one in inside["edges"]],
    }


def _unknown(document: Json, known: set[str]) -> Json:
    return {key: document[key] for key in document.keys() - known - _OF_DOCUMENTS}


def _of_json_graph_format(graph: Json) -> Json:
    require_shape(graph, _JSON_GRAPH, "graph")
    nodes = [{"id": key, **_lifted(node, "metadata")} for key, node in graph["nodes"].items()]
    links = []
    for edge in graph["edges"]:
        plain = _lifted(edge, "metadata")
        relation = plain.pop("relation", None)
        links.append(plain if relation is None else {"type": relation, **plain})
    return {
        **_unknown(graph, {"id", "label", "type", "metadata"}),
        "directed": graph.get("directed", True),
        "graph": graph.get("metadata", {}),
        "nodes": nodes,
        "links": links,
    }


def _of_graphology(document: Json) -> Json:
    require_shape(document, _GRAPHOLOGY_SHAPE)
    nodes = [{"id": node["key"], **(node.get("attributes") or {})} for node in document["nodes"]]
    links = [_lifted(edge, "attributes") for edge in document["edges"]]
    return {
        **_unknown(document, {"options", "attributes"}),
        "directed": not any(link.pop("undirected", False) for link in links),
        "graph": document.get("attributes", {}),
        "nodes": nodes,
        "links": links,
    }


def _lifted(row: Json, name: str) -> dict[str, Any]:
    return {**{key: value for key, value in row.items() if key != name}, **(row.get(name) or {})}


class _Reader:
    def __init__(self, path: str, document: Json) -> None:
        self._path, self._document = path, document
        self._notes = NoteCollector(path)

    def graph(self) -> AttributedGraph:
        """Return the graph."""
        nodes = self._document["nodes"]
        for key in self._document.keys() - _OF_DOCUMENTS:
            self._notes.add(NoteKind.KEY, key, "unknown; left out")
        ids = [str(node.get("id", at)) for at, node in enumerate(nodes)]
        edges = self._edges(self._links(), nodes, ids)
        rows = {
            key: dict(self._flat("", {k: v for k, v in node.items() if k != "id"}, "nodes"))
            for key, node in zip(ids, nodes, strict=True)
        }
        values = self._document.get("graph")
        conditions: dict[str, Condition] = {
            name: float(text) if is_number(text) else text
            for name, text in self._flat("", values if isinstance(values, dict) else {}, "graph")
        }
        # Edges stand in the order of their ends.
        edges.types = dict(sorted(edges.types.items()))
        return listed_graph(
            source=self._path, name=Path(self._path).name.partition(".json")[0], nodes=rows,
            edges=edges, notes=self._notes, conditions=conditions,
        )  # fmt: skip

    def _links(self) -> Sequence[Json]:
        """Return the list of edges; GraphError if there is none, or two."""
        found = [key for key in ("links", "edges") if key in self._document]
        if not found:
            lists = [k for k, v in self._document.items() if isinstance(v, list) and k != "nodes"]
            others = f"; other lists are {', '.join(map(repr, lists))}" if lists else ""
            raise GraphError(
                f"{self._path}: has nodes, but neither 'links' nor 'edges'{others}; name the list "
                "of edges 'links' (an empty one, if there are none)."
            )
        filled = [key for key in found if self._document[key]]
        if len(filled) > 1:
            raise GraphError(
                f"{self._path}: has both 'links' and 'edges'; keep the list that holds its edges."
            )
        key = (filled or found)[0]
        links: Sequence[Json] | None = self._document[key]
        if links is None:
            raise GraphError(
                f"{self._path}: '{key}' is null; write the list of edges (an empty one, if there "
                "are none)."
            )
        return links

    def _flat(self, prefix: str, row: Json, where: str) -> Iterator[tuple[str, str]]:
        """Yield the attributes in an object as text, without absent ones."""
        for name, value in row.items():
            key = f"{prefix}{name}"
            if isinstance(value, dict) and not prefix.count("."):
                yield from self._flat(f"{key}.", value, where)
            elif isinstance(value, list) and len(value) <= MAX_VALUES:
                single = len(value) == 1
                parts = {key if single else f"{key}_{i}": part for i, part in enumerate(value)}
                for part, inner in parts.items():
                    yield from self._scalar(part, inner, where)
            else:
                yield from self._scalar(key, value, where)

    def _scalar(self, key: str, value: object, where: str) -> Iterator[tuple[str, str]]:
        """Yield a text, a truth value or a finite number; note anything else."""
        if isinstance(value, str | bool | int) or (
            isinstance(value, float) and math.isfinite(value)
        ):
            yield key, _text(value)
        elif isinstance(value, float):
            self._notes.add(
                NoteKind.NUMBER, value, "no value; left out", where=f"{where}, attribute '{key}'"
            )
        elif value is not None:
            what = "a list of many values" if isinstance(value, list) else "nested too deeply"
            self._notes.add(NoteKind.ATTRIBUTE, key, f"{what}; left out", where=where)

    def _edges(self, links: Sequence[Json], nodes: Sequence[Json], ids: list[str]) -> ListedEdges:
        index_of = positions_of(ids, self._path)
        ends = [(link["source"], link["target"]) for link in links]
        if self._count_positions(ends, nodes, index_of):
            index_of = {str(at): at for at in range(len(ids))}
        found = ListedEdges()
        for link, pair in zip(links, ends, strict=True):
            for end in pair:
                if str(end) not in index_of:
                    bare = "; nodes without 'id' count by their positions, from 0"
                    bare = "" if any("id" in node for node in nodes) else bare
                    raise GraphError(
                        f"{self._path}: an edge names node '{end}', which does not exist{bare}."
                    )
            for name in link.keys() - _OF_EDGES:
                self._notes.add(
                    NoteKind.ATTRIBUTE, name, "of edges, which have a type alone; left out"
                )
            # True, or a number above 0, says that the edge closes a loop.
            marks = [link[name] for name in _BACK if link.get(name) is not None]
            if any(
                mark if isinstance(mark, bool) else is_number(str(mark)) and float(mark) > 0
                for mark in marks
            ):
                found.marked += 1
            else:
                source, target = (index_of[str(end)] for end in pair)
                found.add(source, target, self._type(link))
        return found

    def _count_positions(
        self, ends: Sequence[tuple[object, object]], nodes: Sequence[Json], index_of: Json
    ) -> bool:
        """Return whether ends are positions in the list of nodes, with a note if ambiguous."""
        flat = {end for pair in ends for end in pair if type(end) is int}
        if not flat or any(type(end) is not int for pair in ends for end in pair):
            return False
        if not all("id" in node for node in nodes) or not 0 <= min(flat) <= max(flat) < len(nodes):
            return False
        known = [end for end in flat if str(end) in index_of]
        are_positions = len(known) < len(flat)
        other = [end for end in known if index_of[str(end)] != end]
        if other and (are_positions or 0 in flat):
            taken = "positions" if are_positions else "ids"
            self._notes.add(
                NoteKind.EDGE, min(other), f"ends of edges are ids or positions; taken as {taken}"
            )
        return are_positions

    def _type(self, link: Json) -> str:
        for name in _EDGE_TYPE:
            value = link.get(name)
            if isinstance(value, str | bool | int | float):
                word = _text(value)
                if name == "flow" and word not in (*_FLOWS, *_FLOWS.values()):
                    self._notes.add(NoteKind.EDGE, word, "unknown flow; kept as the edge's type")
                return _FLOWS.get(word, word) if name == "flow" else word
        return "data"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
