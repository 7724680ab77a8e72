"""Clipping, accumulation and autocast: held against real steps that do the same."""

from collections import Counter
from typing import Any

import pytest
import torch
from step_operators import edges, operators, profiled
from torch import nn

import layerdag as ld
from layerdag.capturing.captured_step import CapturedStep
from layerdag.capturing.step import capture_model
from layerdag.errors import ConfigError, UsageError
from layerdag.traces.trace import Trace
from layerdag.workloads.transformer.shapes import ModelShape

LLAMA = ModelShape("tiny", 1, 32, 4, 64, 96, 4, gated=True, norm="rms", biases="none")
SETTINGS: list[dict[str, Any]] = [
    {"clip": 1.0},
    {"accumulate": 3},
    {"precision": "bf16"},
    {"precision": "fp32"},
    {"clip": 0.5, "accumulate": 2, "precision": "bf16", "optimizer": "sgd-momentum-foreach"},
]


def model() -> nn.Module:
    return nn.Sequential(
        nn.Linear(12, 20), nn.LayerNorm(20), nn.GELU(), nn.Linear(20, 12, bias=False)
    )


def captured(**settings: Any) -> CapturedStep:
    return capture_model(model(), [torch.zeros(6, 12)], loss=torch.sum, **settings)


def real(
    clip: float = 0, accumulate: int = 1, precision: str = "fp32", optimizer: str = ""
) -> Trace:
    """Return the profile of a step as a training loop would write it."""
    made, x = model(), torch.zeros(6, 12)
    if optimizer:
        update: Any = torch.optim.SGD(made.parameters(), momentum=0.9, foreach=True)
    else:
        update = torch.optim.AdamW(made.parameters(), fused=True)

    def step() -> None:
        for _ in range(accumulate):
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
                scalar = torch.sum(made(x))
            scalar.backward()
        if clip:
            nn.utils.clip_grad_norm_(made.parameters(), clip, foreach=True)
        update.step()
        update.zero_grad()

    return profiled(step)


def counts(step: CapturedStep) -> dict[str, int]:
    return {name: held["count"] for name, held in step.summary()["collectives"].items()}


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_operators_and_data_flow_are_those_of_a_real_step(settings):
    own, other = captured(**settings).trace, real(**settings)
    assert own.names() == other.names()
    assert sized(own) == sized(other)
    assert edges(own) == edges(other)


def sized(trace: Trace) -> Counter[tuple[str, int]]:
    """Return operators with bytes, without norms.

    Statistics of a norm of bfloat16 have another dtype in PyTorch's shape functions than on a CPU.
    """
    found = operators(trace)
    return Counter({pair: count for pair, count in found.items() if "layer_norm" not in pair[0]})


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("plan", [{}, {"data": 2}, {"fsdp": 2}], ids=str)
def test_a_program_gives_the_step_of_its_module(settings, plan):
    inputs = [torch.zeros(6, 12)]
    own = capture_model(model(), inputs, loss=torch.sum, **settings, **plan)
    derived = ld.program(model(), inputs, loss=torch.sum).step(**settings, **plan)
    assert derived.trace.names() == own.trace.names()
    assert operators(derived.trace) == operators(own.trace)
    assert counts(derived) == counts(own)


def test_clipping_is_part_of_the_update():
    program = captured(clip=1.0).trace
    phases = program.texts("phase")[0]
    assert phases == sorted(phases, key=["forward", "backward", "optimizer"].index)
    plain = Counter(captured().trace.texts("phase")[0])
    assert Counter(phases)["backward"] == plain["backward"]
    assert Counter(phases)["optimizer"] > plain["optimizer"]


def test_ranks_that_share_parameters_sum_their_norms():
    before, after = captured(fsdp=2), captured(fsdp=2, clip=1.0)
    assert counts(after) == {**counts(before), "all_reduce:fsdp": 1}


@pytest.mark.parametrize(
    ("plan", "sums"),
    [
        ({"tensor": 2}, {"all_reduce:tensor": 1}),
        ({"tensor": 2, "data": 2}, {"all_reduce:tensor": 1}),
        ({"tensor": 2, "fsdp": 2}, {"all_reduce:tensor": 1, "all_reduce:fsdp": 2}),
    ],
    ids=str,
)
def test_parameters_that_different_ranks_share_have_norms_of_their_own(plan, sums):
    # Matrices are shared by tensor ranks, norms are not; with fsdp both are, by its ranks.
    before = Counter(counts(capture_model(LLAMA, sequence=16, **plan)))
    after = Counter(counts(capture_model(LLAMA, sequence=16, clip=1.0, **plan)))
    assert after - before == Counter(sums)


def test_replicas_communicate_in_the_last_pass_alone():
    step = captured(data=4, accumulate=3, bucket_bytes=0)
    assert counts(step) == counts(captured(data=4, bucket_bytes=0))
    sent = step.summary()["collectives"]["all_reduce:data"]["bytes"]
    assert sent == 4 * step.parameters
    names = step.trace.names()
    products = [row for row, name in enumerate(names) if name in ("aten::mm", "aten::addmm")]
    spoken = [row for row, name in enumerate(names) if "allreduce" in name.replace("_", "")]
    passes = len(products) // 3
    assert products[2 * passes] < min(spoken)


def test_shared_parameters_scatter_gradients_in_each_pass():
    once, thrice = counts(captured(fsdp=2)), counts(captured(fsdp=2, accumulate=3))
    assert thrice["reduce_scatter:fsdp"] == 3 * once["reduce_scatter:fsdp"]


def test_autocast_leaves_weights_gradients_and_update_in_float32():
    plain, cast = captured(data=2), captured(data=2, precision="bf16")
    assert counts(cast) == counts(plain)
    assert cast.summary()["collectives"] == plain.summary()["collectives"]
    assert cast.summary()["phases"]["optimizer"] == plain.summary()["phases"]["optimizer"]
    assert cast.summary()["operators"]["gemm"] == plain.summary()["operators"]["gemm"]
    assert cast.summary()["phases"]["forward"] > plain.summary()["phases"]["forward"]


def test_an_inference_step_runs_under_autocast_too():
    step = captured(phase="inference", precision="bf16")
    assert step.trace.names() != captured(phase="inference").trace.names()


def test_a_presets_batch_is_split_over_the_passes():
    once = capture_model(LLAMA, sequence=16, batch=2)
    twice = capture_model(LLAMA, sequence=16, batch=4, accumulate=2)
    assert twice.summary()["matrix_flops"] == 2 * once.summary()["matrix_flops"]
    assert twice.settings.step.precision == "bf16"
    with pytest.raises(UsageError, match="batch of 3 cannot be split evenly over 2 passes"):
        capture_model(LLAMA, sequence=16, batch=3, accumulate=2)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"clip": -1}, "clip is -1; it must be a number"),
        ({"clip": float("inf")}, "clip is inf"),
        ({"clip": True}, "clip is True"),
        ({"accumulate": 0}, "accumulate is 0; .* at least 1"),
        ({"clip": 1, "phase": "inference"}, "leave clip out"),
        ({"accumulate": 2, "phase": "inference"}, "leave accumulate out"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(settings, told):
    with pytest.raises(ConfigError, match=told):
        captured(**settings)


def test_half_precision_of_a_module_is_refused():
    with pytest.raises(UsageError, match=r"fp16 needs a scaler.*bf16 \(autocast\)"):
        captured(precision="fp16")
