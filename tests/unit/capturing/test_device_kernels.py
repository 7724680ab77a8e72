"""Steps with the kernels of GPUs, held against what PyTorch chooses there."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from small_programs import language
from torch import Tensor, nn

import layerdag as ld
from layerdag.errors import ConfigError
from layerdag.hardware.devices import COMPUTE_CAPABILITY, data_sheet


class Attention(nn.Module):
    """Attention on the projections of its input, with dropout."""

    def __init__(self, dtype: torch.dtype, heads: int = 2, kv_heads: int = 2, **given: Any) -> None:
        super().__init__()
        self.width, self.heads, self.kv_heads, self.given = 16 * heads, heads, kv_heads, given
        self.q = nn.Linear(self.width, self.width, dtype=dtype)
        self.kv = nn.Linear(self.width, 2 * 16 * kv_heads, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q = self.q(x).view(batch, length, self.heads, 16).transpose(1, 2)
        k, v = self.kv(x).view(batch, length, 2 * self.kv_heads, 16).transpose(1, 2).chunk(2, 1)
        mask = torch.ones(length, length, dtype=torch.bool).tril() if "mask" in self.given else None
        gqa = self.heads != self.kv_heads
        found = F.scaled_dot_product_attention(
            q, k, v, mask, self.given.get("dropout", 0.0), enable_gqa=gqa
        )
        return found.sum()


HALF, SINGLE = torch.bfloat16, torch.float32
# Kernels of HALF and SINGLE are those of steps traced on an H100; the others are the order of
# aten/src/ATen/native/transformers/cuda/sdp_utils.cpp.
CHOICES: list[tuple[str, torch.dtype, dict[str, Any], str]] = [
    ("h100", HALF, {}, "cudnn"),
    ("h100", HALF, {"mask": True}, "cudnn"),
    ("h100", HALF, {"kv_heads": 1}, "cudnn"),
    ("h100", SINGLE, {}, "efficient"),
    ("h100", SINGLE, {"dropout": 0.1}, "efficient"),
    ("h100", SINGLE, {"kv_heads": 1}, "math"),
    ("b200", HALF, {}, "cudnn"),
    ("a100", HALF, {}, "flash"),
    ("a100", HALF, {"kv_heads": 1}, "flash"),
    ("a100", HALF, {"mask": True}, "efficient"),
    ("cpu", SINGLE, {}, "flash for_cpu"),
]


@pytest.mark.parametrize(("device", "dtype", "given", "kernel"), CHOICES, ids=str)
def test_attention_runs_the_kernel_of_the_device(device, dtype, given, kernel):
    model = Attention(dtype, **given)
    step = ld.capture_model(model, (torch.zeros(3, 8, 32, dtype=dtype),), device=device)
    names = step.trace.names()
    fused = [name for name in names if "_scaled_dot_product" in name]
    if kernel == "math":
        assert not fused
        assert "aten::_safe_softmax" in names
        return
    name, *place = kernel.split()
    expected = "_".join([f"aten::_scaled_dot_product_{name}_attention", *place])
    assert fused == [expected, f"{expected}_backward"]


def test_dropout_is_a_kernel_on_a_gpu_and_three_operators_on_a_processor():
    model, given = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1)), (torch.zeros(3, 4),)
    on = {device: ld.capture_model(model, given, device=device).trace.names()
          for device in ("cpu", "a100")}  # fmt: skip
    assert {"aten::native_dropout", "aten::native_dropout_backward"} <= set(on["a100"])
    assert "aten::bernoulli_" in on["cpu"]
    assert "aten::native_dropout" not in on["cpu"]
    still = ld.capture_model(model.eval(), given, device="a100").trace.names()
    assert "aten::native_dropout" not in still


@pytest.mark.parametrize(
    ("precision", "kernel"), [("fp32", "cudnn_batch_norm"), ("bf16", "native_batch_norm")]
)
def test_batch_normalization_is_cudnns_in_single_precision(precision, kernel):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    given = (torch.zeros(2, 3, 8, 8),)
    names = ld.capture_model(model, given, device="h100", precision=precision).trace.names()
    assert {f"aten::{kernel}", f"aten::{kernel}_backward"} <= set(names)


def test_under_autocast_attention_takes_half_precision():
    given = (torch.zeros(3, 8, 32),)
    names = ld.capture_model(
        Attention(SINGLE), given, device="h100", precision="bf16"
    ).trace.names()
    assert "aten::_scaled_dot_product_cudnn_attention" in names


@pytest.mark.parametrize("plan", [{"pipeline": 2}, {"fsdp": 2}], ids=str)
def test_every_rank_of_a_plan_runs_the_kernels_of_the_device(plan):
    model, inputs = language()
    step = ld.program(model, inputs).step(device="h100", **plan)
    for trace in step.workload().traces:
        names = set(trace.names())
        assert "aten::_scaled_dot_product_efficient_attention" in names
        assert not any(name.endswith("for_cpu") for name in names)


def test_tensor_ranks_run_the_kernels_of_the_device_on_their_heads():
    step = ld.capture_model("llama3-8b", layers=1, sequence=64, tensor=8, device="a100")
    names = step.trace.names()
    flash = "aten::_scaled_dot_product_flash_attention"
    assert names.count(flash) == names.count(f"{flash}_backward") == 1


def test_a_device_whose_kernels_are_not_known_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"'h10'.*'h100'"):
        ld.capture_model(nn.Linear(2, 2), (torch.zeros(1, 2),), device="h10")


def test_devices_are_those_of_data_sheets():
    assert [data_sheet(name).name for name in COMPUTE_CAPABILITY]


def test_only_gradients_that_add_up_are_put_in_place():
    """Indexing adds its gradient up in place; assigning by an index clears a copy of it."""

    class Put(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(4, 4))

        def forward(self, at: Tensor) -> Tensor:
            put = (self.weight * 2).index_put((at,), torch.zeros(()))
            return (put + self.weight[at].sum()).sum()

    step = ld.capture_model(Put(), (torch.zeros(2, dtype=torch.long),), optimizer="none")
    names = [name for name in step.trace.names() if "index_put" in name]
    assert sorted(names) == ["aten::_index_put_impl_", "aten::index_put", "aten::index_put"]
