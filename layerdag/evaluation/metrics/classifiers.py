"""Can a classifier tell generated from real graphs, or their nodes?

**Graphs**: a lower bound of their Jensen-Shannon distance (PolyGraph Discrepancy, ICLR 2026). Fit a
classifier on descriptors of half the graphs; on the other half D = sqrt(max(0, 1/2 E_real log2 p +
1/2 E_gen log2 (1 - p) + 1)), with p the probability of "real" under equal priors, lies in [0, 1]
and, in expectation, below the distance. The descriptor is chosen by cross validation inside the
first half, so the choice costs nothing. The descriptors are those of the kernel metrics, and the
pairs of first attributes that edges connect: in embeddings of whole graphs, what is wrong at single
edges drowns in what differs between graphs. At least 256 graphs a side are advised: with few, the
bound is loose and falls to 0.

**Nodes**: boosted trees see a node's operator, that of its first parent, its numbers and degrees.
They are fitted on the nodes of half of the graphs of both sets and evaluated on the other half, and
the other way round. The figure is the chance that a node of a generated graph scores higher than
one of a real graph (AUROC): 0.5 is indistinguishable, 1 told apart without error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from layerdag.dag.graph_set import GraphSet
from layerdag.errors import DataError
from layerdag.evaluation.metrics.base import Comparison, Draws, Goal, Metric, SimilarityRow
from layerdag.evaluation.metrics.descriptor_metrics import edge_pairs
from layerdag.evaluation.metrics.kernels import KERNEL_METRICS
from layerdag.runtime.rng import derive_seed, numpy_generator
from layerdag.statistics import bootstrap_weights

MIN_GRAPHS = 8
MAX_PAIRS = 512
"""Pairs of first attributes with a column of their own; those of all others share one."""
FOLDS = 4
_CLIP = 1e-3


@final
@dataclass(frozen=True)
class ClassifierBound(Metric):
    """The bound on generated vs test graphs; beside it that on training vs test graphs.

    It has no ratio, since sets that are alike give 0.
    """

    def compute(self, comparison: Comparison) -> SimilarityRow:
        """Return both bounds with the bound by each descriptor alone."""
        vectors = {kernel.name: comparison.once(kernel.vectors) for kernel in KERNEL_METRICS}
        vectors["edge_bigrams"] = connected_pairs(comparison.sets)
        train, test, generated = ({name: v[i] for name, v in vectors.items()} for i in range(3))
        found = [
            classifier_bound(test, other, seed=comparison.seed, replicates=comparison.replicates)
            for other in (generated, train)
        ]
        return SimilarityRow.of_bootstraps(self, *found)


def connected_pairs(sets: Sequence[GraphSet]) -> list[np.ndarray]:
    """Return the share of each pair of first attributes among the edges of each graph.

    The pairs are the ``MAX_PAIRS`` most frequent ones of the first two sets, the real ones; the
    last column has all others, so that memory is bounded whatever samples connect.

    Returns:
        Float64 arrays of shape (B, pairs + 1), zeros for a graph without edges.
    """
    pairs = [edge_pairs(graphs) for graphs in sets]
    known, count = np.unique(np.concatenate(pairs[:2]), return_counts=True)
    known = np.sort(known[np.argsort(-count, kind="stable")[:MAX_PAIRS]])
    found = []
    for graphs, pair_E in zip(sets, pairs, strict=True):
        position_E = np.searchsorted(known, pair_E)
        is_known_E = np.isin(pair_E, known)
        column_E = np.where(is_known_E, position_E, known.size)
        flat_E = graphs.graph_E * (known.size + 1) + column_E
        count_F = np.bincount(flat_E, minlength=graphs.num_graphs * (known.size + 1))
        count_BF = count_F.reshape(graphs.num_graphs, known.size + 1)
        found.append(count_BF / np.maximum(graphs.edges_B, 1)[:, None])
    return found


def classifier_bound(
    real: Mapping[str, np.ndarray],
    other: Mapping[str, np.ndarray],
    *,
    seed: int,
    replicates: int,
) -> Draws:
    """Return the bound for two sets of graphs, given as vectors (B, F) by descriptor.

    The draws resample the second half. The breakdown has the bound by each descriptor alone; that
    of the chosen one is the bound.

    Raises:
        DataError: If a set has fewer than ``MIN_GRAPHS`` graphs.
    """
    counts = [len(next(iter(side.values()))) for side in (real, other)]
    if min(counts) < MIN_GRAPHS:
        raise DataError(
            f"The classifier needs at least {MIN_GRAPHS} graphs a side, found {min(counts)}."
        )
    rng = numpy_generator(seed, "classifier")
    orders = [rng.permutation(count) for count in counts]
    y_first = np.repeat([1, 0], [order.size // 2 for order in orders])
    losses, bits = {}, {}
    for name in real:
        sides = list(zip((real[name], other[name]), orders, strict=True))
        x_first = np.concatenate([vectors[order[: order.size // 2]] for vectors, order in sides])
        losses[name] = _cross_validated_loss(x_first, y_first, seed)
        model = _classifier().fit(x_first, y_first)
        second = [
            _probability(model, vectors[order[order.size // 2 :]]) for vectors, order in sides
        ]
        bits[name] = (np.log2(second[0]), np.log2(1 - second[1]))
    best = min(losses, key=lambda name: losses[name])
    draws = [_distance(*bits[best])]
    for _ in range(replicates):
        draws.append(_distance(*(rng.choice(side, side.size) for side in bits[best])))
    return np.array(draws), {name: _distance(*both) for name, both in bits.items()}


def _classifier() -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(
        StandardScaler(), LogisticRegression(C=0.1, class_weight="balanced", max_iter=500)
    )


def _cross_validated_loss(x_BF: np.ndarray, y_B: np.ndarray, seed: int) -> float:
    from sklearn.model_selection import StratifiedKFold

    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=derive_seed(seed, "folds") % 2**32)
    losses = []
    for fit, held in folds.split(x_BF, y_B):
        probability_B = _probability(_classifier().fit(x_BF[fit], y_B[fit]), x_BF[held])
        right_B = np.where(y_B[held] == 1, probability_B, 1 - probability_B)
        losses.append(-np.log(right_B).mean())
    return float(np.mean(losses))


def _probability(model: Any, x_BF: np.ndarray) -> np.ndarray:
    """Return the probability of "real", kept away from 0 and 1."""
    return np.clip(model.predict_proba(x_BF)[:, 1], _CLIP, 1 - _CLIP)


def _distance(bits_real: np.ndarray, bits_other: np.ndarray) -> float:
    """Return the bound from the log2 probabilities of being right."""
    return float(np.sqrt(max(0.0, (bits_real.mean() + bits_other.mean()) / 2 + 1)))


CLASSIFIER_METRIC: ClassifierBound = ClassifierBound(
    "classifier_bound",
    "lower bound of the Jensen-Shannon distance, by the best classifier",
    Goal.MINIMIZE,
    upper=1.0,
)


MIN_NODE_CLASSIFIER_GRAPHS = 4
"""Graphs of a set, at least."""
MAX_NODES = 30_000
"""Most nodes of a set that are used, drawn at random from larger ones."""
_TREES = 60


@final
@dataclass(frozen=True)
class NodeClassifier(Metric):
    """AUROC of generated vs test nodes; beside it training vs test nodes.

    It has no ratio, since sets that are alike give 0.5.
    """

    def compute(self, comparison: Comparison) -> SimilarityRow:
        """Return both AUROCs, each with a bootstrap over graphs."""
        ordered = [index for index, view in enumerate(comparison.attributes) if view.ordered]
        train, test, generated = (
            _rows(graphs, ordered, comparison.seed) for graphs in comparison.sets
        )
        found = [
            _areas(other, test, comparison.seed, comparison.replicates)
            for other in (generated, train)
        ]
        return SimilarityRow.of_bootstraps(self, (found[0], {}), (found[1], {}))


NodeRows = tuple[np.ndarray, np.ndarray]
"""Of each node, (N, F) operator, operator of the first parent (-1 for none), degrees and numbers;
and its graph."""


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
    return np.stack(columns, axis=1).astype(np.float64), graphs.graph_N


def _rows(graphs: GraphSet, ordered: Sequence[int], seed: int) -> NodeRows:
    """Return the rows of all nodes, or of ``MAX_NODES`` drawn at random."""
    features_NF, graph_N = node_rows(graphs, ordered)
    found = np.unique(graph_N).size
    if found < MIN_NODE_CLASSIFIER_GRAPHS:
        raise DataError(
            f"The classifier of nodes needs at least {MIN_NODE_CLASSIFIER_GRAPHS} graphs "
            f"of each set, found {found}."
        )
    if graphs.num_nodes <= MAX_NODES:
        return features_NF, graph_N
    # By the content of nodes and not by their place, so that the order of nodes does not matter.
    order_N = np.lexsort((*features_NF.T, graph_N))
    rng = numpy_generator(seed, "nodes of the classifier")
    kept = order_N[np.sort(rng.choice(graphs.num_nodes, MAX_NODES, replace=False))]
    return features_NF[kept], graph_N[kept]


def _areas(other: NodeRows, real: NodeRows, seed: int, replicates: int) -> np.ndarray:
    """Return the AUROC of one set of nodes against another, then its draws over graphs.

    It is the mean of two areas, one of each half of the graphs under the trees of the other half.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier

    rng = numpy_generator(seed, "node classifier")
    others, reals = _halves(other, rng), _halves(real, rng)
    area_HR = []
    for half in (0, 1):
        learned = others[1 - half][0], reals[1 - half][0]
        trees = HistGradientBoostingClassifier(
            max_iter=_TREES,
            class_weight="balanced",
            early_stopping=False,
            random_state=derive_seed(seed, "node classifier") % 2**32,
        )
        trees.fit(np.concatenate(learned), np.repeat([1, 0], [len(rows) for rows in learned]))
        tested = others[half], reals[half]
        scores = [trees.predict_proba(features_NF)[:, 1] for features_NF, _ in tested]
        area_HR.append(_area_draws(scores, [graph_N for _, graph_N in tested], rng, replicates))
    area_R: np.ndarray = np.mean(area_HR, axis=0)
    return area_R


def _halves(rows: NodeRows, rng: np.random.Generator) -> tuple[NodeRows, NodeRows]:
    features_NF, graph_N = rows
    graphs = rng.permutation(np.unique(graph_N))
    first_N = np.isin(graph_N, graphs[: graphs.size // 2])
    return (features_NF[first_N], graph_N[first_N]), (features_NF[~first_N], graph_N[~first_N])


def _area_draws(
    scores: Sequence[np.ndarray],
    graphs: Sequence[np.ndarray],
    rng: np.random.Generator,
    replicates: int,
) -> np.ndarray:
    position_N = np.unique(np.concatenate(scores), return_inverse=True)[1].ravel()
    indices = np.split(position_N, [scores[0].size])
    size = int(position_N.max()) + 1
    graph_of = [np.unique(graph_N, return_inverse=True)[1].ravel() for graph_N in graphs]
    counts = [int(graph.max()) + 1 for graph in graph_of]
    draws = [[np.ones((1, count)), bootstrap_weights(rng, replicates, count)] for count in counts]
    weights = [np.concatenate(parts) for parts in draws]
    found = []
    for other_B, real_B in zip(*weights, strict=True):
        other_S, real_S = (
            np.bincount(index, weights=weight_B[graph], minlength=size)
            for index, graph, weight_B in zip(indices, graph_of, (other_B, real_B), strict=True)
        )
        below_S = np.cumsum(real_S) - real_S / 2
        found.append(float(other_S @ below_S / (other_S.sum() * real_S.sum())))
    return np.array(found)
