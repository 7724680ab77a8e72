from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from costed_jobs import ROWS, costed_job, costed_jobs

from layerdag.codec import AttributedGraph
from layerdag.datasets.schema.costs import (
    LEVELS,
    Durations,
    cost_columns,
    costs_and_ranks,
    fit_durations,
    ranks_of,
)


def fitted(jobs: Sequence[AttributedGraph], needed: int) -> Durations | None:
    costs = [cost_columns(job.numbers, job.num_nodes) for job in jobs]
    return fit_durations(jobs, np.concatenate(costs), "label", needed)


def timed(job: AttributedGraph, factor: float) -> AttributedGraph:
    return replace(job, numbers={**job.numbers, "duration": job.numbers["duration"] * factor})


def test_only_costs_that_enough_jobs_share_have_a_usual_time() -> None:
    found = fitted(costed_jobs([8] * 5 + [32] * 4), 5)
    assert found is not None
    relu = found.operators["aten::relu"].points
    assert [point[:4] for point in relu] == [(ROWS * 8, 8 * ROWS * 8, 0, 0)]
    assert relu[0][4] == pytest.approx(np.log(1.2 * ROWS * 8), abs=0.01)


def test_sizes_that_no_two_jobs_share_count_by_powers_of_two() -> None:
    jobs = [timed(costed_job(8), 1.0 + 0.01 * i) for i in range(5)]
    numbers = [{**job.numbers, "flops": job.numbers["flops"] + 2 * i} for i, job in enumerate(jobs)]
    found = fitted([replace(j, numbers=n) for j, n in zip(jobs, numbers, strict=True)], 5)
    assert found is not None
    assert [point[:4] for point in found.operators["aten::relu"].points] == [(128, 1024, 0, 0)]


def test_an_operator_of_too_few_jobs_has_none() -> None:
    jobs = costed_jobs([8] * 5)
    rare = replace(
        jobs[0],
        categories={**jobs[0].categories, "op": ["aten::rare", *jobs[0].categories["op"][1:]]},
    )
    found = fitted([rare, *jobs[1:]], 5)
    assert found is not None
    assert "aten::rare" not in found.operators
    assert fitted(jobs, 6) is None


def test_messages_have_usual_times_by_ranks() -> None:
    jobs = costed_jobs([8] * 10)
    more = [timed(replace(j, conditions={**j.conditions, "world_size": "4"}), 10) for j in jobs]
    found = fitted([*jobs, *more], 5)
    assert found is not None
    sent = found.operators["c10d::all_reduce"].points
    assert [point[3] for point in sent] == [1, 4]
    assert sent[1][4] - sent[0][4] == pytest.approx(np.log(10), abs=0.02)
    assert {point[3] for point in found.operators["aten::mm"].points} == {0}


def test_no_factor_is_that_of_a_single_job() -> None:
    rng = np.random.default_rng(0)
    jobs = [
        replace(job, numbers={**job.numbers, "duration": rng.lognormal(9, 0.5, 5)})
        for job in costed_jobs([8] * 60)
    ]
    outlier = timed(jobs[0], 1.0)
    outlier.numbers["duration"][1] = 1e15
    found = fitted([outlier, *jobs], 5)
    assert found is not None
    factors = found.operators["aten::relu"].factors
    assert len(factors) == len(LEVELS)
    assert max(factors) < 2
    assert min(factors) < -0.2 < 0.2 < max(factors)


def test_speeds_of_jobs_follow_their_step_times() -> None:
    speeds = np.exp(np.linspace(-2, 2, 80))
    jobs = [timed(costed_job(8, label=float(1e-6 * speed)), float(speed)) for speed in speeds]
    found = fitted(jobs, 5)
    assert found is not None
    assert found.per_label == pytest.approx(1.0, abs=0.02)
    assert max(map(abs, found.factors)) < 0.05
    unlabeled = fitted([timed(costed_job(8), float(speed)) for speed in speeds], 5)
    assert unlabeled is not None
    assert unlabeled.per_label == 0
    assert unlabeled.factors[-1] > 1.5


def test_jobs_without_durations_tell_nothing() -> None:
    job = costed_job(8)
    plain = {name: value for name, value in job.numbers.items() if name != "duration"}
    assert fitted([replace(job, numbers=plain)] * 5, 5) is None
    absent = {**job.numbers, "duration": np.full(5, np.nan)}
    assert fitted([replace(job, numbers=absent)] * 5, 5) is None


@pytest.mark.parametrize(
    ("conditions", "ranks"),
    [({}, 0), ({"world_size": "2"}, 2), ({"world_size": 4.0}, 4), ({"world_size": "many"}, 0)],
)
def test_ranks_stand_beside_messages_alone(conditions: dict[str, str | float], ranks: int) -> None:
    job = replace(costed_job(8), conditions=conditions)
    assert ranks_of(job) == ranks
    found = costs_and_ranks(cost_columns(job.numbers, 5), ranks)
    assert found[:, 3].tolist() == [0, 0, 0, 0, ranks]
