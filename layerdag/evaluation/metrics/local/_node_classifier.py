"""Can a classifier tell a node of a generated graph from one of a real graph?

Boosted trees see what a node says of itself and of its surroundings: its operator, that of its
first parent, its numbers, its degrees. They are fitted on the nodes of half of the graphs of both
sets and evaluated on the nodes of the other half, and the other way round, so that no graph is on
both sides. The figure is the chance that a node of a generated graph scores higher than one of a
real graph (area under the ROC curve): 0.5 is indistinguishable, 1 told apart without error.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from layerdag._runtime import derive_seed, numpy_generator
from layerdag.errors import DataError
from layerdag.evaluation import GraphSet
from layerdag.evaluation.metrics import (
    Comparison,
    Interval,
    Metric,
    MetricResult,
    SimilarityRow,
    bootstrap_weights,
)

LEAST_GRAPHS = 4
"""Graphs of a set, at least."""
MOST_NODES = 30_000
"""Nodes of a set that are looked at, drawn at random from larger ones."""
_TREES = 60


@final
@dataclass(frozen=True)
class NodeClassifier(Metric):
    """Area under the ROC curve of generated vs test nodes; beside it training vs test nodes.

    It has no ratio, since sets that are alike give 0.5.
    """

    def compute(self, comparison: Comparison) -> SimilarityRow:
        """Return both areas, each with a bootstrap over graphs.

        Raises:
            DataError: If a set has fewer than ``LEAST_GRAPHS`` graphs with nodes.
            GraphError: If there is a cycle.
        """
        ordered = [index for index, view in enumerate(comparison.attributes) if view.ordered]
        train, test, generated = (
            _rows(graphs, ordered, comparison.seed) for graphs in comparison.sets
        )
        results = []
        for other in (generated, train):
            area_R = _areas(other, test, comparison.seed, comparison.replicates)
            value = float(area_R[0])
            spread = Interval.around(value, area_R[1:], self.lower, self.upper)
            results.append(MetricResult(self, value, spread))
        return SimilarityRow(results[0], results[1], None, None)


@dataclass(frozen=True, eq=False)
class NodeRows:
    """What the classifier sees of nodes.

    Attributes:
        features_NF: Operator, operator of the first parent (-1 for none), degrees, numbers.
        graph_N: Graph of each node.
    """

    features_NF: np.ndarray
    graph_N: np.ndarray


def node_rows(graphs: GraphSet, ordered: Sequence[int]) -> NodeRows:
    """Return the row of each node.

    The first parent is the one in the latest layer, of several the one with the smallest code, so
    that the order of nodes does not matter. Numbers are bin and position, which trees order as they
    order the numbers.

    Args:
        graphs: Their first attribute is the operator.
        ordered: Columns of the attributes that are bins of numbers.

    Raises:
        GraphError: If there is a cycle.
    """
    code_N = graphs.x_NA[:, 0]
    source_E, target_E = graphs.edge_index_2E
    order_E = np.lexsort((code_N[source_E], -graphs.layer_N[source_E], target_E))
    children, first = np.unique(target_E[order_E], return_index=True)
    parent_N = np.full(graphs.num_nodes, -1)
    parent_N[children] = code_N[source_E[order_E[first]]]
    columns = [code_N, parent_N, graphs.in_degree_N, graphs.out_degree_N]
    columns += [graphs.x_NA[:, index] + graphs.u_NA[:, index] for index in ordered]
    return NodeRows(np.stack(columns, axis=1).astype(np.float64), graphs.graph_N)


def _rows(graphs: GraphSet, ordered: Sequence[int], seed: int) -> NodeRows:
    """Return the rows of all nodes, or of ``MOST_NODES`` drawn at random.

    Raises:
        DataError: If fewer than ``LEAST_GRAPHS`` graphs have nodes.
    """
    rows = node_rows(graphs, ordered)
    found = np.unique(rows.graph_N).size
    if found < LEAST_GRAPHS:
        raise DataError(
            f"The classifier of nodes needs at least {LEAST_GRAPHS} graphs of each set, "
            f"found {found}."
        )
    if graphs.num_nodes <= MOST_NODES:
        return rows
    # By the content of nodes and not by their place, so that the order of nodes does not matter.
    order_N = np.lexsort((*rows.features_NF.T, rows.graph_N))
    rng = numpy_generator(seed, "nodes of the classifier")
    kept = order_N[np.sort(rng.choice(graphs.num_nodes, MOST_NODES, replace=False))]
    return NodeRows(rows.features_NF[kept], rows.graph_N[kept])


def _areas(other: NodeRows, real: NodeRows, seed: int, replicates: int) -> np.ndarray:
    """Return the area of one set of nodes against another, then its draws over graphs.

    It is the mean of two areas, one of each half of the graphs under the trees of the other half.
    """
    rng = numpy_generator(seed, "node classifier")
    others, reals = _halves(other, rng), _halves(real, rng)
    area_HR = []
    for half in (0, 1):
        model = _fitted(others[1 - half], reals[1 - half], seed)
        tested = others[half], reals[half]
        scores = [model.predict_proba(rows.features_NF)[:, 1] for rows in tested]
        area_HR.append(_area_draws(scores, tested, rng, replicates))
    area_R: np.ndarray = np.mean(area_HR, axis=0)
    return area_R


def _halves(rows: NodeRows, rng: np.random.Generator) -> tuple[NodeRows, NodeRows]:
    """Return the rows of half of the graphs, and those of the other half."""
    graphs = rng.permutation(np.unique(rows.graph_N))
    first_N = np.isin(rows.graph_N, graphs[: graphs.size // 2])
    first, second = (
        NodeRows(rows.features_NF[chosen_N], rows.graph_N[chosen_N])
        for chosen_N in (first_N, ~first_N)
    )
    return first, second


def _fitted(other: NodeRows, real: NodeRows, seed: int) -> Any:
    """Return trees that tell the two sets apart, each weighing as much as the other."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    features_NF = np.concatenate([other.features_NF, real.features_NF])
    is_other_N = np.repeat([1, 0], [len(other.graph_N), len(real.graph_N)])
    model = HistGradientBoostingClassifier(
        max_iter=_TREES,
        class_weight="balanced",
        early_stopping=False,
        random_state=derive_seed(seed, "node classifier") % 2**32,
    )
    return model.fit(features_NF, is_other_N)


def _area_draws(
    scores: Sequence[np.ndarray],
    rows: Sequence[NodeRows],
    rng: np.random.Generator,
    replicates: int,
) -> np.ndarray:
    """Return the area, then the areas with graphs drawn anew."""
    position_N = np.unique(np.concatenate(scores), return_inverse=True)[1].ravel()
    indices = np.split(position_N, [scores[0].size])
    size = int(position_N.max()) + 1
    graph_of = [np.unique(one.graph_N, return_inverse=True)[1].ravel() for one in rows]
    counts = [int(graph.max()) + 1 for graph in graph_of]
    draws = [[np.ones((1, count)), bootstrap_weights(rng, replicates, count)] for count in counts]
    weights = [np.concatenate(parts) for parts in draws]
    found = []
    for other_B, real_B in zip(*weights, strict=True):
        other_S, real_S = (
            np.bincount(index, weights=weight_B[graph], minlength=size)
            for index, graph, weight_B in zip(indices, graph_of, (other_B, real_B), strict=True)
        )
        found.append(_area(other_S, real_S))
    return np.array(found)


def _area(other_S: np.ndarray, real_S: np.ndarray) -> float:
    """Return the chance that the score of one set is higher, by the weights at each score."""
    below_S = np.cumsum(real_S) - real_S / 2
    return float(other_S @ below_S / (other_S.sum() * real_S.sum()))
