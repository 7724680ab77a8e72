"""Laws of distances between distributions, and of the default metrics but the classifier."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from laws import tried
from random_graphs import random_dag

from layerdag.dag.dag import DAG
from layerdag.evaluation.metrics.base import (
    AttributeView,
    aligned_histograms,
    kolmogorov_smirnov,
    total_variation,
    wasserstein_1,
)
from layerdag.evaluation.metrics.classifiers import CLASSIFIER_METRIC
from layerdag.evaluation.similarity import DEFAULT_METRICS, compare

DISTANCES = {"w1": wasserstein_1, "ks": kolmogorov_smirnov, "tv": total_variation}
VIEWS = (AttributeView("op"), AttributeView("size", ordered=True))
# The classifier fits on one half of the graphs and measures on the other: their order matters.
METRICS = [metric for metric in DEFAULT_METRICS if metric is not CLASSIFIER_METRIC]
ITEMS = st.lists(st.integers(-30, 30), min_size=1, max_size=25)


def distance(name: str, first: list[int], second: list[int]) -> float:
    """The distance of two samples, on their common support."""
    values = [np.array(first), np.array(second)]
    one, other = aligned_histograms(values, [np.zeros(v.size, int) for v in values], [1, 1])
    return float(DISTANCES[name](one.pooled(), other.pooled(), one.support_K)[0])


@pytest.mark.parametrize("name", DISTANCES)
@given(a=ITEMS, b=ITEMS, c=ITEMS)
@tried(60)
def test_it_is_a_distance(name, a, b, c):
    assert distance(name, a, b) == pytest.approx(distance(name, b, a))
    assert distance(name, a, a) == 0.0
    assert distance(name, a, 2 * a) == pytest.approx(0.0)
    assert distance(name, a, c) <= distance(name, a, b) + distance(name, b, c) + 1e-9
    if sorted(a) != sorted(b) and len(a) == len(b):
        assert distance(name, a, b) > 1e-9


@given(a=ITEMS, b=ITEMS, shift=st.integers(-9, 9), scale=st.integers(1, 7))
@tried(60)
def test_wasserstein_moves_with_the_numbers_and_the_others_with_names_alone(a, b, shift, scale):
    moved = [[scale * value + shift for value in items] for items in (a, b)]
    assert distance("w1", *moved) == pytest.approx(scale * distance("w1", a, b))
    assert distance("ks", *moved) == pytest.approx(distance("ks", a, b))
    assert distance("tv", *moved) == pytest.approx(distance("tv", a, b))
    assert distance("w1", a, [value + shift for value in a]) == pytest.approx(abs(shift))


@given(a=ITEMS, b=ITEMS)
@tried(60)
def test_distances_of_distributions_bound_one_another(a, b):
    w1, ks, tv = (distance(name, a, b) for name in ("w1", "ks", "tv"))
    assert 0 <= ks <= tv + 1e-12
    assert tv <= 1 + 1e-12
    # Integers: what differs in mass moves by at least 1 and at most over the whole range.
    assert tv <= w1 + 1e-9
    assert w1 <= tv * (max(*a, *b) - min(*a, *b)) + 1e-9


def graphs(seed: int, count: int = 9) -> list[DAG]:
    rng = np.random.default_rng(seed)
    return [random_dag(rng, rng.integers(1, 4, 4).tolist(), [3, 2]) for _ in range(count)]


def values(train: list[DAG], test: list[DAG], made: list[DAG]) -> dict[str, float | None]:
    report = compare(train, test, made, VIEWS, metrics=METRICS, replicates=2)
    return {row.metric.name: row.generated.value for row in report.rows}


@given(st.integers(0, 2**32 - 1))
@tried(3)
def test_no_metric_sees_the_order_of_nodes(seed):
    rng = np.random.default_rng(seed)
    train, test, made = graphs(seed), graphs(seed + 1), graphs(seed + 2)
    shuffled = [dag.permuted(torch.from_numpy(rng.permutation(dag.num_nodes))) for dag in made]
    assert values(train, test, shuffled) == pytest.approx(values(train, test, made), abs=1e-6)


@given(st.integers(0, 2**32 - 1))
@tried(3)
def test_no_metric_sees_the_order_of_graphs(seed):
    train, test, made = graphs(seed), graphs(seed + 1), graphs(seed + 2)
    assert values(train, test, made[::-1]) == pytest.approx(values(train, test, made), abs=1e-9)


@given(st.integers(0, 2**32 - 1))
@tried(3)
def test_every_value_lies_inside_the_bounds_of_its_metric(seed):
    sets = graphs(seed), graphs(seed + 1), graphs(seed + 2, 7)
    report = compare(*sets, VIEWS, metrics=METRICS, replicates=3)
    for row in report.rows:
        for result in (row.generated, row.reference):
            if result.value is not None:
                assert row.metric.lower <= result.value <= row.metric.upper + 1e-12
