"""Backward operators without forward operators, steps without gradients: small graphs by hand."""

import pytest
import torch

from layerdag.datasets.schema import CategoryAttribute
from layerdag.evaluation import compare
from layerdag.evaluation.metrics import AttributeView
from layerdag.evaluation.metrics.local import OperatorInputs, backward_needs, step_needs
from layerdag.graph import DAG

WORDS = (
    "aten::mm",
    "aten::silu",
    "aten::silu_backward",
    "aten::addcdiv_",
    "aten::select_backward",
)
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


def test_a_backward_operator_needs_its_forward_operator_among_its_ancestors() -> None:
    assert values(chain(SILU, MM, SILU_BACKWARD))["backward_without_forward"] == 0.0
    assert values(chain(MM, SILU_BACKWARD, SILU))["backward_without_forward"] == 1.0
    beside = DAG.build(torch.tensor([[SILU], [MM], [SILU_BACKWARD]]), torch.tensor([[1], [2]]))
    assert values(beside)["backward_without_forward"] == 1.0


def test_a_step_needs_a_backward_operator_of_any_kind() -> None:
    assert values(chain(SELECT_BACKWARD, MM, STEP))["step_without_gradient"] == 0.0
    assert values(chain(SILU, MM, STEP))["step_without_gradient"] == 1.0


def test_fractions_are_of_the_operators_in_question_and_means_over_graphs_with_some() -> None:
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
def test_names_pair_backward_and_forward_operators(backward: str, forward: str) -> None:
    assert backward_needs(["aten::mm", forward, backward]) == ((2, (1,)),)


def test_views_and_strangers_are_no_forward_operators() -> None:
    assert backward_needs(["aten::select_backward", "aten::sel", "aten::mm"]) == ()
    assert backward_needs(["aten::silu_backwards", "aten::silu"]) == ()


@pytest.mark.parametrize(
    "step",
    ["aten::_fused_adamw_", "aten::_fused_sgd_", "aten::addcdiv_", "aten::_foreach_addcdiv_"],
)
def test_what_only_optimizers_call_is_a_step(step: str) -> None:
    assert step_needs([step, "aten::mm", "aten::silu_backward"]) == ((0, (2,)),)


def test_what_others_call_too_is_no_step() -> None:
    words = ["aten::mul_", "aten::add_", "aten::addcdiv", "aten::silu_backward"]
    assert step_needs(words) == ()


def test_data_without_such_names_have_no_such_metric() -> None:
    metric = OperatorInputs()
    plain = CategoryAttribute("op", ("a", "b"))
    assert metric.of([AttributeView("op", attribute=plain)]) == ()
    assert metric.of([AttributeView("op")]) == ()
    assert metric.of([]) == ()
    only_backward = CategoryAttribute("op", ("aten::addcdiv_", "aten::select_backward"))
    names = [one.name for one in metric.of([AttributeView("op", attribute=only_backward)])]
    assert names == ["step_without_gradient"]


def test_more_than_64_kinds_are_told_apart() -> None:
    words = [f"f{i}{ending}" for i in range(70) for ending in ("", "_backward")]
    views = (AttributeView("op", attribute=CategoryAttribute("op", tuple(words))),)
    sound = [chain(2 * i, 2 * i + 1) for i in range(70)]
    wrong = [chain(2 * i, (2 * i + 3) % 140) for i in range(70)]
    report = compare(sound, sound, wrong, views, metrics=[OperatorInputs()], replicates=2)
    assert (report.rows[0].generated.value, report.rows[0].reference.value) == (1.0, 0.0)
