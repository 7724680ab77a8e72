"""Similarity by depth tells where along their layers samples leave the real graphs."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from random_graphs import random_dag

from layerdag.dag.dag import DAG
from layerdag.errors import UsageError
from layerdag.evaluation.metrics.base import AttributeView, Goal
from layerdag.evaluation.similarity import QualityReport, compare, compare_by_depth, histograms_of

ATTRIBUTES = (AttributeView("op"), AttributeView("size", ordered=True))


def graphs(rng: np.random.Generator, widths: list[int], count: int = 40) -> list[DAG]:
    """Random graphs with layers of about these widths, their kinds drawn anew."""
    return [
        random_dag(rng, (rng.integers(0, 2, len(widths)) + widths).tolist(), [5, 4])
        for _ in range(count)
    ]


def test_samples_that_widen_at_their_end_are_far_there_and_near_before(rng):
    even, widening = [3] * 10, [3] * 8 + [9] * 2
    rows = compare_by_depth(
        graphs(rng, even), graphs(rng, even), graphs(rng, widening), ATTRIBUTES, replicates=2
    )
    ratio = [next(r.ratio for r in row.rows if r.metric.name == "width") for row in rows]
    assert len(ratio) == 5
    assert ratio[4] > 5 * max(ratio[:3])
    assert (rows[0].begin, rows[4].end) == (0.0, 1.0)


def test_one_stretch_is_the_whole_graph(rng):
    sets = [graphs(rng, [2, 5, 3]) for _ in range(3)]
    (whole,) = compare_by_depth(*sets, ATTRIBUTES, depth_bins=1, replicates=2)
    report = compare(*sets, ATTRIBUTES, replicates=2)
    assert whole.nodes == sum(dag.num_nodes for dag in sets[2])
    assert [row.metric.name for row in whole.rows] == [
        "width",
        "in_degree",
        "out_degree",
        "attribute:op",
    ]
    for row in whole.rows:
        assert row.ratio == pytest.approx(report[row.metric.name].ratio)


def test_stretches_hold_every_node_once_and_there_is_at_least_one(rng):
    flat = [DAG.build(torch.zeros(3, 2, dtype=torch.int64), torch.zeros(2, 0, dtype=torch.int64))]
    rows = compare_by_depth(graphs(rng, [2] * 7), graphs(rng, [2] * 7), flat * 4, ATTRIBUTES)
    assert [row.nodes for row in rows] == [12, 0, 0, 0, 0]
    assert rows[4].mean_ratio is None
    assert all(row.generated.error for row in rows[4].rows)
    few = graphs(rng, [2, 2], count=3)
    with pytest.raises(UsageError, match="at least one depth bin, found 0"):
        compare_by_depth(few, few, few, ATTRIBUTES, depth_bins=0)


def test_views_that_are_not_those_of_the_graphs_are_refused(rng):
    few = graphs(rng, [2, 2], count=3)
    with pytest.raises(UsageError, match="1 attributes are named but the graphs have 2"):
        compare_by_depth(few, few, few, ATTRIBUTES[:1])


def _graphs(rng: np.random.Generator, count: int, width: int = 4, depth: int = 6) -> list[DAG]:
    return [
        random_dag(rng, rng.integers(1, width + 1, depth).tolist(), [5, 4]) for _ in range(count)
    ]


def test_every_metric_has_a_value_inside_its_bounds(rng):
    report = compare(_graphs(rng, 30), _graphs(rng, 30), _graphs(rng, 20), ATTRIBUTES, replicates=9)
    assert not report.failures
    assert (report.train, report.test, report.generated) == (30, 30, 20)
    for row in report.rows:
        for result in (row.generated, row.reference):
            assert result.value is not None
            assert row.metric.lower <= result.value <= row.metric.upper
            if result.interval is not None:
                assert result.interval.low <= result.value <= result.interval.high
    assert all(row.ratio_interval is not None for row in report.rows if row.ratio is not None)
    assert len({row.metric.name for row in report.rows}) == len(report.rows)


def test_the_test_set_itself_has_distance_zero(rng):
    train, test = _graphs(rng, 20), _graphs(rng, 20)
    report = compare(train, test, test, ATTRIBUTES, replicates=2)
    distances = [row for row in report.rows if row.metric.goal is Goal.MINIMIZE]
    assert all(row.generated.value == pytest.approx(0, abs=1e-9) for row in distances)
    assert report["coverage"].generated.value == 1


def test_wider_graphs_are_further_than_the_training_set(rng):
    train, test = _graphs(rng, 40), _graphs(rng, 40)
    report = compare(train, test, _graphs(rng, 40, width=9), ATTRIBUTES, replicates=50)
    for name in ("nodes", "mean_width", "width", "mmd:sizes", "mmd:embedding"):
        row = report[name]
        assert row.ratio is not None
        assert row.ratio > 2
        assert row.ratio_interval is not None
        assert row.ratio_interval.low > 1


def test_a_metric_without_scale_is_listed_as_failed(rng):
    same = [random_dag(rng, [1, 1], [1, 1])] * 5
    report = compare(same, same, same, ATTRIBUTES, replicates=2)
    reasons = {result.metric.name: result.error for result in report.failures}
    assert "no scale" in reasons["mmd:sizes"]
    assert "at least 8 graphs" in reasons["classifier_bound"]
    assert report["nodes"].ratio is None


def test_graphs_without_edges_have_no_distance_between_spans(rng):
    real = _graphs(rng, 10)
    bare = [DAG.build(dag.x_NA, dag.edge_index_2E[:, :0]) for dag in real]
    report = compare(real, real, bare, ATTRIBUTES, replicates=2)
    failed = {result.metric.name for result in report.failures}
    assert {"edge_span", "edge_types", "edge_bigrams"} <= failed
    assert report["edge_span"].generated.value is None
    assert report["nodes"].generated.value == 0


def test_the_number_of_attributes_must_match(rng):
    sets = [_graphs(rng, 2) for _ in range(3)]
    with pytest.raises(UsageError, match="one AttributeView for each column"):
        compare(*sets, ATTRIBUTES[:1])


def test_histograms_for_plots_share_their_support(rng):
    first, second = histograms_of("in_degree", [_graphs(rng, 3), _graphs(rng, 5)], ATTRIBUTES)
    assert first.support_K is second.support_K
    assert math.isclose(second.pooled().sum(), 1)
    with pytest.raises(UsageError, match="no descriptor 'color'"):
        histograms_of("color", [_graphs(rng, 1)], ATTRIBUTES)


def test_fewer_generated_graphs_are_compared_with_as_few_real_ones(rng):
    train, test = _graphs(rng, 60), _graphs(rng, 60)
    few = compare(train, test, _graphs(rng, 6), ATTRIBUTES, replicates=2)["nodes"]
    many = compare(train, test, _graphs(rng, 60), ATTRIBUTES, replicates=2)["nodes"]
    assert few.matched is not None
    assert few.matched > 1.5 * few.reference.value
    assert many.matched == pytest.approx(many.reference.value)
    assert few.matched_ratio == pytest.approx(few.generated.value / few.matched)


def report(rng: np.random.Generator) -> QualityReport:
    def graphs(count: int) -> list[DAG]:
        return [random_dag(rng, [1, 2, 2], [3]) for _ in range(count)]

    return compare(graphs(8), graphs(7), graphs(6), [AttributeView("op")], replicates=3)


def test_numbers_that_json_lacks_become_null(rng):
    found = report(rng)
    first = replace(found.rows[0], ratio=float("nan"))
    plain = replace(found, rows=(first, *found.rows[1:])).to_dict()
    assert plain["rows"][0]["ratio"] is None
    assert plain["rows"][1]["ratio"] == found.rows[1].ratio
