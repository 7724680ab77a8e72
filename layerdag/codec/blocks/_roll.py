"""Hold repeated blocks once: find them, and say between which copies each edge runs.

Letters: N nodes, E edges, P edges of the rolled graph (one for each pair of places, type and step).
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from layerdag.codec import AttributedGraph, size_conditions
from layerdag.codec.blocks._edge_labels import (
    BLOCK,
    INSIDE,
    OUTSIDE,
    REPEATS,
    EdgeLabel,
    Extent,
    block_word,
    joined,
)
from layerdag.errors import GraphError
from layerdag.graph import Run, longest_path_layers, nested_runs

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
        return as_one_copy(graph)
    runs = [run for run in nested_runs(_colors(graph, measured)) if run.period >= smallest]
    best: _Rolling | None = None
    for count in sorted({run.count for run in runs}, reverse=True):
        found = _representable(graph, _apart([run for run in runs if run.count == count]), count)
        if found is None or found.num_nodes_in_blocks < _LEAST_SHARE * graph.num_nodes:
            continue
        if best is None or found.saved > best.saved:
            best = found
    return as_one_copy(graph) if best is None else best.graph(measured)


def as_one_copy(graph: AttributedGraph) -> AttributedGraph:
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
    """Return whether edges form no cycle."""
    try:
        longest_path_layers(num_nodes, edge_index_2E)
    except GraphError:
        return False
    return True


def _representable(graph: AttributedGraph, runs: list[Run], count: int) -> "_Rolling | None":
    """Return the graph with these runs rolled up, but for those whose edges no words can tell."""
    while runs:
        found = _Rolling.of(graph, runs, count)
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
    def of(cls, graph: AttributedGraph, runs: list[Run], count: int) -> "_Rolling":
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
        """How badly words fit the edges: odd ones, then the number of different ones."""
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

    def _extent(self, number: int) -> Extent:
        """Return between which copies the edges of an edge of the rolled graph run."""
        step, edges = int(self.step_P[number]), int(self.edges_P[number])
        if step:
            return Extent.DEEPER if step > 0 else Extent.SHALLOWER
        if edges == self.count or (self.run_N[self.place_2P[:, number]] < 0).all():
            return Extent.ALL
        if edges == 1:
            return Extent.FIRST if self.first_P[number] == 0 else Extent.LAST
        return Extent.NOT_FIRST if self.first_P[number] == 1 else Extent.NOT_LAST

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
        texts = [joined(found) for found in labels.values()]
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
