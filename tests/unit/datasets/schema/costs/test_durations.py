import json
import math
from typing import Any

import numpy as np
import pytest

from layerdag.datasets.schema.costs import LEVELS, Durations, OperatorDurations, _durations

NONE = (0.0,) * len(LEVELS)
RISING = tuple(math.log(1 + level) for level in LEVELS)
MM = OperatorDurations(((256, 64, 0, 0, 3.0), (1024, 256, 0, 0, 5.0)), RISING)
SEND = OperatorDurations(((0, 8, 8, 2, 1.0), (0, 8, 8, 4, 2.0)), NONE)
TABLE = Durations({"aten::mm": MM, "c10d::send": SEND}, RISING, per_label=0.5, label=-20.0)


def test_a_known_cost_takes_its_usual_time_and_a_new_one_lies_between_its_neighbors() -> None:
    costs = np.array([[256, 64, 0, 0], [1024, 256, 0, 0], [512, 128, 0, 0], [300, 70, 0, 0]])
    known, other, middle, near = TABLE.usual(["aten::mm"] * 4, costs)
    assert (known, other) == (3.0, 5.0)
    assert middle == pytest.approx(4.0, abs=0.05)
    assert 3.0 < near < middle


def test_many_costs_are_looked_up_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = np.array([[flops, 64, 0, 0] for flops in (1024, 256, 300, 256, 512)])
    at_once = MM.usual(costs)
    monkeypatch.setattr(_durations, "_DISTANCES", 4)  # two rows of two points
    assert MM.usual(costs).tolist() == at_once.tolist()


def test_a_message_takes_as_long_as_between_so_many_ranks() -> None:
    costs = np.array([[0, 8, 8, 2], [0, 8, 8, 4]])
    assert TABLE.usual(["c10d::send"] * 2, costs).tolist() == [1.0, 2.0]


def test_an_unknown_operator_has_no_usual_time() -> None:
    found = TABLE.usual(["aten::relu", "aten::mm"], np.array([[256, 64, 0, 0]] * 2))
    assert np.isnan(found[0])
    assert found[1] == 3.0


def test_factors_follow_the_quantiles_of_the_operator() -> None:
    draw_N = np.array([0.0, 0.5, 0.75, 0.5])
    names = ["aten::mm", "aten::mm", "aten::mm", "c10d::send"]
    found = TABLE.node_factors(names, draw_N)
    assert found == pytest.approx([0.0, math.log(1.5), math.log(1.75), 0.0])


def test_a_job_that_takes_longer_than_its_nodes_usually_do_is_slower() -> None:
    usual_N = np.log([600.0, 400.0])
    usual = 1000 * math.exp(-20.0)
    plain = TABLE.job_factor(usual_N, None, 0.5)
    assert plain == pytest.approx(math.log(1.5))
    assert TABLE.job_factor(usual_N, usual, 0.5) == pytest.approx(plain)
    assert TABLE.job_factor(usual_N, usual * math.e, 0.5) == pytest.approx(plain + 0.5)


@pytest.mark.parametrize("label", ["slow", 0.0, -1.0, math.inf, math.nan])
def test_without_a_step_time_a_job_has_any_speed(label: Any) -> None:
    usual_N = np.array([1.0])
    assert TABLE.job_factor(usual_N, label, 0.5) == TABLE.job_factor(usual_N, None, 0.5)


def test_durations_come_back_from_json() -> None:
    assert Durations.from_dict(json.loads(json.dumps(TABLE.to_dict()))) == TABLE


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
        (("per_label",), 1e3),
        (("label",), "x"),
    ],
)
def test_damaged_durations_are_refused(path: tuple[Any, ...], wrong: object) -> None:
    damaged = json.loads(json.dumps(TABLE.to_dict()))
    inner: Any = damaged
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = wrong
    with pytest.raises((TypeError, ValueError)):
        Durations.from_dict(damaged)
