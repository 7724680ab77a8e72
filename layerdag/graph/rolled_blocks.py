"""Roll up repeated blocks of a graph, and unroll them.

The words of rolled graphs: what edges and nodes say of the copies of a block.

Copies are counted by depth, from 0. A backward pass has its copies in falling order.

Hold repeated blocks once: find them, and say between which copies each edge runs.

Letters: N nodes, E edges, P edges of the rolled graph (one for each pair of places, type and step).

Copy rolled blocks as often as the condition "repeats" says.

Letters: N nodes, E edges of the unrolled graph.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from layerdag.errors import DataError, GraphError
from layerdag.graph.attributed_graph import AttributedGraph, size_conditions
from layerdag.graph.repeats import Run, nested_runs
from layerdag.graph.topology import longest_path_layers, pointers

BLOCK = "block"
"""Categorical attribute: whether a node is in a block, with its edges to other copies of itself."""
REPEATS = "repeats"
"""Condition: number of copies of each block."""

OUTSIDE = "outside"
INSIDE = "inside"
_REVERSED = "reversed"
_AND = " + "


class CopyOffset(Enum):
    """Between which copies the edges of one type run, where one end or both are in a block.

    The first five lie inside a copy, or between a copy and a node outside; the last two run between
    neighboring copies.
    """

    ALL = "all"
    FIRST = "first"
    LAST = "last"
    NOT_FIRST = "not first"
    NOT_LAST = "not last"
    DEEPER = "deeper"
    SHALLOWER = "shallower"

    @property
    def step(self) -> int:
        """By how many copies the target lies deeper than the source."""
        return {CopyOffset.DEEPER: 1, CopyOffset.SHALLOWER: -1}.get(self, 0)

    def depths(self, count: int) -> range:
        """Return the depths of ``count`` that have the edge: of the target, if it is in a block."""
        first, end = {
            CopyOffset.FIRST: (0, 1),
            CopyOffset.LAST: (count - 1, count),
            CopyOffset.NOT_FIRST: (1, count),
            CopyOffset.NOT_LAST: (0, count - 1),
            CopyOffset.DEEPER: (1, count),
            CopyOffset.SHALLOWER: (0, count - 1),
        }.get(self, (0, count))
        return range(first, end)


@dataclass(frozen=True)
class EdgeLabel:
    """What one edge of a rolled graph stands for.

    Attributes:
        kind: Type of the edges, as in the graph that was rolled up.
        extent: Between which copies they run.
        reversed: Whether they run from the target to the source: an edge to another copy can lead
            to a node that comes earlier in the block.
    """

    kind: str
    extent: CopyOffset = CopyOffset.ALL
    reversed: bool = False

    def __str__(self) -> str:
        """Return the word; an edge between all copies has that of its kind."""
        extent = "" if self.extent is CopyOffset.ALL else f" {self.extent.value}"
        return f"{self.kind}{extent}{f' {_REVERSED}' if self.reversed else ''}"

    @classmethod
    def all_in(cls, text: str, kinds: Sequence[str]) -> list["EdgeLabel"]:
        """Return the words that ``joined`` made one; others, and other kinds, are left out."""
        extents = {extent.value: extent for extent in CopyOffset}
        found = []
        for label in text.split(_AND):
            kind, _, rest = label.partition(" ")
            name = rest.removesuffix(_REVERSED).strip() or CopyOffset.ALL.value
            if kind in kinds and name in extents:
                found.append(cls(kind, extents[name], rest.endswith(_REVERSED)))
        return found


def copy_label(labels: Iterable[EdgeLabel]) -> str:
    """Return the type of an edge for which several words hold."""
    return _AND.join(sorted({str(label) for label in labels}))


def block_word(own_edges: Iterable[EdgeLabel]) -> str:
    """Return the word of a node in a block that has these edges to other copies of itself."""
    return _AND.join([INSIDE, *sorted({str(label) for label in own_edges})])


def self_copy_edges(label: str, kinds: Sequence[str]) -> list[EdgeLabel] | None:
    """Return the edges of a node to other copies of itself, None if it is in no block."""
    first, _, rest = label.partition(_AND)
    return EdgeLabel.all_in(rest, kinds) if first == INSIDE else None


def is_rolled(graph: AttributedGraph, kinds: Sequence[str]) -> bool:
    """Return whether a graph is a rolled one: all words of its blocks and edges are of these kinds.

    Args:
        graph: Any graph.
        kinds: Edge types of the whole graph.
    """
    if BLOCK not in graph.categories:
        return False
    edges = all(copy_label(EdgeLabel.all_in(name, kinds)) == name for name in graph.edge_type_names)
    return edges and all(
        word == OUTSIDE
        or ((own := self_copy_edges(word, kinds)) is not None and block_word(own) == word)
        for word in set(graph.categories[BLOCK])
    )


def in_copy(edge_type: str, kind: str) -> bool:
    """Return whether edges of a type are edges of ``kind`` inside a copy, among other things."""
    return any(label.extent.step == 0 for label in EdgeLabel.all_in(edge_type, (kind,)))


SMALLEST = 2  # nodes of a block
# Of the nodes, so many must lie in blocks. Where fewer do, parts of layers repeat and others not
# (in jobs of the corpus, attention is in none of the blocks), and copies would be no layers.
_LEAST_SHARE = 0.6
_SWEEPS = 3


def rolled(
    graph: AttributedGraph, measured: Collection[str] = ("duration",), *, smallest: int = SMALLEST
) -> AttributedGraph:
    """Return the graph with repeated blocks held once, as often as ``unrolled`` has to copy them.

    Blocks are runs of nodes, in the order of the graph, that agree in all attributes but measured
    ones. Of the numbers of copies with which most nodes lie in blocks, the one that saves most
    nodes is taken. Where there is none, or no words say between which copies the edges run, the
    graph has one copy. So has one with a cycle, which cannot be encoded.

    Args:
        graph: Nodes in program order; edge types without spaces.
        measured: Numeric attributes in which copies may differ; one copy keeps their mean.
        smallest: Nodes that a block must have. A single node that repeats, such as the gather of a
            layer's weights after the optimizer, is one with 1.

    Returns:
        The graph with the attribute "block" and the condition "repeats"; "num_nodes" and
        "num_layers" are those of the rolled graph.
    """
    if not _is_acyclic(graph.num_nodes, graph.edge_index_2E):
        return one_block_copy(graph)
    runs = [run for run in nested_runs(_colors(graph, measured)) if run.period >= smallest]
    best: _Rolling | None = None
    for count in sorted({run.count for run in runs}, reverse=True):
        found = _representable(graph, _apart([run for run in runs if run.count == count]), count)
        if found is None or found.num_nodes_in_blocks < _LEAST_SHARE * graph.num_nodes:
            continue
        if best is None or found.saved > best.saved:
            best = found
    return one_block_copy(graph) if best is None else best.graph(measured)


def one_block_copy(graph: AttributedGraph) -> AttributedGraph:
    """Return a graph as ``rolled`` returns one in which nothing repeats."""
    return _with_blocks(graph, [OUTSIDE] * graph.num_nodes, 1)


def _with_blocks(graph: AttributedGraph, labels: list[str], count: int) -> AttributedGraph:
    return replace(
        graph,
        categories={**graph.categories, BLOCK: labels},
        vocabularies={**graph.vocabularies, BLOCK: (OUTSIDE, INSIDE)},
        conditions={**graph.conditions, REPEATS: float(count)},
    )


def _colors(graph: AttributedGraph, measured: Collection[str]) -> np.ndarray:
    """Return a number for each node, equal where nodes may be copies."""
    numbers = [
        np.nan_to_num(value_N, nan=-1.0).tolist()
        for name, value_N in graph.numbers.items()
        if name not in measured
    ]
    known: dict[tuple[object, ...], int] = {}
    rows = zip(*graph.categories.values(), *numbers, strict=True)
    return np.array([known.setdefault(row, len(known)) for row in rows], dtype=np.int64)


def _apart(runs: Sequence[Run]) -> list[Run]:
    """Return runs that do not overlap, the longest first where they do."""
    kept: list[Run] = []
    for run in sorted(runs, key=lambda run: run.start - run.stop):
        if all(run.stop <= other.start or other.stop <= run.start for other in kept):
            kept.append(run)
    return sorted(kept, key=lambda run: run.start)


def _is_acyclic(num_nodes: int, edge_index_2E: np.ndarray) -> bool:
    try:
        longest_path_layers(num_nodes, edge_index_2E)
    except GraphError:
        return False
    return True


def _representable(graph: AttributedGraph, runs: list[Run], count: int) -> "_Rolling | None":
    while runs:
        found = _Rolling.from_runs(graph, runs, count)
        if not found.odd_P.any():
            return found if _is_acyclic(graph.num_nodes, found.in_copy_2P) else None
        positions_2P = found.place_2P[:, found.odd_P]
        inside_2P = found.run_N[positions_2P]
        odd = np.bincount(inside_2P[inside_2P >= 0], minlength=len(runs))
        worst = int(np.argmax(odd / [run.period for run in runs]))
        runs = [run for number, run in enumerate(runs) if number != worst]
    return None


@dataclass(frozen=True, eq=False)
class _Rolling:
    """A graph, its blocks, and between which copies its edges run.

    Attributes:
        whole: The graph.
        runs: Runs in order, which do not overlap.
        count: Copies of each.
        run_N: Run of each node, -1 outside.
        position_N: The node itself or, in a run, the node of the first copy that it is a copy of.
        position_2P: Positions of source and target.
        kind_P: Type of the edges.
        step_P: By how many copies the target lies deeper.
        first_P: Smallest depth that has an edge: of the target, if it is in a run.
        last_P: Largest depth.
        edges_P: Number of depths.
    """

    whole: AttributedGraph
    runs: list[Run]
    count: int
    run_N: np.ndarray
    position_N: np.ndarray
    place_2P: np.ndarray
    kind_P: np.ndarray
    step_P: np.ndarray
    first_P: np.ndarray
    last_P: np.ndarray
    edges_P: np.ndarray

    @classmethod
    def from_runs(cls, graph: AttributedGraph, runs: list[Run], count: int) -> "_Rolling":
        """Roll up with those orders of copies that leave fewest odd edges."""
        falling = [False] * len(runs)
        best = cls._ordered(graph, runs, count, falling)
        for _ in range(_SWEEPS):
            before = best
            for number in range(len(runs)):
                other = [*falling]
                other[number] = not other[number]
                found = cls._ordered(graph, runs, count, other)
                if found._cost < best._cost:
                    best, falling = found, other
            if best is before:
                break
        return best

    @classmethod
    def _ordered(
        cls, graph: AttributedGraph, runs: list[Run], count: int, falling: list[bool]
    ) -> "_Rolling":
        position_N = np.arange(graph.num_nodes)
        run_N = np.full(graph.num_nodes, -1)
        depth_N = np.zeros(graph.num_nodes, dtype=np.int64)
        for number, (run, falls) in enumerate(zip(runs, falling, strict=True)):
            rows = slice(run.start, run.stop)
            position_N[rows] = run.start + np.tile(np.arange(run.period), count)
            run_N[rows] = number
            copy = np.repeat(np.arange(count), run.period)
            depth_N[rows] = count - 1 - copy if falls else copy
        source_E, target_E = graph.edge_index_2E
        from_E, to_E = run_N[source_E] >= 0, run_N[target_E] >= 0
        step_E = np.where(from_E & to_E, depth_N[target_E] - depth_N[source_E], 0)
        depth_E = np.where(to_E, depth_N[target_E], depth_N[source_E])
        table_E4 = np.stack(
            [position_N[source_E], position_N[target_E], graph.edge_type_E, step_E], 1
        )
        table_P4, of_E, edges_P = np.unique(
            table_E4.reshape(-1, 4), axis=0, return_inverse=True, return_counts=True
        )
        first_P = np.full(len(table_P4), count)
        last_P = np.full(len(table_P4), -1)
        np.minimum.at(first_P, of_E.reshape(-1), depth_E)
        np.maximum.at(last_P, of_E.reshape(-1), depth_E)
        return cls(
            graph, runs, count, run_N, position_N, table_P4[:, :2].T, table_P4[:, 2],
            table_P4[:, 3], first_P, last_P, edges_P,
        )  # fmt: skip

    @property
    def num_nodes_in_blocks(self) -> int:
        """Nodes of the whole graph that lie in blocks."""
        return sum(run.period for run in self.runs) * self.count

    @property
    def saved(self) -> int:
        """Nodes that the rolled graph lacks."""
        return sum(run.period for run in self.runs) * (self.count - 1)

    @property
    def _cost(self) -> tuple[int, int]:
        return int(self.odd_P.sum()), len(self.kind_P)

    @property
    def odd_P(self) -> np.ndarray:
        """Whether no word says between which copies there is an edge."""
        n, lacking_one_P = self.count, self.edges_P == self.count - 1
        plain_P = (self.run_N[self.place_2P] < 0).all(axis=0)
        in_copy_P = (self.step_P == 0) & (
            (self.edges_P == n)
            | (self.edges_P == 1) & ((self.first_P == 0) | (self.last_P == n - 1))
            | lacking_one_P & ((self.first_P == 1) | (self.last_P == n - 2))
        )
        between_P = (np.abs(self.step_P) == 1) & lacking_one_P
        odd_P: np.ndarray = ~(plain_P | in_copy_P | between_P)
        return odd_P

    @property
    def in_copy_2P(self) -> np.ndarray:
        """Source and target of the edges that do not lead to another copy."""
        return self.place_2P[:, self.step_P == 0]

    def _extent(self, number: int) -> CopyOffset:
        step, edges = int(self.step_P[number]), int(self.edges_P[number])
        if step:
            return CopyOffset.DEEPER if step > 0 else CopyOffset.SHALLOWER
        if edges == self.count or (self.run_N[self.place_2P[:, number]] < 0).all():
            return CopyOffset.ALL
        if edges == 1:
            return CopyOffset.FIRST if self.first_P[number] == 0 else CopyOffset.LAST
        return CopyOffset.NOT_FIRST if self.first_P[number] == 1 else CopyOffset.NOT_LAST

    def graph(self, measured: Collection[str]) -> AttributedGraph:
        """Return the rolled graph."""
        whole = self.whole
        layer_N = longest_path_layers(whole.num_nodes, self.in_copy_2P)
        labels: dict[tuple[int, int], list[EdgeLabel]] = defaultdict(list)
        own: dict[int, list[EdgeLabel]] = defaultdict(list)
        for number, (source, target) in enumerate(self.place_2P.T.tolist()):
            label = EdgeLabel(whole.edge_type_names[self.kind_P[number]], self._extent(number))
            if source == target:
                own[source].append(label)
            elif self.step_P[number] and (layer_N[source], source) > (layer_N[target], target):
                labels[target, source].append(replace(label, reversed=True))
            else:
                labels[source, target].append(label)
        kept = np.flatnonzero(self.position_N == np.arange(whole.num_nodes))
        new_N = np.zeros(whole.num_nodes, dtype=np.int64)
        new_N[kept] = np.arange(len(kept))
        texts = [copy_label(found) for found in labels.values()]
        names = tuple(dict.fromkeys([*whole.edge_type_names, *sorted(set(texts))]))
        edges_2E = new_N[np.array([*labels], dtype=np.int64).reshape(-1, 2).T]
        blocks = [
            block_word(own[row]) if self.run_N[row] >= 0 else OUTSIDE for row in kept.tolist()
        ]
        small = replace(
            whole,
            categories={k: [v[i] for i in kept.tolist()] for k, v in whole.categories.items()},
            numbers={
                name: self._means(value_N)[kept] if name in measured else value_N[kept]
                for name, value_N in whole.numbers.items()
            },
            edge_index_2E=edges_2E,
            edge_type_E=np.array([names.index(text) for text in texts], dtype=np.int64),
            edge_type_names=names,
        )
        sizes = size_conditions(small.layer_N)
        small = replace(small, conditions={**whole.conditions, **sizes})
        return _with_blocks(small, blocks, self.count)

    def _means(self, value_N: np.ndarray) -> np.ndarray:
        """Return the mean over the copies of each place, NaN where there is no value."""
        known_N = np.isfinite(value_N)
        total_N = np.bincount(self.position_N, np.where(known_N, value_N, 0.0), len(value_N))
        count_N = np.bincount(self.position_N, known_N.astype(np.float64), len(value_N))
        with np.errstate(invalid="ignore"):
            mean_N: np.ndarray = total_N / count_N
        return mean_N


MOST_NODES = 10_000_000
"""Nodes that an unrolled graph may have."""


def repeats_of(graph: AttributedGraph) -> int:
    """Return how many copies of each block the graph's condition asks for, at least 1."""
    return max(1, round(float(graph.conditions.get(REPEATS, 1))))


def copies_of(graph: AttributedGraph) -> np.ndarray:
    """Return how many nodes each node stands for, int64 (N,): more than one in rolled blocks."""
    labels = graph.categories.get(BLOCK)
    if labels is None:
        return np.ones(graph.num_nodes, dtype=np.int64)
    inside_N = np.array([self_copy_edges(label, ()) is not None for label in labels], dtype=bool)
    return np.where(inside_N, repeats_of(graph), 1)


def unrolled(graph: AttributedGraph, kinds: tuple[str, ...]) -> AttributedGraph:
    """Return the graph with all copies of its blocks, without the attribute "block".

    Copies of a node lie side by side, in order of their depth. Any acyclic graph with such words
    can be unrolled: an edge to another copy that would close a cycle is left out, and a word that
    makes sense for blocks alone counts as a plain edge elsewhere.

    Args:
        graph: As ``rolled`` or a model made it.
        kinds: Edge types of the unrolled graph; of two edges between the same nodes the one of the
            type that comes first counts.

    Raises:
        DataError: If it would have more than ``MOST_NODES`` nodes.
    """
    count = repeats_of(graph)
    own = [self_copy_edges(label, kinds) for label in graph.categories[BLOCK]]
    inside_N = np.array([labels is not None for labels in own], dtype=bool)
    copies_N = copies_of(graph)
    ptr_N1 = pointers(copies_N)
    if ptr_N1[-1] > MOST_NODES:
        raise DataError(
            f"{graph.name}: with {count} copies of its blocks it has {int(ptr_N1[-1]):,} nodes, "
            f"more than {MOST_NODES:,}; ask for fewer repeats."
        )
    parts = [
        _copies(label, ends_2E, inside_N, ptr_N1[:-1], count, kinds.index(label.kind))
        for label, ends_2E in _edges(graph, own, kinds)
    ]
    table_4E = np.concatenate([np.zeros((4, 0), np.int64), *parts], axis=1)
    table_4E = table_4E[:, ~_closes_cycle(table_4E, int(ptr_N1[-1]))]
    table_4E = table_4E[:, np.lexsort(table_4E[[2, 0, 1]])]
    fresh_E = np.ones(table_4E.shape[1], dtype=bool)
    fresh_E[1:] = (table_4E[:2, 1:] != table_4E[:2, :-1]).any(axis=0)
    row_N = np.repeat(np.arange(graph.num_nodes), copies_N)
    return replace(
        graph,
        categories={
            name: [labels[row] for row in row_N.tolist()]
            for name, labels in graph.categories.items()
            if name != BLOCK
        },
        vocabularies={name: known for name, known in graph.vocabularies.items() if name != BLOCK},
        numbers={name: value_N[row_N] for name, value_N in graph.numbers.items()},
        edge_index_2E=table_4E[:2, fresh_E],
        edge_type_E=table_4E[2, fresh_E],
        edge_type_names=kinds,
    )


def _edges(
    graph: AttributedGraph, own: Sequence[list[EdgeLabel] | None], kinds: tuple[str, ...]
) -> Iterator[tuple[EdgeLabel, np.ndarray]]:
    """Yield each word, and source and target of the edges (2, E) that it holds for."""
    for code, name in enumerate(graph.edge_type_names):
        ends_2E = graph.edge_index_2E[:, graph.edge_type_E == code]
        for label in EdgeLabel.all_in(name, kinds):
            yield label, ends_2E
    for label in dict.fromkeys(label for labels in own for label in labels or ()):
        rows = np.array([row for row, labels in enumerate(own) if label in (labels or ())])
        yield label, np.stack([rows, rows])


def _copies(
    label: EdgeLabel, ends_2E: np.ndarray, inside_N: np.ndarray, start_N: np.ndarray, count: int,
    kind: int,
) -> np.ndarray:  # fmt: skip
    """Return the copies of edges as rows: source, target, type, and how much deeper the target is.

    Args:
        label: What the edges stand for.
        ends_2E: Source and target in the rolled graph.
        inside_N: Whether nodes are in blocks.
        start_N: First copy of each node.
        count: Copies of each node in a block.
        kind: Type of the copies.
    """
    found = []
    inside_2E = inside_N[ends_2E]
    for source_in, target_in in ((True, True), (True, False), (False, True), (False, False)):
        both = source_in and target_in
        step = label.extent.step if both else 0
        source_E, target_E = ends_2E[
            :: -1 if step and label.reversed else 1,
            (inside_2E[0] == source_in) & (inside_2E[1] == target_in),
        ]
        plain = label.extent.step != 0 and not both
        extent = CopyOffset.ALL if plain else label.extent
        depth_D = np.arange(count)[slice(extent.depths(count).start, extent.depths(count).stop)]
        if not (source_in or target_in):
            depth_D = np.zeros(1, dtype=np.int64)
        from_ED = start_N[source_E][:, None] + (depth_D - step) * source_in
        to_ED = start_N[target_E][:, None] + depth_D * target_in
        rest = np.full(from_ED.size, kind), np.full(from_ED.size, step)
        found.append(np.stack([from_ED.reshape(-1), to_ED.reshape(-1), *rest]))
    return np.concatenate(found, axis=1)


def _closes_cycle(table_4E: np.ndarray, num_nodes: int) -> np.ndarray:
    """Return which edges between copies lie on a cycle; no cycle is without such an edge."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    source_E, target_E, _, step_E = table_4E
    adjacency = coo_array(
        (np.ones(len(source_E), dtype=np.int8), (source_E, target_E)), shape=(num_nodes, num_nodes)
    )
    _, component_N = connected_components(adjacency, directed=True, connection="strong")
    on_cycle_E: np.ndarray = (component_N[source_E] == component_N[target_E]) & (step_E != 0)
    return on_cycle_E
