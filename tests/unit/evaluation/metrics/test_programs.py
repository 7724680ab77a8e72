"""Repeated blocks of small graphs, counted by hand."""

import numpy as np
import pytest
import torch
from letters import layered, path, values as values_of_letters

from layerdag.dag.dag import DAG
from layerdag.dag.graph_set import GraphSet
from layerdag.evaluation.metrics.base import AttributeView, SimilarityRow
from layerdag.evaluation.metrics.joint_tails import JointTails
from layerdag.evaluation.metrics.operator_inputs import (
    OperatorInputs,
    backward_needs,
    optimizer_inputs,
)
from layerdag.evaluation.metrics.product_shapes import ShapeViolations
from layerdag.evaluation.metrics.repeated_blocks import RepeatedBlock, repeated_blocks
from layerdag.evaluation.similarity import compare
from layerdag.schema.attributes import CategoryAttribute, NumericAttribute


def blocks(dag: DAG) -> list[tuple[int, int, int]]:
    """First layer, length and count of each block."""
    return [
        (one.first, one.length, one.count) for one in repeated_blocks(GraphSet.from_dags([dag]))
    ]


def test_blocks_are_counted_by_whole_copies_of_any_width():
    assert blocks(path("e" + "nmg" * 4 + "h")) == [(1, 3, 4)]
    assert blocks(layered("x", "ab", "c", "ba", "c", "ab", "c", "y")) == [(1, 2, 3)]
    assert blocks(layered("ab", "c", "abb", "c", "y")) == []
    found = repeated_blocks(GraphSet.from_dags([path("abcabcab")]))
    assert found == [RepeatedBlock(graph=0, first=0, end=8, length=3)]
    assert found[0].count == 2


def test_one_operator_after_another_like_it_is_no_block():
    assert blocks(path("aaaaaaaa")) == []


def test_the_longest_of_nested_repetitions_counts_and_none_across_graphs():
    assert blocks(path("x" + "aabab" * 3 + "y")) == [(1, 5, 3)]
    assert blocks(path("ababab" + "x" + "cdecde")) == [(0, 2, 3), (7, 3, 2)]
    # The b between both belongs to the longer one.
    assert blocks(path("abab" + "cbcbcb")) == [(3, 2, 3)]
    assert repeated_blocks(GraphSet.from_dags([path("abc"), path("abc")])) == []


def test_figures_are_means_over_graphs_and_length_and_count_over_those_with_blocks():
    made = [path("e" + "nmg" * 4 + "h"), path("abab"), path("xyz")]
    found = values_of_letters(made, "repeated_blocks")
    assert found["number"] == pytest.approx(2 / 3)
    assert found["length"] == pytest.approx((3 + 2) / 2)
    assert found["count"] == pytest.approx((4 + 2) / 2)
    assert found["nodes"] == pytest.approx((12 / 14 + 1 + 0) / 3)


def test_without_blocks_there_is_no_length_and_the_row_says_so():
    found = values_of_letters([path("xyz")], "repeated_blocks")
    assert (found["number"], found["nodes"]) == (0.0, 0.0)
    assert found["length"] is None
    assert found["count"] is None


@pytest.mark.parametrize("seed", range(8))
def test_the_longest_repetition_of_a_plain_search_is_found_and_all_found_repeat(seed):
    word = "".join(np.random.default_rng(seed).choice(list("ab"), 14))
    found = blocks(path(word))
    first, end, period = max(repetitions(word), key=lambda run: (run[1] - run[0], -run[2], -run[0]))
    if period > 1:
        assert (first, period, (end - first) // period) in found
    else:
        assert all(at + length * count <= first or at >= end for at, length, count in found)
    for at, length, count in found:
        assert {word[i : i + length] for i in range(at, at + length * count, length)} == {
            word[at : at + length]
        }


def repetitions(word: str) -> list[tuple[int, int, int]]:
    """First, end and period of each stretch that repeats."""
    return [
        (first, end, period)
        for first in range(len(word))
        for end in range(first + 2, len(word) + 1)
        for period in range(1, (end - first) // 2 + 1)
        if all(word[i] == word[i + period] for i in range(first, end - period))
    ]


VIEWS = (
    AttributeView("op"),
    *(AttributeView(name, ordered=True) for name in ("flops", "bytes", "duration")),
)


def graph(rows: list[tuple[int, int, int]]) -> DAG:
    """A graph without edges whose nodes have codes of FLOPs, bytes and duration."""
    x_NA = torch.tensor([(0, *row) for row in rows])
    u_NA = torch.full(x_NA.shape, 0.5, dtype=torch.float64)
    return DAG.build(x_NA, torch.zeros((2, 0), dtype=torch.int64), u_NA=u_NA)


CODES = range(1, 21)
TOGETHER = graph([(code, code, code) for code in CODES])
"""Of twenty nodes two have all three numbers among the largest tenth, and none one alone."""
APART = graph([(code, 21 - code, code) for code in CODES])
"""Bytes are largest where FLOPs and durations are least."""


def rows(test: list[DAG], made: list[DAG]) -> dict[str, SimilarityRow]:
    report = compare([TOGETHER], test, made, VIEWS, metrics=[JointTails()], replicates=3)
    return {row.metric.name.partition(":")[2]: row for row in report.rows}


def test_numbers_that_are_large_apart_are_told_by_pair():
    found = rows([TOGETHER], [APART])
    values = {name: (row.generated.value, row.reference.value) for name, row in found.items()}
    assert values == {
        "flops x bytes": (0.0, 1.0),
        "flops x duration": (1.0, 1.0),
        "bytes x duration": (0.0, 1.0),
    }


def test_nodes_with_both_are_counted_beside_those_with_one():
    # FLOPs are largest at 19 and 20, durations at 20 and 1.
    half = graph([(code, code, 21 if code == 1 else code) for code in CODES])
    assert rows([TOGETHER], [half])["flops x duration"].generated.value == pytest.approx(1 / 3)


def test_only_the_order_of_numbers_counts():
    slower = graph([(code, code, code + 7) for code in CODES])
    assert {row.generated.value for row in rows([TOGETHER], [slower]).values()} == {1.0}


def test_nodes_that_lack_a_number_are_left_out():
    lacking = graph([(code, code, code) for code in CODES] + [(0, 40, 0), (40, 0, 40)])
    found = rows([TOGETHER], [lacking])
    assert found["flops x bytes"].generated.value == 1.0
    none = rows([TOGETHER], [graph([(0, code, code) for code in CODES])])
    assert "no node with both numbers" in none["flops x bytes"].generated.error
    assert none["bytes x duration"].generated.value == 1.0
    alike = rows([TOGETHER], [graph([(3, 3, 3)] * 5)])
    assert "larger number than the others" in alike["flops x bytes"].generated.error


def test_one_number_has_no_joint_tail():
    assert JointTails().of(VIEWS[:2]) == ()
    [metric] = JointTails().of((VIEWS[0], VIEWS[3], VIEWS[1]))
    assert (metric.name, metric.columns) == ("joint_tails:flops x duration", (2, 1))


WORDS = ("aten::mm", "aten::silu", "aten::silu_backward", "aten::addcdiv_", "aten::select_backward")
MM, SILU, SILU_BACKWARD, STEP, SELECT_BACKWARD = range(5)
OP = (AttributeView("op", attribute=CategoryAttribute("op", WORDS)),)


def chain(*codes: int) -> DAG:
    count = len(codes)
    edges = torch.stack([torch.arange(count - 1), torch.arange(1, count)])
    return DAG.build(torch.tensor(codes)[:, None], edges)


def values(*made: DAG) -> dict[str, float | None]:
    sound = [chain(SILU, MM, SILU_BACKWARD, STEP)]
    report = compare(sound, sound, made, OP, metrics=[OperatorInputs()], replicates=3)
    assert all(row.reference.value == 0.0 for row in report.rows if not row.generated.error)
    return {row.metric.name: row.generated.value for row in report.rows}


def test_backward_operators_need_forward_ancestors_and_steps_a_backward_operator():
    assert values(chain(SILU, MM, SILU_BACKWARD))["backward_without_forward"] == 0.0
    assert values(chain(MM, SILU_BACKWARD, SILU))["backward_without_forward"] == 1.0
    beside = DAG.build(torch.tensor([[SILU], [MM], [SILU_BACKWARD]]), torch.tensor([[1], [2]]))
    assert values(beside)["backward_without_forward"] == 1.0
    assert values(chain(SELECT_BACKWARD, MM, STEP))["step_without_gradient"] == 0.0
    assert values(chain(SILU, MM, STEP))["step_without_gradient"] == 1.0


def test_fractions_are_of_the_operators_in_question_and_means_over_graphs_with_some():
    half = chain(SILU_BACKWARD, SILU, SILU_BACKWARD, MM)
    found = values(half, chain(SILU, SILU_BACKWARD), chain(MM, MM))
    assert found["backward_without_forward"] == pytest.approx((0.5 + 0.0) / 2)
    assert found["step_without_gradient"] is None


@pytest.mark.parametrize(
    ("backward", "forward"),
    [
        ("aten::silu_backward", "aten::silu"),
        ("aten::silu_backward", "aten::silu_"),
        ("aten::silu_backward.grad_input", "aten::silu.out"),
        ("aten::_softmax_backward_data", "aten::_softmax"),
        ("aten::embedding_dense_backward", "aten::embedding"),
        ("aten::nll_loss_backward", "aten::nll_loss_forward"),
        ("aten::threshold_backward", "aten::relu"),
        ("aten::max_pool2d_with_indices_backward", "aten::max_pool2d_with_indices"),
    ],
)
def test_names_pair_backward_and_forward_operators(backward, forward):
    assert backward_needs(["aten::mm", forward, backward]) == ((2, (1,)),)


def test_views_and_strangers_are_no_forward_operators():
    assert backward_needs(["aten::select_backward", "aten::sel", "aten::mm"]) == ()
    assert backward_needs(["aten::silu_backwards", "aten::silu"]) == ()


@pytest.mark.parametrize(
    "step",
    ["aten::_fused_adamw_", "aten::_fused_sgd_", "aten::addcdiv_", "aten::_foreach_addcdiv_"],
)
def test_what_only_optimizers_call_is_a_step(step):
    assert optimizer_inputs([step, "aten::mm", "aten::silu_backward"]) == ((0, (2,)),)


def test_what_others_call_too_is_no_step():
    words = ["aten::mul_", "aten::add_", "aten::addcdiv", "aten::silu_backward"]
    assert optimizer_inputs(words) == ()


def test_data_without_such_names_have_no_such_metric():
    metric = OperatorInputs()
    plain = CategoryAttribute("op", ("a", "b"))
    assert metric.of([AttributeView("op", attribute=plain)]) == ()
    assert metric.of([AttributeView("op")]) == ()
    assert metric.of([]) == ()
    only_backward = CategoryAttribute("op", ("aten::addcdiv_", "aten::select_backward"))
    names = [one.name for one in metric.of([AttributeView("op", attribute=only_backward)])]
    assert names == ["step_without_gradient"]


def test_more_than_64_kinds_are_told_apart():
    words = [f"f{i}{ending}" for i in range(70) for ending in ("", "_backward")]
    views = (AttributeView("op", attribute=CategoryAttribute("op", tuple(words))),)
    sound = [chain(2 * i, 2 * i + 1) for i in range(70)]
    wrong = [chain(2 * i, (2 * i + 3) % 140) for i in range(70)]
    report = compare(sound, sound, wrong, views, metrics=[OperatorInputs()], replicates=2)
    assert (report.rows[0].generated.value, report.rows[0].reference.value) == (1.0, 0.0)


PRODUCT_WORDS = CategoryAttribute("op", ("aten::mm", "aten::convolution", "aten::add"))
PRODUCT, CONVOLUTION, ADD = range(3)
Node = tuple[int, float, float]


def exact(name: str, values: set[float]) -> NumericAttribute:
    """An attribute that has a bin of its own for each value."""
    return NumericAttribute(name, name, tuple((value,) * 5 for value in sorted(values)))


def violations(
    made: list[list[Node]], train: list[list[Node]] | None = None
) -> dict[str, float | None]:
    """Figures of graphs whose nodes have an operator, FLOPs and bytes."""
    sound = [[product(2, 3, 4), product(8, 8, 8)]]
    real = train or sound
    nodes = [node for graphs in (made, real) for graph in graphs for node in graph]
    flops = exact("flops", {node[1] for node in nodes if np.isfinite(node[1])})
    moved = exact("bytes", {node[2] for node in nodes if np.isfinite(node[2])})
    views = [
        AttributeView("op", attribute=PRODUCT_WORDS),
        *(AttributeView(one.name, ordered=True, attribute=one) for one in (flops, moved)),
    ]
    sets = [[encoded(graph, flops, moved) for graph in graphs] for graphs in (real, real, made)]
    report = compare(*sets, views, metrics=[ShapeViolations()], replicates=3)
    if train is None:
        assert all(row.reference.value == 0.0 for row in report.rows if not row.generated.error)
    return {row.metric.name.partition(":")[2]: row.generated.value for row in report.rows}


def product(m: int, n: int, k: int, op: int = PRODUCT) -> Node:
    return op, 2.0 * m * n * k, 4.0 * (m * k + k * n + m * n)


def encoded(nodes: list[Node], flops: NumericAttribute, moved: NumericAttribute) -> DAG:
    (f_N, _), (b_N, _) = (
        attribute.encode(np.array([node[place] for node in nodes]))
        for place, attribute in ((1, flops), (2, moved))
    )
    x_NA = np.stack([[node[0] for node in nodes], f_N, b_N], axis=1)
    return DAG.build(torch.from_numpy(x_NA), torch.zeros((2, 0), dtype=torch.int64))


def test_products_of_any_shapes_break_no_law():
    shapes = [(1, 1, 1), (1, 1, 900), (64, 64, 64), (512, 3, 7), (2, 1000, 1)]
    assert violations([[product(*shape) for shape in shapes]]) == {
        "bytes": 0.0,
        "flops": 0.0,
        "bounds": 0.0,
    }


def test_bytes_are_whole_elements_of_the_size_of_training_products():
    good, bad = product(8, 8, 8), (PRODUCT, 1024.0, 770.0)
    assert violations([[good, bad, bad, bad]])["bytes"] == pytest.approx(0.75)
    assert violations([[good, bad], [good]])["bytes"] == pytest.approx(0.25)
    halves = [[(PRODUCT, 1024.0, 386.0), product(8, 8, 8)]]
    assert violations([[(PRODUCT, 1024.0, 770.0)]], train=halves)["bytes"] == 0.0
    assert violations([[(PRODUCT, 1024.0, 771.0)]], train=halves)["bytes"] == 1.0


def test_operations_and_bytes_that_do_not_go_together_are_found():
    assert violations([[(PRODUCT, 1023.0, 768.0), product(8, 8, 8)]])["flops"] == pytest.approx(0.5)
    assert violations([[(CONVOLUTION, 1023.0, 768.0)]])["flops"] == 1.0
    assert violations([[(PRODUCT, 1024.0, 764.0), product(8, 8, 8)]])["bounds"] == pytest.approx(
        0.5
    )
    assert violations([[(PRODUCT, 2.0, 44.0)]])["bounds"] == 1.0


def test_other_operators_may_do_what_they_like_and_so_may_what_is_absent():
    assert violations([[product(8, 8, 8), (ADD, 7.0, 3.0)]])["bytes"] == 0.0
    absent = violations([[(PRODUCT, np.nan, np.nan), product(8, 8, 8)]])
    assert absent == {"bytes": 0.0, "flops": 0.0, "bounds": 0.0}
    assert violations([[(ADD, 7.0, 3.0)]]) == {"bytes": None, "flops": None, "bounds": None}


def test_numbers_that_positions_do_not_tell_are_left_out():
    wide = NumericAttribute("bytes", "bytes", ((1e9, 2e9, 3e9, 4e9, 5e9),))
    near = NumericAttribute("bytes", "bytes", ((100.0, 200.0, 300.0, 400.0, 500.0),))
    flops = exact("flops", {1024.0})
    for moved, value, expected in ((wide, 3e9 + 1, None), (near, 301, 1.0), (near, 90, None)):
        views = [
            AttributeView("op", attribute=PRODUCT_WORDS),
            *(AttributeView(one.name, ordered=True, attribute=one) for one in (flops, moved)),
        ]
        code_1, u_1 = moved.encode(np.array([value]))
        dag = DAG.build(
            torch.tensor([[PRODUCT, 1, int(code_1[0])]]),
            torch.zeros((2, 0), dtype=torch.int64),
            u_NA=torch.tensor([[0.0, 0.0, float(u_1[0])]]),
        )
        real = DAG.build(
            torch.tensor([[PRODUCT, 1, 1]]),
            torch.zeros((2, 0), dtype=torch.int64),
            u_NA=torch.tensor([[0.0, 0.0, float(near.encode(np.array([400]))[1][0])]]),
        )
        report = compare([real], [real], [dag], views, metrics=[ShapeViolations()], replicates=2)
        if expected is not None:
            assert report["shape_violation:bytes"].generated.value == expected
        else:
            assert report["shape_violation:bytes"].generated.error


def test_graphs_without_operators_flops_or_bytes_have_no_such_metric():
    metrics = ShapeViolations()
    flops, moved = (
        AttributeView(name, ordered=True, attribute=exact(name, {1.0}))
        for name in ("flops", "bytes")
    )
    op = AttributeView("op", attribute=PRODUCT_WORDS)
    assert len(metrics.of([op, flops, moved])) == 3
    assert metrics.of([op, flops]) == ()
    assert metrics.of([AttributeView("op"), flops, moved]) == ()
    other = AttributeView("op", attribute=CategoryAttribute("op", ("relu", "add")))
    assert metrics.of([other, flops, moved]) == ()
