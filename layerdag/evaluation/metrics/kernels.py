"""Distances of whole graphs: maximum mean discrepancy (MMD), and precision and recall of manifolds.

**Embeddings** by an untrained graph network, which see structure and attributes at once (Thompson
et al., ICLR 2022): 3 rounds of width 35 with fixed random orthogonal weights, summed over nodes
after each round and concatenated. Parents and children are summed apart, so that edge direction
enters, and every attribute has its own random embedding. Unlike in the paper, node sums are divided
by the root of the node count: traces differ in size a hundredfold.

**Manifolds.** Balls around graphs reach to their k-th nearest neighbor in the same set. Precision
and recall after Kynkaanniemi et al. (NeurIPS 2019), density and coverage after Naeem et al. (ICML
2020), on the embeddings with k = 5.

**MMD**^2 = E k(x, x') - 2 E k(x, y) + E k(y, y') with k(a, b) = exp(-|a - b|^2 / (2 s^2)) (Gretton
et al., JMLR 13, 2012). The Gaussian kernel over total variation or EMD that graph papers often use
is not positive definite (O'Bray et al., ICLR 2022), so descriptors are vectors under the Euclidean
distance. The bandwidth s is the median distance between real training and real test graphs
(``MAX_FOR_BANDWIDTH`` of each at most), the same for both comparisons, and is reported.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from layerdag.dag.graph_set import GraphSet
from layerdag.errors import DataError
from layerdag.evaluation.metrics.base import (
    Comparison,
    Draws,
    Goal,
    Metric,
    SimilarityRow,
    aligned_histograms,
)
from layerdag.runtime.rng import numpy_generator

ROUNDS = 3
WIDTH = 35
_NODES_AT_ONCE = 1 << 13
_PAIRS_AT_ONCE = 1 << 20
_LARGE = 100.0
_LOST = 1e-12
"""Error of a squared distance, relative to itself and to squared lengths of vectors, at most."""
_MANY_GRAPHS = 4096


def random_embeddings(
    sets: tuple[GraphSet, ...] | list[GraphSet], seed: int = 0
) -> list[np.ndarray]:
    """Return one embedding a graph for each set, shape (B, (ROUNDS + 1) * WIDTH + 2).

    All sets share the random weights and are standardized by the first two (the real ones). The
    last two columns are the logarithms of node and edge count.
    """
    codes = 1 + max(int(graphs.x_NA.max(initial=0)) for graphs in sets)
    rng = numpy_generator(seed, "embedding")
    tables = [rng.standard_normal((codes, WIDTH)) for _ in range(sets[0].num_attributes)]
    mixers = [
        [np.linalg.qr(rng.standard_normal((WIDTH, WIDTH)))[0] for _ in range(4)]
        for _ in range(ROUNDS)
    ]
    raw = [
        np.concatenate([_embed(part, tables, mixers) for part in graphs.parts(_NODES_AT_ONCE)])
        for graphs in sets
    ]
    real = np.concatenate(raw[:2])
    scale = np.maximum(real.std(axis=0), 1e-6)
    return [(one - real.mean(axis=0)) / scale / np.sqrt(real.shape[1]) for one in raw]


def embeddings(comparison: Comparison) -> list[np.ndarray]:
    """Return the embeddings of training, test and generated graphs."""
    return random_embeddings(comparison.sets)


def _embed(
    graphs: GraphSet, tables: list[np.ndarray], mixers: list[list[np.ndarray]]
) -> np.ndarray:
    h_NF = np.zeros((graphs.num_nodes, WIDTH))
    for column, table in enumerate(tables):
        h_NF += table[graphs.x_NA[:, column]]
    h_NF /= np.sqrt(max(len(tables), 1))
    over_parents, over_children = _sums(graphs)
    readouts = [_pool(graphs, h_NF)]
    for own, parents, children, out in mixers:
        mixed_NF = h_NF @ own
        mixed_NF += over_parents @ (h_NF @ parents)
        mixed_NF += over_children @ (h_NF @ children)
        h_NF = np.maximum(np.maximum(mixed_NF, 0) @ out, 0)
        # Without training nothing keeps the scale: fix it by the root mean square of the node.
        h_NF /= np.sqrt(np.mean(h_NF**2, axis=1, keepdims=True) + 1e-6)
        readouts.append(_pool(graphs, h_NF))
    sizes = np.log1p(np.stack([graphs.nodes_B, graphs.edges_B], axis=1))
    return np.concatenate([*readouts, sizes], axis=1)


def _sums(graphs: GraphSet) -> tuple[Any, Any]:
    from scipy.sparse import csr_array

    source_E, target_E = graphs.edge_index_2E
    shape = (graphs.num_nodes, graphs.num_nodes)
    ones_E = np.ones(source_E.size)
    return (
        csr_array((ones_E, (target_E, source_E)), shape=shape),
        csr_array((ones_E, (source_E, target_E)), shape=shape),
    )


def _pool(graphs: GraphSet, h_NF: np.ndarray) -> np.ndarray:
    running = np.concatenate([np.zeros((1, WIDTH)), np.cumsum(h_NF, axis=0)])
    total_BF = np.diff(running[graphs.node_ptr], axis=0)
    return total_BF / np.sqrt(np.maximum(graphs.nodes_B, 1))[:, None]


NEIGHBORS = 5
SUBSETS = 10
"""Number of random training subsets, as many graphs as were generated, behind the reference."""

Scores = Mapping[str, float]


@final
@dataclass(frozen=True)
class ManifoldMetric(Metric):
    """One of the four scores of ``manifold_scores``, by its name.

    Higher is better and all depend on the number of graphs, so that the reference is the mean of as
    many training graphs as were generated, and there is no ratio.
    """

    def compute(self, comparison: Comparison) -> SimilarityRow:
        """Return the score of generated graphs and that of training graphs."""
        found, real = comparison.once(_all_scores)
        return SimilarityRow.of_values(
            self, found[self.name], float(np.mean([scores[self.name] for scores in real]))
        )


def manifold_scores(real_BF: np.ndarray, other_BF: np.ndarray) -> dict[str, float]:
    """Return precision, recall, density and coverage of ``other`` with respect to ``real``.

    Raises:
        DataError: If a set has no more graphs than ``NEIGHBORS``.
    """
    return _scores(real_BF, other_BF, _radius(real_BF))


def _scores(real_BF: np.ndarray, other_BF: np.ndarray, radius_B: np.ndarray) -> dict[str, float]:
    around_B = np.zeros(len(other_BF), dtype=np.int64)
    is_covered, is_recalled = [], []
    for in_real_ball_BB, in_other_ball_BB in _in_balls(
        real_BF, other_BF, radius_B, _radius(other_BF)
    ):
        around_B += in_real_ball_BB.sum(axis=0)
        is_covered.append(in_real_ball_BB.any(axis=1))
        is_recalled.append(in_other_ball_BB.any(axis=1))
    return {
        "precision": float((around_B > 0).mean()),
        "recall": float(np.concatenate(is_recalled).mean()),
        "density": float(around_B.mean() / NEIGHBORS),
        "coverage": float(np.concatenate(is_covered).mean()),
    }


def _in_balls(
    x_BF: np.ndarray, y_BF: np.ndarray, x_radius_B: np.ndarray, y_radius_B: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield for some ``x`` after others which ``y`` are in their balls, and in whose they are.

    Matrix products are off in the last digits. Rows where these decide, as between equal graphs,
    are computed again by the definition.
    """
    from scipy.spatial.distance import cdist

    lost = _LOST * max(float(np.einsum("bf,bf->b", z, z).max()) for z in (x_BF, y_BF))
    for rows, d2_BB in _squared_distances(x_BF, y_BF):
        radius_B1 = x_radius_B[rows, None]
        inside, is_close_b = [], np.zeros(len(d2_BB), dtype=bool)
        for radius in (radius_B1, y_radius_B):
            inside.append(d2_BB <= radius**2)
            is_close_b |= (np.abs(d2_BB - radius**2) <= lost + _LOST * radius**2).any(axis=1)
        distance_bB = cdist(x_BF[rows][is_close_b], y_BF)
        inside[0][is_close_b] = distance_bB <= radius_B1[is_close_b]
        inside[1][is_close_b] = distance_bB <= y_radius_B
        yield inside[0], inside[1]


def _blocks(rows: int, columns: int) -> Iterator[slice]:
    step = max(1, _PAIRS_AT_ONCE // max(columns, 1))
    return (slice(first, first + step) for first in range(0, rows, step))


def _radius(x_BF: np.ndarray) -> np.ndarray:
    """Return the distance of each graph to its k-th nearest neighbor, shape (B,)."""
    if len(x_BF) <= NEIGHBORS:
        raise DataError(f"Balls of {NEIGHBORS} neighbors need more graphs than {len(x_BF)}.")
    from scipy.spatial.distance import cdist

    found = []
    for rows, d2_BB in _squared_distances(x_BF, x_BF):
        # The nearest of all is the graph itself.
        near_BK = np.argpartition(d2_BB, NEIGHBORS, axis=1)[:, : NEIGHBORS + 1]
        for x_F, near_K in zip(x_BF[rows], near_BK, strict=True):
            found.append(cdist(x_F[None], x_BF[near_K]).max())
    return np.array(found)


def _all_scores(comparison: Comparison) -> tuple[Scores, list[Scores]]:
    train, test, generated = comparison.once(embeddings)
    rng = numpy_generator(comparison.seed, "manifold")
    size = min(len(train), len(generated))
    radius = _radius(test)
    found = _scores(test, generated, radius)
    # All subsets of as many graphs as there are are the same.
    subsets = [
        rng.permutation(len(train))[:size] for _ in range(SUBSETS if size < len(train) else 1)
    ]
    return found, [_scores(test, train[rows], radius) for rows in subsets]


def _metric(name: str, what: str, upper: float = math.inf) -> ManifoldMetric:
    return ManifoldMetric(name, what, Goal.MAXIMIZE, upper=upper)


MANIFOLD_METRICS = (
    _metric("precision", "share of samples inside the real manifold", upper=1.0),
    _metric("recall", "share of real graphs inside the manifold of samples", upper=1.0),
    _metric("density", "real balls around a sample, relative to k"),
    _metric("coverage", "share of real graphs with a sample in their ball", upper=1.0),
)


MAX_FOR_BANDWIDTH = 2048
"""Graphs of each set behind the bandwidth, at equal steps."""

VectorsOf = Callable[[Comparison], list[np.ndarray]]


@final
@dataclass(frozen=True, kw_only=True)
class KernelMetric(Metric):
    """The maximum mean discrepancy of whole-graph vectors.

    Attributes:
        vectors: Returns one vector per graph for each of the three sets, shape (B, F).
    """

    vectors: VectorsOf

    def compute(self, comparison: Comparison) -> SimilarityRow:
        """Return MMD^2 of generated vs test, and of train vs test."""
        vectors = comparison.once(self.vectors)
        return SimilarityRow.of_draws(self, *discrepancies(vectors, comparison.weights))


def discrepancies(
    vectors: Sequence[np.ndarray], weights: Sequence[np.ndarray]
) -> tuple[Draws, Draws]:
    """Return MMD^2 of generated and of training vs test graphs, under each row of weights.

    These estimates are biased and never negative. The breakdown has the bandwidth and the unbiased
    estimate of all graphs, which is around 0, also below, for equal distributions.

    Args:
        vectors: Training, test and generated graphs, (B, F) each.
        weights: Their weights, (R, B) each.

    Raises:
        DataError: If all real graphs have the same descriptor, so that no bandwidth exists.
    """
    bandwidth = _bandwidth(vectors[0], vectors[1])
    scaled = [one / bandwidth for one in vectors]
    fractions = [w / w.sum(axis=1, keepdims=True) for w in weights]

    def means(one: int, other: int) -> tuple[np.ndarray, float]:
        """Return weighted means of the kernel over pairs, and over all pairs of two graphs."""
        mean_R, total = _kernel_sums(scaled[one], scaled[other], fractions[one], fractions[other])
        sizes = len(scaled[one]), len(scaled[other])
        if one == other:  # without each graph beside itself
            return mean_R, (total - sizes[0]) / max(sizes[0] * (sizes[0] - 1), 1)
        return mean_R, total / (sizes[0] * sizes[1])

    test_R, test = means(1, 1)
    found = []
    for side in (2, 0):
        (own_R, own), (mixed_R, mixed) = means(side, side), means(side, 1)
        extra = {"bandwidth": bandwidth, "unbiased": own - 2 * mixed + test}
        found.append((np.maximum(own_R - 2 * mixed_R + test_R, 0), extra))
    return found[0], found[1]


def _bandwidth(train_BF: np.ndarray, test_BF: np.ndarray) -> float:
    """Return the median distance of training to test graphs, or the mean where that is 0.

    Of larger sets, ``MAX_FOR_BANDWIDTH`` graphs are taken at equal steps.
    """
    from scipy.spatial.distance import cdist

    distances = cdist(_at_equal_steps(train_BF), _at_equal_steps(test_BF))
    bandwidth = float(np.median(distances)) or float(np.mean(distances))
    if not bandwidth > 0:
        raise DataError(
            "All real graphs have the same descriptor; there is no scale to compare on."
        )
    return bandwidth


def _at_equal_steps(x_BF: np.ndarray) -> np.ndarray:
    count = min(len(x_BF), MAX_FOR_BANDWIDTH)
    few_BF: np.ndarray = x_BF[np.linspace(0, len(x_BF) - 1, count).astype(np.int64)]
    return few_BF


def _kernel_sums(
    x_BF: np.ndarray, y_BF: np.ndarray, x_RB: np.ndarray, y_RB: np.ndarray
) -> tuple[np.ndarray, float]:
    """Return sums of exp(-|x - y|^2 / 2) over all pairs, under each row of weights and plain."""
    total_R, total = np.zeros(len(x_RB)), 0.0
    # Of many graphs the resamples, all but the first row, in single precision: a mean is then off
    # by 1e-8, its spread is 1e-5 and more.
    exact = len(y_RB) if len(y_BF) < _MANY_GRAPHS else 1
    exact_BR = np.ascontiguousarray(y_RB[:exact].T)
    single_BR = y_RB[exact:].T.astype(np.float32)
    for rows, k_BB in _squared_distances(x_BF, y_BF, upper=x_BF is y_BF):
        first = y_RB.shape[1] - k_BB.shape[1]
        k_BB *= -0.5
        np.exp(k_BB, out=k_BB)
        if x_BF is y_BF:  # symmetric: the columns before are those of rows before
            k_BB[:, len(k_BB) :] *= 2
        parts = [k_BB @ exact_BR[first:], k_BB.astype(np.float32) @ single_BR[first:]]
        total_R += np.einsum("br,rb->r", np.concatenate(parts, axis=1), x_RB[:, rows])
        total += float(k_BB.sum())
    return total_R, total


def _squared_distances(
    x_BF: np.ndarray, y_BF: np.ndarray, *, upper: bool = False
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield some rows after others, and their squared Euclidean distances but for the last digits.

    ``upper`` leaves out the columns before the first of these rows.

    Features that are large somewhere, as one is that all real graphs share and few samples lack,
    would cost the others their digits in |x|^2 - 2 x y + |y|^2: they are compared apart.
    """
    from scipy.spatial.distance import cdist

    large_F = np.maximum(np.abs(x_BF).max(axis=0), np.abs(y_BF).max(axis=0)) > _LARGE
    x_large_BF, y_large_BF = x_BF[:, large_F], y_BF[:, large_F]
    x_BF, y_BF = x_BF[:, ~large_F], y_BF[:, ~large_F]
    x_B1, y_B1 = (np.einsum("bf,bf->b", z, z)[:, None] for z in (x_BF, y_BF))
    left_BF = np.concatenate([-2 * x_BF, x_B1, np.ones_like(x_B1)], axis=1)
    right_BF = np.concatenate([y_BF, np.ones_like(y_B1), y_B1], axis=1)
    for rows in _blocks(len(x_BF), len(y_BF)):
        first = rows.start if upper else 0
        d2_BB = left_BF[rows] @ right_BF[first:].T
        if large_F.any():
            d2_BB += cdist(x_large_BF[rows], y_large_BF[first:], "sqeuclidean")
        yield rows, d2_BB


def _sizes(comparison: Comparison) -> list[np.ndarray]:
    """Return log counts, density and shape of each graph, standardized by the real graphs."""
    raw = [
        np.stack(
            [
                np.log1p(g.nodes_B),
                np.log1p(g.edges_B),
                np.log1p(g.layers_B),
                g.edges_B / np.maximum(g.nodes_B, 1),
                g.nodes_B / np.maximum(g.layers_B, 1),
            ],
            axis=1,
        )
        for g in comparison.sets
    ]
    real = np.concatenate(raw[:2])
    scale = np.maximum(real.std(axis=0), 1e-9)
    return [(one - real.mean(axis=0)) / scale for one in raw]


def _fractions(
    value_of: Callable[[GraphSet], np.ndarray], graph_of: Callable[[GraphSet], np.ndarray]
) -> VectorsOf:
    def vectors(comparison: Comparison) -> list[np.ndarray]:
        sets = comparison.sets
        histograms = aligned_histograms(
            [value_of(g) for g in sets], [graph_of(g) for g in sets], [g.num_graphs for g in sets]
        )
        return [h.by_graph() for h in histograms]

    return vectors


def _kernel_metric(name: str, what: str, vectors: VectorsOf) -> KernelMetric:
    return KernelMetric(f"mmd:{name}", f"MMD² (RBF) of {what}", Goal.MINIMIZE, vectors=vectors)


KERNEL_METRICS = (
    _kernel_metric("sizes", "graph sizes and densities", _sizes),
    _kernel_metric(
        "in_degree",
        "in-degree fractions",
        _fractions(lambda g: g.in_degree_N, lambda g: g.graph_N),
    ),
    _kernel_metric(
        "out_degree",
        "out-degree fractions",
        _fractions(lambda g: g.out_degree_N, lambda g: g.graph_N),
    ),
    _kernel_metric(
        "first_attribute",
        "fractions of the first attribute",
        _fractions(lambda g: g.x_NA[:, 0], lambda g: g.graph_N),
    ),
    _kernel_metric("embedding", "random graph-network embeddings", embeddings),
)
