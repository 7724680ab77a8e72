"""Graphs from what other tools list (rows of attributes, names, edges) and from networkx.

A node keeps the name that the file gives it. An edge that closes a loop is left out, for a DAG has
none, and counted as the graph-level value ``loop_edges``; unless the file itself marks such edges,
a note names the nodes of the loop. Edges of several types between two nodes become one, whose type
names them all.
"""

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeGuard

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
    kinds: Mapping[str, bool],
    notes: NoteCollector,
    source: str,
) -> tuple[dict[str, list[str]], dict[str, np.ndarray]]:
    """Return the attributes of all nodes as categories and numbers, with at least one category.

    "nan", "inf" and empty texts in a column of numbers are read as absent.

    Args:
        rows: Attributes of each node as text.
        kinds: Whether an attribute may be numeric, where that is known.
        notes: Receives a note for each word in a column of numbers.
        source: For messages.

    Raises:
        GraphError: If the table of all attributes is too large, or large and nearly empty.
    """
    counts = Counter(name for row in rows for name in row)
    cells, filled = len(rows) * len(counts), counts.total()
    if cells > max(MAX_CELLS, _FILLED * filled) or cells * _BYTES_OF_CELL > available_memory():
        raise GraphError(
            f"{source}: its nodes and attributes make a table of {cells:,} cells, of which "
            f"{filled:,} are filled; keep attributes that many nodes have, or split the graph."
        )
    places: dict[str, list[int]] = {name: [] for name in counts}
    columns: dict[str, list[str]] = {name: [] for name in counts}
    for at, row in enumerate(rows):
        for name, value in row.items():
            places[name].append(at)
            columns[name].append(value)
    categories: dict[str, list[str]] = {}
    numbers: dict[str, np.ndarray] = {}
    for name, values in columns.items():
        declared = kinds.get(name)
        found = None if declared is False else _numbers(name, values, notes, bool(declared))
        if found is not None:
            numbers[name] = np.full(len(rows), np.nan)
            numbers[name][places[name]] = found
        else:
            categories[name] = [""] * len(rows)
            for at, value in zip(places[name], values, strict=True):
                categories[name][at] = value
    if not categories:
        categories["kind"] = ["node"] * len(rows)
    return categories, numbers


def _numbers(
    name: str, values: Sequence[str], notes: NoteCollector, declared: bool
) -> list[float] | None:
    """Return a column as numbers, NaN for absent values; None for a column of words."""
    where = f"attribute '{name}'"
    found = [number_in(value) for value in values]
    missing = [value for value, number in zip(values, found, strict=True) if number is None]
    words = [value for value in missing if value.strip()]
    if words:
        # A single word turns all the numbers beside it into words.
        finite = sum(number is not None and math.isfinite(number) for number in found)
        if declared or 2 * finite > len(values):
            says = "as its key says" if declared else "as most are"
            effect = f"no number, {says}; the attribute is words"
            notes.add(NoteKind.NUMBER, words[0], effect, where=where, count=len(words))
        return None
    if not declared and values and len(missing) == len(values):
        return None
    wrong = Counter(
        value
        for value, number in zip(values, found, strict=True)
        if number is not None and not math.isfinite(number)
    )
    for value, count in wrong.items():
        effect = "no value; these nodes have none"
        notes.add(NoteKind.NUMBER, value, effect, where=where, count=count)
    return [math.nan if x is None or math.isinf(x) else x for x in found]


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
        rows: Attributes of each node, without those that it lacks.
        edges: Source, target and type of each edge.
        conditions: Graph-level values.
        looks: Attributes of each node for drawing; empty, or one entry per node.
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
    """Return distinct names in the characters that a file can hold; ``clean`` replaces the others.

    A name that ``clean`` does not change is kept.
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
    rows: list[dict[str, str]] = []
    kinds: dict[str, bool] = {}
    for _, values in graph.nodes(data=True):
        given = {str(key): value for key, value in values.items() if value is not None}
        rows.append({key: str(value) for key, value in given.items()})
        for key, value in given.items():
            kinds[key] = kinds.get(key, True) and _is_numeric(value)
    notes = NoteCollector(name)
    categories, numbers = columns_of(rows, kinds, notes, name)
    index_of = {node: at for at, node in enumerate(graph.nodes)}
    ids = tuple(map(str, index_of))
    edges = {
        (index_of[source], index_of[target]): next(
            (str(values[key]) for key in _EDGE_TYPE if key in values), "data"
        )
        for source, target, values in graph.edges(data=True)
    }
    itself = [source for source, target in edges if source == target]
    conditions: dict[str, Condition] = {}
    for key, value in graph.graph.items():
        if isinstance(value, str) or _is_numeric(value):
            conditions[str(key)] = value if isinstance(value, str) else float(value)
        elif value is not None:
            effect = "neither a number nor a text; left out"
            notes.add(NoteKind.ATTRIBUTE, key, effect, where="the graph")
    conditions.pop("name", None)
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

    table = GraphRows.from_graph(graph)
    target = nx.DiGraph(**{"name": graph.name, **dict(graph.conditions)})
    target.add_nodes_from(enumerate(table.rows))
    target.add_edges_from((source, to, {"type": kind}) for source, to, kind in table.edges)
    return target


def _is_numeric(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


_SHOWN_NODES = 8


@dataclass
class ListedEdges:
    """The edges of a file, by the positions of their ends.

    Attributes:
        types: Types of each edge.
        marked: Number of edges left out because the file marks them as closing a loop.
        repeated: How often each edge is given again with the same type.
    """

    types: dict[tuple[int, int], dict[str, None]] = field(default_factory=dict)
    marked: int = 0
    repeated: Counter[tuple[int, int]] = field(default_factory=Counter)

    def add(self, source: int, target: int, kind: str) -> None:
        """Add an edge, or a type to it."""
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
        nodes: Attributes of each node, by its name in the file.
        edges: In the order of the graph's edges.
        notes: Receives what is not understood.
        conditions: Graph-level values.
        kinds: Whether an attribute may be numeric, where the file says.

    Raises:
        GraphError: If there is no node, or the table of attributes is too large; names the file.
    """
    ids = list(nodes)
    categories, numbers = columns_of(list(nodes.values()), kinds or {}, notes, source)
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
