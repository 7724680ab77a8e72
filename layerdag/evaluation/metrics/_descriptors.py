"""The table of one-dimensional descriptors of a set of DAGs that the similarity report compares."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from layerdag.evaluation import GraphSet
from layerdag.evaluation.metrics._base import Goal, Metric

DEPTH_BINS = 10


@dataclass(frozen=True)
class AttributeView:
    """How a node attribute enters the comparison.

    Attributes:
        name: Its name in the data set's schema.
        ordered: True where codes are ordered bins of a number, so that distances between codes
            mean something; False for names such as operators.
    """

    name: str
    ordered: bool = False


@dataclass(frozen=True, eq=False)
class Items:
    """The values that one descriptor takes in a set of graphs, and the graph of each."""

    part: str
    value: np.ndarray
    graph: np.ndarray


@dataclass(frozen=True)
class Descriptor:
    """A metric with the items it is computed from.

    Attributes:
        metric: Its declaration.
        items: Returns one or several parts; the metric is the mean over the parts.
        ordered: Wasserstein-1 if True, total variation if False.
    """

    metric: Metric
    items: Callable[[GraphSet], Iterator[Items]]
    ordered: bool


def descriptors(attributes: Sequence[AttributeView]) -> tuple[Descriptor, ...]:
    """Return every descriptor for graphs with the given node attributes."""
    rows = [
        _ordered("nodes", "number of nodes of a graph", "nodes", _per_graph(_nodes)),
        _ordered("edges", "number of edges of a graph", "edges", _per_graph(_edges)),
        _ordered(
            "layers", "number of layers of a graph (longest path)", "layers", _per_graph(_layers)
        ),
        _ordered(
            "mean_width", "nodes per layer, mean of a graph", "nodes", _per_graph(_mean_width)
        ),
        _ordered("width", "nodes of a layer, over all layers", "nodes", _widths),
        _ordered("in_degree", "parents of a node", "edges", _in_degrees),
        _ordered("out_degree", "children of a node", "edges", _out_degrees),
        _ordered("edge_span", "layers that an edge descends", "layers", _spans),
        _named("depth_profile", f"share of nodes in each {DEPTH_BINS}th of the depth", _depths),
        _named("edge_types", "share of each edge type", _edge_types),
        _named("edge_bigrams", "pairs of first attribute, source to target of an edge", _bigrams),
    ]
    for column, view in enumerate(attributes):
        what = f"node attribute '{view.name}'"
        if view.ordered:
            rows.append(_ordered(f"attribute:{view.name}", what, "bins", _marginal(column)))
        else:
            rows.append(_named(f"attribute:{view.name}", what, _marginal(column)))
    if len(attributes) > 1:
        what = "pairs of attributes of one node, mean over the pairs"
        names = tuple(view.name for view in attributes)
        rows.append(_named("attribute_pairs", what, _pairs(names)))
    return tuple(rows)


ItemsOf = Callable[[GraphSet], Iterator[Items]]


def _ordered(name: str, what: str, unit: str, items: ItemsOf) -> Descriptor:
    """Declare a descriptor whose values are numbers, compared by Wasserstein-1."""
    return Descriptor(Metric(name, what, Goal.LOWER, unit=unit), items, ordered=True)


def _named(name: str, what: str, items: ItemsOf) -> Descriptor:
    """Declare a descriptor whose values are names, compared by total variation."""
    return Descriptor(Metric(name, what, Goal.LOWER, upper=1.0), items, ordered=False)


def _per_graph(value_of: Callable[[GraphSet], np.ndarray]) -> ItemsOf:
    """Make the items of a descriptor with one value per graph."""

    def items(graphs: GraphSet) -> Iterator[Items]:
        yield Items("", value_of(graphs), np.arange(graphs.num_graphs))

    return items


def _nodes(graphs: GraphSet) -> np.ndarray:
    return graphs.nodes_B


def _edges(graphs: GraphSet) -> np.ndarray:
    return graphs.edges_B


def _layers(graphs: GraphSet) -> np.ndarray:
    return graphs.layers_B


def _mean_width(graphs: GraphSet) -> np.ndarray:
    return graphs.nodes_B / np.maximum(graphs.layers_B, 1)


def _widths(graphs: GraphSet) -> Iterator[Items]:
    yield Items("", graphs.width_L, graphs.graph_L)


def _in_degrees(graphs: GraphSet) -> Iterator[Items]:
    yield Items("", graphs.in_degree_N, graphs.graph_N)


def _out_degrees(graphs: GraphSet) -> Iterator[Items]:
    yield Items("", graphs.out_degree_N, graphs.graph_N)


def _spans(graphs: GraphSet) -> Iterator[Items]:
    yield Items("", graphs.span_E, graphs.graph_E)


def _depths(graphs: GraphSet) -> Iterator[Items]:
    layers_N = graphs.layers_B[graphs.graph_N]
    yield Items("", graphs.layer_N * DEPTH_BINS // layers_N, graphs.graph_N)


def _edge_types(graphs: GraphSet) -> Iterator[Items]:
    yield Items("", graphs.edge_type_E, graphs.graph_E)


def _bigrams(graphs: GraphSet) -> Iterator[Items]:
    source_E, target_E = graphs.x_NA[:, 0][graphs.edge_index_2E]
    yield Items("", _pair_code(source_E, target_E), graphs.graph_E)


def _marginal(column: int) -> ItemsOf:
    """Make the items of one attribute."""

    def items(graphs: GraphSet) -> Iterator[Items]:
        yield Items("", graphs.x_NA[:, column], graphs.graph_N)

    return items


def _pairs(names: Sequence[str]) -> ItemsOf:
    """Make one part for each pair of attributes."""

    def items(graphs: GraphSet) -> Iterator[Items]:
        for first, second in combinations(range(len(names)), 2):
            code_N = _pair_code(graphs.x_NA[:, first], graphs.x_NA[:, second])
            yield Items(f"{names[first]} x {names[second]}", code_N, graphs.graph_N)

    return items


def _pair_code(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return one integer for each pair of codes; codes are below 2**31."""
    return (first << 31) | second
