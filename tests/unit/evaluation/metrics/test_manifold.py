import numpy as np
import pytest

from layerdag.errors import DataError
from layerdag.evaluation import GraphSet
from layerdag.evaluation.metrics import (
    MANIFOLD_METRICS,
    Comparison,
    manifold_scores,
    random_embeddings,
)
from layerdag.graph import random_dag


def test_one_distribution_scores_high_everywhere(rng: np.random.Generator) -> None:
    found = manifold_scores(rng.normal(size=(300, 2)), rng.normal(size=(300, 2)))
    assert min(found.values()) > 0.8


def test_outliers_lower_precision_and_collapse_lowers_recall(rng: np.random.Generator) -> None:
    real = rng.normal(size=(200, 2))
    half_outside = np.concatenate([rng.normal(size=(100, 2)), rng.normal(50, 1, size=(100, 2))])
    outside = manifold_scores(real, half_outside)
    assert outside["precision"] == pytest.approx(0.5, abs=0.05)
    collapsed = manifold_scores(real, real[:1] + rng.normal(0, 1e-3, size=(200, 2)))
    assert collapsed["precision"] > 0.9
    assert collapsed["recall"] < 0.1
    assert collapsed["coverage"] < 0.2


def test_too_few_graphs_are_refused(rng: np.random.Generator) -> None:
    with pytest.raises(DataError, match="more graphs than 5"):
        manifold_scores(rng.normal(size=(5, 2)), rng.normal(size=(9, 2)))


def test_scores_are_counts_of_balls() -> None:
    # On a line, the ball of a point reaches to its fifth neighbor: 5 at the ends of 0 ... 5.
    real, other = np.arange(6.0)[:, None], np.array([[0.0], [1], [2], [3], [4], [100]])
    found = manifold_scores(real, other)
    assert found["precision"] == pytest.approx(5 / 6)
    assert found["recall"] == 1.0
    # The balls of 0 ... 5 reach 5, 4, 3, 3, 4 and 5 far.
    inside = sum(abs(y - x) <= r for x, r in enumerate([5, 4, 3, 3, 4, 5]) for y in range(5))
    assert found["density"] == pytest.approx(inside / 6 / 5)
    assert found["coverage"] == 1.0


def test_scores_swap_with_the_sets(rng: np.random.Generator) -> None:
    first, second = rng.normal(0, 1, (40, 2)), rng.normal(1, 2, (30, 2))
    there, back = manifold_scores(first, second), manifold_scores(second, first)
    assert there["precision"] == back["recall"]
    assert there["recall"] == back["precision"]


def test_as_metrics_they_stand_beside_as_many_training_graphs(rng: np.random.Generator) -> None:
    def graphs(count: int) -> GraphSet:
        return GraphSet.of(
            [random_dag(rng, rng.integers(1, 4, 4).tolist(), [3]) for _ in range(count)]
        )

    sets = Comparison(graphs(30), graphs(20), graphs(8))
    _, test, generated = random_embeddings(sets.sets)
    found = manifold_scores(test, generated)
    for metric in MANIFOLD_METRICS:
        row = metric.compute(sets)
        assert row.generated.value == found[metric.name]
        assert metric.lower <= row.reference.value <= metric.upper
        assert (row.generated.interval, row.ratio, row.matched) == (None, None, None)
    whole = Comparison(sets.train, sets.test, sets.train)
    for metric in MANIFOLD_METRICS:
        row = metric.compute(whole)
        # Every subset of as many training graphs is the training set.
        assert row.reference.value == pytest.approx(row.generated.value)
