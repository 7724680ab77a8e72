"""DOT, both ways.

DOT, the language of Graphviz, as flow graphs.

Only the graph is read: nodes, edges, their attributes and the defaults for these, in subgraphs as
well. What is for drawing alone (shape, color, position) is left out.
"""

import math
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import NoReturn

import numpy as np

from layerdag.errors import GraphError
from layerdag.graph.attributed_graph import AttributedGraph, Condition
from layerdag.graph.formats.rows import GraphRows, Value, columns_of, is_number
from layerdag.runtime.files import write_text
from layerdag.runtime.reading import read_parsed

MOST_EDGES = 5_000_000
"""Edges between subgraphs multiply: more than these are refused."""

MOST_DEPTH = 50
"""Subgraphs inside each other."""

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/|\#[^\n]*)
    |(?P<quoted>"(?:[^"\\]|\\.)*")
    |(?P<word>[A-Za-z_\x80-\U0010ffff][\w\x80-\U0010ffff]*|-?(?:\.\d+|\d+(?:\.\d*)?))
    |(?P<mark>->|--|[{}\[\];,=:+])
    |(?P<markup><)""",
    re.VERBOSE | re.DOTALL,
)
_EDGE_TYPE = ("type", "deptype", "dependency")
_DASHED = ("dashed", "dotted")

Attributes = dict[str, str]
Token = tuple[str, str, int]
"""Kind, text and place of what was read."""


@dataclass
class _Scope:
    """What a graph or subgraph declares so far."""

    node: Attributes = field(default_factory=dict)
    edge: Attributes = field(default_factory=dict)
    members: dict[str, None] = field(default_factory=dict)


class Parser:
    """Reads statements one after the other.

    Attributes:
        nodes: Attributes of each node.
        edges: Type of each edge.
        values: Attributes of the graph.
    """

    def __init__(self, source: str, text: str) -> None:
        self._source, self._text = source, text
        self._rest = self._read()
        self._ahead: deque[Token] = deque()
        self._place = 0
        self._joined = 0
        self.nodes: dict[str, Attributes] = {}
        self.edges: dict[tuple[str, str], str] = {}
        self.values: Attributes = {}

    def parse(self) -> None:
        """Read the whole graph."""
        first = self._name("digraph").lower()
        if first == "strict":
            first = self._name("digraph").lower()
        if first != "digraph":
            found = "an undirected graph" if first == "graph" else f"'{first}'"
            self._refuse(f"begins with {found}; a DAG needs 'digraph'")
        if not self._is("{"):
            self._name("a name or {")
        self._take("{")
        self._statements(_Scope(), 0)
        if self._look(0) is not None:
            self._refuse("a second graph, or text behind the graph; keep one graph in each file")

    def _statements(self, scope: _Scope, depth: int) -> None:
        """Read statements up to the closing brace."""
        if depth > MOST_DEPTH:
            self._refuse(f"subgraphs are nested more than {MOST_DEPTH} deep")
        while not self._is("}"):
            if self._is(";") or self._is(","):
                self._step()
            else:
                self._statement(scope, depth)
        self._take("}")

    def _statement(self, scope: _Scope, depth: int) -> None:
        """Read a declaration, a value of the graph, a node or a chain of edges."""
        token, second = self._peek("a statement"), self._look(1)
        follows = second[1] if second is not None and second[0] == "mark" else ""
        word = token[1].lower() if token[0] == "word" else ""
        if word in ("graph", "node", "edge") and follows == "[":
            self._step()
            target = {"graph": self.values, "node": scope.node, "edge": scope.edge}[word]
            target.update(self._attributes())
        elif token[0] != "mark" and follows == "=" and word != "subgraph":
            name = self._name("a name")
            self._take("=")
            value = self._name("a value")
            if depth == 0:
                self.values[name] = value
        else:
            self._chain(scope, depth)

    def _chain(self, scope: _Scope, depth: int) -> None:
        """Read a node, a subgraph, or edges between several of them."""
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
        kind = _edge_type({**scope.edge, **attributes})
        for sources, targets in pairwise(ends):
            self._joined += len(sources) * len(targets)
            if self._joined > MOST_EDGES:
                self._refuse(f"there are more than {MOST_EDGES:,} edges; split the graph")
            self.edges.update({(s, t): kind for s in sources for t in targets})

    def _end(self, scope: _Scope, depth: int) -> Sequence[str]:
        """Read one end of an edge: a node, or all nodes of a subgraph."""
        token = self._peek("a node")
        if token[0] == "word" and token[1].lower() == "subgraph":
            self._step()
            if not self._is("{"):
                self._name("a name or {")
            if not self._is("{"):
                self._refuse("a subgraph without '{'")
        if self._is("{"):
            self._step()
            inner = _Scope(dict(scope.node), dict(scope.edge))
            self._statements(inner, depth + 1)
            scope.members.update(inner.members)
            return list(inner.members)
        name = self._name("a node")
        while self._is(":"):  # a port, and perhaps a compass point
            self._step()
            self._name("a port")
        self.nodes.setdefault(name, dict(scope.node))
        scope.members[name] = None
        return [name]

    def _attributes(self) -> Attributes:
        """Read lists of attributes."""
        found: Attributes = {}
        while self._is("["):
            self._step()
            while not self._is("]"):
                name = self._name("an attribute")
                found[name] = "true"
                if self._is("="):
                    self._step()
                    found[name] = self._name("a value")
                if self._is(";") or self._is(","):
                    self._step()
            self._step()
        return found

    def _name(self, wanted: str) -> str:
        """Read a name, a number or a text."""
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
        """Go on to the next token."""
        self._look(0)
        self._place = self._ahead.popleft()[2] if self._ahead else self._place

    def _peek(self, wanted: str) -> Token:
        token = self._look(0)
        if token is None:
            self._refuse(f"the file ends where {wanted} belongs; copy it again")
        return token

    def _refuse(self, what: str) -> NoReturn:
        """Raise GraphError at the current token."""
        offset = self._ahead[0][2] if self._ahead else self._place
        line = self._text.count("\n", 0, offset) + 1
        raise GraphError(f"{self._source}: line {line}: {what}.")

    def _read(self) -> Iterator[Token]:
        """Yield kind, text and place of each token."""
        at, size = 0, len(self._text)
        while at < size:
            match = _TOKEN.match(self._text, at)
            if match is None:
                line = self._text.count("\n", 0, at) + 1
                raise GraphError(
                    f"{self._source}: line {line}: {self._text[at : at + 20]!r} is no DOT; check "
                    "the file."
                )
            start, at = at, match.end()
            kind = str(match.lastgroup)
            if kind == "quoted":
                yield kind, _unquoted(match.group()), start
            elif kind == "markup":
                at = self._end_of_markup(start)
                yield kind, self._text[start + 1 : at - 1], start
            elif kind != "space":
                yield kind, match.group(), start

    def _end_of_markup(self, start: int) -> int:
        """Return the place behind a label of HTML, whose brackets are balanced."""
        depth = 0
        for match in re.compile(r"[<>]").finditer(self._text, start):
            depth += 1 if match.group() == "<" else -1
            if depth == 0:
                return match.end()
        line = self._text.count("\n", 0, start) + 1
        raise GraphError(f"{self._source}: line {line}: '<' is never closed; check the file.")


def _unquoted(text: str) -> str:
    """Return a text without its quotes."""
    return re.sub(r'\\(\n|"|\\)', lambda match: match.group(1).strip("\n"), text[1:-1])


def _edge_type(attributes: Mapping[str, str]) -> str:
    """Return the type of an edge."""
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


def read_dot(path: str | Path) -> AttributedGraph:
    """Read a directed graph; the file is not trusted.

    Attributes of nodes are categories, or numbers where all values are. An edge attribute "type",
    "deptype" or "dependency" gives the edge type; else dashed and dotted edges are "control".

    Raises:
        GraphError: If it is no directed graph in DOT, or has no node; names the line.
    """
    try:
        text = read_parsed(path, GraphError).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise GraphError(
            f"{path}: is no text in UTF-8 ({error.reason}); save it as such."
        ) from None
    parser = Parser(str(path), text)
    parser.parse()
    rows = [
        {k: v for k, v in row.items() if k not in _FOR_DRAWING and v}
        for row in parser.nodes.values()
    ]
    categories, numbers = columns_of(rows)
    index_of = {name: at for at, name in enumerate(parser.nodes)}
    types = tuple(dict.fromkeys(["data", *sorted(parser.edges.values())]))
    ends = [(index_of[source], index_of[target]) for source, target in parser.edges]
    conditions: dict[str, Condition] = {
        name: float(value) if is_number(value) else value
        for name, value in parser.values.items()
        if name not in _FOR_DRAWING
    }
    return AttributedGraph(
        name=_stem(path),
        categories=categories,
        numbers=numbers,
        edge_index_2E=np.array(ends, dtype=np.int64).reshape(-1, 2).T,
        edge_type_E=np.array([types.index(kind) for kind in parser.edges.values()], np.int64),
        edge_type_names=types,
        conditions=conditions,
    ).checked()


def _stem(path: str | Path) -> str:
    """Return the name of a file without its endings."""
    return re.sub(r"\.(dot|gv)(\.gz|\.xz)?$", "", Path(path).name, flags=re.IGNORECASE)


def write_dot(path: str | Path, graph: AttributedGraph | GraphRows) -> None:
    """Write a graph that ``read_dot`` reads again; absent numbers are left out of their node."""
    table = graph if isinstance(graph, GraphRows) else GraphRows.from_graph(graph.checked())
    write_text(path, "\n".join(_lines(table)) + "\n")


_DRAWN = 'node [shape=box, style="rounded,filled", fontname="sans-serif", fontcolor=white];'


def _lines(table: GraphRows) -> Iterator[str]:
    """Yield the lines of a file; control edges of a graph that is to be drawn are dashed."""
    yield f"digraph {_quoted(table.name)} {{"
    if table.looks:
        yield f"  {_DRAWN}"
    for name, value in table.conditions.items():
        yield f"  {_quoted(name)}={_quoted(_written(value))};"
    ids = [key if key.isdecimal() else _quoted(key) for key in table.ids]
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
    """Return a text in quotes."""
    text = text.replace("\0", "")
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'
