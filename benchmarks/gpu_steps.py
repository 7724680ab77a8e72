"""Published step times of training jobs on GPUs, and what the simulator predicts of them.

Step times: imec-int/hespas (MIT), experiments/ispass_2026/refs, one number each, rounded to 10 ms.
Shapes of llama3: the argument shapes of the programs in imec-int/hespas_workloads; MaxText's
flags (sequence 4,096, one sequence a device, FSDP over 4 devices, bf16 weights and gradients,
attention by plain products, attention computed again in the backward pass) from Hespas' tutorial.
ResNets: v1 (He et al. 2016), 256 images of 224 x 224 a device, half precision, data parallel.
"""

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from layerdag.capturing.step import capture_model
from layerdag.hardware.devices import DEVICES
from layerdag.plan import Plan, Step
from layerdag.simulator.calibration import CalibratedMachine, DeviceCosts, FittedLink
from layerdag.simulator.calibration_fit import MeasuredRun, calibrate
from layerdag.traces.trace import Workload
from layerdag.workloads.transformer.job import SymbolicJob
from layerdag.workloads.transformer.shapes import ModelShape

RANKS = 4
LINKS = {"a100-40": 300e9, "h100": 450e9, "h200": 450e9, "b200": 900e9}
"""NVLink in one direction, bytes per second, by NVIDIA's data sheets; half of what they print."""
LATENCY_NS = 1000.0


class Llama(NamedTuple):
    """What differs between the sizes."""

    layers: int
    hidden: int
    heads: int
    feed_forward: int


LLAMAS = {
    "llama3-100m": Llama(7, 576, 9, 2016),
    "llama3-200m": Llama(10, 832, 13, 2912),
    "llama3-500m": Llama(16, 1280, 20, 4480),
    "llama3-1b": Llama(22, 1792, 28, 6272),
    "llama3-2b": Llama(28, 2240, 35, 7840),
    "llama3-3b": Llama(32, 2624, 41, 9184),
}
RESNETS = {
    "resnet18": (1, (2, 2, 2, 2)),
    "resnet34": (1, (3, 4, 6, 3)),
    "resnet50": (4, (3, 4, 6, 3)),
    "resnet101": (4, (3, 4, 23, 3)),
    "resnet200": (4, (3, 24, 36, 3)),
}
"""Times that a block widens (4: bottlenecks), and blocks of each stage."""
_LLAMA_S = {
    "a100-40": (0.09, 0.17, 0.39, 0.75, 1.21, 1.68),
    "h100": (0.04, 0.07, 0.14, 0.28, 0.48, 0.65),
    "h200": (0.03, 0.05, 0.12, 0.23, 0.42, 0.53),
    "b200": (0.02, 0.04, 0.08, 0.16, 0.25, 0.34),
}
_RESNET_S = (0.04, 0.06, 0.10, 0.16, 0.32)
FIGURES = {
    **{
        (device, model): seconds
        for device, row in _LLAMA_S.items()
        for model, seconds in zip(LLAMAS, row, strict=True)
    },
    **{("a100-40", model): seconds for model, seconds in zip(RESNETS, _RESNET_S, strict=True)},
}
"""Seconds of a training step on four GPUs, by kind of GPU and model."""


def predicted(device: str, model: str, like: tuple[str, str, float] | None = None) -> float:
    """Return the predicted seconds of a step.

    Args:
        device: Kind of GPU.
        model: Of ``LLAMAS`` or ``RESNETS``.
        like: Kind of GPU, model and seconds of the one measured step that the efficiency is
            fitted to; None for the data sheet.
    """
    efficiency = 1.0 if like is None else _efficiency(*like)
    costs = DeviceCosts(DEVICES[device], efficiency)
    return CalibratedMachine(costs, _link(device)).predict(workload(model)).seconds


def over_peak(device: str, model: str) -> float:
    """Return operations of a rank over the device's peak: the simplest prediction, in seconds."""
    operations = int(workload(model).traces[0].integers("num_ops")[0].sum())
    return operations / DEVICES[device].flops["bf16"]


@cache
def _efficiency(device: str, model: str, seconds: float) -> float:
    run = MeasuredRun(workload(model), seconds, model)
    machine = calibrate([run], device=DEVICES[device], link=_link(device))
    assert isinstance(machine.costs, DeviceCosts)
    return machine.costs.efficiency


def _link(device: str) -> FittedLink:
    """Return the link to one of the other GPUs; all pairs have one, so a ring uses one of three."""
    return FittedLink(LATENCY_NS, LINKS[device])


@cache
def workload(model: str) -> Workload:
    """Return the traces of a training step on four devices."""
    if model in LLAMAS:
        return _llama(model)
    images = torch.zeros(256, 3, 224, 224, dtype=torch.float16)
    return capture_model(resnet(*RESNETS[model]).half(), [images], data=RANKS).workload()


def _llama(name: str) -> Workload:
    llama = LLAMAS[name]
    shape = ModelShape(
        name, layers=llama.layers, hidden=llama.hidden, heads=llama.heads, head_size=128,
        feed_forward=llama.feed_forward, vocabulary=128_256, gated=True, norm="rms", biases="none",
    )  # fmt: skip
    plan = Plan(data=RANKS, zero=3, attention="unfused", recompute="selective")
    return SymbolicJob(shape, plan, Step(batch=RANKS, sequence=4096)).workload()


class Block(nn.Module):
    """Two convolutions, or three around a narrow one (``widening`` 4), and a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int, widening: int) -> None:
        super().__init__()
        outputs = width * widening
        if widening > 1:
            steps = ((inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1))
        else:
            steps = ((inputs, width, 3, stride), (width, width, 3, 1))  # type: ignore[assignment]
        layers = [layer for step in steps for layer in (*_convolution(*step), nn.ReLU(True))]
        self.body = nn.Sequential(*layers[:-1])
        same = stride == 1 and inputs == outputs
        shortcut = [] if same else _convolution(inputs, outputs, 1, stride)
        self.shortcut = nn.Sequential(*shortcut)
        self.last = nn.ReLU(True)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, inputs, height, width)."""
        return self.last(self.body(x) + self.shortcut(x))


def _convolution(inputs: int, outputs: int, size: int, stride: int) -> list[nn.Module]:
    kernel = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
    return [kernel, nn.BatchNorm2d(outputs)]


def resnet(widening: int, blocks: tuple[int, ...]) -> nn.Sequential:
    """Return a residual network for ImageNet."""
    layers: list[nn.Module] = [*_convolution(3, 64, 7, 2), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)]
    width = 64
    for stage, count in enumerate(blocks):
        for block in range(count):
            stride = 2 if block == 0 and stage > 0 else 1
            layers.append(Block(width, 64 << stage, stride, widening))
            width = (64 << stage) * widening
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000)]
    return nn.Sequential(*layers, *head)
