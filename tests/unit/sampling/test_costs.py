"""Numbers of given first and last nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from costed_jobs import EDGES, ROWS, costed_job, costed_jobs, schema_of_jobs

from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.runtime.rng import numpy_generator
from layerdag.sampling.computed_numbers import Computed
from layerdag.sampling.costs import (
    CandidateIndex,
    CostAssigner,
    GivenNumbers,
    JobCandidates,
    NumberAssigner,
    assigned_durations,
    product_costs,
)
from layerdag.sampling.folder import sample_entry
from layerdag.sampling.generated import GeneratedGraph
from layerdag.sampling.job_sizes import element_bytes
from layerdag.schema.attributes import NumericAttribute
from layerdag.schema.costs import (
    COST_NAMES,
    PRODUCTS,
    ByteRule,
    Cost,
    CostTable,
    OperatorCosts,
    data_edges,
    fit_costs,
)
from layerdag.schema.durations import LEVELS, Durations, OperatorDurations

SCHEMA = schema_of_jobs(costed_jobs([8, 16, 32] * 20), 1)
ONE_BIN = {name: NumericAttribute(name, "1", ((1.0, 1e2, 1e4, 1e6, 1e8),)) for name in COST_NAMES}
ASSIGNER = CostAssigner(SCHEMA.costs, ONE_BIN)


def assigned(seed: int, operators: list[str] | None = None) -> Mapping[str, np.ndarray]:
    """Return the costs of a job of which every number may be any."""
    graph = costed_job(8)
    if operators:
        graph = replace(graph, categories={**graph.categories, "op": operators})
    codes = {name: (~np.isnan(graph.numbers[name])).astype(int) for name in COST_NAMES}
    return ASSIGNER.assigned(graph, codes, np.random.default_rng(seed))


def test_sizes_change_along_dependencies_as_they_do_in_training():
    operators = costed_job(8).categories["op"]
    unseen = 0
    for seed in range(30):
        found = assigned(seed)
        sizes = np.where(np.isnan(found["flops"]), found["comm_bytes"], found["flops"])
        for parent, child in EDGES:
            known = SCHEMA.costs.step_shares[operators[parent], operators[child]]
            unseen += sizes[child] / sizes[parent] not in known
        assert found["bytes"][1] == 8 * found["flops"][1]
        assert found["bytes"][4] == 2 * found["comm_bytes"][4]
    # Drawn apart, half of the 120 would be.
    assert unseen <= 5


def test_operators_without_costs_get_whole_elements():
    found = assigned(0, ["aten::new"] * 5)
    known = found["bytes"][np.isfinite(found["bytes"])]
    assert not (known % 4).any()
    assert np.isnan(found["comm_bytes"][:4]).all()


def test_nodes_get_no_cost_that_they_may_not_have():
    graph = costed_job(8)
    codes = {name: (~np.isnan(graph.numbers[name])).astype(int) for name in COST_NAMES}
    usual = {int(assigned(seed)["flops"][1]) for seed in range(10)}
    asked: set[int] = set()

    def allows(node: int, costs: Sequence[Cost]) -> Sequence[bool]:
        asked.add(node)
        return [node != 1 or cost[0] not in usual for cost in costs]

    for seed in range(10):
        found = ASSIGNER.assigned(graph, codes, np.random.default_rng(seed), allows=allows)
        assert int(found["flops"][1]) not in usual
        assert int(found["flops"][2]) in usual
    assert asked == set(range(graph.num_nodes))


def test_kept_nodes_keep_their_costs_wherever_they_are():
    graph = costed_job(8)
    codes = {name: (~np.isnan(graph.numbers[name])).astype(int) for name in COST_NAMES}
    numbers = {**graph.numbers, "flops": graph.numbers["flops"] + 1}
    odd = replace(graph, numbers=numbers)
    found = ASSIGNER.assigned(odd, codes, np.random.default_rng(0), [0, 2])
    assert found["flops"][2] == numbers["flops"][2] != found["flops"][1]
    assert found["flops"][1] != numbers["flops"][1]


WIDTHS = [8] * 20 + [16] * 20 + [24, 40, 48, 56, 72]
NUMBERS: Mapping[str, NumericAttribute] = {
    a.name: a
    for a in schema_of_jobs(costed_jobs(WIDTHS), 2).attributes
    if isinstance(a, NumericAttribute)
}


def wide(name: str, high: float) -> NumericAttribute:
    """Return an attribute with one bin from 100 to a value."""
    return NumericAttribute(name, "1", ((100.0, *(high,) * 4),))


WIDE = {name: wide(name, 10_000.0) for name in COST_NAMES}


def job(table: CostTable, attributes: Mapping[str, NumericAttribute] = WIDE) -> JobCandidates:
    return JobCandidates(CandidateIndex.from_table(table, attributes), np.random.default_rng(0))


def ruled(operator: str, *rules: ByteRule) -> CostTable:
    return CostTable({operator: OperatorCosts((), (), rules)})


def test_costs_that_jobs_share_come_first():
    table = fit_costs(costed_jobs(WIDTHS), 5)
    codes = [
        int(NUMBERS[name].encode(np.array([value]))[0][0])
        for name, value in zip(COST_NAMES, (ROWS * 8.0, 8 * ROWS * 8.0, np.nan), strict=True)
    ]
    found = job(table, NUMBERS).of(("aten::relu", codes[0], codes[1], codes[2]), "float32")
    assert (ROWS * 8, 8 * ROWS * 8, 0) in found.costs
    assert found.sizes == [flops for flops, _, _ in found.costs]


def test_bytes_follow_from_the_size_by_a_rule():
    [(flops, moved, sent)] = (
        job(ruled("aten::mul", ByteRule(9, 2, 4))).of(("aten::mul", 1, 1, 0), "float32").costs
    )
    assert 100 <= flops <= 10_000
    assert moved == 9 * (flops // 2) + 4
    assert moved % 4 == 0
    assert sent == 0


def test_messages_have_the_rule_of_their_size():
    [(flops, moved, sent)] = (
        job(ruled("c10d::all_gather", ByteRule(5, 1, 0)))
        .of(("c10d::all_gather", 0, 1, 1), "float32")
        .costs
    )
    assert (flops, moved) == (0, 5 * sent)
    assert sent % 4 == 0


def test_operators_of_one_job_agree_on_a_size():
    rules = (ByteRule(8, 1, 0),)
    table = CostTable({op: OperatorCosts((), (), rules) for op in ("aten::a", "aten::b")})
    candidates = job(table)
    first, second = (candidates.of((op, 1, 1, 0), "float32") for op in ("aten::a", "aten::b"))
    assert first.costs == second.costs
    assert candidates.of(("aten::a", 1, 1, 0), "float32") is first


@pytest.mark.parametrize("operator", ["aten::convolution", "aten::convolution_backward"])
def test_convolutions_take_even_numbers_of_operations(operator):
    for rules in ((ByteRule(1, 3, 0),), ()):
        [(flops, moved, _)] = job(ruled(operator, *rules)).of((operator, 1, 1, 0), "").costs
        assert flops % 2 == 0
        assert moved % 4 == 0


def test_rules_that_no_size_in_the_bins_fits_are_passed_over():
    narrow = {**WIDE, "bytes": wide("bytes", 104.0)}
    table = ruled("aten::mul", ByteRule(1000, 1, 0), ByteRule(1, 2, 0))
    [(flops, moved, _)] = job(table, narrow).of(("aten::mul", 1, 1, 0), "").costs
    assert flops == 2 * moved
    none = job(ruled("aten::mul", ByteRule(1000, 1, 0)), narrow)
    [other] = none.of(("aten::mul", 1, 1, 0), "").costs
    assert other[1] in (100, 104)


def test_products_have_shapes_where_those_of_training_may_have():
    key = ("aten::mm", 1, 1, 0)
    shaped = job(CostTable({}, {}, ("aten::mm",))).of(key, "bfloat16")
    assert all(moved % 2 == 0 and flops % 2 == 0 for flops, moved, _ in shaped.costs)
    assert len(shaped.costs) > 1
    assert len(job(CostTable()).of(key, "bfloat16").costs) == 1


def test_absent_numbers_stay_absent():
    nothing = job(CostTable())
    assert nothing.of(("aten::view", 0, 0, 0), "").costs == [(0, 0, 0)]
    [(flops, moved, sent)] = nothing.of(("aten::view", 1, 0, 0), "").costs
    assert flops % 2 == 0
    assert (moved, sent) == (0, 0)
    [(flops, moved, sent)] = nothing.of(("aten::view", 0, 1, 0), "").costs
    assert (flops, moved % 4, sent) == (0, 0, 0)


@pytest.mark.parametrize("lost", [1, 2])
def test_a_product_without_one_of_its_numbers_gets_both_of_a_shared_cost(lost):
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
def test_costs_that_a_node_may_not_have_are_replaced_by_others_near(table, operator):
    candidates = job(table)
    forbidden = set(candidates.of((operator, 1, 1, 0), "float32").costs)
    found = candidates.allowed(
        (operator, 1, 1, 0), "float32", lambda costs: [cost not in forbidden for cost in costs]
    )
    assert found.costs
    assert not forbidden & set(found.costs)
    assert all(100 / 8 <= flops <= 8 * 10_000 for flops, _, _ in found.costs)


def test_of_several_candidates_those_that_a_node_may_have_stay():
    candidates = job(CostTable({}, {}, ("aten::mm",)))
    found = candidates.of(("aten::mm", 1, 1, 0), "")
    first = found.costs[0]
    kept = candidates.allowed(("aten::mm", 1, 1, 0), "", lambda costs: [c != first for c in costs])
    assert list(kept.costs) == list(found.costs[1:])
    assert list(kept.log_weights) == list(found.log_weights[1:])


def test_a_node_that_may_have_nothing_keeps_its_candidates():
    candidates = job(CostTable())
    found = candidates.of(("aten::any", 1, 1, 0), "")
    assert (
        candidates.allowed(("aten::any", 1, 1, 0), "", lambda costs: [False] * len(costs)) is found
    )


NONE = (0.0,) * len(LEVELS)
SPREAD = tuple(level - 0.5 for level in LEVELS)
RELU = OperatorDurations(((128, 1024, 0, 0, 5.0),), SPREAD)
MM = OperatorDurations(((2048, 1280, 0, 0, 9.0),), NONE)
TIMES = CostTable(durations=Durations({"aten::relu": RELU, "aten::mm": MM}, NONE, 0.0, 0.0))
JOB = costed_job(8)


def durations_of(
    times: CostTable, job: AttributedGraph, kept: int = 0, seed: int = 0
) -> np.ndarray:
    return assigned_durations(times, job, list(range(kept)), numpy_generator(seed, "durations"))


def test_nodes_take_as_long_as_their_operator_and_costs_do():
    found = np.array([durations_of(TIMES, JOB, seed=seed) for seed in range(300)])
    assert np.log(found[:, 0]) == pytest.approx(9.0)
    assert np.quantile(np.log(found[:, 1]), LEVELS[2:7]) == pytest.approx(
        [5.0 + log for log in SPREAD[2:7]], abs=0.1
    )


def test_nodes_of_which_nothing_is_known_keep_what_was_drawn():
    found = durations_of(TIMES, JOB)
    assert found[[2, 4]].tolist() == JOB.numbers["duration"][[2, 4]].tolist()
    bare = replace(JOB, numbers={**JOB.numbers, "duration": np.full(5, np.nan)})
    assert np.isnan(durations_of(TIMES, bare)).all()
    assert durations_of(CostTable(), JOB).tolist() == JOB.numbers["duration"].tolist()


def test_a_job_that_goes_on_keeps_its_speed():
    slow = JOB.numbers["duration"].copy()
    slow[0] = np.exp(9.0) * 20
    job = replace(JOB, numbers={**JOB.numbers, "duration": slow})
    assert durations_of(TIMES, job, kept=1)[3] == pytest.approx(np.exp(9.0) * 20)
    assert durations_of(TIMES, job)[3] == pytest.approx(np.exp(9.0))


def test_sums_beyond_the_usual_range_are_brought_back():
    jobs = costed_jobs([8, 16, 32] * 84)
    times = fit_costs(jobs, 5)
    asked = replace(jobs[2], conditions=jobs[0].conditions)
    free = durations_of(replace(times, time=None), asked)
    found = durations_of(times, asked)
    assert found.sum() < free.sum() / 1.5
    assert found / free == pytest.approx(found[0] / free[0])


FIRST = {"bytes": np.array([1.0, np.nan])}
DRAWN = {"bytes": np.arange(10.0, 15.0)}


@pytest.mark.parametrize(
    ("given", "numbers", "rows"),
    [
        (GivenNumbers(FIRST, {"bytes": np.array([7.0])}), [1, np.nan, 12, 13, 7], [0, 1, 4]),
        (GivenNumbers.of_first(FIRST), [1, np.nan, 12, 13, 14], [0, 1]),
    ],
)
def test_given_numbers_take_the_place_of_drawn_ones(given, numbers, rows):
    np.testing.assert_equal(given.in_place_of(DRAWN), {"bytes": np.array(numbers)})
    assert given.rows(5) == rows


JOBS = costed_jobs([8, 16, 32] * 84)
JOBS_SCHEMA = schema_of_jobs(JOBS, 4)
BEFORE = replace(JOBS_SCHEMA, costs=replace(JOBS_SCHEMA.costs, durations=None))


def test_real_jobs_of_shared_sizes_keep_their_costs():
    for job in JOBS[:3]:
        found = NumberAssigner(JOBS_SCHEMA).assigned(JOBS_SCHEMA.encode(job), 0).numbers
        for name in COST_NAMES:
            np.testing.assert_array_equal(found[name], job.numbers[name])


def test_without_usual_durations_proportions_are_kept_and_the_sum_is_a_usual_one():
    job = replace(JOBS[1], conditions={**JOBS[1].conditions, "label": JOBS[0].conditions["label"]})
    dag = JOBS_SCHEMA.encode(job)
    drawn = JOBS_SCHEMA.decode(dag).numbers["duration"]
    found = NumberAssigner(BEFORE).assigned(dag, 0).numbers["duration"]
    assert drawn.sum() / 5 < found.sum() < drawn.sum() / 1.5
    least = JOBS_SCHEMA.attributes[-1].bins[0][0]
    assert (found >= least).all()
    free = found > least
    assert found[free] / drawn[free] == pytest.approx((found / drawn)[free][0], rel=0.01)


def test_without_a_label_or_a_relation_durations_are_those_drawn():
    dag = JOBS_SCHEMA.encode(costed_job(8))
    drawn = JOBS_SCHEMA.decode(dag).numbers["duration"]
    found = NumberAssigner(BEFORE).assigned(dag, 0).numbers
    np.testing.assert_allclose(found["duration"], drawn, atol=0.5)
    untimed = replace(BEFORE, costs=replace(BEFORE.costs, time=None))
    assert "duration" not in NumberAssigner(untimed).assigned(dag, 0).numbers


def test_durations_go_with_the_costs_that_nodes_were_given():
    dag = JOBS_SCHEMA.encode(costed_job(8, ns_per_flop=50.0))
    found = NumberAssigner(JOBS_SCHEMA).assigned(dag, 0).numbers
    assert found["duration"][:4] == pytest.approx(found["flops"][:4] * 1.2, rel=0.25)
    again = NumberAssigner(JOBS_SCHEMA).assigned(dag, 0).numbers
    np.testing.assert_array_equal(found["duration"], again["duration"])


def test_given_durations_stay():
    job = JOBS[0]
    given = {name: value[:2] for name, value in job.numbers.items()}
    found = (
        NumberAssigner(JOBS_SCHEMA)
        .assigned(JOBS_SCHEMA.encode(job), 0, GivenNumbers.of_first(given))
        .numbers
    )
    np.testing.assert_array_equal(found["duration"][:2], given["duration"])


def test_a_graph_with_numbers_has_them_exactly_and_in_its_codes():
    dag = JOBS_SCHEMA.encode(JOBS[0])
    plain = GeneratedGraph("s", 0, dag, False, JOBS_SCHEMA)
    numbers = {"flops": JOBS[2].numbers["flops"]}
    changed = plain.with_numbers(numbers)
    np.testing.assert_array_equal(changed.graph.numbers["flops"], numbers["flops"])
    np.testing.assert_array_equal(changed.graph.numbers["bytes"], plain.graph.numbers["bytes"])
    decoded = JOBS_SCHEMA.decode(changed.dag).numbers["flops"]
    np.testing.assert_allclose(decoded, numbers["flops"], rtol=1e-3)
    assert changed.dag.conditions == dag.conditions


def test_what_was_computed_stands_in_the_graph_and_in_the_manifest():
    dag = JOBS_SCHEMA.encode(JOBS[0])
    found = Computed({"flops": JOBS[2].numbers["flops"]}, ((0, 2),), {"products": 1})
    sample = GeneratedGraph("s", 0, dag, False, JOBS_SCHEMA).with_computed(found)
    sample.dag.check()
    assert [0, 2] in sample.graph.edge_index_2E[:, data_edges(sample.graph)].T.tolist()
    np.testing.assert_array_equal(sample.graph.numbers["flops"], JOBS[2].numbers["flops"])
    assert sample_entry(sample, {})["computed"] == {"products": 1}


def factored(form, flops: int, elements: int, most: int = 4096) -> bool:
    """Whether some whole B, M, K, N have these FLOPs and elements."""
    pairs = flops // 2
    of = [size for size in range(1, min(pairs, most) + 1) if pairs % size == 0]
    for batch in of if form.batched else [1]:
        for rows in (m for m in of if pairs // batch % m == 0):
            left = pairs // batch // rows
            inner = np.array([k for k in of if left % k == 0])
            cost = form.cost(*(np.full_like(inner, x) for x in (batch, rows)), inner, left // inner)
            if (cost[1] == elements).any():
                return True
    return False


@pytest.mark.parametrize("operator", PRODUCTS)
def test_numbers_within_bounds_have_shapes(operator):
    form = PRODUCTS[operator]
    found = product_costs(form, 4, (1e5, 3e5), (3e4, 6e4), np.random.default_rng(0))
    assert found
    for flops, moved in found:
        assert 1e5 <= flops <= 3e5
        assert 3e4 <= moved <= 6e4
        assert moved % 4 == 0
        assert factored(form, flops, moved // 4)


def test_without_a_shape_within_bounds_the_nearest_is_taken():
    form = PRODUCTS["aten::mm"]
    found = product_costs(form, 4, (2e9, 2e9), (16, 16), np.random.default_rng(0))
    assert len(found) == 1
    assert factored(form, found[0][0], found[0][1] // 4, most=8192)


def test_plain_shapes_come_more_often():
    drawn = [
        product_costs(PRODUCTS["aten::mm"], 4, (1e6, 9e6), (1e5, 9e5), np.random.default_rng(seed))[
            0
        ][0]
        for seed in range(40)
    ]
    assert sum(flops & (flops - 1) == 0 for flops in drawn) > 20


def test_elements_have_the_size_of_their_type():
    assert [element_bytes(word) for word in ("float64", "bfloat16", "bool", "<other>")] == [
        8, 2, 1, 4,
    ]  # fmt: skip
