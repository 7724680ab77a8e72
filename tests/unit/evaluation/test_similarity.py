import math

import numpy as np
import pytest

from layerdag.errors import UsageError
from layerdag.evaluation import compare, histograms_of
from layerdag.evaluation.metrics import AttributeView, Goal
from layerdag.graph import DAG, random_dag

ATTRIBUTES = (AttributeView("op"), AttributeView("size", ordered=True))


def _graphs(rng: np.random.Generator, count: int, width: int = 4, depth: int = 6) -> list[DAG]:
    return [
        random_dag(rng, rng.integers(1, width + 1, depth).tolist(), [5, 4]) for _ in range(count)
    ]


def test_every_metric_has_a_value_inside_its_bounds(rng: np.random.Generator) -> None:
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


def test_the_test_set_itself_has_distance_zero(rng: np.random.Generator) -> None:
    train, test = _graphs(rng, 20), _graphs(rng, 20)
    report = compare(train, test, test, ATTRIBUTES, replicates=2)
    distances = [row for row in report.rows if row.metric.goal is Goal.MINIMIZE]
    assert all(row.generated.value == pytest.approx(0, abs=1e-9) for row in distances)
    assert report.row("coverage").generated.value == 1


def test_wider_graphs_are_further_than_the_training_set(rng: np.random.Generator) -> None:
    train, test = _graphs(rng, 40), _graphs(rng, 40)
    report = compare(train, test, _graphs(rng, 40, width=9), ATTRIBUTES, replicates=50)
    for name in ("nodes", "mean_width", "width", "mmd:sizes", "mmd:embedding"):
        row = report.row(name)
        assert row.ratio is not None
        assert row.ratio > 2
        assert row.ratio_interval is not None
        assert row.ratio_interval.low > 1


def test_shuffled_attributes_show_in_marginals_and_pairs_only(rng: np.random.Generator) -> None:
    train, test = _graphs(rng, 40), _graphs(rng, 40)
    constant = [DAG.build(d.x_NA * 0, d.edge_index_2E) for d in _graphs(rng, 40)]
    report = compare(train, test, constant, ATTRIBUTES, replicates=2)
    for name in ("attribute:op", "attribute:size", "attribute_pairs", "edge_bigrams"):
        ratio = report.row(name).ratio
        assert ratio is not None
        assert ratio > 3
    assert report.row("in_degree").generated.value < 0.2
    assert "op x size" in report.row("attribute_pairs").generated.breakdown


def test_figures_repeat_with_the_seed(rng: np.random.Generator) -> None:
    sets = [_graphs(rng, 8) for _ in range(3)]
    first, second = (compare(*sets, ATTRIBUTES, seed=5, replicates=5) for _ in range(2))
    assert first == second


def test_a_metric_without_scale_is_listed_as_failed(rng: np.random.Generator) -> None:
    same = [random_dag(rng, [1, 1], [1, 1])] * 5
    report = compare(same, same, same, ATTRIBUTES, replicates=2)
    reasons = {result.metric.name: result.error for result in report.failures}
    assert "no scale" in reasons["mmd:sizes"]
    assert "at least 8 graphs" in reasons["classifier_bound"]
    assert report.row("nodes").ratio is None


def test_graphs_without_edges_have_no_distance_between_spans(rng: np.random.Generator) -> None:
    real = _graphs(rng, 10)
    bare = [DAG.build(dag.x_NA, dag.edge_index_2E[:, :0]) for dag in real]
    report = compare(real, real, bare, ATTRIBUTES, replicates=2)
    failed = {result.metric.name for result in report.failures}
    assert {"edge_span", "edge_types", "edge_bigrams"} <= failed
    assert report.row("edge_span").generated.value is None
    assert report.row("nodes").generated.value == 0


def test_the_number_of_attributes_must_match(rng: np.random.Generator) -> None:
    sets = [_graphs(rng, 2) for _ in range(3)]
    with pytest.raises(UsageError, match="one AttributeView for each column"):
        compare(*sets, ATTRIBUTES[:1])


def test_histograms_for_plots_share_their_support(rng: np.random.Generator) -> None:
    first, second = histograms_of("in_degree", [_graphs(rng, 3), _graphs(rng, 5)], ATTRIBUTES)
    assert first.support_K is second.support_K
    assert math.isclose(second.pooled().sum(), 1)
    with pytest.raises(UsageError, match="no descriptor 'color'"):
        histograms_of("color", [_graphs(rng, 1)], ATTRIBUTES)


def test_fewer_generated_graphs_are_compared_with_as_few_real_ones(
    rng: np.random.Generator,
) -> None:
    train, test = _graphs(rng, 60), _graphs(rng, 60)
    few = compare(train, test, _graphs(rng, 6), ATTRIBUTES, replicates=2).row("nodes")
    many = compare(train, test, _graphs(rng, 60), ATTRIBUTES, replicates=2).row("nodes")
    assert few.matched is not None
    assert few.matched > 1.5 * few.reference.value
    assert many.matched == pytest.approx(many.reference.value)
    assert few.matched_ratio == pytest.approx(few.generated.value / few.matched)
