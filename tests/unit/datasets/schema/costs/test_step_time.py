import numpy as np
import pytest
from costed_jobs import costed_job, costed_jobs

from layerdag.datasets.schema.costs import fit_step_time

JOBS = costed_jobs([8, 16, 32, 64, 128] * 10)


def test_the_sum_of_durations_follows_the_label() -> None:
    time = fit_step_time(JOBS, "label", 1)
    assert time is not None
    assert time.per_label == pytest.approx(1.0, abs=0.1)
    assert time.low < 0 < time.high


def test_usual_sums_stay_and_others_are_moved_to_the_end_of_the_range() -> None:
    time = fit_step_time(JOBS, "label", 1)
    assert time is not None
    duration, label = JOBS[2].numbers["duration"], JOBS[2].conditions["label"]
    assert time.factor(duration, label) == pytest.approx(1.0, abs=0.05)
    slow = time.factor(duration * 100, label)
    assert slow == pytest.approx(time.factor(duration * 1000, label) * 10)
    assert 0.009 < slow < 0.015
    assert time.factor(duration / 100, label) > 60


@pytest.mark.parametrize("label", [None, "fast", 0.0, -1.0, float("nan")])
def test_without_a_step_time_durations_stay(label: object) -> None:
    time = fit_step_time(JOBS, "label", 1)
    assert time is not None
    assert time.factor(np.array([1e9, np.nan]), label) == 1.0
    assert time.factor(np.array([np.nan]), 1.0) == 1.0


def test_too_few_jobs_or_labels_give_none() -> None:
    assert fit_step_time(JOBS[:49], "label", 1) is None
    assert fit_step_time([costed_job(8)] * 60, "label", 1) is None
