"""Distances between distributions of what nodes, edges, layers and attributes are like."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import final

import numpy as np

from layerdag.dag.graph_set import GraphSet
from layerdag.errors import DataError
from layerdag.evaluation.metrics.base import (
    PAIR_BITS,
    AttributeMetrics,
    AttributeView,
    Comparison,
    Draws,
    Goal,
    Metric,
    SimilarityRow,
    aligned_histograms,
    kolmogorov_smirnov,
    metrics_for,
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


def require_items(sets: Sequence[Items]) -> None:
    """Raise DataError if the training, the test or the generated graphs have nothing to count."""
    for name, items in zip(("training", "test", "generated"), sets, strict=True):
        if not items.value.size:
            raise DataError(f"The {name} graphs have nothing to count here (no nodes or edges).")


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
    mean_R = {name: np.mean([c[name][side] for c in columns], axis=0) for name in columns[0]}
    extra = {name: float(draws_R[0]) for name, draws_R in mean_R.items() if name != main}
    if any(labels):
        extra |= {k: float(c[main][side][0]) for k, c in zip(labels, columns, strict=True)}
    return mean_R[main], extra


def _part_distances(
    part: tuple[Items, ...], ordered: bool, comparison: Comparison
) -> dict[str, Pair]:
    """Return, by distance, the draws (generated vs test, train vs test) of one part."""
    require_items(part)
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
    return DescriptorMetric(name, what, Goal.MINIMIZE, upper=1.0, items=items, ordered=False)


def _items(
    value_of: Callable[[GraphSet], np.ndarray],
    graph_of: Callable[[GraphSet], np.ndarray] = lambda graphs: np.arange(graphs.num_graphs),
) -> ItemsOf:
    """Return a descriptor with values in one part; by default there is one of each graph."""

    def items(graphs: GraphSet) -> Iterator[Items]:
        yield Items("", value_of(graphs), graph_of(graphs))

    return items


def _of_nodes(value_of: Callable[[GraphSet], np.ndarray]) -> ItemsOf:
    return _items(value_of, lambda graphs: graphs.graph_N)


def _of_edges(value_of: Callable[[GraphSet], np.ndarray]) -> ItemsOf:
    return _items(value_of, lambda graphs: graphs.graph_E)


def _depths(graphs: GraphSet) -> np.ndarray:
    return graphs.layer_N * DEPTH_BINS // graphs.layers_B[graphs.graph_N]


def edge_pairs(graphs: GraphSet) -> np.ndarray:
    """Return one integer for each edge: the first attributes of its source and its target."""
    return _pair_code(*graphs.x_NA[:, 0][graphs.edge_index_2E])


@dataclass(frozen=True)
class _Marginal:
    """The items of one attribute; equal for equal columns, as a closure would not be."""

    column: int

    def __call__(self, graphs: GraphSet) -> Iterator[Items]:
        yield Items("", graphs.x_NA[:, self.column], graphs.graph_N)


@dataclass(frozen=True)
class _Pairs:
    names: tuple[str, ...]

    def __call__(self, graphs: GraphSet) -> Iterator[Items]:
        for first, second in combinations(range(len(self.names)), 2):
            code_N = _pair_code(graphs.x_NA[:, first], graphs.x_NA[:, second])
            yield Items(f"{self.names[first]} x {self.names[second]}", code_N, graphs.graph_N)


def _pair_code(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return one integer for each pair of codes below 2**PAIR_BITS."""
    pair: np.ndarray = (first.astype(np.int64) << PAIR_BITS) | second
    return pair


DESCRIPTORS: tuple[Metric | AttributeMetrics, ...] = (
    _ordered("nodes", "number of nodes of a graph", "nodes", _items(lambda g: g.nodes_B)),
    _ordered("edges", "number of edges of a graph", "edges", _items(lambda g: g.edges_B)),
    _ordered(
        "layers",
        "number of layers of a graph (longest path)",
        "layers",
        _items(lambda g: g.layers_B),
    ),
    _ordered(
        "mean_width",
        "nodes per layer, mean of a graph",
        "nodes",
        _items(lambda g: g.nodes_B / np.maximum(g.layers_B, 1)),
    ),
    _ordered(
        "width",
        "nodes of a layer, over all layers",
        "nodes",
        _items(lambda g: g.width_L, lambda g: g.graph_L),
    ),
    _ordered("in_degree", "parents of a node", "edges", _of_nodes(lambda g: g.in_degree_N)),
    _ordered("out_degree", "children of a node", "edges", _of_nodes(lambda g: g.out_degree_N)),
    _ordered("edge_span", "layers that an edge descends", "layers", _of_edges(lambda g: g.span_E)),
    _named(
        "depth_profile", f"share of nodes in each {DEPTH_BINS}th of the depth", _of_nodes(_depths)
    ),
    _named("edge_types", "share of each edge type", _of_edges(lambda g: g.edge_type_E)),
    _named(
        "edge_bigrams",
        "pairs of first attribute, source to target of an edge",
        _of_edges(edge_pairs),
    ),
    AttributeMarginals(),
    AttributePairs(),
)
"""What is counted of nodes, edges, layers and attributes."""
