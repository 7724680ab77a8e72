"""A graph from the nodes and edges that a file lists: one rule for names, loops and double edges.

A node keeps the name that the file gives it. An edge that closes a loop has no place in a DAG: it
is left out and counted as the graph-level value ``loop_edges``. Where the file marks such edges
itself, nothing more is said; any other loop is noted with the names of its nodes. Edges of several
types between two nodes become one, whose type names them all.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from layerdag.errors import GraphError
from layerdag.graph.attributed_graph import AttributedGraph, Condition
from layerdag.graph.formats.rows import columns_of
from layerdag.graph.topology import longest_path_layers
from layerdag.runtime.notes import NoteCollector, NoteKind
from layerdag.runtime.settings import shorten

LOOP_EDGES = "loop_edges"
LOOP = f"a loop, which a DAG cannot have; the edge that closes it is left out ({LOOP_EDGES})"
"""Effect of a loop that a file does not mark, in its note."""

_SHOWN_NODES = 8
_LONGEST_NAME = 30


@dataclass
class ListedEdges:
    """The edges of a file, by the positions of their ends.

    Attributes:
        types: Types of each edge.
        marked: How many the file marks as closing a loop, which are not among them.
    """

    types: dict[tuple[int, int], dict[str, None]] = field(default_factory=dict)
    marked: int = 0

    def add(self, source: int, target: int, kind: str) -> None:
        """Enter an edge."""
        self.types.setdefault((source, target), {})[kind] = None


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
    """Leave out the edges to a node that is still being visited, depth first in order of ids."""
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
