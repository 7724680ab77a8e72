"""One-dimensional descriptors.

Distances of all pairs of vectors, block by block, so that memory does not grow with pairs.

A matrix product finds all squared distances of a block, but for the last digits: |x|^2 - 2 x y +
|y|^2 loses what cancels. Where a comparison depends on them, as for graphs that are equal, the
pairs in question are computed again by the definition.

Letters: X and Y vectors, F features.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import final

import numpy as np

from layerdag.dag.graph_set import GraphSet
from layerdag.errors import DataError
from layerdag.evaluation.metrics.base import (
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

_BLOCK = 1 << 20
"""Pairs of a block: 8 MB of distances."""
_LARGE = 100.0
_MAX_LARGE = 16
_LOST = 1e-12
"""How far a squared distance may be off, relative to itself and to squared lengths of vectors."""
_PAIRS_AT_ONCE = 1 << 15
_FEW_COLUMNS = 1024


def squared_distances(
    x_XF: np.ndarray, y_YF: np.ndarray, *, factor: float = 1.0, upper: bool = False
) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield squared Euclidean distances but for the last digits, in blocks of rows.

    Features that are large somewhere, as one is that all real graphs share and few samples have
    not, would cost the others their digits; their differences are squared one by one.

    Yields:
        First and last row of a block, and its distances, valid until the next one is asked for.
    """
    large_F = np.maximum(np.abs(x_XF).max(axis=0), np.abs(y_YF).max(axis=0)) > _LARGE
    if large_F.sum() > _MAX_LARGE:
        from scipy.spatial.distance import cdist

        for first, last in _blocks(len(x_XF), len(y_YF)):
            yield (
                first,
                last,
                factor * cdist(x_XF[first:last], y_YF[first * upper :], "sqeuclidean"),
            )
        return
    left, right = _factors(x_XF[:, ~large_F], y_YF[:, ~large_F], factor)
    room = np.empty(min(max(_BLOCK, len(y_YF)), len(x_XF) * len(y_YF)))
    for first, last in _blocks(len(x_XF), len(y_YF)):
        begin = first if upper else 0
        shape = last - first, len(y_YF) - begin
        d2_XY = room[: shape[0] * shape[1]].reshape(shape)
        np.matmul(left[first:last], right[begin:].T, out=d2_XY)
        for feature in np.flatnonzero(large_F):
            d2_XY += factor * (x_XF[first:last, feature, None] - y_YF[begin:, feature]) ** 2
        yield first, last, d2_XY


def _factors(x_XF: np.ndarray, y_YF: np.ndarray, factor: float) -> tuple[np.ndarray, np.ndarray]:
    x_X1, y_Y1 = (np.einsum("nf,nf->n", z, z)[:, None] for z in (x_XF, y_YF))
    left = np.concatenate([-2 * factor * x_XF, factor * x_X1, np.full_like(x_X1, factor)], axis=1)
    return left, np.concatenate([y_YF, np.ones_like(y_Y1), y_Y1], axis=1)


def _blocks(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    step = max(1, _BLOCK // max(columns, 1))
    for first in range(0, rows, step):
        yield first, min(first + step, rows)


def neighbor_distances(x_XF: np.ndarray, neighbor: int) -> np.ndarray:
    """Return the distance of each vector to its nearest (1), second, ... neighbor, shape (X,)."""
    lost = _lost(x_XF, x_XF)
    found = []
    for first, last, d2_XY in squared_distances(x_XF, x_XF):
        # The nearest of all is the vector itself, at distance 0. Among some of the columns the
        # neighbor is no nearer than among all.
        some_XY = d2_XY[:, :: max(1, d2_XY.shape[1] // _FEW_COLUMNS)]
        bound_X = np.partition(some_XY, neighbor, axis=1)[:, neighbor] * (1 + _LOST) + 2 * lost
        row, column = np.nonzero(d2_XY <= bound_X[:, None])
        exact = _exact(x_XF, x_XF, first + row, column)
        order = np.lexsort((exact, row))
        start_X = np.searchsorted(row, np.arange(last - first))
        found.append(exact[order][start_X + neighbor])
    return np.concatenate(found)


def within_radius(
    x_XF: np.ndarray, y_YF: np.ndarray, x_radius_X: np.ndarray, y_radius_Y: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield, for blocks of ``x`` after each other, which ``y`` lie in a ball and in whose ball.

    Yields:
        Whether each ``y`` lies in the ball of each ``x`` of the block, and the other way around.
    """
    lost = _lost(x_XF, y_YF)
    for first, last, d2_XY in squared_distances(x_XF, y_YF):
        x_block, radius_X1 = x_XF[first:last], x_radius_X[first:last, None]
        yield (
            _within(d2_XY, radius_X1, lost, x_block, y_YF),
            _within(d2_XY, y_radius_Y[None, :], lost, x_block, y_YF),
        )


def _within(
    d2_XY: np.ndarray, radius: np.ndarray, lost: float, x_XF: np.ndarray, y_YF: np.ndarray
) -> np.ndarray:
    is_within_XY = d2_XY <= radius**2 * (1 - _LOST) - lost
    row, column = np.nonzero((d2_XY <= radius**2 * (1 + _LOST) + lost) & ~is_within_XY)
    limit = np.broadcast_to(radius, d2_XY.shape)[row, column]
    is_within_XY[row, column] = _exact(x_XF, y_YF, row, column) <= limit
    return is_within_XY


def _exact(x_XF: np.ndarray, y_YF: np.ndarray, row: np.ndarray, column: np.ndarray) -> np.ndarray:
    found_P = np.empty(row.size)
    for first in range(0, row.size, _PAIRS_AT_ONCE):
        part = slice(first, first + _PAIRS_AT_ONCE)
        away_PF = x_XF[row[part]] - y_YF[column[part]]
        found_P[part] = np.sqrt(np.einsum("pf,pf->p", away_PF, away_PF))
    return found_P


def _lost(x_XF: np.ndarray, y_YF: np.ndarray) -> float:
    small = (np.clip(z, -_LARGE, _LARGE) for z in (x_XF, y_YF))
    return _LOST * max(float(np.einsum("nf,nf->n", z, z).max(initial=0)) for z in small)


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
    return DescriptorMetric(name, what, Goal.MINIMIZE, upper=1.0, items=items, ordered=False)


def _per_graph(value_of: Callable[[GraphSet], np.ndarray]) -> ItemsOf:
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
