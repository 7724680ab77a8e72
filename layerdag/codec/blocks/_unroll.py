"""Copy rolled blocks as often as the condition "repeats" says.

Letters: N nodes, E edges of the unrolled graph.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from layerdag.codec import AttributedGraph
from layerdag.codec.blocks._edge_labels import BLOCK, REPEATS, EdgeLabel, Extent, own_edges
from layerdag.errors import DataError
from layerdag.graph import pointers

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
    inside_N = np.array([own_edges(label, ()) is not None for label in labels], dtype=bool)
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
    own = [own_edges(label, kinds) for label in graph.categories[BLOCK]]
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
        extent = Extent.ALL if plain else label.extent
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
    source_E, target_E, _, step_E = table_4E
    adjacency = coo_array(
        (np.ones(len(source_E), dtype=np.int8), (source_E, target_E)), shape=(num_nodes, num_nodes)
    )
    _, component_N = connected_components(adjacency, directed=True, connection="strong")
    on_cycle_E: np.ndarray = (component_N[source_E] == component_N[target_E]) & (step_E != 0)
    return on_cycle_E
