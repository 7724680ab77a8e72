"""Distances between the distributions of one-dimensional descriptors, and the table of these."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import final

import numpy as np

from layerdag.errors import DataError
from layerdag.evaluation import GraphSet
from layerdag.evaluation.metrics._base import (
    AttributeMetrics,
    Draws,
    Goal,
    Metric,
    SimilarityRow,
    metrics_for,
)
from layerdag.evaluation.metrics._comparison import AttributeView, Comparison
from layerdag.evaluation.metrics._histograms import (
    aligned_histograms,
    kolmogorov_smirnov,
    total_variation,
    wasserstein_1,
)

DEPTH_BINS = 10

Pair = tuple[np.ndarray, np.ndarray]
"""Draws of generated vs test, and of train vs test."""


@dataclass(frozen=True, eq=False)
class Items:
    """The values that one descriptor takes in a set of graphs, and the graph of each."""

    part: str
    value: np.ndarray
    graph: np.ndarray


ItemsOf = Callable[[GraphSet], Iterator[Items]]


@final
@dataclass(frozen=True, kw_only=True)
class DescriptorMetric(Metric):
    """Distance between the distributions of one descriptor, pooled over the graphs of a set.

    Attributes:
        items: Returns one or several parts; the metric is the mean over the parts.
        ordered: Wasserstein-1 if True, with Kolmogorov-Smirnov and total variation beside it; total
            variation if False.
    """

    items: ItemsOf
    ordered: bool

    def compute(self, comparison: Comparison) -> SimilarityRow:
        """Return the distance of generated and of training graphs from the test graphs."""
        columns, labels = [], []
        # One part after the other: the pairs of a dozen attributes together are many items.
        for part in zip(*(self.items(graphs) for graphs in comparison.sets), strict=True):
            columns.append(_part_distances(part, self.ordered, comparison))
            labels.append(part[0].part)
        main = "w1" if self.ordered else "tv"
        generated, reference = (_mean_over_parts(columns, labels, main, side) for side in (0, 1))
        return SimilarityRow.of_draws(self, generated, reference)


def _mean_over_parts(
    columns: Sequence[Mapping[str, Pair]], labels: Sequence[str], main: str, side: int
) -> Draws:
    """Return the mean over the parts, with the other distances and the parts as breakdown."""
    mean_R = {name: np.mean([c[name][side] for c in columns], axis=0) for name in columns[0]}
    extra = {name: float(draws_R[0]) for name, draws_R in mean_R.items() if name != main}
    if any(labels):
        extra |= {k: float(c[main][side][0]) for k, c in zip(labels, columns, strict=True)}
    return mean_R[main], extra


def _part_distances(
    part: tuple[Items, ...], ordered: bool, comparison: Comparison
) -> dict[str, Pair]:
    """Return, by distance, the draws (generated vs test, train vs test) of one part.

    Raises:
        DataError: If a set has nothing to compare, as graphs without edges have no spans.
    """
    for name, items in zip(("training", "test", "generated"), part, strict=True):
        if not items.value.size:
            raise DataError(f"The {name} graphs have nothing to count here (no nodes or edges).")
    histograms = aligned_histograms(
        [items.value for items in part],
        [items.graph for items in part],
        [graphs.num_graphs for graphs in comparison.sets],
    )
    train_RK, test_RK, generated_RK = (
        h.pooled(w) for h, w in zip(histograms, comparison.weights, strict=True)
    )
    support_K = histograms[0].support_K
    distances = {"tv": total_variation}
    if ordered:
        distances = {"w1": wasserstein_1, "ks": kolmogorov_smirnov, "tv": total_variation}
    return {
        name: (distance(generated_RK, test_RK, support_K), distance(train_RK, test_RK, support_K))
        for name, distance in distances.items()
    }


@final
@dataclass(frozen=True)
class AttributeMarginals(AttributeMetrics):
    """The distribution of each node attribute: one metric per attribute."""

    name: str = "attribute"
    description: str = "each node attribute"
    goal: Goal = Goal.MINIMIZE

    def of(self, attributes: Sequence[AttributeView]) -> tuple[Metric, ...]:
        """Return Wasserstein-1 metrics of ordered attributes, total variation of the others."""
        found = []
        for column, view in enumerate(attributes):
            name, what = f"{self.name}:{view.name}", f"node attribute '{view.name}'"
            items = _Marginal(column)
            found.append(
                _ordered(name, what, "bins", items) if view.ordered else _named(name, what, items)
            )
        return tuple(found)


@final
@dataclass(frozen=True)
class AttributePairs(AttributeMetrics):
    """Total variation of pairs of attributes of one node: one metric, if there are two or more."""

    name: str = "attribute_pairs"
    description: str = "pairs of attributes of one node, mean over the pairs"
    goal: Goal = Goal.MINIMIZE
    upper: float = 1.0

    def of(self, attributes: Sequence[AttributeView]) -> tuple[Metric, ...]:
        """Return the metric; none for a single attribute."""
        if len(attributes) < 2:
            return ()
        names = tuple(view.name for view in attributes)
        return (_named(self.name, self.description, _Pairs(names)),)


def descriptors(attributes: Sequence[AttributeView]) -> tuple[DescriptorMetric, ...]:
    """Return the default metrics that compare distributions, for graphs with these attributes."""
    found = metrics_for(DESCRIPTORS, attributes)
    return tuple(metric for metric in found if isinstance(metric, DescriptorMetric))


def _ordered(name: str, what: str, unit: str, items: ItemsOf) -> DescriptorMetric:
    """Make the metric of a descriptor whose values are numbers, compared by Wasserstein-1."""
    return DescriptorMetric(name, what, Goal.MINIMIZE, unit=unit, items=items, ordered=True)


def _named(name: str, what: str, items: ItemsOf) -> DescriptorMetric:
    """Make the metric of a descriptor whose values are names, compared by total variation."""
    return DescriptorMetric(name, what, Goal.MINIMIZE, upper=1.0, items=items, ordered=False)


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


@dataclass(frozen=True)
class _Marginal:
    """The items of one attribute; equal for equal columns, as a closure would not be."""

    column: int

    def __call__(self, graphs: GraphSet) -> Iterator[Items]:
        yield Items("", graphs.x_NA[:, self.column], graphs.graph_N)


@dataclass(frozen=True)
class _Pairs:
    """One part for each pair of attributes."""

    names: tuple[str, ...]

    def __call__(self, graphs: GraphSet) -> Iterator[Items]:
        for first, second in combinations(range(len(self.names)), 2):
            code_N = _pair_code(graphs.x_NA[:, first], graphs.x_NA[:, second])
            yield Items(f"{self.names[first]} x {self.names[second]}", code_N, graphs.graph_N)


def _pair_code(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return one integer for each pair of codes; codes are below 2**31."""
    pair: np.ndarray = (first.astype(np.int64) << 31) | second
    return pair


DESCRIPTORS: tuple[Metric | AttributeMetrics, ...] = (
    _ordered("nodes", "number of nodes of a graph", "nodes", _per_graph(_nodes)),
    _ordered("edges", "number of edges of a graph", "edges", _per_graph(_edges)),
    _ordered("layers", "number of layers of a graph (longest path)", "layers", _per_graph(_layers)),
    _ordered("mean_width", "nodes per layer, mean of a graph", "nodes", _per_graph(_mean_width)),
    _ordered("width", "nodes of a layer, over all layers", "nodes", _widths),
    _ordered("in_degree", "parents of a node", "edges", _in_degrees),
    _ordered("out_degree", "children of a node", "edges", _out_degrees),
    _ordered("edge_span", "layers that an edge descends", "layers", _spans),
    _named("depth_profile", f"share of nodes in each {DEPTH_BINS}th of the depth", _depths),
    _named("edge_types", "share of each edge type", _edge_types),
    _named("edge_bigrams", "pairs of first attribute, source to target of an edge", _bigrams),
    AttributeMarginals(),
    AttributePairs(),
)
"""What is counted of nodes, edges, layers and attributes."""
