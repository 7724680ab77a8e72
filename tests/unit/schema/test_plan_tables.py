"""What tables of plans hold, and what is drawn from them."""

import numpy as np
import pytest
from checked_parts import checked

from layerdag.schema.plan_tables import PlanColumn, PlannedStep, PlanTables, fit_plans

PLANS = [
    *(PlannedStep("gpt", "single", {"optimizer": "adamw", "clip": 0}) for _ in range(5)),
    *(PlannedStep("gpt", "data", {"data": 2, "optimizer": "adamw", "clip": 1.0}) for _ in range(9)),
    PlannedStep("gpt", "data", {"data": 64, "optimizer": "sgd", "clip": 1.0}),
    PlannedStep("mlp", "fsdp", {"fsdp": 2}),
]
TABLES = fit_plans(PLANS, np.arange(len(PLANS)), needed=5)


def test_only_values_that_several_programs_share_are_kept():
    found = {(c.strategy, c.setting): dict(zip(c.values, c.programs, strict=True))
             for c in TABLES.columns}  # fmt: skip
    assert {column.family for column in TABLES.columns} == {"gpt"}
    assert found["", "strategy"] == {"data": 10, "single": 5}
    assert found["data", "data"] == {2: 10}
    assert found["data", "optimizer"] == {"adamw": 10}
    assert not fit_plans(PLANS, np.zeros(len(PLANS), dtype=np.int64), needed=5)


def test_plans_are_drawn_as_programs_of_the_family_have_them():
    rng = np.random.default_rng(0)
    drawn = [TABLES.draw("gpt", rng) for _ in range(1000)]
    spread = [plan for plan in drawn if plan.strategy == "data"]
    assert 0.6 < len(spread) / 1000 < 0.73  # 10 of 15
    assert {tuple(plan.settings.items()) for plan in spread} == {
        (("clip", 1.0), ("data", 2), ("optimizer", "adamw"))
    }
    assert TABLES.draw("cnn", rng) == PlannedStep("cnn", "single", {})


def test_what_is_written_is_read_back():
    assert PlanTables(tuple(checked(PlanColumn, row) for row in TABLES.to_dict())) == TABLES


@pytest.mark.parametrize(
    "change",
    [
        {"setting": "shell"},
        {"strategy": "ring"},
        {"values": []},
        {"values": [-1]},
        {"values": [1.5]},
        {"values": ["2"]},
        {"programs": [0]},
        {"programs": [5, 5]},
        {"setting": "strategy", "strategy": "", "values": ["ring"]},
        {"setting": "optimizer", "values": [3]},
    ],
)
def test_what_is_no_table_is_refused(change):
    column = {"family": "gpt", "strategy": "data", "setting": "data", "values": [2],
              "programs": [5]}  # fmt: skip
    assert checked(PlanColumn, column)
    with pytest.raises(ValueError, match="no setting of a plan with its values"):
        checked(PlanColumn, {**column, **change})
