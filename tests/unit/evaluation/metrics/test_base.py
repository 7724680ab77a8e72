"""What a metric promises, and how its results become a row."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from layerdag.errors import DataError, UsageError
from layerdag.evaluation import GraphSet, SimilarityRow, compare
from layerdag.evaluation.metrics import (
    DEFAULT_METRICS,
    LOCAL_METRICS,
    NORMAL_95,
    AttributeView,
    Comparison,
    Goal,
    GraphMean,
    Interval,
    Metric,
    descriptors,
    metrics_for,
)
from layerdag.graph import DAG, random_dag

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


def test_a_metric_of_ones_own_stands_in_the_report_beside_the_others(
    rng: np.random.Generator,
) -> None:
    train, test, generated = graphs(rng, 9), graphs(rng, 9), graphs(rng, 7)
    metrics = (*descriptors(OP)[:1], SOURCES, LARGEST)
    report = compare(train, test, generated, OP, metrics=metrics, replicates=20)
    assert [row.metric for row in report.rows] == list(metrics)
    counts = [dag.num_nodes - len(dag.edge_index_2E[1].unique()) for dag in generated]
    assert report.row("sources").generated.value == pytest.approx(np.mean(counts))
    assert report.row("largest").generated.value == max(dag.num_nodes for dag in generated)
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


def test_a_mean_has_an_interval_of_its_standard_error_and_a_ratio(
    rng: np.random.Generator,
) -> None:
    train, test, generated = graphs(rng, 5), graphs(rng, 60), graphs(rng, 60)
    report = compare(train, test, generated, OP, metrics=[SOURCES], replicates=800)
    (row,) = report.rows
    count_B = SOURCES.values(GraphSet.of(generated))
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


def test_a_graph_without_a_value_is_left_out_of_the_mean(rng: np.random.Generator) -> None:
    sets = [GraphSet.of(graphs(rng, 4)) for _ in range(3)]
    comparison = Comparison(*sets, OP, replicates=30)
    some, all_B = np.array([1.0, np.nan, 3.0, np.nan]), np.full(4, 5.0)
    row = SimilarityRow.of_graph_means(SOURCES, comparison, some, all_B)
    assert (row.generated.value, row.reference.value) == (2.0, 5.0)
    with pytest.raises(DataError, match="No generated graph has a value here"):
        SimilarityRow.of_graph_means(SOURCES, comparison, np.full(4, np.nan), all_B)


def test_a_metric_that_gives_up_is_listed_and_the_others_go_on(rng: np.random.Generator) -> None:
    sets = [[random_dag(rng, [10, 10], [5])] * 3] * 3
    report = compare(*sets, OP, metrics=[LARGEST, SOURCES], replicates=2)
    (failure,) = report.failures
    assert (failure.metric, failure.value, failure.error) == (
        LARGEST,
        None,
        "A graph is too large.",
    )
    assert report.row("sources").generated.value == 10


@pytest.mark.parametrize("wrong", [Sources, "nodes", None])
def test_what_is_no_metric_is_refused(wrong: object, rng: np.random.Generator) -> None:
    one = graphs(rng, 1)
    with pytest.raises(UsageError, match=r"is not a metric; pass instances of subclasses"):
        compare(one, one, one, OP, metrics=iter([*descriptors(OP), wrong]))


def test_two_metrics_of_one_name_are_refused(rng: np.random.Generator) -> None:
    one = graphs(rng, 1)
    with pytest.raises(UsageError, match="Two metrics are called 'nodes'"):
        compare(one, one, one, OP, metrics=[*DEFAULT_METRICS, *descriptors(OP)[:1]])


def test_metrics_are_equal_if_they_measure_the_same() -> None:
    views = (AttributeView("op"), AttributeView("size", ordered=True))
    assert metrics_for(DEFAULT_METRICS, views) == metrics_for(DEFAULT_METRICS, views)
    assert descriptors(views)[-1] != descriptors((*views, AttributeView("dtype")))[-1]
    assert Sources("a", "b", Goal.MINIMIZE) != Largest("a", "b", Goal.MINIMIZE)


def test_every_default_metric_and_family_has_a_name_a_goal_and_bounds() -> None:
    declared = [*DEFAULT_METRICS, *LOCAL_METRICS]
    names = [metric.name for metric in declared]
    assert len(set(names)) == len(names)
    assert {"attribute", "attribute_pairs", "operator_inputs", "shape_violation"} <= set(names)
    assert all(isinstance(metric.goal, Goal) and metric.description for metric in declared)
    assert all(low < high for low, high in (metric.bounds for metric in declared))


def test_a_family_declares_what_holds_for_each_of_its_metrics() -> None:
    views = (AttributeView("op"), AttributeView("size", ordered=True))
    families = [metric for metric in DEFAULT_METRICS if not isinstance(metric, Metric)]
    assert [[one.name for one in family.of(views)] for family in families] == [
        ["attribute:op", "attribute:size"],
        ["attribute_pairs"],
    ]
    for family in families:
        for metric in family.of(views):
            assert metric.goal is family.goal
            assert metric.bounds[0] >= family.bounds[0]
            assert metric.bounds[1] <= family.bounds[1]


def test_bounds_are_the_least_and_the_greatest_value() -> None:
    assert SOURCES.bounds == (0.0, math.inf)
    assert Sources("a", "b", Goal.MINIMIZE, lower=-1.0, upper=2.0).bounds == (-1.0, 2.0)


def test_a_metric_without_compute_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Metric("nodes", "number of nodes", Goal.MINIMIZE)


def test_an_interval_is_cut_at_the_bounds_and_needs_finite_draws() -> None:
    draws_R = np.array([0.0, 1.0, math.nan, math.inf])
    half = NORMAL_95 * math.sqrt(0.5)
    assert Interval.around(0.5, draws_R) == Interval(0.5 - half, 0.5 + half)
    assert Interval.around(0.5, draws_R, 0.0, 1.0) == Interval(0.0, 1.0)
    assert Interval.around(0.5, draws_R[1:]) is None
    assert Interval.around(math.nan, draws_R) is None


def test_the_interval_of_a_ratio_is_symmetric_in_its_logarithm() -> None:
    draws_R = np.exp([-1.0, 1.0, 0.0])
    found = Interval.around_ratio(2.0, draws_R)
    assert found is not None
    assert found.low * found.high == pytest.approx(4.0)
    assert found.high == pytest.approx(2 * math.exp(NORMAL_95))
    assert Interval.around_ratio(0.0, draws_R) is None
    assert Interval.around_ratio(math.inf, draws_R) is None
    assert Interval.around_ratio(2.0, np.array([1.0, 0.0, -1.0])) is None
