"""Deriving a step from a program: backward pass, optimizer and communication by running it.

Nothing here is a formula: PyTorch's autograd, optimizers and ``fully_shard`` run on fake tensors in
a process group that does not exist (``layerdag.capturing``), so that a step on 1,024 ranks takes as
long as one on 8.
"""

import warnings
from typing import Any

from layerdag.capturing.captured_step import CapturedStep
from layerdag.capturing.fake_tensors import RememberingFakeMode
from layerdag.capturing.step import FakeModel, capture_fake, refuse_sizes
from layerdag.plan import read_recorded
from layerdag.programs.execution import count_parameters
from layerdag.programs.module import ProgramModule, overwrites_other_units
from layerdag.programs.nodes import ForwardGraph
from layerdag.programs.pipeline import capture_pipeline
from layerdag.programs.stages import stage_modules
from layerdag.programs.tensor_pairs import split_pairs


def derive_step(program: ForwardGraph, **settings: Any) -> CapturedStep:
    """Return one step of a program on every rank of a plan.

    Settings are those of ``layerdag.capture_model``: ``data``, ``fsdp``, ``optimizer`` and so on.

    Raises:
        NodeError: If a node cannot run.
        UsageError: If a setting is unknown or the plan does not fit.
    """
    found = read_recorded(settings)
    if found.plan.pipeline > 1:
        stages = stage_modules(program, found)
        return capture_pipeline(program.name, stages, found, count_parameters(program))
    tensor, bf16 = found.plan.tensor, found.step.precision == "bf16"
    shared = split_pairs([program], tensor, bf16)[0] if tensor > 1 else None
    refuse_sizes(program.name, found.step)
    fake = RememberingFakeMode()
    with fake:  # parameters of any size take no memory
        module = ProgramModule(program, content=False)
        made = FakeModel(module, module.example_inputs(), fake)
    with warnings.catch_warnings():
        if not overwrites_other_units(program):
            # It warns of what operators in place would do to views that units return.
            warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor")
        return capture_fake(made, found, program.name, shared)
