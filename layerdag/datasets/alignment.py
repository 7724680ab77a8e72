"""Graphs of a folder with the same attributes and edge types."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.graph.formats import program_json

# A text attribute with more words than this is a name of nodes, not a category.
MAX_WORDS = 512


def align_schemas(graphs: Sequence[AttributedGraph]) -> list[AttributedGraph]:
    """Return the graphs with the same attributes and edge types.

    An attribute that a graph lacks is absent there (NaN, or the word ""); one that is text in some
    graph is text in all; a text attribute of more than ``MAX_WORDS`` words is left out.
    """
    texts = {name for graph in graphs for name in graph.categories}
    numbers = [n for n in dict.fromkeys(n for g in graphs for n in g.numbers) if n not in texts]
    categories: dict[str, set[str]] = {
        name: {word for graph in graphs for word in words_of_attribute(graph, name)}
        for name in texts
    }
    # The first graph's order is kept: the first attribute is the kind of a node.
    order = list(dict.fromkeys(name for graph in graphs for name in graph.categories))
    order += sorted(texts - set(order))
    program = texts == set(
        program_json.ATTRIBUTES
    )  # whose words are calls: all of them, or it does not run
    kept = [name for name in order if program or len(categories[name]) <= MAX_WORDS]
    edge_types = tuple(dict.fromkeys(name for graph in graphs for name in graph.edge_type_names))
    return [_with_attributes(graph, kept, numbers, edge_types) for graph in graphs]


def _with_attributes(
    graph: AttributedGraph,
    texts: Sequence[str],
    numbers: Sequence[str],
    edge_types: tuple[str, ...],
) -> AttributedGraph:
    """Return the graph with exactly these attributes and edge types."""
    table_T = np.array([edge_types.index(name) for name in graph.edge_type_names], dtype=np.int64)
    absent_N = np.full(graph.num_nodes, np.nan)
    return replace(
        graph,
        categories={name: words_of_attribute(graph, name) for name in texts}
        or {"kind": ["node"] * graph.num_nodes},
        numbers={name: graph.numbers.get(name, absent_N) for name in numbers},
        edge_type_E=table_T[graph.edge_type_E],
        edge_type_names=edge_types,
    )


def words_of_attribute(graph: AttributedGraph, name: str) -> list[str]:
    """Return an attribute as words, "" where it is absent; numbers become words."""
    if name in graph.categories:
        return list(graph.categories[name])
    if name in graph.numbers:
        return ["" if np.isnan(v) else f"{v:g}" for v in graph.numbers[name].tolist()]
    return [""] * graph.num_nodes
