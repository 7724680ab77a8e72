"""What a metric promises, and how its results become a row."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from random_graphs import random_dag
from scipy.stats import ks_2samp, wasserstein_distance

from layerdag.dag.dag import DAG
from layerdag.dag.graph_set import GraphSet
from layerdag.errors import DataError, UsageError
from layerdag.evaluation.metrics.base import (
    SUBSETS,
    AttributeView,
    Comparison,
    Goal,
    GraphMean,
    Metric,
    SimilarityRow,
    aligned_histograms,
    fraction_by_graph,
    kolmogorov_smirnov,
    total_variation,
    wasserstein_1,
)
from layerdag.evaluation.metrics.descriptor_metrics import descriptors
from layerdag.evaluation.similarity import DEFAULT_METRICS, LOCAL_METRICS, compare
from layerdag.statistics import NORMAL_95, Interval

OP = (AttributeView("op"),)


def graphs(rng: np.random.Generator, count: int) -> list[DAG]:
    return [random_dag(rng, rng.integers(1, 5, 4).tolist(), [5]) for _ in range(count)]


@dataclass(frozen=True)
class Sources(GraphMean):
    """Number of nodes without parents."""

    def values(self, graphs: GraphSet) -> np.ndarray:
        return np.bincount(graphs.graph_N[graphs.in_degree_N == 0], minlength=graphs.num_graphs)


@dataclass(frozen=True)
class Largest(Metric):
    """Number of nodes of the largest graph."""

    def compute(self, comparison: Comparison) -> SimilarityRow:
        largest = [float(graphs.nodes_B.max()) for graphs in comparison.sets]
        if largest[2] > 16:
            raise DataError("A graph is too large.")
        return SimilarityRow.of_values(self, largest[2], largest[1])


SOURCES = Sources("sources", "nodes without parents", Goal.MATCH_REAL, unit="nodes")
LARGEST = Largest("largest", "nodes of the largest graph", Goal.MATCH_REAL, unit="nodes")


def test_a_metric_of_ones_own_stands_in_the_report_beside_the_others(rng):
    train, test, generated = graphs(rng, 9), graphs(rng, 9), graphs(rng, 7)
    metrics = (*descriptors(OP)[:1], SOURCES, LARGEST)
    report = compare(train, test, generated, OP, metrics=metrics, replicates=20)
    assert [row.metric for row in report.rows] == list(metrics)
    counts = [dag.num_nodes - len(dag.edge_index_2E[1].unique()) for dag in generated]
    assert report["sources"].generated.value == pytest.approx(np.mean(counts))
    assert report["largest"].generated.value == max(dag.num_nodes for dag in generated)
    assert "nearer to real is better" in str(report)
    plain = report.to_dict()["rows"][1]["generated"]["metric"]
    assert plain == {
        "name": "sources",
        "what": "nodes without parents",
        "goal": "nearer to real",
        "lower": 0.0,
        "upper": None,
        "unit": "nodes",
    }


def test_a_mean_has_an_interval_of_its_standard_error_and_a_ratio(rng):
    train, test, generated = graphs(rng, 5), graphs(rng, 60), graphs(rng, 60)
    report = compare(train, test, generated, OP, metrics=[SOURCES], replicates=800)
    (row,) = report.rows
    count_B = SOURCES.values(GraphSet.from_dags(generated))
    error = count_B.std(ddof=1) / math.sqrt(60)
    assert row.generated.interval is not None
    assert row.generated.interval.high - row.generated.value == pytest.approx(
        NORMAL_95 * error, rel=0.15
    )
    assert row.ratio == pytest.approx(row.generated.value / row.reference.value)
    assert row.ratio_interval is not None
    assert row.ratio_interval.low < row.ratio < row.ratio_interval.high
    assert not row.is_distance
    assert row.matched_ratio is None


def test_a_graph_without_a_value_is_left_out_of_the_mean(rng):
    sets = [GraphSet.from_dags(graphs(rng, 4)) for _ in range(3)]
    comparison = Comparison(*sets, OP, replicates=30)
    some, all_B = np.array([1.0, np.nan, 3.0, np.nan]), np.full(4, 5.0)
    row = SimilarityRow.of_graph_means(SOURCES, comparison, some, all_B)
    assert (row.generated.value, row.reference.value) == (2.0, 5.0)
    with pytest.raises(DataError, match="No generated graph has a value here"):
        SimilarityRow.of_graph_means(SOURCES, comparison, np.full(4, np.nan), all_B)


def test_a_metric_that_gives_up_is_listed_and_the_others_go_on(rng):
    sets = [[random_dag(rng, [10, 10], [5])] * 3] * 3
    report = compare(*sets, OP, metrics=[LARGEST, SOURCES], replicates=2)
    (failure,) = report.failures
    assert (failure.metric, failure.value, failure.error) == (
        LARGEST,
        None,
        "A graph is too large.",
    )
    assert report["sources"].generated.value == 10


@pytest.mark.parametrize("wrong", [Sources, "nodes", None])
def test_what_is_no_metric_is_refused(wrong, rng):
    one = graphs(rng, 1)
    with pytest.raises(UsageError, match=r"is not a metric; pass instances of subclasses"):
        compare(one, one, one, OP, metrics=iter([*descriptors(OP), wrong]))


def test_two_metrics_of_one_name_are_refused(rng):
    one = graphs(rng, 1)
    with pytest.raises(UsageError, match="Two metrics are called 'nodes'"):
        compare(one, one, one, OP, metrics=[*DEFAULT_METRICS, *descriptors(OP)[:1]])


def test_every_default_metric_and_family_has_a_name_a_goal_and_bounds():
    declared = [*DEFAULT_METRICS, *LOCAL_METRICS]
    names = [metric.name for metric in declared]
    assert len(set(names)) == len(names)
    assert {"attribute", "attribute_pairs", "operator_inputs", "shape_violation"} <= set(names)
    assert all(isinstance(metric.goal, Goal) and metric.description for metric in declared)
    assert all(low < high for low, high in (metric.bounds for metric in declared))


def test_an_interval_is_cut_at_the_bounds_and_needs_finite_draws():
    draws_R = np.array([0.0, 1.0, math.nan, math.inf])
    half = NORMAL_95 * math.sqrt(0.5)
    assert Interval.around(0.5, draws_R) == Interval(0.5 - half, 0.5 + half)
    assert Interval.around(0.5, draws_R, 0.0, 1.0) == Interval(0.0, 1.0)
    assert Interval.around(0.5, draws_R[1:]) is None
    assert Interval.around(math.nan, draws_R) is None


def test_the_interval_of_a_ratio_is_symmetric_in_its_logarithm():
    draws_R = np.exp([-1.0, 1.0, 0.0])
    found = Interval.around_ratio(2.0, draws_R)
    assert found is not None
    assert found.low * found.high == pytest.approx(4.0)
    assert found.high == pytest.approx(2 * math.exp(NORMAL_95))
    assert Interval.around_ratio(0.0, draws_R) is None
    assert Interval.around_ratio(math.inf, draws_R) is None
    assert Interval.around_ratio(2.0, np.array([1.0, 0.0, -1.0])) is None


def sets(rng: np.random.Generator, *counts: int) -> list[GraphSet]:
    return [GraphSet.from_dags([random_dag(rng, [1, 2], [3]) for _ in range(n)]) for n in counts]


def test_weights_are_the_whole_then_resamples_then_equal_counts(rng):
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


def test_more_samples_than_training_graphs_take_all_of_these(rng):
    train_RB = Comparison(*sets(rng, 3, 2, 5), replicates=2).weights[0]
    assert (train_RB[3:] == 1).all()


@pytest.mark.parametrize(("seed", "same"), [(0, True), (1, False)])
def test_weights_depend_on_the_seed_alone(seed, same, rng):
    given = sets(rng, 5, 5, 5)
    first, second = Comparison(*given, seed=0), Comparison(*given, (AttributeView("a"),), seed)
    found = [np.array_equal(a, b) for a, b in zip(first.weights, second.weights, strict=True)]
    assert found == [same] * 3


def test_what_several_metrics_need_is_computed_once(rng):
    comparison = Comparison(*sets(rng, 2, 2, 2))
    calls = []

    def count(of: Comparison) -> int:
        calls.append(of)
        return sum(graphs.num_graphs for graphs in of.sets)

    assert [comparison.once(count) for _ in range(3)] == [6, 6, 6]
    assert calls == [comparison]


def test_a_fraction_of_nodes_is_one_number_a_graph(rng):
    every = GraphSet.from_dags(graphs(rng, 6))
    flag_N = rng.random(every.num_nodes) < 0.4
    found_B = fraction_by_graph(flag_N, every.graph_N, every)
    for graph in range(6):
        assert found_B[graph] == pytest.approx(flag_N[every.graph_N == graph].mean())
    assert fraction_by_graph(np.ones(every.num_nodes), every.graph_N, every).tolist() == [1.0] * 6
    first_N = np.arange(every.num_nodes) == np.repeat(every.node_ptr[:-1], every.nodes_B)
    assert fraction_by_graph(flag_N, every.graph_N, every, first_N).tolist() == (
        flag_N[every.node_ptr[:-1]].tolist()
    )


def test_a_graph_without_nodes_is_left_out():
    none = torch.zeros(2, 0, dtype=torch.int64)
    sizes = (2, 0, 1)
    every = GraphSet.from_dags(
        [DAG.build(torch.zeros(n, 1, dtype=torch.int64), none) for n in sizes]
    )
    found_B = fraction_by_graph(np.array([1.0, 0.0, 1.0]), every.graph_N, every)
    assert found_B[[0, 2]].tolist() == [0.5, 1.0]
    assert np.isnan(found_B[1])


@pytest.mark.parametrize("spread", [lambda x: x, lambda x: x**2, lambda x: 0.25 * x**3 - 7])
def test_distances_equal_those_of_scipy_however_far_apart_values_lie(rng, spread):
    values = [spread(rng.integers(0, 12, 150)), spread(rng.integers(3, 15, 100))]
    first, second = aligned_histograms(values, [np.zeros(150, int), np.zeros(100, int)], [1, 1])
    w1 = wasserstein_1(first.pooled(), second.pooled(), first.support_K)
    ks = kolmogorov_smirnov(first.pooled(), second.pooled(), first.support_K)
    assert w1[0] == pytest.approx(wasserstein_distance(*values))
    assert ks[0] == pytest.approx(ks_2samp(*values).statistic)


def test_total_variation_is_half_the_absolute_difference():
    first, second = aligned_histograms(
        [np.array([7, 7, 9]), np.array([9, 11, 11])], [np.zeros(3, int)] * 2, [1, 1]
    )
    assert first.support_K.tolist() == [7, 9, 11]
    assert total_variation(first.pooled(), second.pooled(), first.support_K)[0] == pytest.approx(
        2 / 3
    )


def test_weights_pool_like_repeating_graphs():
    (histograms,) = aligned_histograms([np.array([1, 2, 2])], [np.array([0, 1, 1])], [3])
    # graph 2 is empty; drawing graph 0 twice and graph 1 once gives values 1 1 2 2
    pooled = histograms.pooled(np.array([[2.0, 1.0, 0.0]]))
    np.testing.assert_allclose(pooled, [[0.5, 0.5]])
    np.testing.assert_allclose(histograms.by_graph(), [[1, 0], [0, 1], [0, 0]])


def test_many_values_are_counted_as_few_are(rng):
    value, graph = rng.integers(0, 50, 400), np.sort(rng.integers(0, 30, 400))
    few, many = value % 5, np.concatenate([value, [4000]])
    for values, graphs in ((few, graph), (many, np.concatenate([graph, [29]]))):
        (found,) = aligned_histograms([values], [graphs], [30])
        wanted = [
            [((values == v) & (graphs == g)).sum() for v in found.support_K] for g in range(30)
        ]
        assert found.counts_BK.toarray().tolist() == wanted
