"""What counts as seen: shifts worked out by hand."""

import math

import pytest
from benchmark_faults import declared, judged
from scipy.stats import t as student

from layerdag.evaluation.metrics.base import Metric
from layerdag.evaluation.metrics.neighborhoods import NEIGHBORHOOD_METRICS
from layerdag.evaluation.similarity import DEFAULT_METRICS, LOCAL_METRICS

MUST, MAY, STILL = declared.Duty.MUST, declared.Duty.MAY, declared.Duty.STILL


def _judged(duty: declared.Duty, *shifts: float, half: float = 1.0, error: float = 0.0):
    strengths = tuple(0.1 * (place + 1) for place in range(len(shifts)))
    errors = (error,) * len(shifts)
    return judged.Judged("fault", "figure", duty, strengths, shifts, errors, half)


def test_a_spread_is_that_of_one_more_draw_and_that_of_the_mean():
    found = judged.Spread.of([1.0, 3.0])
    quantile = student.ppf(0.975, 1)
    assert found.mean == 2.0
    assert found.half == pytest.approx(quantile * math.sqrt(2) * math.sqrt(1.5))
    assert found.error == pytest.approx(quantile)
    assert (found.low, found.high) == (2.0 - found.half, 2.0 + found.half)


def test_shifts_are_paired_by_draw():
    with_fault = {0.5: [2.0, 4.0], 0.1: [1.5, 3.5]}
    found = judged.judged(("fault", MUST), "figure", with_fault, [1.0, 3.0], 0.75)
    assert found.strengths == (0.1, 0.5)
    assert found.shifts == (0.5, 1.0)
    assert found.errors == (0.0, 0.0)
    assert found.threshold == 0.5


@pytest.mark.parametrize(
    ("shifts", "threshold"),
    [
        ((0.5, 1.5, 2.0), 0.2),
        ((-0.5, -1.5, -2.0), 0.2),
        ((2.0, 0.5, 2.0), pytest.approx(0.3)),
        ((0.5, 2.0, 0.5), None),
        ((math.nan, math.nan, math.nan), None),
    ],
)
def test_the_threshold_is_where_the_figure_leaves_the_interval_for_good(shifts, threshold):
    assert _judged(MUST, *shifts).threshold == threshold


def test_what_stays_exactly_is_not_seen_even_where_real_graphs_never_differ():
    assert _judged(MUST, 0.0, half=0.0).threshold is None
    assert _judged(MUST, 1e-6, half=0.0).threshold == 0.1


def test_steps_back_count_only_beyond_the_errors():
    assert _judged(MUST, 1.0, 2.0).monotone
    assert _judged(MUST, -1.0, -2.0).monotone
    assert not _judged(MUST, 2.0, 1.0).monotone
    assert _judged(MUST, 2.0, 1.0, error=0.6).monotone


@pytest.mark.parametrize(
    ("duty", "shift", "outcome"),
    [
        (MUST, 2.0, "seen"),
        (MUST, 0.5, "missed"),
        (MAY, 2.0, ""),
        (STILL, 2.0, "false move"),
        (STILL, 0.5, ""),
    ],
)
def test_outcomes(duty, shift, outcome):
    assert _judged(duty, shift).outcome == outcome


def test_of_every_metric_it_is_declared_what_it_looks_at():
    metrics = (*DEFAULT_METRICS, *NEIGHBORHOOD_METRICS, *LOCAL_METRICS)
    names = [metric.name for metric in metrics if isinstance(metric, Metric)]
    assert len(names) > 30
    for name in (*names, "attribute:op", "attribute_pairs", "backward_without_forward"):
        assert declared.looks_at(name)
    with pytest.raises(KeyError):
        declared.looks_at("unheard_of")


@pytest.mark.parametrize("fault", declared.FAULTS, ids=lambda fault: fault.name)
def test_a_figure_that_must_see_a_fault_looks_at_what_it_changes(fault):
    assert fault.must
    assert list(fault.strengths) == sorted(fault.strengths)
    for name in fault.must:
        assert declared.looks_at(name) & fault.changes, name
        assert fault.duty(name) is MUST


def test_a_figure_that_looks_elsewhere_must_stay():
    swapped = next(fault for fault in declared.FAULTS if fault.name == "labels_swapped")
    assert swapped.duty("nodes") is STILL
    assert swapped.duty("tstr:spearman") is MUST
    rewired = next(fault for fault in declared.FAULTS if fault.name == "rewired")
    assert rewired.duty("path_novelty:3") is MUST
    assert rewired.duty("layers") is MAY
    assert rewired.duty("attribute:op") is STILL
    scaled = next(fault for fault in declared.FAULTS if fault.name == "durations_scaled")
    assert scaled.duty("attribute_pairs") is MUST
    assert scaled.duty("attribute_pairs:op x flops") is STILL
