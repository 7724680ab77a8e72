from collections.abc import Mapping

import numpy as np
import pytest
from costed_jobs import ROWS, costed_jobs

from layerdag.datasets.schema import GraphSchema, NumericAttribute
from layerdag.datasets.schema.costs import COST_NAMES, ByteRule, CostTable, OperatorCosts, fit_costs
from layerdag.sampling.numbers._candidates import CandidateIndex, JobCandidates

WIDTHS = [8] * 20 + [16] * 20 + [24, 40, 48, 56, 72]
NUMBERS: Mapping[str, NumericAttribute] = {
    a.name: a
    for a in GraphSchema.fit("trace", costed_jobs(WIDTHS), num_bins=2).attributes
    if isinstance(a, NumericAttribute)
}


def wide(name: str, high: float) -> NumericAttribute:
    """Return an attribute with one bin from 100 to a value."""
    return NumericAttribute(name, "1", ((100.0, *(high,) * 4),))


WIDE = {name: wide(name, 10_000.0) for name in COST_NAMES}


def job(table: CostTable, attributes: Mapping[str, NumericAttribute] = WIDE) -> JobCandidates:
    return JobCandidates(CandidateIndex.of(table, attributes), np.random.default_rng(0))


def ruled(operator: str, *rules: ByteRule) -> CostTable:
    return CostTable({operator: OperatorCosts((), (), rules)})


def test_costs_that_jobs_share_come_first() -> None:
    table = fit_costs(costed_jobs(WIDTHS), 5)
    codes = [
        int(NUMBERS[name].encode(np.array([value]))[0][0])
        for name, value in zip(COST_NAMES, (ROWS * 8.0, 8 * ROWS * 8.0, np.nan), strict=True)
    ]
    found = job(table, NUMBERS).of(("aten::relu", codes[0], codes[1], codes[2]), "float32")
    assert (ROWS * 8, 8 * ROWS * 8, 0) in found.costs
    assert found.sizes == [flops for flops, _, _ in found.costs]


def test_bytes_follow_from_the_size_by_a_rule() -> None:
    [(flops, moved, sent)] = (
        job(ruled("aten::mul", ByteRule(9, 2, 4))).of(("aten::mul", 1, 1, 0), "float32").costs
    )
    assert 100 <= flops <= 10_000
    assert moved == 9 * (flops // 2) + 4
    assert moved % 4 == 0
    assert sent == 0


def test_messages_have_the_rule_of_their_size() -> None:
    [(flops, moved, sent)] = (
        job(ruled("c10d::all_gather", ByteRule(5, 1, 0)))
        .of(("c10d::all_gather", 0, 1, 1), "float32")
        .costs
    )
    assert (flops, moved) == (0, 5 * sent)
    assert sent % 4 == 0


def test_operators_of_one_job_agree_on_a_size() -> None:
    rules = (ByteRule(8, 1, 0),)
    table = CostTable({op: OperatorCosts((), (), rules) for op in ("aten::a", "aten::b")})
    candidates = job(table)
    first, second = (candidates.of((op, 1, 1, 0), "float32") for op in ("aten::a", "aten::b"))
    assert first.costs == second.costs
    assert candidates.of(("aten::a", 1, 1, 0), "float32") is first


@pytest.mark.parametrize("operator", ["aten::convolution", "aten::convolution_backward"])
def test_convolutions_take_even_numbers_of_operations(operator: str) -> None:
    for rules in ((ByteRule(1, 3, 0),), ()):
        [(flops, moved, _)] = job(ruled(operator, *rules)).of((operator, 1, 1, 0), "").costs
        assert flops % 2 == 0
        assert moved % 4 == 0


def test_rules_that_no_size_in_the_bins_fits_are_passed_over() -> None:
    narrow = {**WIDE, "bytes": wide("bytes", 104.0)}
    table = ruled("aten::mul", ByteRule(1000, 1, 0), ByteRule(1, 2, 0))
    [(flops, moved, _)] = job(table, narrow).of(("aten::mul", 1, 1, 0), "").costs
    assert flops == 2 * moved
    none = job(ruled("aten::mul", ByteRule(1000, 1, 0)), narrow)
    [other] = none.of(("aten::mul", 1, 1, 0), "").costs
    assert other[1] in (100, 104)


def test_products_have_shapes_where_those_of_training_may_have() -> None:
    key = ("aten::mm", 1, 1, 0)
    shaped = job(CostTable({}, {}, ("aten::mm",))).of(key, "bfloat16")
    assert all(moved % 2 == 0 and flops % 2 == 0 for flops, moved, _ in shaped.costs)
    assert len(shaped.costs) > 1
    assert len(job(CostTable()).of(key, "bfloat16").costs) == 1


def test_absent_numbers_stay_absent() -> None:
    nothing = job(CostTable())
    assert nothing.of(("aten::view", 0, 0, 0), "").costs == [(0, 0, 0)]
    [(flops, moved, sent)] = nothing.of(("aten::view", 1, 0, 0), "").costs
    assert flops % 2 == 0
    assert (moved, sent) == (0, 0)
    [(flops, moved, sent)] = nothing.of(("aten::view", 0, 1, 0), "").costs
    assert (flops, moved % 4, sent) == (0, 0, 0)


@pytest.mark.parametrize("lost", [1, 2])
def test_a_product_without_one_of_its_numbers_gets_both_of_a_shared_cost(lost: int) -> None:
    table = fit_costs(costed_jobs(WIDTHS), 5)
    candidates = job(table, NUMBERS)
    for cost in table.operators["aten::mm"].costs:
        codes = [
            int(NUMBERS[name].encode(np.array([float(value)]))[0][0])
            for name, value in zip(COST_NAMES[:2], cost[:2], strict=True)
        ]
        codes[lost - 1] = 0
        assert cost in candidates.of(("aten::mm", codes[0], codes[1], 0), "float32").costs
    assert job(CostTable({}, {}, ("aten::mm",))).of(("aten::mm", 1, 0, 0), "").costs[0][1] == 0


@pytest.mark.parametrize(
    ("table", "operator"),
    [
        (CostTable({}, {}, ("aten::mm",)), "aten::mm"),
        (ruled("aten::mul", ByteRule(9, 2, 4)), "aten::mul"),
        (CostTable(), "aten::any"),
    ],
)
def test_costs_that_a_node_may_not_have_are_replaced_by_others_near(
    table: CostTable, operator: str
) -> None:
    candidates = job(table)
    forbidden = set(candidates.of((operator, 1, 1, 0), "float32").costs)
    found = candidates.allowed(
        (operator, 1, 1, 0), "float32", lambda costs: [cost not in forbidden for cost in costs]
    )
    assert found.costs
    assert not forbidden & set(found.costs)
    assert all(100 / 8 <= flops <= 8 * 10_000 for flops, _, _ in found.costs)


def test_allowed_candidates_are_the_same_for_every_node_of_a_job() -> None:
    candidates = job(CostTable({}, {}, ("aten::mm",)))
    forbidden = set(candidates.of(("aten::mm", 1, 1, 0), "").costs)
    first, again = (
        candidates.allowed(
            ("aten::mm", 1, 1, 0), "", lambda costs: [c not in forbidden for c in costs]
        )
        for _ in range(2)
    )
    assert first.costs == again.costs


def test_of_several_candidates_those_that_a_node_may_have_stay() -> None:
    candidates = job(CostTable({}, {}, ("aten::mm",)))
    found = candidates.of(("aten::mm", 1, 1, 0), "")
    first = found.costs[0]
    kept = candidates.allowed(("aten::mm", 1, 1, 0), "", lambda costs: [c != first for c in costs])
    assert list(kept.costs) == list(found.costs[1:])
    assert list(kept.log_weights) == list(found.log_weights[1:])


def test_a_node_that_may_have_nothing_keeps_its_candidates() -> None:
    candidates = job(CostTable())
    found = candidates.of(("aten::any", 1, 1, 0), "")
    assert (
        candidates.allowed(("aten::any", 1, 1, 0), "", lambda costs: [False] * len(costs)) is found
    )
