"""Whole training steps: what sound ones keep, and a change of a step that breaks each rule."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from changed_steps import on_all_ranks, renamed, rows_of, unused, with_number, without_nodes_named
from documentation import ROOT
from small_programs import images, language
from torch import Tensor, nn

import layerdag as ld
from layerdag.hardware.collectives import CollectiveType
from layerdag.traces.builder import NodeSpec, build_trace
from layerdag.traces.trace import Attribute, NodeType, Trace, Wire, Workload
from layerdag.validation.checking import check_workload
from layerdag.validation.rules import Severity
from layerdag.validation.whole_program import WHOLE_PROGRAM_RULES, check_program, judge_program

Change = Callable[[Trace], Trace]


class Residual(nn.Module):
    """Two residual layers with norms and an activation."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for norm, layer in zip(self.norms[:2], self.layers, strict=True):
            x = x + nn.functional.gelu(layer(norm(x)))
        return self.norms[2](x).pow(2).mean()


def residual() -> tuple[Residual, list[Tensor]]:
    return Residual(), [torch.zeros(10, 24)]


@pytest.fixture(scope="module")
def steps() -> dict[str, Workload]:
    """Return captured steps by the model and the number of ranks that share parameters."""
    models = {"residual": residual, "language": language, "images": images}
    plans: dict[str, dict[str, Any]] = {"": {}, " data": {"data": 4}, " fsdp": {"fsdp": 4}}
    return {
        f"{name}{plan}": ld.capture_model(*make(), **settings).workload()
        for name, make in models.items()
        for plan, settings in plans.items()
    }


def test_captured_steps_keep_every_rule_that_applies(steps):
    found = {name: judge_program(step) for name, step in steps.items()}
    for name, verdicts in found.items():
        assert [v.found for v in verdicts.values() if not v.holds] == [], name
        assert all(verdict.cases for verdict in verdicts.values())
    applied = {rule for verdicts in found.values() for rule in verdicts}
    elsewhere = {"messages-return", "stages-update", "optimizer-kernels", "product-speed"}
    assert applied == set(WHOLE_PROGRAM_RULES) - elsewhere


def test_collected_jobs_keep_every_rule():
    for name in ("pp_gpt", "ddp_mlp", "ep_moe"):
        job = ld.read(ROOT / "data" / "examples" / name)
        verdicts = judge_program(job)
        assert len(verdicts) > 10
        assert check_program(job) == []


def scaled(name: str, attribute: str, factor: float, which: int = 0) -> Change:
    """Return the change of one number of an operator by a factor."""

    def change(trace: Trace) -> Trace:
        row = rows_of(trace, name)[which]
        value = int(trace.integers(attribute)[0][row])
        return with_number(trace, row, attribute, int(value * factor))

    return change


def named(name: str, other: str, which: int = 0) -> Change:
    """Return the change of one operator into another."""
    return lambda trace: renamed(trace, rows_of(trace, name)[which], other)


def swapped(trace: Trace) -> Trace:
    """Return the language step whose norms' and attentions' backward operators changed places."""
    norm = rows_of(trace, "aten::native_layer_norm_backward")[0]
    name = "aten::_scaled_dot_product_flash_attention_for_cpu_backward"
    attention = rows_of(trace, name)[0]
    return renamed(renamed(trace, norm, name), attention, "aten::native_layer_norm_backward")


BROKEN: dict[str, tuple[str, Change]] = {
    "norm-widths": ("residual", scaled("aten::native_layer_norm", "tensor_size", 1.5, 1)),
    "product-shapes": ("residual", scaled("aten::addmm", "num_ops", 3)),
    "optimizer-gradients": ("residual data", scaled("aten::_fused_adamw_", "num_ops", 2)),
    "averaged-parameters": ("residual data", scaled("c10d::all_reduce", "comm_size", 0.5)),
    "sent-as-made": ("residual data", scaled("c10d::all_reduce", "comm_size", 0.5)),
    "shards-gathered": ("language fsdp", named("fsdp::split_with_sizes_copy", "aten::clone")),
    "shard-sizes": ("language fsdp", scaled("c10d::all_gather", "comm_size", 2, 1)),
    "backward-per-forward": ("residual", named("aten::gelu_backward", "aten::mul")),
    "backward-after-forward": ("residual", named("aten::gelu", "aten::mul")),
    "backward-order": ("language", swapped),
    "pair-sizes": ("residual", scaled("aten::gelu_backward", "num_ops", 2)),
    "elementwise-sizes": ("residual", scaled("aten::gelu", "num_ops", 7)),
    "bias-gradients": ("residual", lambda trace: unused(trace, rows_of(trace, "aten::sum")[0])),
    "training-updates": (
        "residual",
        lambda trace: without_nodes_named(
            without_nodes_named(trace, "aten::_fused_adamw_", "aten::clone"),
            "aten::_foreach_add_",
            "aten::clone",
        ),
    ),
    "training-loss": ("residual", named("aten::ones_like", "aten::clone")),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_change_of_one_step_breaks_the_rule_and_names_a_node(rule, steps):
    step, change = BROKEN[rule]
    workload = steps[step]
    assert rule in judge_program(workload)
    changed = change(workload.traces[0])
    verdict = judge_program(on_all_ranks(workload, changed))[rule]
    assert not verdict.holds
    rank, node = verdict.nodes[0]
    assert rank == 0
    assert node in changed.id_N.tolist()
    assert verdict.found


def test_every_rule_has_a_change_that_breaks_it():
    elsewhere = {"messages-return", "stages-update", "optimizer-kernels", "product-speed"}
    assert set(BROKEN) | elsewhere == set(WHOLE_PROGRAM_RULES)


@pytest.fixture
def pipeline() -> Workload:
    return ld.read(ROOT / "data" / "examples" / "pp_gpt")


def test_a_stage_gets_back_what_it_sent(pipeline):
    first, second = pipeline.traces
    send, receive = rows_of(second, "c10d::send")[0], rows_of(first, "c10d::recv")[0]
    size = int(second.integers("comm_size")[0][send]) // 2
    other = replace(
        pipeline,
        traces=(
            with_number(first, receive, "comm_size", size),
            with_number(second, send, "comm_size", size),
        ),
    )
    assert judge_program(pipeline)["messages-return"].holds
    found = judge_program(other)["messages-return"]
    assert len(found.nodes) == 1
    assert "of other sizes" in found.found


def test_messages_around_a_ring_need_not_return():
    def rank(at: int, ranks: int) -> Trace:
        ends = [Attribute("comm_dst", Wire.INT64, (at + 1) % ranks)]
        sent = NodeSpec(
            id=2,
            name="c10d::send",
            type=int(NodeType.COMM_SEND),
            data_deps=(1,),
            ctrl_deps=(),
            duration_us=0,
            attributes=(Attribute("comm_size", Wire.INT64, 4096), *ends),
        )
        return build_trace([operator(1, "aten::gelu_backward", 1024), sent])

    ring = Workload(tuple(rank(at, 3) for at in range(3)))
    assert "messages-return" not in judge_program(ring)
    both = Workload((rank(0, 2), rank(1, 2)))
    assert judge_program(both)["messages-return"].holds


def test_every_stage_updates_if_one_does(pipeline):
    idle = without_nodes_named(pipeline.traces[1], "aten::_fused_adamw_", "aten::clone")
    idle = without_nodes_named(idle, "aten::_foreach_add_", "aten::clone")
    assert (
        "rank 1"
        in judge_program(replace(pipeline, traces=(pipeline.traces[0], idle)))[
            "stages-update"
        ].found
    )


def operator(
    number: int,
    name: str,
    elements: int,
    parents: tuple[int, ...] = (),
    microseconds: int = 0,
    moved: int = 8,
) -> NodeSpec:
    """Return an operator of float32 on so many elements."""
    return NodeSpec(
        id=number,
        name=name,
        type=int(NodeType.COMP),
        data_deps=parents,
        ctrl_deps=(),
        duration_us=microseconds,
        attributes=(
            Attribute("num_ops", Wire.INT64, elements),
            Attribute("tensor_size", Wire.INT64, moved * elements),
            Attribute("dtype", Wire.STRING, "float32"),
        ),
    )


def job(*nodes: NodeSpec) -> Workload:
    return Workload((build_trace(list(nodes)),))


@pytest.mark.parametrize(("elements", "holds"), [(100, True), (101, False)])
def test_kernels_of_an_optimizer_agree(elements, holds):
    nodes = [
        operator(1, "aten::_foreach_lerp_", 100),
        operator(2, "aten::_foreach_addcmul_", 100),
        operator(3, "aten::_foreach_sqrt", 100, (2,)),
        operator(4, "aten::_foreach_addcdiv_", elements, (1, 3)),
    ]
    assert judge_program(job(*nodes))["optimizer-kernels"].holds is holds


@pytest.mark.parametrize(("microseconds", "holds"), [(1000, True), (1, False)])
def test_no_product_is_faster_than_any_device(microseconds, holds):
    product = operator(1, "aten::mm", 10**11, microseconds=microseconds)
    product = replace(
        product, attributes=(*product.attributes, Attribute("device", Wire.STRING, "cuda:0"))
    )
    assert judge_program(job(product))["product-speed"].holds is holds


def test_nothing_applies_to_operators_of_others():
    assert judge_program(job(operator(1, "norm1.0.F0", 64), operator(2, "mm.qkv", 64, (1,)))) == {}
    assert judge_program(Workload(())) == {}


def test_findings_are_warnings_of_validate_that_name_rank_and_count(steps):
    workload = steps["residual data"]
    trace = scaled("aten::gelu", "num_ops", 7)(workload.traces[0])
    findings = [f for f in check_workload(on_all_ranks(workload, trace)) if f.rule.id in BROKEN]
    assert {f.rule.severity for f in findings} == {Severity.WARNING}
    (sizes,) = [f for f in findings if f.rule.id == "elementwise-sizes"]
    assert sizes.node == int(trace.id_N[rows_of(trace, "aten::add")[0]])
    assert sizes.where.endswith("(rank 0)")
    assert "works on" in sizes.sentence()


def test_jobs_with_errors_are_not_judged(steps):
    workload = steps["residual"]
    trace = scaled("aten::gelu", "num_ops", 7)(workload.traces[0])
    node = trace.id_N.copy()
    node[1] = node[0]
    broken = check_workload(on_all_ranks(workload, replace(trace, id_N=node)))
    assert not {f.rule.id for f in broken} & set(WHOLE_PROGRAM_RULES)


def test_equal_ranks_in_traces_of_their_own_are_judged_once(steps):
    workload = steps["residual data"]
    apart = tuple(replace(trace, source=f"{at}") for at, trace in enumerate(workload.traces))
    one, several = judge_program(workload), judge_program(replace(workload, traces=apart))
    assert {k: v.cases for k, v in one.items()} == {k: v.cases for k, v in several.items()}


def test_a_loss_that_is_averaged_is_no_gradient():
    def reduced(number: int, elements: int, parents: tuple[int, ...]) -> NodeSpec:
        stated = (
            Attribute("comm_type", Wire.INT64, int(CollectiveType.ALL_REDUCE)),
            Attribute("comm_size", Wire.INT64, 4 * elements),
            Attribute("dtype", Wire.STRING, "float32"),
        )
        return NodeSpec(
            id=number,
            name="c10d::all_reduce",
            type=int(NodeType.COMM_COLL),
            data_deps=parents,
            ctrl_deps=(),
            duration_us=0,
            attributes=stated,
        )

    def step(gradients: int, averaged: int) -> Workload:
        nodes = [
            operator(1, "aten::mse_loss", 50),
            reduced(2, averaged, (1,)),
            operator(3, "aten::gelu_backward", gradients, (1,)),
            reduced(4, gradients, (3,)),
            operator(5, "aten::_fused_adamw_", 400, (4,)),
        ]
        return Workload((build_trace(nodes),) * 2)

    assert judge_program(step(100, 1))["averaged-parameters"].holds
    assert not judge_program(step(99, 7))["averaged-parameters"].holds
