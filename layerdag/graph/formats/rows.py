"""A graph from what other tools list: rows of attributes, names, edges; graphs of networkx.

One rule for names, loops and double edges. A node keeps the name that the file gives it. An edge
that closes a loop has no place in a DAG: it is left out and counted as the graph-level value
``loop_edges``. Where the file marks such edges itself, nothing more is said; any other loop is
noted with the names of its nodes. Edges of several types between two nodes become one, whose type
names them all. networkx, both ways, is imported when it is needed.
"""

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from layerdag.errors import GraphError
from layerdag.graph.attributed_graph import AttributedGraph, Condition, finite_conditions
from layerdag.graph.topology import longest_path_layers
from layerdag.runtime.json_shape import number_in
from layerdag.runtime.notes import NoteCollector, NoteKind
from layerdag.runtime.reading import available_memory
from layerdag.runtime.settings import shorten

if TYPE_CHECKING:
    import networkx as nx

MAX_CELLS = 20_000_000
"""Cells (nodes times attributes) of a table that is nearly empty."""

_FILLED = 20
_BYTES_OF_CELL = 16


def columns_of(
    rows: Sequence[Mapping[str, str]],
    kinds: Mapping[str, bool] | None = None,
    notes: NoteCollector | None = None,
    source: str = "the graph",
) -> tuple[dict[str, list[str]], dict[str, np.ndarray]]:
    """Return the attributes of all nodes as categories and numbers; there is at least one category.

    A column of numbers may have "nan" and "inf" among them, which are no values, and empty texts.

    Args:
        rows: Attributes of each node as text; what a node lacks is "" or NaN.
        kinds: Whether an attribute may be numeric, where that is known.
        notes: Takes what is no number where numbers stand.
        source: What is read, for messages.

    Raises:
        GraphError: If a table of so many attributes does not fit into memory.
    """
    counts: dict[str, int] = {}
    for row in rows:
        for name in row:
            counts[name] = counts.get(name, 0) + 1
    require_cells(len(rows) * len(counts), sum(counts.values()), source)
    sparse: dict[str, tuple[list[int], list[str]]] = {
        name: ([], []) for name, count in counts.items() if count < len(rows)
    }
    for at, row in enumerate(rows) if sparse else ():
        for name in row:
            if name in sparse:
                sparse[name][0].append(at)
                sparse[name][1].append(row[name])
    categories: dict[str, list[str]] = {}
    numbers: dict[str, np.ndarray] = {}
    for name in counts:
        places, values = sparse[name] if name in sparse else (None, [row[name] for row in rows])
        declared = (kinds or {}).get(name)
        found = (
            None if declared is False else _numbers(name, values, notes, declared=bool(declared))
        )
        if found is not None:
            numbers[name] = np.full(len(rows), np.nan)
            numbers[name][slice(None) if places is None else places] = found
        else:
            categories[name] = values if places is None else _spread(values, places, len(rows))
    if not categories:
        categories["kind"] = ["node"] * len(rows)
    return categories, numbers


def require_cells(cells: int, filled: int, source: str) -> None:
    """Refuse a table of nodes and attributes that is large and nearly empty, or too large.

    Raises:
        GraphError: If so.
    """
    if cells > max(MAX_CELLS, _FILLED * filled) or cells * _BYTES_OF_CELL > available_memory():
        raise GraphError(
            f"{source}: its nodes and attributes make a table of {cells:,} cells, of which "
            f"{filled:,} are filled; keep attributes that many nodes have, or split the graph."
        )


def _spread(values: Sequence[str], places: Sequence[int], size: int) -> list[str]:
    column = [""] * size
    for at, value in zip(places, values, strict=True):
        column[at] = value
    return column


def _numbers(
    name: str, values: Sequence[str], notes: NoteCollector | None, *, declared: bool
) -> np.ndarray | None:
    """Return a column as numbers, NaN for what is none; None for a column of words."""
    try:
        found = np.array([_float(value) for value in values])
    except ValueError:
        found, words = np.full(len(values), np.nan), []
        for at, value in enumerate(values):
            number = number_in(value)
            if number is not None:
                found[at] = number
            elif value.strip():
                words.append(value)
        # One word makes words of all the numbers beside it.
        mostly = 2 * int(np.isfinite(found).sum()) > len(values)
        if words and (declared or mostly) and notes is not None:
            says = "as its key says" if declared else "as most are"
            notes.add(
                NoteKind.NUMBER, words[0], f"no number, {says}; the attribute is words",
                where=f"attribute '{name}'", count=len(words),
            )  # fmt: skip
        if words:
            return None
    wrong = ~np.isfinite(found)
    empty = np.array([not value.strip() for value in values]) if wrong.any() else wrong
    if not declared and empty.all() and len(values):
        return None
    for value, count in Counter(
        values[at] for at in np.flatnonzero(wrong & ~empty).tolist()
    ).items():
        if notes is not None:
            notes.add(
                NoteKind.NUMBER, value, "no value; these nodes have none",
                where=f"attribute '{name}'", count=count,
            )  # fmt: skip
    found[wrong] = np.nan
    return found


def _float(text: str) -> float:
    number = float(text)
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return number


def is_number(text: str) -> bool:
    """Return whether a text is a finite number."""
    number = number_in(text)
    return number is not None and math.isfinite(number)


Value = str | bool | int | float


@dataclass(frozen=True, eq=False)
class GraphRows:
    """A graph as writers of other tools' formats see it.

    Attributes:
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
        """Return the rows of a graph; nodes without names are numbered from 0."""
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
            ids=graph.node_names or tuple(map(str, range(graph.num_nodes))),
            rows=rows,
            edges=[(a, b, graph.edge_type_names[kind]) for (a, b), kind in pairs],
            conditions=finite_conditions(graph),
        )


def distinct(names: Sequence[str], clean: Callable[[str], str]) -> list[str]:
    """Return names in the letters that a file can hold, distinct as they were.

    Args:
        names: All different.
        clean: Returns a name in those letters; what it leaves as it is stays so.
    """
    taken = {name for name in names if clean(name) == name}
    found = []
    for name in names:
        word = clean(name)
        while word != name and word in taken:
            word += "_"
        taken.add(word)
        found.append(word)
    return found


LOOP_EDGES = "loop_edges"
LOOP = f"a loop, which a DAG cannot have; the edge that closes it is left out ({LOOP_EDGES})"
"""Effect of a loop that nobody marks, in its note."""

_LONGEST_NAME = 30
_EDGE_TYPE = ("type", "deptype")


def is_networkx(thing: object) -> "TypeGuard[nx.Graph]":
    """Return whether something is a graph of networkx, without importing networkx."""
    networkx = sys.modules.get("networkx")
    return networkx is not None and isinstance(thing, networkx.Graph)


def from_networkx(graph: "nx.Graph", name: str = "") -> AttributedGraph:
    """Return a directed graph of networkx: texts of nodes are categories, numbers are numbers.

    Nodes keep their order. An attribute that is None is absent. An edge attribute "type" or
    "deptype" gives the edge type; attributes of the whole graph are conditions. An edge from a node
    to itself is left out and noted, as in files; a longer cycle is kept, which rules refuse.

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
    kinds = {
        key: all(_is_numeric(other[key]) for other in nodes if key in other)
        for row in nodes
        for key in row
    }
    rows = [{str(key): str(value) for key, value in row.items()} for row in nodes]
    notes = NoteCollector(name)
    categories, numbers = columns_of(
        rows, {str(key): kind for key, kind in kinds.items()}, notes, name
    )
    index_of = {node: at for at, node in enumerate(graph.nodes)}
    ids = tuple(map(str, index_of))
    edges = {
        (index_of[source], index_of[target]): next(
            (str(values[key]) for key in _EDGE_TYPE if key in values), "data"
        )
        for source, target, values in graph.edges(data=True)
    }
    itself = [source for source, target in edges if source == target]
    conditions = _conditions(graph.graph, notes)
    if itself:
        shown = shorten(ids[itself[0]], _LONGEST_NAME)
        notes.add(NoteKind.EDGE, f"{shown} -> {shown}", LOOP, count=len(itself))
        edges = {ends: kind for ends, kind in edges.items() if ends[0] != ends[1]}
        conditions = {LOOP_EDGES: float(len(itself)), **conditions}
    types = tuple(sorted({*edges.values(), "data"}))
    return AttributedGraph(
        name=name,
        categories=categories,
        numbers=numbers,
        edge_index_2E=np.array(list(edges), dtype=np.int64).reshape(-1, 2).T,
        edge_type_E=np.array([types.index(kind) for kind in edges.values()], dtype=np.int64),
        edge_type_names=types,
        conditions=conditions,
        node_names=() if ids == tuple(map(str, range(len(ids)))) or len({*ids}) < len(ids) else ids,
        notes=notes.notes,
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


def _is_numeric(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _conditions(values: dict[Any, Any], notes: NoteCollector) -> dict[str, Condition]:
    found: dict[str, Condition] = {}
    for key, value in values.items():
        if isinstance(value, str) or _is_numeric(value):
            found[str(key)] = value if isinstance(value, str) else float(value)
        elif value is not None:
            effect = "neither a number nor a text; left out"
            notes.add(NoteKind.ATTRIBUTE, key, effect, where="the graph")
    return {key: value for key, value in found.items() if key != "name"}


_SHOWN_NODES = 8


@dataclass
class ListedEdges:
    """The edges of a file, by the positions of their ends.

    Attributes:
        types: Types of each edge.
        marked: How many the file marks as closing a loop, which are not among them.
        repeated: How often each edge is given again with the same type.
    """

    types: dict[tuple[int, int], dict[str, None]] = field(default_factory=dict)
    marked: int = 0
    repeated: Counter[tuple[int, int]] = field(default_factory=Counter)

    def add(self, source: int, target: int, kind: str) -> None:
        """Enter an edge."""
        kinds = self.types.setdefault((source, target), {})
        if kind in kinds:
            self.repeated[source, target] += 1
        kinds[kind] = None


def listed_graph(
    *,
    source: str,
    name: str,
    nodes: Mapping[str, Mapping[str, str]],
    edges: ListedEdges,
    notes: NoteCollector,
    conditions: Mapping[str, Condition],
    kinds: Mapping[str, bool] | None = None,
) -> AttributedGraph:
    """Return the graph of a file.

    Args:
        source: The file, for messages.
        name: Of the graph.
        nodes: Attributes of each node, by what the file calls it.
        edges: In the order in which the graph is to have them.
        notes: What was not understood so far; takes more.
        conditions: Graph-level values.
        kinds: Whether an attribute may be numeric, where the file says.

    Raises:
        GraphError: If there is no node, or the table of attributes is too large; names the file.
    """
    ids = list(nodes)
    categories, numbers = columns_of(list(nodes.values()), kinds, notes, source)
    for (begin, end), count in edges.repeated.items():
        notes.add(
            NoteKind.EDGE, f"{ids[begin]} -> {ids[end]}", "given more than once; one is kept",
            count=count,
        )  # fmt: skip
    kept, closing = _without_loops(edges.types, ids, notes)
    left_out = closing + edges.marked
    loops: dict[str, Condition] = {LOOP_EDGES: float(left_out)} if left_out else {}
    words = {edge: "+".join(sorted(kinds_of)) for edge, kinds_of in kept.items()}
    names = tuple(sorted({*words.values(), "data"}))
    graph = AttributedGraph(
        name=name,
        categories=categories,
        numbers=numbers,
        edge_index_2E=np.array(list(words), dtype=np.int64).reshape(-1, 2).T,
        edge_type_E=np.array([names.index(word) for word in words.values()], dtype=np.int64),
        edge_type_names=names,
        conditions={**loops, **conditions},
        node_names=names_of(ids),
        notes=notes.notes,
    )
    try:
        return graph.checked()
    except GraphError as error:
        raise GraphError(f"{source}: {str(error).removeprefix(f'{name}: ')}") from None


def names_of(ids: Sequence[str]) -> tuple[str, ...]:
    """Return the names of nodes, none if they are only their numbers from 0."""
    return () if all(key == str(at) for at, key in enumerate(ids)) else tuple(ids)


def positions_of(ids: Sequence[str], source: str) -> dict[str, int]:
    """Return the position of each node by its name.

    Raises:
        GraphError: If two nodes have the same name.
    """
    found = {key: at for at, key in enumerate(ids)}
    if len(found) != len(ids):
        twice = next(key for at, key in enumerate(ids) if found[key] != at)
        raise GraphError(
            f"{source}: two nodes have the same id; make ids unique ('{shorten(twice, 80)}' stands "
            "twice)."
        )
    return found


_Types = Mapping[tuple[int, int], dict[str, None]]


def _without_loops(edges: _Types, ids: Sequence[str], notes: NoteCollector) -> tuple[_Types, int]:
    pairs_2E = np.array(list(edges), dtype=np.int64).reshape(-1, 2).T
    try:
        longest_path_layers(len(ids), pairs_2E)
    except GraphError:
        pass
    else:
        return edges, 0
    back = _closing_edges(len(ids), sorted(edges))
    first, path = next(iter(back.items()))
    shown = [shorten(ids[at], _LONGEST_NAME) for at in path[:_SHOWN_NODES]]
    shown += ["..."] if len(path) > _SHOWN_NODES else []
    notes.add(
        NoteKind.EDGE,
        " -> ".join([*shown, shorten(ids[first[1]], _LONGEST_NAME)]),
        LOOP,
        count=len(back),
    )
    return {edge: kind for edge, kind in edges.items() if edge not in back}, len(back)


def _closing_edges(
    num_nodes: int, edges: Iterable[tuple[int, int]]
) -> dict[tuple[int, int], list[int]]:
    """Return the edges that close a loop; with the first one the nodes of its loop."""
    targets: list[list[int]] = [[] for _ in range(num_nodes)]
    for source, target in edges:
        targets[source].append(target)
    state = bytearray(num_nodes)  # 0 new, 1 being visited, 2 done
    back: dict[tuple[int, int], list[int]] = {}
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
                path = [] if back else [at for at, _ in stack]
                back[node, after] = path[path.index(after) :] if path else []
            elif not state[after]:
                state[after] = 1
                stack.append((after, iter(targets[after])))
    return back
