"""A comparison holds the sets of graphs and the weights of their resamples."""

import numpy as np
import pytest

from layerdag.evaluation import GraphSet
from layerdag.evaluation.metrics import AttributeView, Comparison
from layerdag.evaluation.metrics._comparison import SUBSETS
from layerdag.graph import random_dag


def sets(rng: np.random.Generator, *counts: int) -> list[GraphSet]:
    return [GraphSet.of([random_dag(rng, [1, 2], [3]) for _ in range(n)]) for n in counts]


def test_weights_are_the_whole_then_resamples_then_equal_counts(rng: np.random.Generator) -> None:
    comparison = Comparison(*sets(rng, 9, 6, 4), replicates=7)
    for weights_RB, size in zip(comparison.weights, (9, 6, 4), strict=True):
        assert weights_RB.shape == (1 + 7 + SUBSETS, size)
        assert (weights_RB[0] == 1).all()
        assert (weights_RB[1:8].sum(axis=1) == size).all()
        assert (weights_RB[1:8] != 1).any()
    train_SB, test_SB, generated_SB = (weights[8:] for weights in comparison.weights)
    assert set(np.unique(train_SB)) == {0.0, 1.0}
    assert (train_SB.sum(axis=1) == 4).all()
    assert len(np.unique(train_SB, axis=0)) > 1
    assert (test_SB == 1).all()
    assert (generated_SB == 1).all()


def test_more_samples_than_training_graphs_take_all_of_these(rng: np.random.Generator) -> None:
    train_RB = Comparison(*sets(rng, 3, 2, 5), replicates=2).weights[0]
    assert (train_RB[3:] == 1).all()


@pytest.mark.parametrize(("seed", "same"), [(0, True), (1, False)])
def test_weights_depend_on_the_seed_alone(seed: int, same: bool, rng: np.random.Generator) -> None:
    given = sets(rng, 5, 5, 5)
    first, second = Comparison(*given, seed=0), Comparison(*given, (AttributeView("a"),), seed)
    found = [np.array_equal(a, b) for a, b in zip(first.weights, second.weights, strict=True)]
    assert found == [same] * 3


def test_what_several_metrics_need_is_computed_once(rng: np.random.Generator) -> None:
    comparison = Comparison(*sets(rng, 2, 2, 2))
    calls = []

    def count(of: Comparison) -> int:
        calls.append(of)
        return sum(graphs.num_graphs for graphs in of.sets)

    assert [comparison.once(count) for _ in range(3)] == [6, 6, 6]
    assert calls == [comparison]
