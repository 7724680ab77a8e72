"""Capture of a model's step, or of any function that computes with PyTorch."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from layerdag.errors import LayerdagError, UsageError
from layerdag.workloads.capture._captured import CapturedStep, captured_trace
from layerdag.workloads.capture._parallel import ReplicaGradients, TensorPlan, parallelize
from layerdag.workloads.capture._recorder import Recorder
from layerdag.workloads.capture._settings import CaptureStep, Settings
from layerdag.workloads.capture._transformer import Transformer
from layerdag.workloads.capture._world import World, fake_world, group_ranks
from layerdag.workloads.symbolic import ModelShape, Plan, Step, SymbolicJob, model as shape_of

Inputs = Sequence[Any]
Loss = Callable[[Any], Tensor]
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def capture_model(
    model: str | Path | ModelShape | nn.Module,
    inputs: Inputs = (),
    *,
    tensor_plan: TensorPlan | None = None,
    loss: Loss | None = None,
    **settings: Any,
) -> CapturedStep:
    """Capture one step of a model without a device, weights or a cluster.

    The model itself is not changed: its parameters are replaced by shapes without content. Torch
    must not be in a process group; two captures in one process do not disturb each other.

    Args:
        model: A name of ``layerdag.workloads.symbolic.PRESETS``, a Hugging Face ``config.json``, a
            ``ModelShape``, or a module of your own.
        inputs: What one rank calls its own module with; presets make theirs.
        tensor_plan: Which modules of your own are split over the tensor ranks, by path.
        loss: The scalar that is differentiated, from the module's output; by default the output
            itself, its ``loss``, or else the mean of its first tensor.
        **settings: Fields of ``CapturePlan`` and ``CaptureStep``, such as ``tensor=8, data=2``.

    Returns:
        The step; ``workload()`` gives what ``layerdag.simulate`` and ``write_workload`` take.

    Raises:
        UsageError: If there is no such model or setting, if numbers do not fit together, if the
            step depends on the content of tensors, or if torch.distributed is in use.
    """
    found = Settings.of(settings)
    if isinstance(model, nn.Module):
        name = type(model).__name__
        _refuse_sizes(name, found.step)
    else:
        shape = model if isinstance(model, ModelShape) else shape_of(model)
        if found.step.layers:
            shape = replace(shape, layers=found.step.layers)
        name, inputs = shape.name, ()
        _require_text(shape)
        _require_fit(shape, found)
    with fake_world(found.plan.degrees) as world:
        fake = FakeTensorMode(allow_non_fake_inputs=True)
        if isinstance(model, nn.Module):
            made = fake_copy(model, fake)
            given = tuple(_fake(value, fake) for value in inputs)
        else:
            made, given = _preset(shape, found, fake)
        count = sum(parameter.numel() for parameter in made.parameters())
        parallelize(made, found.plan, world, tensor_plan)
        recorder = Recorder(made)
        with _sentences(recorder, name):
            _run(made, given, (loss or _loss, found, world), (fake, recorder))
        trace = captured_trace(recorder, world, group_ranks(), name)
    return CapturedStep(
        name, trace, World(world.degrees), found, count, frozenset(recorder.elementwise)
    )


def capture_step(step: Callable[[], object], *, name: str = "step", **degrees: Any) -> CapturedStep:
    """Capture what a function does on rank 0 of a world, on fake tensors.

    Tensors that the function makes are fake; real ones that it uses are taken for fake ones. The
    world's mesh has the dimensions "data", "fsdp" and "tensor", those longer than 1: the function
    may make groups along them with ``torch.distributed.new_group``.

    Args:
        step: The function.
        name: For messages and summaries.
        **degrees: ``data``, ``fsdp`` and ``tensor``.

    Raises:
        UsageError: As ``capture_model``.
    """
    found = Settings.of(degrees)
    more = sorted(set(degrees) - set(found.plan.degrees))
    if more:
        raise UsageError(
            f"{name}: a function that runs a step decides on {more[0]} itself; leave it out."
        )
    with fake_world(found.plan.degrees) as world:
        recorder = Recorder()
        with _sentences(recorder, name), FakeTensorMode(allow_non_fake_inputs=True), recorder:
            step()
        trace = captured_trace(recorder, world, group_ranks(), name)
    return CapturedStep(
        name, trace, World(world.degrees), found, 0, frozenset(recorder.elementwise)
    )


def fake_copy(model: nn.Module, fake: FakeTensorMode) -> nn.Module:
    """Return a copy of a module whose parameters and buffers have shapes, but no content."""
    held: dict[int, Any] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        with fake:
            empty = torch.empty_strided(
                tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu"
            )
        own = isinstance(tensor, nn.Parameter)
        held[id(tensor)] = nn.Parameter(empty, tensor.requires_grad) if own else empty
    return copy.deepcopy(model, held)


def _fake(value: Any, fake: FakeTensorMode) -> Any:
    """Return an input with its tensors, in lists and dictionaries, too, without content."""
    if isinstance(value, Tensor):
        with fake:
            empty = torch.empty_strided(
                value.shape, value.stride(), dtype=value.dtype, device="cpu"
            )
        return empty.requires_grad_(value.requires_grad)
    if isinstance(value, list | tuple):
        return type(value)(_fake(part, fake) for part in value)
    if isinstance(value, dict):
        return {key: _fake(part, fake) for key, part in value.items()}
    return value


def _preset(
    shape: ModelShape, found: Settings, fake: FakeTensorMode
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return a transformer and its inputs: tokens, and targets in training."""
    plan, step = found.plan, found.step
    sharers = plan.data * plan.fsdp
    before = torch.get_default_dtype()
    torch.set_default_dtype(_DTYPES[step.precision])
    try:
        with fake:
            made = Transformer(shape)
            tokens = torch.zeros(
                (step.batch or sharers) // sharers, step.sequence, dtype=torch.long
            )
            targets = torch.zeros_like(tokens)
    finally:
        torch.set_default_dtype(before)
    return made, (tokens, targets) if step.training else (tokens,)


def _require_text(shape: ModelShape) -> None:
    """Refuse models of images, which are no modules here."""
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


def _require_fit(shape: ModelShape, found: Settings) -> None:
    """Refuse a preset that the plan cannot split, with the sentences of ``layerdag workload``."""
    plan, step = found.plan, found.step
    sharers = plan.data * plan.fsdp
    if plan.sequence_parallel and plan.tensor == 1:
        raise UsageError("sequence_parallel splits over the tensor ranks; give tensor=2 or more.")
    SymbolicJob(
        shape,
        Plan(data=sharers, tensor=plan.tensor, sequence_parallel=plan.sequence_parallel),
        Step(batch=step.batch or sharers, sequence=step.sequence),
    )
    if shape.positions and step.sequence > shape.positions:
        raise UsageError(
            f"{shape.name}: knows {shape.positions} positions; a sequence of {step.sequence} is "
            "too long."
        )


def _refuse_sizes(name: str, step: CaptureStep) -> None:
    """Refuse settings that size a preset beside a module of the user's own."""
    usual = CaptureStep()
    for key in ("batch", "sequence", "precision", "layers"):
        if getattr(step, key) != getattr(usual, key):
            raise UsageError(
                f"{name}: {key} follows from the module and its inputs; leave it out, or change "
                "them."
            )


def _run(
    model: nn.Module,
    inputs: Inputs,
    what: tuple[Loss, Settings, World],
    modes: tuple[FakeTensorMode, Recorder],
) -> None:
    """Run the step on fake tensors."""
    loss, found, world = what
    fake, recorder = modes
    if not found.step.training:
        with fake, recorder, torch.no_grad():
            model(*inputs)
        return
    optimizer = _optimizer(model, found.step)
    if optimizer is not None:
        _warm_up(optimizer, fake)
    data = world.along("data")
    replicas = None
    if data is not None and found.plan.fsdp == 1:
        replicas = ReplicaGradients(model, data, found.plan.bucket_bytes)
    with fake, recorder:
        loss(model(*inputs)).backward()
        if replicas is not None:
            replicas.finish()
        if optimizer is not None:
            optimizer.step()


def _loss(output: Any) -> Tensor:
    """Return the scalar of a module's output."""
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


def _optimizer(model: nn.Module, step: CaptureStep) -> torch.optim.Optimizer | None:
    """Return the optimizer; parameters split over different meshes are in groups of their own."""
    if step.optimizer == "none":
        return None
    groups: dict[object, list[nn.Parameter]] = {}
    for parameter in model.parameters():
        if parameter.requires_grad:
            groups.setdefault(getattr(parameter, "device_mesh", None), []).append(parameter)
    if not groups:
        raise UsageError(
            f"{type(model).__name__}: no parameter is trained; give optimizer none, or "
            "phase inference."
        )
    kind = torch.optim.AdamW if step.optimizer == "adamw" else torch.optim.SGD
    return kind([{"params": held} for held in groups.values()], lr=1e-3, fused=True)


def _warm_up(optimizer: torch.optim.Optimizer, fake: FakeTensorMode) -> None:
    """Let an optimizer make its states, as it does once in the first step of a run."""
    with fake:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        optimizer.zero_grad()


@contextmanager
def _sentences(recorder: Recorder, name: str) -> Iterator[None]:
    """Say where a step could not be captured."""
    try:
        yield
    except LayerdagError:
        raise
    except Exception as error:
        message = (str(error).strip().splitlines() or [type(error).__name__])[0]
        where = f"module '{recorder.module_path}'" if recorder.module_path else "the step"
        raise UsageError(
            f"{name}: {where} cannot be captured after operator {recorder.last_operator or '-'}: "
            f"{message} A capture has shapes but no values: the step must not depend on the "
            "content of tensors (item(), nonzero(), if on a tensor)."
        ) from error
