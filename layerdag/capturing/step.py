"""Capture a model's step without a device: ``capture_model`` and ``capture_step``."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from layerdag.capturing.captured_step import CapturedStep, captured_trace
from layerdag.capturing.device_kernels import kernels_of
from layerdag.capturing.fake_tensors import RememberingFakeMode
from layerdag.capturing.fake_world import FakeWorld, fake_world, group_ranks
from layerdag.capturing.optimizers import by_mesh, clip_gradients, make_optimizer, make_states
from layerdag.capturing.parallel import TensorPlan, parallelize
from layerdag.capturing.recorder import OperatorRecorder
from layerdag.capturing.replica_gradients import ReplicaGradients
from layerdag.capturing.transformer import Transformer
from layerdag.errors import CaptureError, LayerdagError, UsageError
from layerdag.hardware.dtypes import SPELLINGS
from layerdag.plan import AUTO, Plan, Step, StepSettings, read_recorded
from layerdag.workloads.transformer.hugging_face import model as shape_of
from layerdag.workloads.transformer.job import SymbolicJob
from layerdag.workloads.transformer.shapes import ModelShape

Inputs = Sequence[Any]
Loss = Callable[[Any], Tensor]


def capture_model(
    model: str | Path | ModelShape | nn.Module,
    inputs: Inputs = (),
    *,
    tensor_plan: TensorPlan | None = None,
    loss: Loss | None = None,
    name: str | None = None,
    **settings: Any,
) -> CapturedStep:
    """Capture one step of a model without a device, weights or a cluster.

    The model itself is not changed: its parameters are replaced by shapes without content. Torch
    must not be in a process group; two captures in one process do not disturb each other.

    Args:
        model: A name of ``layerdag.workloads.transformer.PRESETS``, a ``config.json`` of Hugging
            Face, a ``ModelShape``, or a module of your own.
        inputs: What one rank calls its own module with; presets make theirs.
        tensor_plan: Which modules of your own are split over the tensor ranks, by path.
        loss: The scalar that is differentiated, from the module's output; by default the output
            itself, its ``loss``, or else the mean of its first tensor.
        name: For messages and summaries; by default the preset's, or that of the module's class.
        **settings: Fields of ``Plan`` and ``Step``, such as ``tensor=8, data=2``.

    Returns:
        The step; ``workload()`` gives what ``layerdag.simulate`` and ``write_workload`` take.

    Raises:
        UsageError: If there is no such model or setting, if numbers do not fit together, if the
            step depends on the content of tensors, or if torch.distributed is in use.
    """
    found = read_recorded(settings)
    _refuse_pipeline("ld.program(module, inputs).step(pipeline=2)", found)
    fake = RememberingFakeMode()
    if isinstance(model, nn.Module):
        name = name or type(model).__name__
        refuse_sizes(name, found.step)
        given = tuple(_fake(value, fake) for value in inputs)
        made = FakeModel(fake_copy(model, fake), given, fake)
        return capture_fake(made, found, name, tensor_plan, loss)
    shape = model if isinstance(model, ModelShape) else shape_of(model)
    if found.step.precision == AUTO:
        found = replace(found, step=replace(found.step, precision="bf16"))
    if found.step.layers:
        shape = replace(shape, layers=found.step.layers)
    _require_capturable(shape, found)
    made = _preset(shape, found, fake)
    step = capture_fake(made, found, name or shape.name, tensor_plan, loss)
    return replace(step, notes=shape.notes)


@final
@dataclass(frozen=True)
class FakeModel:
    """A module of fake tensors, what one rank calls it with, and the mode of both."""

    module: nn.Module
    inputs: Inputs
    mode: FakeTensorMode
    autocast: bool = True  # whether a step in bfloat16 runs under autocast


def capture_fake(
    model: FakeModel,
    settings: StepSettings,
    name: str,
    tensor_plan: TensorPlan | None = None,
    loss: Loss | None = None,
) -> CapturedStep:
    """Capture one step of a module of fake tensors, which is changed; see ``capture_model``."""
    count = sum(parameter.numel() for parameter in model.module.parameters())
    with fake_world(settings.plan.mesh) as world:
        parallelize(model.module, settings.plan, world, tensor_plan)
        recorder = OperatorRecorder(model.module)
        with capture_errors(recorder, name):
            _run(model, loss or loss_of, settings, world, recorder)
        trace = captured_trace(recorder, world, group_ranks(), name)
    elementwise = frozenset(recorder.elementwise)
    return CapturedStep(name, (trace,), FakeWorld(world.degrees), settings, count, elementwise)


def capture_step(step: Callable[[], object], *, name: str = "step", **degrees: Any) -> CapturedStep:
    """Capture what a function does on rank 0 of a world, on fake tensors.

    Tensors that the function makes are fake; real ones that it uses are taken for fake ones. The
    world's mesh has the dimensions "data", "fsdp" and "tensor", those longer than 1: the function
    may make groups along them with ``torch.distributed.new_group``.

    Raises:
        UsageError: As ``capture_model``.
    """
    found = read_recorded(degrees)
    more = sorted(set(degrees) - set(found.plan.mesh))
    if more:
        raise UsageError(
            f"{name}: a function that runs a step decides on {more[0]} itself; leave it out."
        )
    _refuse_pipeline("a program (ld.program)", found)
    with fake_world(found.plan.mesh) as world:
        recorder = OperatorRecorder()
        with capture_errors(recorder, name), RememberingFakeMode(), recorder:
            step()
        trace = captured_trace(recorder, world, group_ranks(), name)
    return CapturedStep(
        name, (trace,), FakeWorld(world.degrees), found, 0, frozenset(recorder.elementwise)
    )


def fake_copy(model: nn.Module, fake: FakeTensorMode) -> nn.Module:
    """Return a copy of a module whose parameters and buffers have shapes, but no content."""
    held: dict[int, Any] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        empty = _empty_like(tensor, fake)
        own = isinstance(tensor, nn.Parameter)
        held[id(tensor)] = nn.Parameter(empty, tensor.requires_grad) if own else empty
    return copy.deepcopy(model, held)


def _empty_like(tensor: Tensor, fake: FakeTensorMode) -> Tensor:
    with fake:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")


def _fake(value: Any, fake: FakeTensorMode) -> Any:
    if isinstance(value, Tensor):
        return _empty_like(value, fake).requires_grad_(value.requires_grad)
    if isinstance(value, list | tuple):
        return type(value)(_fake(part, fake) for part in value)
    if isinstance(value, dict):
        return {key: _fake(part, fake) for key, part in value.items()}
    return value


def _preset(shape: ModelShape, found: StepSettings, fake: FakeTensorMode) -> FakeModel:
    plan, step = found.plan, found.step
    sharers = plan.data * plan.fsdp
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, SPELLINGS[step.precision].name))
    try:
        with fake:
            made = Transformer(shape)
            tokens = torch.zeros(
                max(1, step.batch // (sharers * step.accumulate)), step.sequence, dtype=torch.long
            )
            targets = torch.zeros_like(tokens)
    finally:
        torch.set_default_dtype(before)
    given = (tokens, targets) if step.training else (tokens,)
    return FakeModel(made, given, fake, autocast=False)  # its weights have the precision themselves


def _require_capturable(shape: ModelShape, found: StepSettings) -> None:
    if shape.image:
        raise UsageError(
            f"{shape.name}: reads images, which only 'layerdag workload' knows by name; capture a "
            "module of your own."
        )
    if shape.latent or shape.shared_experts or shape.dense_layers:
        raise UsageError(
            f"{shape.name}: has latent attention, shared experts or dense layers before mixtures, "
            "which only 'layerdag workload' knows by name; capture a module of your own."
        )
    plan, step = found.plan, found.step
    sharers = plan.data * plan.fsdp
    if plan.sequence_parallel and plan.tensor == 1:
        raise UsageError("sequence_parallel splits over the tensor ranks; give tensor=2 or more.")
    if step.batch % step.accumulate:
        raise UsageError(
            f"{shape.name}: a batch of {step.batch} cannot be split evenly over {step.accumulate} "
            "passes; choose numbers that divide (batch, accumulate)."
        )
    SymbolicJob(
        shape,
        Plan(data=sharers, tensor=plan.tensor, sequence_parallel=plan.sequence_parallel),
        Step(batch=step.batch // step.accumulate or sharers, sequence=step.sequence),
    )
    if shape.positions and step.sequence > shape.positions:
        raise UsageError(
            f"{shape.name}: knows {shape.positions} positions; a sequence of {step.sequence} is "
            "too long."
        )


def _refuse_pipeline(instead: str, found: StepSettings) -> None:
    if found.plan.pipeline > 1:
        raise UsageError(
            f"plan: pipeline is {found.plan.pipeline}, but only programs are cut into stages; use "
            f"{instead}, or 'layerdag program' and its file."
        )


def refuse_sizes(name: str, step: Step) -> None:
    """Refuse settings of presets for a module of the user's own.

    Raises:
        UsageError: If there is one.
    """
    usual = read_recorded({}).step
    for key in ("batch", "sequence", "layers"):
        if getattr(step, key) != getattr(usual, key):
            raise UsageError(
                f"{name}: {key} follows from the module and its inputs; leave it out, or change "
                "them."
            )
    if step.precision == "fp16":
        raise UsageError(
            f"{name}: precision fp16 needs a scaler of gradients, whose work depends on their "
            "content; give bf16 (autocast) or fp32 (the module as it is)."
        )


@contextmanager
def forward_pass(step: Step, *, autocast: bool = True) -> Iterator[None]:
    """Run a forward pass and its loss as a step says: precision, and kernels of its device."""
    lower = autocast and step.precision == "bf16"
    with torch.autocast("cpu", torch.bfloat16, enabled=lower), kernels_of(step.device):
        yield


def _run(
    made: FakeModel,
    loss: Loss,
    settings: StepSettings,
    world: FakeWorld,
    recorder: OperatorRecorder,
) -> None:
    model, plan, step = made.module, settings.plan, settings.step
    if not step.training:
        with made.mode, recorder, torch.no_grad(), forward_pass(step, autocast=made.autocast):
            model(*made.inputs)
        return
    optimizer = optimizer_with_states(model, step, made.mode)
    data = world.along("data")
    replicas = None
    with made.mode, recorder:
        for number in range(step.accumulate):
            if number == step.accumulate - 1 and data is not None and plan.fsdp == 1:
                replicas = ReplicaGradients(model, data, plan.bucket_bytes)
            with forward_pass(step, autocast=made.autocast):
                scalar = loss(model(*made.inputs))
            scalar.backward()
        if replicas is not None:
            replicas.finish()
        if step.clip:
            with recorder.updating():
                clip_gradients(by_mesh(model), step.clip)
        if optimizer is not None:
            optimizer.step()


def loss_of(output: Any) -> Tensor:
    """Return the scalar of a module's output: itself, its loss, or the mean of its first tensor.

    Raises:
        UsageError: If it has none.
    """
    found = getattr(output, "loss", None)
    if isinstance(found, Tensor):
        return found
    while isinstance(output, list | tuple | dict) and output:
        output = next(iter(output.values())) if isinstance(output, dict) else output[0]
    if not isinstance(output, Tensor):
        raise UsageError(
            f"the module returns {type(output).__name__}, which has no scalar to differentiate; "
            "give loss, a function of the output."
        )
    return output if output.ndim == 0 else output.float().mean()


def optimizer_with_states(
    model: nn.Module, step: Step, fake: FakeTensorMode
) -> torch.optim.Optimizer | None:
    """Return the optimizer with the states that its first step makes; None for no update.

    Raises:
        UsageError: If no parameter is trained.
    """
    if step.optimizer == "none":
        return None
    groups = by_mesh(model)
    if not groups:
        raise UsageError(
            f"{type(model).__name__}: no parameter is trained; give optimizer none, or "
            "phase inference."
        )
    with fake:
        optimizer = make_optimizer(step.optimizer, groups)
        for held in groups:
            for parameter in held:
                parameter.grad = torch.zeros_like(parameter)
        if not make_states(optimizer):
            optimizer.step()
        optimizer.zero_grad()
    return optimizer


@contextmanager
def capture_errors(recorder: OperatorRecorder, name: str) -> Iterator[None]:
    """Say where a step could not be captured.

    Raises:
        CaptureError: With module and operator, for whatever error PyTorch raises.
    """
    try:
        yield
    except LayerdagError:
        raise
    except Exception as error:
        message = (str(error).strip().splitlines() or [type(error).__name__])[0]
        path = recorder.running.path
        where = f"module '{path}'" if path else "the step"
        raise CaptureError(
            f"{name}: {where} cannot be captured after operator {recorder.last_operator or '-'}: "
            f"{message.rstrip('.')}. A capture has shapes but no values: the step must not depend "
            "on the content of tensors (item(), nonzero(), if on a tensor)."
        ) from error
