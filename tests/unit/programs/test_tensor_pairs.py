"""Tensor ranks of programs, held against PyTorch's ``parallelize_module`` on the module."""

from collections import Counter
from functools import cache
from typing import cast

import pytest
import torch
from small_programs import images, language
from torch import Tensor, nn
from torch.nn import functional

import layerdag as ld
from layerdag.capturing.captured_step import CapturedStep
from layerdag.capturing.transformer import Transformer
from layerdag.errors import UsageError
from layerdag.programs.forward_program import Program
from layerdag.programs.tensor_pairs import split_pairs
from layerdag.traces.trace import Trace
from layerdag.workloads.transformer.shapes import ModelShape

LLAMA = ModelShape("tiny", 2, 32, 4, 64, 96, 4, gated=True, norm="rms", biases="none")
GPT = ModelShape("tiny-gpt", 2, 32, 4, 128, 96, positions=32, tied=True)
COLUMNS = ("attention.q", "attention.k", "attention.v", "feed_forward.up", "feed_forward.gate")
ROWS = ("attention.o", "feed_forward.down")
PLAN = {f"layers.*.{name}": "colwise" for name in COLUMNS}
PLAN |= {f"layers.*.{name}": "rowwise" for name in ROWS}


def transformer(shape: ModelShape) -> tuple[nn.Module, list[Tensor]]:
    return Transformer(shape), [torch.zeros(2, 16, dtype=torch.long)] * 2


@cache
def program_of(shape: ModelShape) -> Program:
    return ld.program(*transformer(shape))


def told(trace: Trace) -> Counter[tuple[object, ...]]:
    """Return operator, operations, bytes, message and phase of the nodes."""
    numbers = (trace.integers(name)[0].tolist() for name in ("num_ops", "tensor_size", "comm_size"))
    return Counter(zip(trace.names(), *numbers, trace.texts("phase")[0], strict=True))


@pytest.mark.parametrize(
    ("shape", "plan"),
    [
        (LLAMA, {"tensor": 2}),
        (LLAMA, {"tensor": 2, "fsdp": 2}),
        (GPT, {"tensor": 2, "data": 2}),
        (GPT, {"tensor": 2, "fsdp": 2}),
    ],
    ids=["llama", "llama-fsdp", "gpt-data", "gpt-fsdp"],
)
def test_a_program_is_split_as_the_module_is(shape, plan):
    module, inputs = transformer(shape)
    split = PLAN if shape.gated else {k: v for k, v in PLAN.items() if "gate" not in k}
    derived = program_of(shape).step(**plan)
    own = ld.capture_model(module, inputs, tensor_plan=split, **plan)
    assert told(derived.trace) == told(own.trace)
    assert derived.summary()["collectives"] == own.summary()["collectives"]


def test_the_split_layers_of_a_transformer_are_those_of_megatron():
    program = program_of(LLAMA)
    pairs = split_pairs([program], 2)[0].pairs
    modules = [[program.nodes[at].module for at in (*p.columns, p.row)] for p in pairs]
    attention = [f"attention.{name}" for name in "qkvo"]
    expected = [attention, ["feed_forward.gate", "feed_forward.up", "feed_forward.down"]]
    assert modules == [[f"layers.{n}.{m}" for m in part] for n in (0, 1) for part in expected]


class Normed(nn.Module):
    """A perceptron, a norm of all features, and a layer after it."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.again = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        hidden = functional.gelu(self.up(x))
        return cast(Tensor, self.again(functional.layer_norm(self.down(hidden), (24,))).sum())


def test_layers_that_need_all_features_stay_whole():
    program = ld.program(Normed(), [torch.randn(4, 24)])
    modules = [[program.nodes[at].module for at in (*p.columns, p.row)]
               for p in split_pairs([program], 2)[0].pairs]  # fmt: skip
    assert modules == [["up", "down"]]


def products(step: CapturedStep) -> int:
    return int(step.summary()["matrix_flops"])


def test_ranks_share_the_work_of_the_pairs_alone():
    program = ld.program(Normed(), [torch.randn(4, 24)])
    one, two = (program.step(phase="inference", tensor=ranks) for ranks in (1, 2))
    pair, rest = 2 * 2 * 4 * 24 * 96, 2 * 4 * 24 * 24
    assert (products(one), products(two)) == (pair + rest, pair // 2 + rest)


@pytest.mark.parametrize(
    ("make", "ranks", "sentence"),
    [
        (images, 2, "no linear layer's result leads to one other linear layer"),
        (language, 2, r"aten.view.default of module layers.0 does not work on such parts"),
        (lambda: transformer(LLAMA), 3, "is not split evenly|does not work on such parts"),
    ],
    ids=["convolutions", "joint projections", "uneven heads"],
)
def test_what_cannot_be_split_is_refused(make, ranks, sentence):
    with pytest.raises(UsageError, match=sentence):
        ld.program(*make()).step(tensor=ranks)


def test_tensor_ranks_of_a_program_are_valid_and_run():
    workload = program_of(LLAMA).resize(B0=8).step(tensor=2, data=2).workload()
    assert [f for f in ld.validate(workload) if f.rule.id != "time-at-start"] == []
    assert ld.simulate(workload, "small", compute="h100").makespan_ns > 0


def test_stages_of_a_pipeline_are_split_as_the_program_is():
    program = program_of(LLAMA)
    whole = program.step(tensor=2, data=2).summary()["collectives"]["all_reduce:tensor"]
    step = program.step(pipeline=2, tensor=2, data=2, micro_batches=3)
    sums = [trace.texts("pg_name")[0].count("layerdag:group:tensor") for trace in step.stages]
    assert sum(sums) == 3 * whole["count"]
    workload = step.workload()
    assert workload.num_ranks == 8
    assert [f for f in ld.validate(workload) if f.rule.id != "time-at-start"] == []
    assert ld.simulate(workload, "small", compute="h100").makespan_ns > 0
