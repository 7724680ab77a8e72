import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from checked_parts import checked
from costed_jobs import ROWS, costed_job, costed_jobs

from layerdag.errors import CheckpointError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.kinds.flow import FLOW
from layerdag.schema.attributes import CategoryAttribute
from layerdag.schema.durations import (
    LEVELS,
    Durations,
    OperatorDurations,
    fit_durations,
)
from layerdag.schema.schema import GraphSchema

NONE = (0.0,) * len(LEVELS)
RISING = tuple(math.log(1 + level) for level in LEVELS)
MM = OperatorDurations(((256, 64, 0, 0, 3.0), (1024, 256, 0, 0, 5.0)), RISING)
SEND = OperatorDurations(((0, 8, 8, 2, 1.0), (0, 8, 8, 4, 2.0)), NONE)
TABLE = Durations({"aten::mm": MM, "c10d::send": SEND}, RISING)


def test_a_known_cost_takes_its_usual_time_and_a_new_one_lies_between_its_neighbors():
    costs = np.array([[256, 64, 0, 0], [1024, 256, 0, 0], [512, 128, 0, 0], [300, 70, 0, 0]])
    known, other, middle, near = TABLE.usual(["aten::mm"] * 4, costs)
    assert (known, other) == (3.0, 5.0)
    assert middle == pytest.approx(4.0, abs=0.05)
    assert 3.0 < near < middle


def test_many_costs_are_looked_up_in_parts(monkeypatch):
    costs = np.array([[flops, 64, 0, 0] for flops in (1024, 256, 300, 256, 512)])
    at_once = MM.usual(costs)
    monkeypatch.setattr("layerdag.schema.durations._DISTANCES", 4)  # two rows of two points
    assert MM.usual(costs).tolist() == at_once.tolist()


def test_usual_times_are_by_ranks_of_messages_and_unknown_without_the_operator():
    costs = np.array([[0, 8, 8, 2], [0, 8, 8, 4]])
    assert TABLE.usual(["c10d::send"] * 2, costs).tolist() == [1.0, 2.0]
    found = TABLE.usual(["aten::relu", "aten::mm"], np.array([[256, 64, 0, 0]] * 2))
    assert np.isnan(found[0])
    assert found[1] == 3.0


def test_factors_follow_the_quantiles_of_the_operator():
    draw_N = np.array([0.0, 0.5, 0.75, 0.5])
    names = ["aten::mm", "aten::mm", "aten::mm", "c10d::send"]
    found = TABLE.node_factors(names, draw_N)
    assert found == pytest.approx([0.0, math.log(1.5), math.log(1.75), 0.0])


def test_the_factor_of_a_job_follows_its_quantiles():
    assert TABLE.job_factor(0.5) == pytest.approx(math.log(1.5))


def test_durations_come_back_from_json():
    assert checked(Durations, TABLE.to_dict()) == TABLE


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        (("operators", "aten::mm", "points"), []),
        (("operators", "aten::mm", "points", 0, 0), -1),
        (("operators", "aten::mm", "points", 0, 1), 1 << 62),
        (("operators", "aten::mm", "points", 0, 2), 0.5),
        (("operators", "aten::mm", "points", 0, 4), math.nan),
        (("operators", "aten::mm", "points", 0), [1, 2, 0.5]),
        (("operators", "aten::mm", "factors", 0), 1.0),
        (("operators", "aten::mm", "factors"), [0.0]),
        (("factors",), None),
    ],
)
def test_damaged_durations_are_refused(path, wrong):
    damaged = json.loads(json.dumps(TABLE.to_dict()))
    inner: Any = damaged
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = wrong
    with pytest.raises(ValueError, match=r"must be|needed|no duration|costs are|of length"):
        checked(Durations, damaged)


def fitted(jobs: Sequence[AttributedGraph], needed: int) -> Durations | None:
    return fit_durations(jobs, needed)


def timed(job: AttributedGraph, factor: float) -> AttributedGraph:
    return replace(job, numbers={**job.numbers, "duration": job.numbers["duration"] * factor})


def test_only_costs_that_enough_jobs_share_have_a_usual_time():
    found = fitted(costed_jobs([8] * 5 + [32] * 4), 5)
    assert found is not None
    relu = found.operators["aten::relu"].points
    assert [point[:4] for point in relu] == [(ROWS * 8, 8 * ROWS * 8, 0, 0)]
    assert relu[0][4] == pytest.approx(np.log(1.2 * ROWS * 8), abs=0.01)


def test_sizes_that_no_two_jobs_share_count_by_powers_of_two():
    jobs = [timed(costed_job(8), 1.0 + 0.01 * i) for i in range(5)]
    numbers = [{**job.numbers, "flops": job.numbers["flops"] + 2 * i} for i, job in enumerate(jobs)]
    found = fitted([replace(j, numbers=n) for j, n in zip(jobs, numbers, strict=True)], 5)
    assert found is not None
    assert [point[:4] for point in found.operators["aten::relu"].points] == [(128, 1024, 0, 0)]


def test_an_operator_of_too_few_jobs_has_none():
    jobs = costed_jobs([8] * 5)
    rare = replace(
        jobs[0],
        categories={**jobs[0].categories, "op": ["aten::rare", *jobs[0].categories["op"][1:]]},
    )
    found = fitted([rare, *jobs[1:]], 5)
    assert found is not None
    assert "aten::rare" not in found.operators
    assert fitted(jobs, 6) is None


def test_messages_have_usual_times_by_ranks():
    jobs = costed_jobs([8] * 10)
    more = [timed(replace(j, conditions={**j.conditions, "world_size": "4"}), 10) for j in jobs]
    found = fitted([*jobs, *more], 5)
    assert found is not None
    sent = found.operators["c10d::all_reduce"].points
    assert [point[3] for point in sent] == [1, 4]
    assert sent[1][4] - sent[0][4] == pytest.approx(np.log(10), abs=0.02)
    assert {point[3] for point in found.operators["aten::mm"].points} == {0}


def test_no_factor_is_that_of_a_single_job():
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


def test_factors_of_jobs_are_their_speeds():
    speeds = np.exp(np.linspace(-2, 2, 80))
    found = fitted([timed(costed_job(8), float(speed)) for speed in speeds], 5)
    assert found is not None
    assert -2 < found.factors[0] < -1.5 < 1.5 < found.factors[-1] < 2


def test_jobs_without_durations_tell_nothing():
    job = costed_job(8)
    plain = {name: value for name, value in job.numbers.items() if name != "duration"}
    assert fitted([replace(job, numbers=plain)] * 5, 5) is None
    absent = {**job.numbers, "duration": np.full(5, np.nan)}
    assert fitted([replace(job, numbers=absent)] * 5, 5) is None


@pytest.mark.parametrize(
    ("conditions", "ranks"),
    [({}, 0), ({"world_size": "2"}, 2), ({"world_size": 4.0}, 4), ({"world_size": "many"}, 0)],
)
def test_ranks_are_counted_for_messages_alone(conditions, ranks):
    found = fitted([replace(costed_job(8), conditions=conditions)] * 5, 5)
    assert found is not None
    for operator, entry in found.operators.items():
        sent = operator == "c10d::all_reduce"
        assert {point[3] for point in entry.points} == {ranks if sent else 0}


def test_entries_of_earlier_versions_are_ignored_and_unknown_ones_refused():
    written = TABLE.to_dict()
    kind = CategoryAttribute("kind", ("a",))
    plain = GraphSchema(FLOW, (kind,), ("data",)).to_dict()
    older = {**written, "per_label": 0.01, "label": -20.0}
    assert GraphSchema.from_dict({**plain, "durations": older}).durations == TABLE
    with pytest.raises(CheckpointError, match="speed"):
        GraphSchema.from_dict({**plain, "durations": {**written, "speed": 1.0}})
