"""Maximum mean discrepancy with a radial-basis kernel over descriptors of whole graphs.

MMD^2 = E k(x, x') - 2 E k(x, y) + E k(y, y') with k(a, b) = exp(-|a - b|^2 / (2 s^2)) (Gretton et
al., JMLR 13, 2012). The Gaussian kernel over total variation or EMD that graph papers often use is
not positive definite (O'Bray et al., ICLR 2022), so descriptors are vectors under the Euclidean
distance. The bandwidth s is the median distance between real training and real test graphs, the
same for both comparisons, and is reported.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.spatial.distance import cdist

from layerdag.errors import DataError
from layerdag.evaluation import GraphSet
from layerdag.evaluation.metrics._base import Goal, Metric, SimilarityRow
from layerdag.evaluation.metrics._comparison import Comparison
from layerdag.evaluation.metrics._embedding import embeddings
from layerdag.evaluation.metrics._histograms import aligned_histograms

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
        found = discrepancy(comparison.once(self.vectors), comparison.weights)
        extra = {"bandwidth": found.bandwidth}
        return SimilarityRow.of_draws(
            self,
            (found.generated_R, extra | {"unbiased": found.generated_unbiased}),
            (found.reference_R, extra | {"unbiased": found.reference_unbiased}),
        )


@dataclass(frozen=True, eq=False)
class Discrepancy:
    """MMD^2 of generated vs test and of train vs test.

    Attributes:
        generated_R: Biased (never negative) estimate, one per row of weights.
        reference_R: The same for train vs test.
        generated_unbiased: Unbiased estimate, around 0 (also below) for equal distributions.
        reference_unbiased: The same for train vs test.
        bandwidth: s of the kernel.
    """

    generated_R: np.ndarray
    reference_R: np.ndarray
    generated_unbiased: float
    reference_unbiased: float
    bandwidth: float


def discrepancy(vectors: Sequence[np.ndarray], weights: Sequence[np.ndarray]) -> Discrepancy:
    """Return the discrepancies of train, test and generated graphs under resampling weights.

    Args:
        vectors: Of the graphs of the three sets, (B, F) each.
        weights: Of the graphs of the three sets, (R, B) each.

    Raises:
        DataError: If all real graphs have the same descriptor, so that no bandwidth exists.
    """
    train, test, generated = vectors
    bandwidth = float(np.median(cdist(train, test)))
    if not bandwidth > 0:
        bandwidth = float(np.mean(cdist(train, test)))
    if not bandwidth > 0:
        raise DataError(
            "All real graphs have the same descriptor; there is no scale to compare on."
        )
    fractions = [w / w.sum(axis=1, keepdims=True) for w in weights]
    k_train, k_test, k_generated = (
        _kernel(one, one, bandwidth) for one in (train, test, generated)
    )
    k_train_test = _kernel(train, test, bandwidth)
    k_generated_test = _kernel(generated, test, bandwidth)
    return Discrepancy(
        generated_R=_mmd(k_generated, k_generated_test, k_test, fractions[2], fractions[1]),
        reference_R=_mmd(k_train, k_train_test, k_test, fractions[0], fractions[1]),
        generated_unbiased=_unbiased(k_generated, k_generated_test, k_test),
        reference_unbiased=_unbiased(k_train, k_train_test, k_test),
        bandwidth=bandwidth,
    )


def _kernel(x_BF: np.ndarray, y_BF: np.ndarray, bandwidth: float) -> np.ndarray:
    """Return the radial-basis kernel matrix."""
    return np.exp(-cdist(x_BF, y_BF, "sqeuclidean") / (2 * bandwidth**2))


def _mmd(
    xx: np.ndarray, xy: np.ndarray, yy: np.ndarray, x_RB: np.ndarray, y_RB: np.ndarray
) -> np.ndarray:
    """Return the biased MMD^2 for each row of fractions, shape (R,)."""

    def mean(left_RB: np.ndarray, k: np.ndarray, right_RB: np.ndarray) -> np.ndarray:
        return np.einsum("rb,rb->r", left_RB @ k, right_RB)

    return np.maximum(mean(x_RB, xx, x_RB) - 2 * mean(x_RB, xy, y_RB) + mean(y_RB, yy, y_RB), 0)


def _unbiased(xx: np.ndarray, xy: np.ndarray, yy: np.ndarray) -> float:
    """Return the unbiased MMD^2 (the diagonal is left out)."""

    def off_diagonal(k: np.ndarray) -> float:
        size = k.shape[0]
        return float((k.sum() - np.trace(k)) / max(size * (size - 1), 1))

    return off_diagonal(xx) - 2 * float(xy.mean()) + off_diagonal(yy)


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
    """Make the vectors: the histogram of some items of each graph, as fractions."""

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
