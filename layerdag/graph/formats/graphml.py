"""GraphML (graphml.graphdrawing.org), read and written.

Any directed file is read, by other tools as well. Keys apply to what they are declared for, and
have defaults; names of types are read in any case, Mathematica's "Real" among them. Elements are
recognized in any namespace of GraphML. From yEd the labels of nodes are read; a node that holds a
graph is a group, which is left out unless an edge ends there. Where keys are not declared, as in
HatScheT's loop library, the type of an attribute is seen from its values.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from layerdag.errors import GraphError
from layerdag.graph.attributed_graph import AttributedGraph, Condition
from layerdag.graph.formats.rows import (
    GraphRows,
    ListedEdges,
    Value,
    distinct,
    is_number,
    listed_graph,
    positions_of,
)
from layerdag.runtime.files import write_bytes
from layerdag.runtime.notes import Note, NoteCollector, NoteKind
from layerdag.runtime.reading import read_parsed

_NUMBERS = ("int", "long", "float", "double", "integer", "real", "short", "number")
_WHOLE = ("int", "long", "integer", "short")
_TRUTH, _TEXT = ("boolean", "bool"), ("string",)
_TRUTH_VALUES = {"true": "true", "1": "true", "false": "false", "0": "false"}
# The attribute of an edge that gives its type, and the one that says it closes a loop.
_EDGE_TYPE = ("type", "deptype", "dependency")
_DISTANCE = ("distance", "Distance")
_SPACE = "graphml.graphdrawing.org"
_YED = "{http://www.yworks.com/xml/graphml}"
_LABEL = "label"

Element = ElementTree.Element
Row = dict[str, str]

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_HEAD = (
    "<?xml version='1.0' encoding='utf-8'?>\n"
    '<graphml xmlns="http://graphml.graphdrawing.org/xmlns" '
    'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
    'xsi:schemaLocation="http://graphml.graphdrawing.org/xmlns '
    'http://graphml.graphdrawing.org/xmlns/1.0/graphml.xsd">\n'
)


def write_graphml(path: str | Path, graph: AttributedGraph | GraphRows) -> tuple[Note, ...]:
    """Write GraphML, without absent numbers.

    Returns:
        Notes on characters that XML cannot hold, which are written as U+FFFD.

    Raises:
        GraphError: If the graph contradicts itself, or a word of it is no text.
    """
    text = _text(graph)
    notes = NoteCollector(str(path))
    for found in _NOT_XML.findall(text):
        shown = ascii(found)[1:-1]
        notes.add(NoteKind.ENCODING, shown, "XML cannot hold it; written as U+FFFD")
    write_bytes(path, _xml(text).encode())
    return notes.notes


def encode_graphml(graph: AttributedGraph | GraphRows) -> bytes:
    """Return the content of the file that ``write_graphml`` writes."""
    return _xml(_text(graph)).encode()


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)


def _text(graph: AttributedGraph | GraphRows) -> str:
    table = graph if isinstance(graph, GraphRows) else GraphRows.from_graph(graph.checked())
    keys = _Keys()
    found = dict.fromkeys(name for row in (table.conditions, *table.rows) for name in row)
    names = dict(zip(found, distinct(list(found), _xml), strict=True))
    values = list(_data("graph", {names[k]: v for k, v in table.conditions.items()}, keys, "    "))
    ids = [_attribute(key) for key in distinct(table.ids, _xml)]
    body = []
    for key, row in zip(ids, table.rows, strict=True):
        data = _data("node", {names[name]: value for name, value in row.items()}, keys, "      ")
        body += _element(f"node id={key}", data)
    for source, to, kind in sorted(table.edges, key=lambda edge: edge[0]):
        data = _data("edge", {"type": kind}, keys, "      ")
        body += _element(f"edge source={ids[source]} target={ids[to]}", data)
    inside = [*body, *values]
    lines = ['  <graph edgedefault="directed">', *inside, "  </graph>"]
    lines = lines if inside else ['  <graph edgedefault="directed" />']
    return _HEAD + "\n".join([*keys.lines(), *lines, "</graphml>"]) + "\n"


class _Keys:
    def __init__(self) -> None:
        self._ids: dict[tuple[str, str, str], str] = {}

    def id_of(self, name: str, value: Value, scope: str) -> str:
        """Return the key of an attribute for values of this type."""
        types = {str: "string", bool: "boolean", int: "long"}
        key = (name, types.get(type(value), "double"), scope)
        return self._ids.setdefault(key, f"d{len(self._ids)}")

    def lines(self) -> Iterator[str]:
        """Yield the declarations, the last key first."""
        for (name, kind, scope), key in reversed(self._ids.items()):
            yield (
                f'  <key id="{key}" for="{scope}" attr.name={_attribute(name)} '
                f'attr.type="{kind}" />'
            )


# xml.sax.saxutils.escape does the same, and imports the client of HTTP.
_MARKS = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"}
_IN_TEXT = str.maketrans(_MARKS)
_IN_ATTRIBUTE = str.maketrans({**_MARKS, '"': "&quot;", "\n": "&#10;", "\t": "&#09;"})


def _data(scope: str, row: Mapping[str, Value], keys: _Keys, indent: str) -> Iterator[str]:
    for name, value in row.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        key = keys.id_of(name, value, scope)
        inside = f">{text.translate(_IN_TEXT)}</data>" if text else " />"
        yield f'{indent}<data key="{key}"{inside}'


def _element(head: str, data: Iterator[str]) -> list[str]:
    inside = list(data)
    name = head.partition(" ")[0]
    return [f"    <{head}>", *inside, f"    </{name}>"] if inside else [f"    <{head} />"]


def _attribute(text: str) -> str:
    return f'"{text.translate(_IN_ATTRIBUTE)}"'


def read_graphml(path: str | Path) -> AttributedGraph:
    """Read a directed GraphML file: text attributes are categories, numbers are numbers.

    Edges with a positive "distance" (to a later iteration of a loop) are left out and counted. An
    edge attribute "type", "deptype" or "dependency" gives the edge type.

    Raises:
        GraphError: If the file is not directed GraphML, has no node, or contradicts itself.
    """
    return decode_graphml(read_parsed(path, GraphError), str(path))


def decode_graphml(content: bytes, path: str) -> AttributedGraph:
    """Return the graph in the content of the file ``path``; see ``read_graphml``."""
    try:
        root = ElementTree.fromstring(content)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise GraphError(f"{path}: is not readable GraphML ({error}); check the file.") from error
    return _Reader(path, root).graph()


@dataclass(frozen=True)
class _Key:
    """The declaration of an attribute.

    Attributes:
        name: Of the attribute.
        scope: "graph", "node", "edge" or "all".
        kind: Its type in lower case, None where none is declared.
        default: For elements without a value of their own.
        drawn: Whether it holds yEd's drawing of a node or edge.
    """

    name: str
    scope: str
    kind: str | None
    default: str | None = None
    drawn: bool = False


class _Reader:
    def __init__(self, path: str, root: Element) -> None:
        self._path, self._root = path, root
        self._notes = NoteCollector(path)
        self._names: dict[str, str] = {}
        self._space = root.tag.partition("}")[0] + "}" if root.tag.startswith("{") else ""
        graphs = list(self._children(root, "graph"))
        if self._local(root) != "graphml" or not graphs:
            raise GraphError(f"{path}: is XML, but no GraphML; check the file.")
        if len(graphs) > 1:
            raise GraphError(f"{path}: holds {len(graphs)} graphs; keep one in each file.")
        self._body = graphs[0]
        if next(self._all(self._body, "hyperedge"), None) is not None:
            raise GraphError(f"{path}: has hyperedges; a DAG needs edges between two nodes.")
        self._keys = dict(map(self._declared, self._all(root, "key")))
        self._is_drawn = any(key.drawn for key in self._keys.values())
        self._defaults = {
            scope: {
                key.name: key.default
                for key in self._keys.values()
                if key.default is not None and key.scope in (scope, "all")
            }
            for scope in ("graph", "node", "edge")
        }

    def graph(self) -> AttributedGraph:
        """Return the graph."""
        lines = list(self._all(self._body, "edge"))
        self._require_directed(lines)
        nodes = self._nodes(lines)
        ids = [str(node.get("id")) for node in nodes]
        index_of = positions_of(ids, self._path)
        edges = self._edges(lines, index_of)
        rows = {key: self._row(node, "node") for key, node in zip(ids, nodes, strict=True)}
        kinds = self._kinds("graph")
        conditions: dict[str, Condition] = {
            name: float(text)
            if kinds.get(name) not in (*_TEXT, *_TRUTH) and is_number(text)
            else text
            for name, text in self._row(self._body, "graph").items()
        }
        return listed_graph(
            source=self._path, name=Path(self._path).stem, nodes=rows, edges=edges,
            notes=self._notes, conditions=conditions,
            kinds={name: kind in _NUMBERS for name, kind in self._kinds("node").items()},
        )  # fmt: skip

    def _local(self, element: Element) -> str:
        if element.tag not in self._names:
            space, _, name = element.tag.rpartition("}")
            known = not space or space == self._space[:-1] or _SPACE in space
            self._names[element.tag] = name if known else ""
        return self._names[element.tag]

    def _children(self, element: Element, name: str) -> Iterator[Element]:
        return (child for child in element if self._local(child) == name)

    def _all(self, element: Element, name: str) -> Iterator[Element]:
        return (
            found
            for found in element.iter()
            if found.tag.endswith(name) and self._local(found) == name
        )

    def _declared(self, key: Element) -> tuple[str, _Key]:
        identity = str(key.get("id"))
        kind = key.get("attr.type")
        name = str(key.get("attr.name", identity))
        if kind is not None and kind.lower() not in (*_NUMBERS, *_TRUTH, *_TEXT):
            self._notes.add(
                NoteKind.DTYPE, kind, "unknown type of a key; seen from the values",
                where=f"key '{identity}'",
            )  # fmt: skip
            kind = None
        default = next(self._children(key, "default"), None)
        drawing = {"nodegraphics", "edgegraphics"} & set(key.attrib.values())
        if drawing:
            name = _LABEL
        return identity, _Key(
            name=name,
            scope=key.get("for") or "all",
            kind=None if kind is None else kind.lower(),
            default=None if default is None or drawing else (default.text or "").strip(),
            drawn=bool(drawing),
        )

    def _kinds(self, scope: str) -> dict[str, str]:
        return {
            key.name: key.kind
            for key in self._keys.values()
            if key.kind is not None and key.scope in (scope, "all")
        }

    def _nodes(self, edges: Sequence[Element]) -> list[Element]:
        found = list(self._all(self._body, "node"))
        for node in found:
            if node.get("id") is None:
                raise GraphError(f"{self._path}: a node has no id; give each its own.")
        ends = {edge.get(end) for edge in edges for end in ("source", "target")}
        groups = [
            node
            for node in found
            if node.get("id") not in ends and next(self._children(node, "graph"), None) is not None
        ]
        if groups:
            self._notes.add(
                NoteKind.GROUP, groups[0].get("id"), "a group of nodes; they are read, it is none",
                count=len(groups),
            )  # fmt: skip
        without = set(map(id, groups))
        return [node for node in found if id(node) not in without]

    def _require_directed(self, edges: Sequence[Element]) -> None:
        usual = self._body.get("edgedefault")
        all_say = bool(edges) and all(edge.get("directed") == "true" for edge in edges)
        if usual == "undirected" and not all_say:
            raise GraphError(
                f"{self._path}: the graph is undirected; a DAG needs edgedefault='directed'."
            )
        loose = next((edge for edge in edges if edge.get("directed") == "false"), None)
        if loose is not None:
            raise GraphError(
                f"{self._path}: the edge from '{loose.get('source')}' to '{loose.get('target')}' "
                "is undirected; a DAG needs directed edges."
            )

    def _row(self, element: Element, scope: str) -> Row:
        found = dict(self._defaults[scope])
        given: set[str] = set()
        for data in self._children(element, "data"):
            identity = str(data.get("key"))
            key = self._keys.get(identity)
            if key is None:
                if self._keys:
                    self._notes.add(
                        NoteKind.KEY, identity, "not declared; its name is that of the attribute"
                    )
                key = _Key(identity, scope, None)
            elif key.scope not in (scope, "all"):
                self._notes.add(
                    NoteKind.KEY, identity, f"declared for '{key.scope}', found at '{scope}'; taken"
                )
            text = self._content(data, key, scope)
            if text is not None:
                if key.name in given:
                    self._notes.add(
                        NoteKind.ATTRIBUTE, key.name, f"given twice at one {scope}; the last counts"
                    )
                given.add(key.name)
                found[key.name] = text
        return found

    def _content(self, data: Element, key: _Key, scope: str) -> str | None:
        """Return the value in an element of data; None if it has none."""
        if key.drawn:  # yEd's drawing of a node or edge has its label
            labels = (
                (label.text or "").strip()
                for name in ("NodeLabel", "EdgeLabel")
                for label in data.iter(f"{_YED}{name}")
            )
            return next(filter(None, labels), None)
        where = f"attribute '{key.name}'"
        text = (data.text or "").strip()
        if len(data):
            self._notes.add(NoteKind.ATTRIBUTE, key.name, "holds XML, which is no value; left out")
            return None
        if key.kind in _NUMBERS and not text:
            return None
        if key.kind in _TRUTH:
            if text.lower() not in _TRUTH_VALUES:
                effect = "no truth value, as its key says; kept as a word"
                self._notes.add(NoteKind.CATEGORY, text, effect, where=where)
            return _TRUTH_VALUES.get(text.lower(), text)
        if key.kind in _WHOLE and is_number(text) and float(text) % 1:
            effect = "a fraction, though its key says whole numbers; taken"
            self._notes.add(NoteKind.NUMBER, text, effect, where=where)
        elif key.kind in _NUMBERS and scope != "node" and not is_number(text):
            effect = "no number, as its key says; kept as a word"
            self._notes.add(NoteKind.NUMBER, text, effect, where=where)
        return text

    def _edges(self, elements: Sequence[Element], index_of: Mapping[str, int]) -> ListedEdges:
        found = ListedEdges()
        for element in elements:
            ends = element.get("source"), element.get("target")
            for end in ends:
                if end is None:
                    raise GraphError(f"{self._path}: an edge lacks its source or target; add it.")
                if end not in index_of:
                    raise GraphError(
                        f"{self._path}: an edge names node '{end}', which does not exist."
                    )
            row = self._row(element, "edge")
            for name in row.keys() - {*_EDGE_TYPE, *_DISTANCE}:
                self._notes.add(
                    NoteKind.ATTRIBUTE, name, "of edges, which have a type alone; left out"
                )
            distance = next((row[name] for name in _DISTANCE if name in row), "0")
            if is_number(distance) and float(distance) > 0:
                found.marked += 1
                continue
            lines = element.iter(f"{_YED}LineStyle") if self._is_drawn else ()
            styles = [line.get("type") or "" for line in lines]
            dashed = any(style.startswith(("dashed", "dotted")) for style in styles)
            drawn = "control" if dashed else "data"
            kind = next((row[name] for name in _EDGE_TYPE if row.get(name)), drawn)
            found.add(index_of[str(ends[0])], index_of[str(ends[1])], kind)
        return found
