from dataclasses import replace

import numpy as np
import pytest
from costed_jobs import costed_job, costed_jobs

from layerdag._runtime import numpy_generator
from layerdag.codec import AttributedGraph
from layerdag.datasets.schema.costs import (
    LEVELS,
    CostTable,
    Durations,
    OperatorDurations,
    fit_costs,
)
from layerdag.sampling.numbers._durations import assigned_durations

NONE = (0.0,) * len(LEVELS)
WIDE = tuple(level - 0.5 for level in LEVELS)
RELU = OperatorDurations(((128, 1024, 0, 0, 5.0),), WIDE)
MM = OperatorDurations(((2048, 1280, 0, 0, 9.0),), NONE)
TIMES = CostTable(durations=Durations({"aten::relu": RELU, "aten::mm": MM}, NONE, 0.0, 0.0))
JOB = costed_job(8)


def assigned(times: CostTable, job: AttributedGraph, kept: int = 0, seed: int = 0) -> np.ndarray:
    return assigned_durations(times, job, list(range(kept)), numpy_generator(seed, "durations"))


def test_nodes_take_as_long_as_their_operator_and_costs_do() -> None:
    found = np.array([assigned(TIMES, JOB, seed=seed) for seed in range(300)])
    assert np.log(found[:, 0]) == pytest.approx(9.0)
    assert np.quantile(np.log(found[:, 1]), LEVELS[2:7]) == pytest.approx(
        [5.0 + log for log in WIDE[2:7]], abs=0.1
    )


def test_nodes_of_which_nothing_is_known_keep_what_was_drawn() -> None:
    found = assigned(TIMES, JOB)
    assert found[[2, 4]].tolist() == JOB.numbers["duration"][[2, 4]].tolist()
    bare = replace(JOB, numbers={**JOB.numbers, "duration": np.full(5, np.nan)})
    assert np.isnan(assigned(TIMES, bare)).all()
    assert assigned(CostTable(), JOB).tolist() == JOB.numbers["duration"].tolist()


def test_a_job_that_goes_on_keeps_its_speed() -> None:
    slow = JOB.numbers["duration"].copy()
    slow[0] = np.exp(9.0) * 20
    job = replace(JOB, numbers={**JOB.numbers, "duration": slow})
    assert assigned(TIMES, job, kept=1)[3] == pytest.approx(np.exp(9.0) * 20)
    assert assigned(TIMES, job)[3] == pytest.approx(np.exp(9.0))


def test_sums_beyond_the_usual_range_are_brought_back() -> None:
    jobs = costed_jobs([8, 16, 32] * 84)
    times = fit_costs(jobs, 5)
    asked = replace(jobs[2], conditions=jobs[0].conditions)
    free = assigned(replace(times, time=None), asked)
    found = assigned(times, asked)
    assert found.sum() < free.sum() / 1.5
    assert found / free == pytest.approx(found[0] / free[0])
