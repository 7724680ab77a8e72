import json
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from costed_jobs import ROWS, costed_job, costed_jobs, schema_of_jobs

from layerdag.errors import CheckpointError
from layerdag.schema.costs import NO_COSTS, PRODUCTS, ByteRule, CostTable, fit_costs, fits_shapes
from layerdag.schema.schema import GraphSchema
from layerdag.traces.pytorch.operators import TensorView, operation_count


def test_only_costs_that_enough_jobs_share_are_kept():
    table = fit_costs(costed_jobs([8] * 5 + [32] * 4), 5)
    relu = table.operators["aten::relu"]
    assert relu.costs == ((ROWS * 8, 8 * ROWS * 8, 0),)
    assert relu.fractions == (0.56,)
    assert table.operators["c10d::all_reduce"].costs == ((0, 8 * 64, 4 * 64),)


def test_many_nodes_of_one_job_do_not_make_a_number_shared():
    job = costed_job(8)
    many = replace(
        job,
        categories={name: words * 10 for name, words in job.categories.items()},
        numbers={name: np.tile(values, 10) for name, values in job.numbers.items()},
    )
    table = fit_costs([many, costed_job(16), costed_job(32)], 2)
    assert table.operators
    assert not any(entry.costs for entry in table.operators.values())


def test_a_rule_that_jobs_of_any_size_share_is_found():
    table = fit_costs(costed_jobs([8, 16, 32, 64, 128]), 5)
    assert table.operators["aten::relu"].costs == ()
    assert table.operators["aten::relu"].rules[0] == ByteRule(8, 1, 0)
    assert table.operators["aten::threshold_backward"].rules[0] == ByteRule(12, 1, 0)
    assert table.operators["c10d::all_reduce"].rules[0] == ByteRule(2, 1, 0)
    assert ByteRule(8, 1, 0).bytes_of(7) == 56


def test_changes_of_size_along_data_dependencies_are_counted():
    table = fit_costs(costed_jobs([8, 16, 32, 64, 128]), 5)
    assert table.steps["aten::relu", "aten::threshold_backward"] == {Fraction(1): 1.0}
    assert ("aten::mm", "aten::relu") not in table.steps
    same = fit_costs(costed_jobs([8] * 5), 5)
    assert same.steps["aten::mm", "aten::relu"] == {Fraction(1, 16): 1.0}
    jobs = [replace(job, edge_type_E=np.ones(4, dtype=int)) for job in costed_jobs([8] * 5)]
    assert fit_costs(jobs, 5).steps == {}


def test_products_are_named_where_their_numbers_may_have_shapes():
    jobs = costed_jobs([8, 16, 32])
    assert fit_costs(jobs, 3).products == ("aten::mm",)
    strange = replace(jobs[0], numbers={**jobs[0].numbers, "bytes": np.full(5, 7.0)})
    assert fit_costs([*jobs, strange], 3).products == ()


def test_graphs_that_are_no_jobs_have_no_costs():
    job = costed_job(8)
    timed = replace(job, numbers={"duration": job.numbers["duration"]})
    assert fit_costs([timed], 1) is NO_COSTS
    assert fit_costs([], 1) is NO_COSTS
    assert not NO_COSTS


def tensor(*shape: int) -> TensorView:
    size = 4 * math.prod(shape)
    return TensorView(0, 0, size, size, shape, "float32", "cpu")


@pytest.mark.parametrize(
    ("operator", "reads", "writes"),
    [
        ("aten::mm", [(4, 8), (8, 2)], (4, 2)),
        ("aten::addmm", [(2,), (4, 8), (8, 2)], (4, 2)),
        ("aten::bmm", [(3, 4, 8), (3, 8, 2)], (3, 4, 2)),
        ("aten::baddbmm", [(3, 4, 2), (3, 4, 8), (3, 8, 2)], (3, 4, 2)),
    ],
)
def test_rules_give_what_the_importer_counts(operator, reads, writes):
    batch = 3 if len(writes) == 3 else 1
    cost = PRODUCTS[operator].cost(*(np.array([size]) for size in (batch, 4, 8, 2)))
    shapes = [*reads, writes]
    counted = operation_count(operator, [tensor(*shape) for shape in reads], [tensor(*writes)])
    assert int(cost[0][0]) == counted
    assert int(cost[1][0]) == sum(int(np.prod(shape)) for shape in shapes)


def test_every_shape_fits_the_laws_and_odd_or_starved_products_do_not():
    b, m, k, n = np.array([[1, 1, 1, 1], [1, 4, 8, 2], [7, 3, 5, 9], [1, 64, 64, 64]]).T
    for form in PRODUCTS.values():
        flops, elements = form.cost(b, m, k, n)
        for element in (1, 4, 8):
            assert fits_shapes(flops.astype(float), (elements * element).astype(float)).all()
    assert not fits_shapes(np.array([2.0**20 + 1, 2.0**20, 2.0]), np.array([1e5, 100, 1e6])).any()


JOBS = costed_jobs([8, 16] * 125)
TABLE = fit_costs(JOBS, 5)
SCHEMA = json.dumps(schema_of_jobs(JOBS).to_dict())


def test_a_table_comes_back_from_json():
    assert CostTable.from_dict(json.loads(json.dumps(TABLE.to_dict()))) == TABLE
    assert TABLE.time is not None
    assert TABLE.durations is not None
    assert GraphSchema.from_dict(json.loads(SCHEMA)).costs == TABLE


def test_changes_of_size_are_looked_up_by_the_quotient_of_sizes():
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
def test_damaged_tables_are_refused(path, wrong):
    damaged = json.loads(SCHEMA)
    inner: Any = damaged["costs"]
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = wrong
    with pytest.raises(CheckpointError, match="schema cannot be read"):
        GraphSchema.from_dict(damaged)


def test_costs_need_operators_and_their_numbers():
    schema = json.loads(SCHEMA)
    renamed = {**schema, "numbers": [{**a, "name": a["name"] + "2"} for a in schema["numbers"]]}
    with pytest.raises(CheckpointError, match="no operators or numbers"):
        GraphSchema.from_dict(renamed)


def test_costs_may_have_no_durations():
    schema = json.loads(SCHEMA)
    del schema["costs"]["durations"]
    again = GraphSchema.from_dict(schema)
    assert again.costs.durations is None
    assert again.costs.time == TABLE.time
    assert again.to_dict()["costs"].keys() == schema["costs"].keys()


def test_a_schema_may_have_no_costs():
    schema = json.loads(SCHEMA)
    del schema["costs"]
    again = GraphSchema.from_dict(schema)
    assert not again.costs
    assert "costs" not in again.to_dict()
