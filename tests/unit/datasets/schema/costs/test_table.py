import json
from typing import Any

import pytest
from costed_jobs import costed_jobs

from layerdag.datasets.schema import GraphSchema
from layerdag.datasets.schema.costs import CostTable, fit_costs
from layerdag.errors import CheckpointError

JOBS = costed_jobs([8, 16] * 125)
TABLE = fit_costs(JOBS, 5)
SCHEMA = json.dumps(GraphSchema.fit("trace", JOBS).to_dict())


def test_a_table_comes_back_from_json() -> None:
    assert CostTable.from_dict(json.loads(json.dumps(TABLE.to_dict()))) == TABLE
    assert TABLE.time is not None
    assert TABLE.durations is not None
    assert GraphSchema.from_dict(json.loads(SCHEMA)).costs == TABLE


def test_changes_of_size_are_looked_up_by_the_quotient_of_sizes() -> None:
    sizes = {width: (16 * width, 2 * 16 * width * width) for width in (8, 16)}
    expected = {elements / flops: 0.5 for elements, flops in sizes.values()}
    assert TABLE.step_shares["aten::mm", "aten::relu"] == expected


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        (("operators", "aten::mm", "costs", 0, 0), -1),
        (("operators", "aten::mm", "costs", 0, 0), 1 << 62),
        (("operators", "aten::mm", "costs", 0, 1), 1.5),
        (("operators", "aten::mm", "costs", 0, 3), 0),
        (("operators", "aten::mm", "costs", 0, 3), float("nan")),
        (("operators", "aten::relu", "rules", 0, 0), 0),
        (("operators", "aten::relu", "rules", 0, 1), 0),
        (("steps", 0, 2, 0, 1), 0),
        (("products",), ["aten::relu"]),
        (("time", "low"), 2e3),
        (("time", "low"), 900.0),
        (("time",), {}),
        (("durations", "operators", "aten::mm", "points", 0, 0), -1),
        (("durations", "factors"), []),
        (("durations",), None),
        (("operators",), []),
    ],
)
def test_damaged_tables_are_refused(path: tuple[Any, ...], wrong: object) -> None:
    damaged = json.loads(SCHEMA)
    inner: Any = damaged["costs"]
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = wrong
    with pytest.raises(CheckpointError, match="schema cannot be read"):
        GraphSchema.from_dict(damaged)


def test_costs_need_operators_and_their_numbers() -> None:
    schema = json.loads(SCHEMA)
    renamed = {**schema, "numbers": [{**a, "name": a["name"] + "2"} for a in schema["numbers"]]}
    with pytest.raises(CheckpointError, match="no operators or numbers"):
        GraphSchema.from_dict(renamed)


def test_costs_of_before_have_no_durations() -> None:
    schema = json.loads(SCHEMA)
    del schema["costs"]["durations"]
    again = GraphSchema.from_dict(schema)
    assert again.costs.durations is None
    assert again.costs.time == TABLE.time
    assert again.to_dict()["costs"].keys() == schema["costs"].keys()


def test_a_schema_of_before_has_no_costs() -> None:
    schema = json.loads(SCHEMA)
    del schema["costs"]
    again = GraphSchema.from_dict(schema)
    assert not again.costs
    assert "costs" not in again.to_dict()
