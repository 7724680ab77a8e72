"""Programs as pipelines: where they are cut, and the laws that their messages and work keep."""

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from small_programs import images, language, skipping
from torch import Tensor, nn

import layerdag as ld
from layerdag.capturing.captured_step import CapturedStep
from layerdag.errors import ConfigError, UsageError
from layerdag.programs.forward_program import Program
from layerdag.traces.trace import NodeType, Trace

Message = tuple[int, int, int]
"""Sender, receiver and bytes."""

MODELS = {
    "language": lambda: language(8, 24, width=48, layers=4),
    "images": lambda: images(8, 32),
    "skipping": lambda: skipping(16, 24),
}
PLANS: dict[str, dict[str, Any]] = {
    "1f1b": {"pipeline": 2, "micro_batches": 4},
    "gpipe": {"pipeline": 3, "micro_batches": 5, "schedule": "gpipe"},
    "bf16": {"pipeline": 2, "micro_batches": 2, "data": 3, "precision": "bf16"},
    "fsdp": {"pipeline": 2, "fsdp": 2, "clip": 1.0},
}


@cache
def program_of(model: str) -> Program:
    return ld.program(*MODELS[model]())


@cache
def captured(make: Callable[..., tuple[nn.Module, list[Tensor]]], **sizes: int) -> Program:
    """Return the program of a small model, which no test changes."""
    return ld.program(*make(**sizes))


@cache
def step_of(model: str, plan: str) -> CapturedStep:
    return program_of(model).step(**PLANS[plan])


def messages(step: CapturedStep, kind: NodeType, phase: str = "") -> Counter[Message]:
    """Return the messages of all ranks that are sent, or those that are received."""
    found: Counter[Message] = Counter()
    for rank, trace in enumerate(step.workload().traces):
        end = "comm_dst" if kind is NodeType.COMM_SEND else "comm_src"
        peer_N, size_N = trace.integers(end)[0], trace.integers("comm_size")[0]
        phases = trace.texts("phase")[0]
        for row in np.flatnonzero(trace.type_N == kind).tolist():
            if phase in ("", phases[row]):
                ends = (rank, int(peer_N[row]))
                from_to = ends if kind is NodeType.COMM_SEND else ends[::-1]
                found[*from_to, int(size_N[row])] += 1
    return found


def products(trace: Trace) -> int:
    """Return the operations of products, attention and convolutions in the forward pass."""
    words = ("mm", "attention", "convolution", "bmm")
    phases, flops_N = trace.texts("phase")[0], trace.integers("num_ops")[0]
    return sum(
        int(flops)
        for name, phase, flops in zip(trace.names(), phases, flops_N, strict=True)
        if phase == "forward" and any(word in name for word in words)
    )


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("model", MODELS)
def test_every_message_has_both_ends_and_a_gradient_comes_back(model, plan):
    step = step_of(model, plan)
    sent = messages(step, NodeType.COMM_SEND)
    assert sent
    assert sent == messages(step, NodeType.COMM_RECV)
    there = messages(step, NodeType.COMM_SEND, "forward")
    back = messages(step, NodeType.COMM_SEND, "backward")
    assert Counter({(b, a, size): n for (a, b, size), n in there.items()}) == back
    per_stage = step.world.size // len(step.stages)
    assert {b - a for a, b, _ in there} == {per_stage}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("model", MODELS)
def test_a_pipeline_does_the_work_of_its_micro_batches(model, plan):
    step, program, told = step_of(model, plan), program_of(model), PLANS[plan]
    whole = program.step(phase="inference", precision=told.get("precision", "auto")).trace
    count = told.get("micro_batches", told["pipeline"])
    assert sum(map(products, step.stages)) == count * products(whole)
    assert len(step.stages) == told["pipeline"]
    assert all("aten::_fused_adamw_" in trace.names() for trace in step.stages)
    assert step.parameters == program.parameters()


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("model", MODELS)
def test_a_pipeline_is_valid_and_runs(model, plan):
    step = step_of(model, plan)
    workload = step.workload()
    assert workload.num_ranks == step.settings.plan.ranks
    # A first operator of a few bytes is in the models themselves: counters, ranges.
    assert [f for f in ld.validate(workload) if f.rule.id != "time-at-start"] == []
    assert ld.simulate(workload, "small", compute="h100").makespan_ns > 0


@pytest.mark.parametrize("model", ["language", "skipping"])
def test_every_parameter_is_updated_once_but_those_that_stages_share(model):
    module, inputs = MODELS[model]()
    step = ld.program(module, inputs).step(pipeline=2, optimizer="sgd-forloop")
    updates = Counter(name for trace in step.stages for name in trace.names())["aten::add_"]
    alone = Counter(ld.program(module, inputs).step(optimizer="sgd-forloop").trace.names())
    shared = int(model == "language")  # embedding and output are one matrix
    sums = len(list(module.parameters())) + shared  # of the gradients of two micro-batches
    assert updates == alone["aten::add_"] + shared + sums
    held = step.summary()["collectives"].values()
    assert [entry["count"] for entry in held] == [1] * shared


def test_micro_batches_run_in_the_order_of_the_schedule():
    program = captured(language, layers=2)
    letters = {"aten::embedding": "F", "aten::embedding_dense_backward": "B"}
    passes = {}
    for schedule in ("gpipe", "1f1b"):
        trace = program.step(pipeline=2, micro_batches=3, schedule=schedule).stages[0]
        passes[schedule] = "".join(letters.get(name, "") for name in trace.names())
    assert passes == {"gpipe": "FFFBBB", "1f1b": "FFBFBB"}


def test_a_pass_waits_for_the_pass_before_it():
    trace = captured(language, layers=2).step(pipeline=2, micro_batches=3).stages[0]
    names = trace.names()
    forward = [row for row, name in enumerate(names) if name == "aten::embedding"]
    backward = [row for row, name in enumerate(names) if name == "aten::embedding_dense_backward"]
    # F0 F1 B0 F2: the third forward pass begins after the last operator of the first backward one.
    before = trace.ctrl_deps.of(forward[2]).tolist()
    assert before == [max(row for row in range(forward[2]) if names[row].startswith("aten"))]
    assert backward[0] <= before[0] < forward[2]


def test_ranks_of_a_stage_share_their_columns():
    few, many = (captured(language).step(pipeline=2, data=n) for n in (2, 512))
    assert [t.num_nodes for t in few.stages] == [t.num_nodes for t in many.stages]
    traces = many.workload().traces
    assert len(traces) == 1024
    assert traces[3].name_N is traces[511].name_N
    assert traces[0].integers("comm_dst")[0].max() == 512
    assert traces[511].integers("comm_dst")[0].max() == 1023


def test_targets_and_masks_are_not_sent():
    step = ld.program(*skipping(4, 8)).step(pipeline=2, micro_batches=2)
    sizes = {size for _, _, size in messages(step, NodeType.COMM_SEND, "forward")}
    assert sizes == {4 * 8 * 48 * 4}  # activations alone
    names = step.stages[1].names()
    assert {"aten::lt", "aten::mse_loss"} <= set(names)


def test_what_skips_a_stage_is_passed_through_it():
    step = captured(skipping).step(pipeline=4, micro_batches=4)
    sent = messages(step, NodeType.COMM_SEND, "forward")
    assert sum(n for (a, _, _), n in sent.items() if a == 1) == 3 * 4  # stream, context, first
    assert sum(n for (a, _, _), n in sent.items() if a == 2) == 3 * 4


def test_stages_begin_where_they_are_told():
    program = captured(language, layers=4)
    step = program.step(pipeline=2, cuts=("layers.3",))
    attention = [t.names().count("aten::_scaled_dot_product_flash_attention_for_cpu")
                 for t in step.stages]  # fmt: skip
    assert attention == [3 * 2, 1 * 2]
    equal = program.step(pipeline=2).stages
    assert [t.names().count("aten::_scaled_dot_product_flash_attention_for_cpu") for t in equal] \
        == [4, 4]  # fmt: skip


def test_what_is_overwritten_later_is_not_sent():
    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
            self.act = nn.ModuleList(nn.ReLU(inplace=True) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            for layer, act in zip(self.layers, self.act, strict=True):
                x = act(layer(x))
            return x.sum()

    program = ld.program(InPlace(), [torch.randn(4, 8)])
    with pytest.raises(UsageError, match=r"begin with 'act.0'.*is overwritten after it"):
        program.step(pipeline=2, cuts=("act.0",))
    assert len(program.step(pipeline=2).stages) == 2


def test_inference_has_messages_one_way():
    step = captured(language).step(pipeline=2, micro_batches=3, phase="inference")
    assert {a for a, _, _ in messages(step, NodeType.COMM_SEND)} == {0}
    assert sum(messages(step, NodeType.COMM_SEND).values()) == 3


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"pipeline": 40}, "fewer than 40 stages"),
        ({"pipeline": 2, "cuts": ("layer.1",)}, "no module 'layer.1' runs.*'layers.1'"),
        ({"pipeline": 3, "cuts": ("layers.1", "layers.0")}, "not in the order"),
        ({"pipeline": 2, "accumulate": 2}, "give micro_batches=2"),
        ({"pipeline": 4, "micro_batches": 2}, "at least so many micro-batches"),
        ({"pipeline": 2, "batch": 8}, "batch follows from the module"),
    ],
)
def test_what_no_pipeline_can_do_is_refused(settings, sentence):
    with pytest.raises(UsageError, match=sentence):
        captured(language, layers=4).step(**settings)


@pytest.mark.parametrize("settings", [{"micro_batches": 4}, {"schedule": "gpipe"}])
def test_settings_of_a_pipeline_need_one(settings):
    with pytest.raises(ConfigError, match="belongs to a pipeline"):
        captured(language).step(**settings)


def test_a_module_is_cut_as_a_program():
    with pytest.raises(UsageError, match="only programs are cut into stages"):
        ld.capture_model(*language(), pipeline=2)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_idle_time_is_that_of_the_schedule(schedule):
    # Both leave p - 1 of m + p - 1 passes idle (Huang et al. 2019; Narayanan et al. 2019).
    program = captured(language, layers=4).resize(B0=8, n0=256, w0=8192)
    stages, count = 4, 8

    def span(**plan: Any) -> float:
        workload = program.step(optimizer="none", **plan).workload()
        return ld.simulate(workload, "small", compute="h100").makespan_ns

    took = span(pipeline=stages, micro_batches=count, schedule=schedule)
    ideal = span() * (count + stages - 1) / stages
    assert ideal <= took < 1.2 * ideal


def test_clipping_counts_the_gradients_of_all_stages():
    step = captured(skipping).step(pipeline=2, clip=1.0)
    collectives = step.summary()["collectives"]
    assert collectives == {"all_reduce:pipeline": {"count": 1, "bytes": 4}}


def test_a_matrix_of_two_stages_is_summed_over_them_as_it_is_held():
    program = captured(language, width=32, rows=64)
    sums = {ranks: program.step(pipeline=2, fsdp=ranks).summary()["collectives"]
            for ranks in (1, 2)}  # fmt: skip
    assert sums[1]["all_reduce:pipeline"] == {"count": 1, "bytes": 64 * 32 * 4}
    assert sums[2]["all_reduce:pipeline"] == {"count": 1, "bytes": 64 * 32 * 4 // 2}
    first = program.step(pipeline=3, cuts=("layers.0", "layers.1")).summary()["collectives"]
    assert list(first) == ["all_reduce:stages 0 and 2"]


def test_a_stage_with_nothing_to_train_is_refused():
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh())
    program = ld.program(model, [torch.randn(4, 8)], loss=torch.sum)
    with pytest.raises(UsageError, match=r"begins with '3' has nothing to train"):
        program.step(pipeline=2, cuts=("3",))
    with pytest.raises(UsageError, match=r"no stage can begin with '0': nothing is passed on"):
        program.step(pipeline=2, cuts=("0",))
    names = [trace.names() for trace in program.step(pipeline=2).stages]
    assert ["aten::tanh" in stage for stage in names] == [True, True]
