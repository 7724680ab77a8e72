"""The forward programs of the corpus' runs: what each model calls, with sizes as expressions.

A run's model is recorded at its own sizes and at two others, so that no two sizes of it have the
same numbers by chance. What runs on several ranks is recorded whole, as on one.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from models import BUILDERS
from plan import RunPlan
from steps import loss_of, make_batch
from torch import Tensor, nn

import layerdag as ld

_OTHERS = {
    "width": (96, 160),
    "batch": (6, 10),
    "time": (20, 44),
    "vocabulary": (300, 436),
    "nodes": (36, 52),
    "degree": (3, 5),
}
"""Sizes of the two other recordings; no ratio between two of them is that of the first."""
_CHANNELS = (24, 40)
_TOKENS = (24, 56)  # batches whose tokens the experts share evenly


class TrainingStep(nn.Module):
    """A model with its loss; the blocks of a plain sequence are units of their own."""

    def __init__(self, model: nn.Module, plan: RunPlan) -> None:
        super().__init__()
        self.model = nn.ModuleList(model) if isinstance(model, nn.Sequential) else model
        self.hyper = plan.hyper

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the loss; the last input is the target."""
        *given, target = inputs
        if not isinstance(self.model, nn.ModuleList):
            return loss_of(self.hyper, self.model(*given), target)
        (value,) = given
        for block in self.model:
            value = block(value)
        return loss_of(self.hyper, value, target)


def program_of(plan: RunPlan) -> ld.Program:
    """Return the program of a run's model."""
    modules, inputs = [], []
    for sized in _at_sizes(plan):
        torch.manual_seed(0)
        modules.append(TrainingStep(BUILDERS[plan.family](sized.hyper), sized))
        given, target = make_batch(sized, torch.Generator().manual_seed(0))
        inputs.append((*given, target))
    return ld.program(modules, inputs, name=plan.run)


def _at_sizes(plan: RunPlan) -> Iterator[RunPlan]:
    """Yield the plan on one rank, and at two other sizes."""
    hyper = {name: value for name, value in plan.hyper.items() if name != "parallel"}
    if "parallel" in plan.hyper:
        hyper["parallel"] = 1
    yield replace(plan, hyper=hyper)
    for at in range(2):
        other = dict(hyper)
        for name, sizes in _OTHERS.items():
            if name in other:
                other[name] = sizes[at]
        if plan.family == "cnn":
            other["width"] = _CHANNELS[at]
        if plan.family == "moe":
            other["batch"] = _TOKENS[at]
        if at and "heads" in other:
            other["heads"] = 2 * int(other["heads"])
        yield replace(plan, hyper=other)
