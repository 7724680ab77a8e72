"""Can a classifier tell generated from real graphs? A lower bound of their Jensen-Shannon distance.

PolyGraph Discrepancy (ICLR 2026): fit a classifier on descriptors of half the graphs; on the other
half D = sqrt(max(0, 1/2 E_real log2 p + 1/2 E_gen log2 (1 - p) + 1)), with p the probability of
"real" under equal priors, lies in [0, 1] and, in expectation, below the Jensen-Shannon distance.
The descriptor is chosen by cross validation inside the first half, so the choice costs nothing.
Here the descriptors are those of directed, attributed graphs: those of the kernel metrics, and the
pairs of first attributes that edges connect. Without these pairs graphs whose operators or edges
were shuffled pass: in embeddings of whole graphs, what is wrong at single edges drowns in what
differs between graphs. At least 256 graphs a side are advised: with few, the bound is loose and
falls to 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from layerdag._runtime import derive_seed, numpy_generator
from layerdag.errors import DataError
from layerdag.evaluation import GraphSet
from layerdag.evaluation.metrics._base import (
    Goal,
    Metric,
    MetricResult,
    SimilarityRow,
)
from layerdag.evaluation.metrics._comparison import Comparison, Interval
from layerdag.evaluation.metrics._mmd import KERNEL_METRICS

LEAST_GRAPHS = 8
MOST_PAIRS = 512
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
        results = []
        for other in (generated, train):
            bound = classifier_bound(
                test, other, seed=comparison.seed, replicates=comparison.replicates
            )
            value = float(bound.draws_R[0])
            spread = Interval.around(value, bound.draws_R[1:], self.lower, self.upper)
            results.append(MetricResult(self, value, spread, bound.by_descriptor))
        return SimilarityRow(results[0], results[1], None, None)


def connected_pairs(sets: Sequence[GraphSet]) -> list[np.ndarray]:
    """Return the share of each pair of first attributes among the edges of each graph.

    The pairs are the ``MOST_PAIRS`` most frequent ones of the first two sets, the real ones; the
    last column has all others, so that memory is bounded whatever samples connect.

    Args:
        sets: Training, test and generated graphs.

    Returns:
        Float64 arrays of shape (B, pairs + 1), zeros for a graph without edges.
    """
    pairs = [_pair_codes(graphs) for graphs in sets]
    known, count = np.unique(np.concatenate(pairs[:2]), return_counts=True)
    known = np.sort(known[np.argsort(-count, kind="stable")[:MOST_PAIRS]])
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


def _pair_codes(graphs: GraphSet) -> np.ndarray:
    """Return one number for the first attributes of source and target of each edge."""
    source_E, target_E = graphs.x_NA[:, 0].astype(np.int64)[graphs.edge_index_2E]
    pair_E: np.ndarray = (source_E << 31) | target_E
    return pair_E


@dataclass(frozen=True, eq=False)
class Bound:
    """The bound of one pair of sets.

    Attributes:
        draws_R: The bound, then its bootstrap draws over the second half.
        by_descriptor: The bound by each descriptor alone; the chosen one gives the bound.
    """

    draws_R: np.ndarray
    by_descriptor: Mapping[str, float]


def classifier_bound(
    real: Mapping[str, np.ndarray],
    other: Mapping[str, np.ndarray],
    *,
    seed: int,
    replicates: int,
) -> Bound:
    """Return the bound for two sets of graphs, given as vectors (B, F) by descriptor.

    Raises:
        DataError: If a set has fewer than ``LEAST_GRAPHS`` graphs.
    """
    counts = [len(next(iter(side.values()))) for side in (real, other)]
    if min(counts) < LEAST_GRAPHS:
        raise DataError(
            f"The classifier needs at least {LEAST_GRAPHS} graphs a side, found {min(counts)}."
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
    return Bound(np.array(draws), {name: _distance(*both) for name, both in bits.items()})


def _classifier() -> Any:
    """Return a fresh logistic regression on standardized columns, classes of equal weight."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(
        StandardScaler(), LogisticRegression(C=0.1, class_weight="balanced", max_iter=500)
    )


def _cross_validated_loss(x_BF: np.ndarray, y_B: np.ndarray, seed: int) -> float:
    """Return the mean log loss over stratified folds."""
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
