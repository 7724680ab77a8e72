"""DOT, the language of Graphviz, read and written as flow graphs.

Nodes, edges, their attributes and the defaults for these are read, in subgraphs as well; attributes
for drawing alone (shape, color, position) are left out. A number may have an exponent, as igraph
writes it, although Graphviz has none.

``write_dot`` quotes the names of attributes except those for drawing. Therefore "group" in quotes
is an attribute of the graph wherever a file also has names without quotes.
"""

import math
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise, product
from pathlib import Path
from typing import NoReturn

import numpy as np

from layerdag.errors import GraphError
from layerdag.graph.attributed_graph import AttributedGraph, Condition, written_name
from layerdag.graph.formats.rows import (
    MAX_CELLS,
    GraphRows,
    ListedEdges,
    Value,
    distinct,
    is_number,
    listed_graph,
)
from layerdag.runtime.files import write_text
from layerdag.runtime.notes import Note, NoteCollector, NoteKind
from layerdag.runtime.reading import read_parsed
from layerdag.runtime.settings import shorten

MAX_EDGES = 5_000_000
"""Edges between subgraphs multiply: more than these are refused."""

MAX_DEPTH = 50
"""Subgraphs inside each other."""

_COMMENT = r"//[^\n]*|/\*.*?\*/"
_TOKEN = re.compile(
    rf"""(?P<space>(?:\s*\n[ \t]*|\A[ \t]*)\#[^\n]*|\s+|{_COMMENT})
    |(?P<quoted>"(?:[^"\\]|\\.)*")
    |(?P<word>[A-Za-z_\x80-\U0010ffff][\w\x80-\U0010ffff]*)
    |(?P<number>-?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][+-]?\d+)?)
    |(?P<mark>->|--|[{{}}\[\];,=:+])
    |(?P<markup><)""",
    re.VERBOSE | re.DOTALL,
)
_BEHIND_NUMBER = re.compile(r"[\w.\x80-\U0010ffff]+")
_START = re.compile(r"^[ \t]*(?:strict\s+)?digraph\b", re.IGNORECASE | re.MULTILINE)
_EDGE_TYPE = ("type", "deptype", "dependency")
_DASHED = ("dashed", "dotted")

Attributes = dict[str, str]
Token = tuple[str, str, int]
"""Kind, text and place of what was read."""


@dataclass
class _Scope:
    node: Attributes = field(default_factory=dict)
    edge: Attributes = field(default_factory=dict)
    members: dict[str, None] = field(default_factory=dict)


class Parser:
    """A recursive-descent parser.

    Attributes:
        nodes: Attributes of each node.
        edges: By position in ``nodes``; in a strict graph the last type of an edge is kept.
        values: Attributes of the graph.
        dropped: Number of edges with each attribute that is neither their type nor for drawing,
            and the line of the first.
    """

    def __init__(self, source: str, text: str) -> None:
        self._source, self._text = source, text
        self._rest = self._read()
        self._ahead: deque[Token] = deque()
        self._place = 0
        self._joined = self._cells = 0
        self._strict = self._has_plain_names = False
        self._subgraphs: dict[str, dict[str, None]] = {}
        self.nodes: dict[str, Attributes] = {}
        self._position_of: dict[str, int] = {}
        self.edges = ListedEdges()
        self.values: Attributes = {}
        self.dropped: dict[str, tuple[int, int]] = {}

    def parse(self) -> None:
        """Read the whole graph."""
        self._begin()
        if not self._is("{"):
            self._name("a name or {")
        self._take("{")
        self._statements(_Scope(), 0)
        if self._look(0) is not None:
            self._refuse("a second graph, or text behind the graph; keep one graph in each file")
        for attributes in (*self.nodes.values(), self.values):
            self._settle_names(attributes)

    def _begin(self) -> None:
        """Read "digraph"; GraphError if there is something else, or text before it."""
        try:
            first = found = self._name("digraph")
            if first.lower() == "strict":
                self._strict, found = True, self._name("digraph")
        except GraphError:
            self._refuse_text_before()
            raise
        if found.lower() == "digraph":
            return
        if found.lower() == "graph":
            self._refuse("begins with an undirected graph; a DAG needs 'digraph'")
        self._refuse_text_before()
        self._refuse(f"begins with '{shorten(first, 40)}'; a DAG needs 'digraph'")

    def _refuse_text_before(self) -> None:
        start = _START.search(self._text)
        if start is not None and self._text[: start.start()].strip():
            text = shorten(self._text.lstrip().partition("\n")[0], 40)
            line = self._line_of(start.start())
            self._refuse(
                f"text stands before the graph, which begins in line {line}: '{text}'; remove what "
                "is above that line",
                at=0,
            )

    def _settle_names(self, attributes: Attributes) -> None:
        """Turn quoted names into plain ones, and mark those of ``write_dot`` that look drawn."""
        for name in [name for name in attributes if name[0:1] == _QUOTED]:
            value, bare = attributes.pop(name), name[1:]
            if self._has_plain_names and (bare in _FOR_DRAWING or bare == "label"):
                attributes[f"{_QUOTED}{bare}"] = value
            else:
                attributes[bare] = value

    def _statements(self, scope: _Scope, depth: int) -> None:
        if depth > MAX_DEPTH:
            self._refuse(f"subgraphs are nested more than {MAX_DEPTH} deep")
        while not self._is("}"):
            if self._is(";") or self._is(","):
                self._step()
            else:
                self._statement(scope, depth)
        self._take("}")

    def _statement(self, scope: _Scope, depth: int) -> None:
        token, second = self._peek("a statement"), self._look(1)
        follows = second[1] if second is not None and second[0] == "mark" else ""
        word = token[1].lower() if token[0] == "word" else ""
        if word in ("graph", "node", "edge") and follows == "[":
            self._step()
            own = self.values if depth == 0 else {}
            target = {"graph": own, "node": scope.node, "edge": scope.edge}[word]
            target.update(self._attributes())
        elif token[0] != "mark" and follows == "=" and word != "subgraph":
            name = self._name("a name")
            name = f"{_QUOTED}{name}" if token[0] == "quoted" else name
            self._take("=")
            value = self._name("a value")
            if depth == 0:
                self.values[name] = value
        else:
            self._chain(scope, depth)

    def _chain(self, scope: _Scope, depth: int) -> None:
        ends = [self._end(scope, depth)]
        while self._is("->") or self._is("--"):
            if self._is("--"):
                self._refuse("'--' is an edge without direction; a DAG needs '->'")
            self._step()
            ends.append(self._end(scope, depth))
        attributes = self._attributes() if self._is("[") else {}
        if len(ends) == 1:
            for name in ends[0]:
                self.nodes[name].update(attributes)
            return
        attributes = {**scope.edge, **attributes}
        kind = _edge_type(attributes)
        joined = self._joined
        for sources, targets in pairwise(ends):
            self._joined += len(sources) * len(targets)
            if self._joined > MAX_EDGES:
                self._refuse(f"there are more than {MAX_EDGES:,} edges; split the graph")
            for source, target in product(sources, targets):
                edge = self._position_of[source], self._position_of[target]
                if self._strict:
                    self.edges.types[edge] = {kind: None}
                else:
                    self.edges.add(*edge, kind)
        for name in attributes.keys() - _OF_EDGES if attributes else ():
            count, first = self.dropped.get(name, (0, self._line_of(self._offset)))
            self.dropped[name] = count + self._joined - joined, first

    def _end(self, scope: _Scope, depth: int) -> Sequence[str]:
        token, members = self._peek("a node"), dict[str, None]()
        if token[0] == "word" and token[1].lower() == "subgraph":
            self._step()
            if not self._is("{"):
                members = self._subgraphs.setdefault(self._name("a name or {"), {})
            if not self._is("{"):
                self._refuse("a subgraph without '{'")
        if self._is("{"):
            self._step()
            inner = _Scope(dict(scope.node), dict(scope.edge), members)
            self._statements(inner, depth + 1)
            scope.members.update(inner.members)
            return list(inner.members)
        name = self._name("a node")
        while self._is(":"):  # a port, and perhaps a compass point
            self._step()
            self._name("a port")
        if name not in self.nodes:
            self._position_of[name] = len(self.nodes)
            self.nodes[name] = dict(scope.node)
            self._cells += len(scope.node)
            if self._cells > MAX_CELLS // 2:
                self._refuse(
                    f"the defaults of nodes make more than {MAX_CELLS // 2:,} attributes; give "
                    "nodes fewer attributes, or split the graph"
                )
        scope.members[name] = None
        return [name]

    def _attributes(self) -> Attributes:
        found: Attributes = {}
        while self._is("["):
            self._step()
            while not self._is("]"):
                quoted = self._peek("an attribute")[0] == "quoted"
                self._has_plain_names |= not quoted
                name = self._name("an attribute")
                if not self._is("="):
                    self._refuse(f"attribute '{shorten(name, 40)}' has no value; write name=value")
                self._step()
                found[f"{_QUOTED}{name}" if quoted else name] = self._name("a value")
                if self._is(";") or self._is(","):
                    self._step()
            self._step()
        return found

    def _name(self, wanted: str) -> str:
        kind, text, _ = self._peek(wanted)
        if kind == "mark":
            self._refuse(f"found '{text}' where {wanted} belongs")
        self._step()
        while kind == "quoted" and self._is("+"):
            self._step()
            _, more, _ = self._peek("a text")
            text += more
            self._step()
        return text

    def _take(self, mark: str) -> None:
        if not self._is(mark):
            self._refuse(f"'{mark}' is missing")
        self._step()

    def _is(self, mark: str) -> bool:
        token = self._look(0)
        return token is not None and token[:2] == ("mark", mark)

    def _look(self, ahead: int) -> Token | None:
        """Return one of the next tokens, None behind the last one."""
        if len(self._ahead) <= ahead:
            self._ahead.extend(islice(self._rest, ahead + 1 - len(self._ahead)))
        return self._ahead[ahead] if ahead < len(self._ahead) else None

    def _step(self) -> None:
        self._look(0)
        self._place = self._ahead.popleft()[2] if self._ahead else self._place

    def _peek(self, wanted: str) -> Token:
        token = self._look(0)
        if token is None:
            self._refuse(f"the file ends where {wanted} belongs; copy it again")
        return token

    @property
    def _offset(self) -> int:
        return self._ahead[0][2] if self._ahead else self._place

    def _line_of(self, offset: int) -> int:
        return self._text.count("\n", 0, offset) + 1

    def _refuse(self, what: str, at: int | None = None) -> NoReturn:
        line = self._line_of(self._offset if at is None else at)
        raise GraphError(f"{self._source}: line {line}: {what}.")

    def _read(self) -> Iterator[Token]:
        at, size = 0, len(self._text)
        while at < size:
            match = _TOKEN.match(self._text, at)
            if match is None:
                self._refuse(f"{self._text[at : at + 20]!r} is no DOT; check the file", at)
            start, at = at, match.end()
            kind = str(match.lastgroup)
            if kind == "quoted":
                text = match.group()[1:-1]
                yield kind, re.sub(r'\\(\n|"|\\)', lambda m: m.group(1).strip("\n"), text), start
            elif kind == "markup":
                at = self._end_of_markup(start)
                yield kind, self._text[start + 1 : at - 1], start
            elif kind == "number":
                more = _BEHIND_NUMBER.match(self._text, at)
                if more is not None:  # no blank between, as in "0x70" or "1.2.3"
                    self._refuse(
                        f"'{shorten(self._text[start : more.end()], 40)}' is neither a number nor "
                        "a name of DOT; put it in quotes",
                        start,
                    )
                yield "word", match.group(), start
            elif kind != "space":
                yield kind, match.group(), start

    def _end_of_markup(self, start: int) -> int:
        depth = 0
        for match in re.compile(r"[<>]").finditer(self._text, start):
            depth += 1 if match.group() == "<" else -1
            if depth == 0:
                return match.end()
        self._refuse("'<' is never closed; check the file", start)


_QUOTED = "\0"
"""Marks the quoted name of an attribute while a file is read; no file can hold it."""


def _edge_type(attributes: Mapping[str, str]) -> str:
    if any(name[0:1] == _QUOTED for name in attributes):
        attributes = {name.removeprefix(_QUOTED): value for name, value in attributes.items()}
    named = next((attributes[name] for name in _EDGE_TYPE if attributes.get(name)), None)
    if named is not None:
        return named
    dashed = any(word in attributes.get("style", "") for word in _DASHED)
    return "control" if dashed else "data"


_FOR_DRAWING = {
    *("shape", "style", "color", "fillcolor", "fontcolor", "fontname", "fontsize", "penwidth"),
    *("pos", "width", "height", "margin", "tooltip", "URL", "href", "target", "group"),
    *("peripheries", "sides", "skew", "orientation", "image", "labelloc", "labeljust", "fixedsize"),
    *("arrowhead", "arrowtail", "arrowsize", "dir", "constraint", "weight", "len", "minlen", "lp"),
    *("bb", "xlabel", "rank", "class", "comment", "layer", "z", "nojustify", "regular", "rects"),
    *("vertices", "samplepoints", "pencolor", "rankdir", "splines", "nodesep", "ranksep", "ratio"),
    *("size", "compound", "bgcolor"),
}
_DRAWN_EDGES = {
    *("headport", "tailport", "lhead", "ltail", "headclip", "tailclip", "samehead", "sametail"),
    *("headlabel", "taillabel", "head_lp", "tail_lp", "decorate", "edgetooltip", "edgehref"),
    *("edgeURL", "edgetarget", "headURL", "headhref", "headtarget", "headtooltip", "tailURL"),
    *("tailhref", "tailtarget", "tailtooltip", "labelangle", "labeldistance", "labelfloat"),
    *("labelfontcolor", "labelfontname", "labelfontsize", "labelURL", "labelhref", "labeltarget"),
    *("labeltooltip", "id", "key", "colorscheme", "showboxes", "xlp"),
}
_OF_EDGES = {
    name
    for plain in (*_FOR_DRAWING, *_DRAWN_EDGES, *_EDGE_TYPE)
    for name in (plain, f"{_QUOTED}{plain}")
}


def read_dot(path: str | Path) -> AttributedGraph:
    """Read a directed graph; the file is not trusted.

    Attributes of nodes are categories, or numbers where all values are numbers. Where no node has
    attributes, its name becomes one, unless names only number the nodes. An edge attribute "type",
    "deptype" or "dependency" gives the edge type; otherwise dashed and dotted edges are "control".

    Raises:
        GraphError: If it is not a directed graph in DOT, or has no node; names the line.
    """
    try:
        text = read_parsed(path, GraphError).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise GraphError(
            f"{path}: is no text in UTF-8 ({error.reason}); save it as such."
        ) from None
    parser = Parser(str(path), text)
    parser.parse()
    notes = NoteCollector(str(path))
    for name, (count, line) in parser.dropped.items():
        notes.add(
            NoteKind.ATTRIBUTE, name.removeprefix(_QUOTED), "of edges, which have a type alone; "
            "left out", where=f"line {line}", count=count,
        )  # fmt: skip
    nodes = {name: _row(name, attributes) for name, attributes in parser.nodes.items()}
    # Names such as "n0", "n1", ... or "-1.5" only number the nodes.
    are_numbers = all(map(is_number, nodes)) or (
        len({re.sub(r"\d+", "", name) for name in nodes}) <= 1
    )
    if not any(nodes.values()) and not are_numbers:
        nodes = {name: {"name": name} for name in nodes}
    conditions: dict[str, Condition] = {
        name.removeprefix(_QUOTED): float(value) if is_number(value) else value
        for name, value in parser.values.items()
        if name not in _FOR_DRAWING
    }
    graph = listed_graph(
        source=str(path),
        name=re.sub(r"\.(dot|gv)(\.gz|\.xz)?$", "", Path(path).name, flags=re.IGNORECASE),
        nodes=nodes, edges=parser.edges, notes=notes, conditions=conditions,
    )  # fmt: skip
    names = ("data", *(name for name in graph.edge_type_names if name != "data"))
    codes = np.array([names.index(name) for name in graph.edge_type_names], np.int64)
    return replace(graph, edge_type_names=names, edge_type_E=codes[graph.edge_type_E])


def _row(node: str, attributes: Mapping[str, str]) -> Attributes:
    r"""Return the attributes of a node that are not for drawing; ``\N`` is its name."""
    found = {
        name: value.replace("\\N", node) if name == "label" else value
        for name, value in attributes.items()
        if name not in _FOR_DRAWING and value and not (name == "label" and value == "\\N")
    }
    plain = {name: value for name, value in found.items() if name[0:1] != _QUOTED}
    return plain | {name[1:]: value for name, value in found.items() if name[0:1] == _QUOTED}


def write_dot(path: str | Path, graph: AttributedGraph | GraphRows) -> tuple[Note, ...]:
    """Write a graph that ``read_dot`` reads again, without absent numbers.

    Returns:
        A note if there is the character NUL, which DOT cannot hold and is written as U+FFFD.

    Raises:
        GraphError: If the graph contradicts itself, or a word of it is no text.
    """
    table = graph if isinstance(graph, GraphRows) else GraphRows.from_graph(graph.checked())
    text = "\n".join(_lines(table)) + "\n"
    notes = NoteCollector(str(path))
    if count := text.count("\0"):
        notes.add(NoteKind.ENCODING, r"\0", "DOT cannot hold it; written as U+FFFD", count=count)
    write_text(path, text.replace("\0", "\ufffd"))
    return notes.notes


_PLAIN_ID = re.compile("[0-9]+")
_DRAWN = 'node [shape=box, style="rounded,filled", fontname="sans-serif", fontcolor=white];'


def _lines(table: GraphRows) -> Iterator[str]:
    """Yield the lines of a file; control edges of a graph that is to be drawn are dashed."""
    yield f"digraph {_quoted(written_name(table.name))} {{"
    if table.looks:
        yield f"  {_DRAWN}"
    for name, value in table.conditions.items():
        yield f"  {_quoted(name)}={_quoted(_written(value))};"
    keys = distinct(table.ids, lambda key: key.replace("\0", "\ufffd"))
    ids = [key if _PLAIN_ID.fullmatch(key) else _quoted(key) for key in keys]
    for at, (key, row) in enumerate(zip(ids, table.rows, strict=True)):
        pairs = [f"{_quoted(name)}={_quoted(_written(value))}" for name, value in row.items()]
        looks = table.looks[at] if table.looks else {}
        pairs += [f"{name}={_quoted(text)}" for name, text in looks.items()]
        yield f"  {key} [{', '.join(pairs)}];"
    for source, target, kind in table.edges:
        dashed = ", style=dashed" if table.looks and kind != "data" else ""
        yield f"  {ids[source]} -> {ids[target]} [type={_quoted(kind)}{dashed}];"
    yield "}"


def _written(value: Value) -> str:
    """Return a value as text; whole numbers without a point."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int):
        return str(value).lower()
    whole = math.isfinite(value) and value == int(value) and abs(value) < 2**53
    return str(int(value)) if whole else repr(float(value))


def _quoted(text: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'
