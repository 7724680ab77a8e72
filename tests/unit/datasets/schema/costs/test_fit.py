from dataclasses import replace
from fractions import Fraction

import numpy as np
from costed_jobs import ROWS, costed_job, costed_jobs

from layerdag.datasets.schema.costs import NO_COSTS, ByteRule, fit_costs


def test_only_costs_that_enough_jobs_share_are_kept() -> None:
    table = fit_costs(costed_jobs([8] * 5 + [32] * 4), 5)
    relu = table.operators["aten::relu"]
    assert relu.costs == ((ROWS * 8, 8 * ROWS * 8, 0),)
    assert relu.fractions == (0.56,)
    assert table.operators["c10d::all_reduce"].costs == ((0, 8 * 64, 4 * 64),)


def test_many_nodes_of_one_job_do_not_make_a_number_shared() -> None:
    job = costed_job(8)
    many = replace(
        job,
        categories={name: words * 10 for name, words in job.categories.items()},
        numbers={name: np.tile(values, 10) for name, values in job.numbers.items()},
    )
    table = fit_costs([many, costed_job(16), costed_job(32)], 2)
    assert table.operators
    assert not any(entry.costs for entry in table.operators.values())


def test_a_rule_that_jobs_of_any_size_share_is_found() -> None:
    table = fit_costs(costed_jobs([8, 16, 32, 64, 128]), 5)
    assert table.operators["aten::relu"].costs == ()
    assert table.operators["aten::relu"].rules[0] == ByteRule(8, 1, 0)
    assert table.operators["aten::threshold_backward"].rules[0] == ByteRule(12, 1, 0)
    assert table.operators["c10d::all_reduce"].rules[0] == ByteRule(2, 1, 0)
    assert ByteRule(8, 1, 0).bytes_of(7) == 56


def test_changes_of_size_along_dependencies_are_counted() -> None:
    table = fit_costs(costed_jobs([8, 16, 32, 64, 128]), 5)
    assert table.steps["aten::relu", "aten::threshold_backward"] == {Fraction(1): 1.0}
    assert ("aten::mm", "aten::relu") not in table.steps
    same = fit_costs(costed_jobs([8] * 5), 5)
    assert same.steps["aten::mm", "aten::relu"] == {Fraction(1, 16): 1.0}


def test_control_dependencies_do_not_count() -> None:
    jobs = [replace(job, edge_type_E=np.ones(4, dtype=int)) for job in costed_jobs([8] * 5)]
    assert fit_costs(jobs, 5).steps == {}


def test_products_are_named_where_their_numbers_may_have_shapes() -> None:
    jobs = costed_jobs([8, 16, 32])
    assert fit_costs(jobs, 3).products == ("aten::mm",)
    strange = replace(jobs[0], numbers={**jobs[0].numbers, "bytes": np.full(5, 7.0)})
    assert fit_costs([*jobs, strange], 3).products == ()


def test_graphs_that_are_no_jobs_have_no_costs() -> None:
    job = costed_job(8)
    timed = replace(job, numbers={"duration": job.numbers["duration"]})
    assert fit_costs([timed], 1) is NO_COSTS
    assert fit_costs([], 1) is NO_COSTS
    assert not NO_COSTS
