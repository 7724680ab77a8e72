"""Capture a model's step without a device: ``capture_model`` and ``capture_step``."""

import copy
import importlib.util
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from layerdag.capturing.device_kernels import kernels_of
from layerdag.capturing.fake_tensors import RememberingFakeMode
from layerdag.capturing.optimizers import by_mesh, clip_gradients, make_optimizer, make_states
from layerdag.capturing.parallel import (
    FakeWorld,
    Ranks,
    ReplicaGradients,
    TensorPlan,
    Transformer,
    fake_world,
    group_ranks,
    parallelize,
)
from layerdag.capturing.recorder import Recorder
from layerdag.codec.placement import RankTraces
from layerdag.errors import CaptureError, LayerdagError, UsageError
from layerdag.plan import AUTO, RECORDED, Plan, Step, StepSettings, read_recorded
from layerdag.runtime.notes import Note
from layerdag.runtime.settings import did_you_mean
from layerdag.simulator.compute import SKIPPED, ComputeModel
from layerdag.traces.analysis import WORLD
from layerdag.traces.builder import ragged, with_integers
from layerdag.traces.operator_kinds import OperatorKind, operator_kind
from layerdag.traces.pytorch.host_dataflow import HostOperations
from layerdag.traces.pytorch.importer import import_operations
from layerdag.traces.pytorch.kineto import Timings
from layerdag.traces.trace import CollectiveType, NodeType, Ragged, Trace, Workload, communicates
from layerdag.workloads.transformer.hugging_face import model as shape_of
from layerdag.workloads.transformer.job import SymbolicJob
from layerdag.workloads.transformer.shapes import ModelShape

_ROLE = "layerdag:group:"  # no text of a trace begins so


@final
@dataclass(frozen=True)
class CapturedStep:
    """What one rank of each pipeline stage does in one step; others do the same in their groups.

    Attributes:
        name: Of the model.
        stages: The trace of the first rank of each stage, one without a pipeline; groups by their
            role in the mesh, peers by their place in ``PEERS``.
        world: The ranks.
        settings: What was captured.
        parameters: Parameters of the whole model.
        elementwise: Names of operators that work on each element alone.
        notes: What was not understood of the file that describes the model.
    """

    name: str
    stages: tuple[Trace, ...]
    world: FakeWorld
    settings: StepSettings
    parameters: int
    elementwise: frozenset[str]
    notes: tuple[Note, ...] = ()

    @property
    def program(self) -> Trace:
        """The trace of rank 0."""
        return self.stages[0]

    def workload(self) -> Workload:
        """Return the traces of all ranks, which share their columns, with their groups.

        The group of all ranks is number 0; it needs no file.
        """
        used = dict.fromkeys(text for trace in self.stages for text in _roles(trace))
        members = {text: self.world.members(text.removeprefix(_ROLE)) for text in used}
        whole = {
            text: int(WORLD)
            for text, held_GM in members.items()
            if held_GM.shape == (1, self.world.size)
        }
        per_stage = self.world.size // len(self.stages)
        rank_R = np.arange(self.world.size)
        traces = RankTraces(
            self.stages,
            rank_R // per_stage,
            members,
            [(rank_R + step * per_stage) % self.world.size for step in (-1, 1)],
            whole,
        )
        groups = {name: ranks for name, ranks in traces.groups.items() if name != WORLD}
        return Workload(traces, groups, self.name)

    def timed(self, compute: ComputeModel) -> "CapturedStep":
        """Return the step with the times that a compute model gives its operators.

        They are in the attribute ``duration_ns``, as measured ones are.
        """
        return replace(self, stages=tuple(_timed(trace, compute) for trace in self.stages))

    def summary(self) -> dict[str, Any]:
        """Return the figures that ``layerdag capture --json`` prints, of rank 0.

        ``operators`` are nodes by kind, ``flops`` those of PyTorch's counter where it knows the
        operator (``matrix_flops``), and one for each element elsewhere. A pipeline has ``stages``,
        the figures of each one's first rank.
        """
        kind_N = self._kinds(self.program)
        phases, _ = self.program.texts("phase")
        counts = {kind: int((kind_N == kind).sum()) for kind in _KINDS}
        figures = {
            "model": self.name,
            "parameters": self.parameters,
            **RECORDED.facts(self.settings),
            "ranks": self.world.size,
            "nodes": self.program.num_nodes,
            "operators": counts,
            "collectives": self._collectives,
            **self._work(self.program),
            "bytes": int(self.program.integers("tensor_size")[0].sum()),
            "phases": {phase: phases.count(phase) for phase in dict.fromkeys(phases)},
        }
        if len(self.stages) > 1:
            figures["stages"] = [
                {"nodes": trace.num_nodes, **self._work(trace), **_sent(trace)}
                for trace in self.stages
            ]
        return figures

    def _work(self, trace: Trace) -> dict[str, int]:
        flops_N = trace.integers("num_ops")[0]
        matrix_N = np.isin(self._kinds(trace), ("gemm", "attention", "convolution"))
        return {"flops": int(flops_N.sum()), "matrix_flops": int(flops_N[matrix_N].sum())}

    def _kinds(self, trace: Trace) -> np.ndarray:
        of_name = {name: _kind(name, self.elementwise) for name in set(trace.names())}
        kind_N = np.array([of_name[name] for name in trace.names()], dtype=object)
        kind_N[trace.type_N != NodeType.COMP] = "communication"
        return kind_N

    @property
    def _collectives(self) -> dict[str, dict[str, int]]:
        kind_N = self.program.integers("comm_type")[0]
        size_N = self.program.integers("comm_size")[0]
        roles, _ = self.program.texts("pg_name")
        found: dict[str, dict[str, int]] = defaultdict(lambda: {"count": 0, "bytes": 0})
        for row in np.flatnonzero(self.program.type_N == NodeType.COMM_COLL).tolist():
            kind = CollectiveType(kind_N[row]).name.lower()
            entry = found[f"{kind}:{roles[row].removeprefix(_ROLE)}"]
            entry["count"] += 1
            entry["bytes"] += int(size_N[row])
        return dict(found)


def _timed(trace: Trace, compute: ComputeModel) -> Trace:
    rows = np.flatnonzero(trace.type_N == NodeType.COMP)
    on_cpu_N = trace.integers("is_cpu_op")[0] != 0
    time_ns = compute.durations_ns(trace, rows, on_cpu_N[rows])
    kept = time_ns != SKIPPED
    return with_integers(trace, "duration_ns", rows[kept], time_ns[kept])


def _sent(trace: Trace) -> dict[str, int]:
    size_N = trace.integers("comm_size")[0][trace.type_N == NodeType.COMM_SEND]
    return {"messages": len(size_N), "sent_bytes": int(size_N.sum())}


_KINDS = ("gemm", "attention", "convolution", "elementwise", "other")
_OF_KIND = {
    OperatorKind.PRODUCT: "gemm",
    OperatorKind.ATTENTION: "attention",
    OperatorKind.CONVOLUTION: "convolution",
}


def _kind(name: str, elementwise: frozenset[str]) -> str:
    kind = operator_kind(name)
    if kind in _OF_KIND:
        return _OF_KIND[kind]
    return "elementwise" if name in elementwise else "other"


def captured_trace(
    recorder: Recorder,
    world: FakeWorld,
    groups: dict[str, Ranks],
    source: str,
    tasks: Sequence[int] = (),
) -> Trace:
    """Return the trace of what was recorded, with groups by role.

    Communication is chained in program order, so that no two ranks can wait for each other.

    Args:
        recorder: What was recorded.
        world: The ranks.
        groups: Ranks of each process group.
        source: For messages.
        tasks: Numbers of the operations with which the passes of a pipeline's micro-batches begin:
            each waits for the one before. Receives then wait for nothing, as a rank posts them
            before it needs them.

    Raises:
        UsageError: If nothing was recorded, or a group is no dimension of the mesh.
    """
    done = [op for op in recorder.operations if op.role.name != "ALLOCATION"]
    if not done:
        raise UsageError(f"{source}: the step runs no operator on tensors; there is no trace.")
    roles = world.groups()
    named = {op.group for op in done if op.group is not None}
    strange = [ranks for name, ranks in groups.items() if name in named and ranks not in roles]
    if strange:
        raise UsageError(
            f"{source}: a collective of ranks {list(strange[0])} is along no dimension of the mesh "
            f"{dict(world.degrees)}; what other ranks do there is not known from rank 0."
        )
    used = {name: ranks for name, ranks in groups.items() if name in named}
    names = {ranks: f"{_ROLE}{role}" for ranks, role in roles.items()}
    host = HostOperations(
        tuple(recorder.operations), (), used, {}, len(recorder.operations), source
    )
    trace = import_operations(host, Timings({}), names).trace
    begin_N = np.searchsorted([op.id for op in done], tasks)
    return replace(trace, ctrl_deps=_chained(trace, begin_N.tolist()))


def _chained(trace: Trace, tasks: Sequence[int]) -> Ragged:
    """Return the control dependencies with each communication after the one before.

    Where there are tasks, what begins one waits for the last operator of the task before.
    """
    ctrl = [trace.ctrl_deps.of(row).tolist() for row in range(trace.num_nodes)]
    posted_N = (trace.type_N == NodeType.COMM_RECV) & bool(tasks)
    spoken = np.flatnonzero(communicates(trace.type_N) & ~posted_N).tolist()
    for before, after in pairwise(spoken):
        number = int(trace.id_N[before])
        if number not in ctrl[after] and number not in trace.data_deps.of(after):
            ctrl[after] = sorted([*ctrl[after], number])
    computes = (trace.type_N == NodeType.COMP).tolist()
    for first, end in pairwise([*tasks, trace.num_nodes]):
        last = next((row for row in range(first - 1, -1, -1) if computes[row]), None)
        for row in range(first, end if last is not None else first):
            data = set(trace.data_deps.of(row).tolist())
            inside = any(first <= other < end for other in (*ctrl[row], *data))
            if computes[row] and not inside:
                ctrl[row] = sorted({*ctrl[row], last} - data)
    return ragged(ctrl, trace.source)


def _roles(trace: Trace) -> list[str]:
    return [text for text in trace.strings if text.startswith(_ROLE)]


Inputs = Sequence[Any]
Loss = Callable[[Any], Tensor]
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


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
    found = _of_preset(found)
    if found.step.layers:
        shape = replace(shape, layers=found.step.layers)
    _require_text(shape)
    _require_fit(shape, found)
    made = _preset(shape, found, fake)
    step = capture_fake(made, found, name or shape.name, tensor_plan, loss)
    return replace(step, notes=shape.notes)


@final
@dataclass(frozen=True)
class FakeModel:
    """A module of fake tensors, and what it is called with.

    Attributes:
        module: The module.
        inputs: Fake tensors that one rank calls it with.
        mode: The mode in which both were made.
        autocast: Whether a step in bfloat16 runs under autocast.
    """

    module: nn.Module
    inputs: Inputs
    mode: FakeTensorMode
    autocast: bool = True


def capture_fake(
    model: FakeModel,
    settings: StepSettings,
    name: str,
    tensor_plan: TensorPlan | None = None,
    loss: Loss | None = None,
) -> CapturedStep:
    """Capture one step of a module of fake tensors, which is split as the plan says.

    Args:
        model: The module. It is changed.
        settings: Plan and step.
        name: For messages and summaries.
        tensor_plan: As ``capture_model`` takes it.
        loss: As ``capture_model`` takes it.

    Raises:
        UsageError: As ``capture_model``.
    """
    count = sum(parameter.numel() for parameter in model.module.parameters())
    with fake_world(settings.plan.mesh) as world:
        parallelize(model.module, settings.plan, world, tensor_plan)
        recorder = Recorder(model.module)
        with capture_errors(recorder, name):
            _run(_Job(model, loss or loss_of, settings, world), recorder)
        trace = captured_trace(recorder, world, group_ranks(), name)
    elementwise = frozenset(recorder.elementwise)
    return CapturedStep(name, (trace,), FakeWorld(world.degrees), settings, count, elementwise)


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
    found = read_recorded(degrees)
    more = sorted(set(degrees) - set(found.plan.mesh))
    if more:
        raise UsageError(
            f"{name}: a function that runs a step decides on {more[0]} itself; leave it out."
        )
    _refuse_pipeline("a program (ld.program)", found)
    with fake_world(found.plan.mesh) as world:
        recorder = Recorder()
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
        with fake:
            empty = torch.empty_strided(
                tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu"
            )
        own = isinstance(tensor, nn.Parameter)
        held[id(tensor)] = nn.Parameter(empty, tensor.requires_grad) if own else empty
    return copy.deepcopy(model, held)


def _fake(value: Any, fake: FakeTensorMode) -> Any:
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


def _of_preset(found: StepSettings) -> StepSettings:
    if found.step.precision != AUTO:
        return found
    return replace(found, step=replace(found.step, precision="bf16"))


def _preset(shape: ModelShape, found: StepSettings, fake: FakeTensorMode) -> FakeModel:
    plan, step = found.plan, found.step
    sharers = plan.data * plan.fsdp
    before = torch.get_default_dtype()
    torch.set_default_dtype(_DTYPES[step.precision])
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


def _require_text(shape: ModelShape) -> None:
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


def _require_fit(shape: ModelShape, found: StepSettings) -> None:
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
    """Refuse settings that only a preset has, beside a module of the user's own.

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


@dataclass(frozen=True)
class _Job:
    """What is run.

    Attributes:
        model: The module, split as the plan says.
        loss: Scalar of its output.
        settings: Plan and step.
        world: The ranks.
    """

    model: FakeModel
    loss: Loss
    settings: StepSettings
    world: FakeWorld

    def forward_pass(self) -> AbstractContextManager[None]:
        """Return what a forward pass and its loss run under."""
        step = self.settings.step
        return forward_pass(step, autocast=self.model.autocast and step.precision == "bf16")


@contextmanager
def forward_pass(step: Step, *, autocast: bool) -> Iterator[None]:
    """Run a forward pass and its loss as a step says: precision, and kernels of its device."""
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast), kernels_of(step.device):
        yield


def _run(job: _Job, recorder: Recorder) -> None:
    model, inputs, fake, found = job.model.module, job.model.inputs, job.model.mode, job.settings
    if not found.step.training:
        with fake, recorder, torch.no_grad(), job.forward_pass():
            model(*inputs)
        return
    optimizer = optimizer_with_states(model, found.step, fake)
    data = job.world.along("data")
    replicas = None
    with fake, recorder:
        for number in range(found.step.accumulate):
            if number == found.step.accumulate - 1 and data is not None and found.plan.fsdp == 1:
                replicas = ReplicaGradients(model, data, found.plan.bucket_bytes)
            with job.forward_pass():
                scalar = job.loss(model(*inputs))
            scalar.backward()
        if replicas is not None:
            replicas.finish()
        if found.step.clip:
            with recorder.updating():
                clip_gradients(by_mesh(model), found.step.clip)
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
def capture_errors(recorder: Recorder, name: str) -> Iterator[None]:
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
        where = f"module '{recorder.module_path}'" if recorder.module_path else "the step"
        raise CaptureError(
            f"{name}: {where} cannot be captured after operator {recorder.last_operator or '-'}: "
            f"{message.rstrip('.')}. A capture has shapes but no values: the step must not depend "
            "on the content of tensors (item(), nonzero(), if on a tensor)."
        ) from error


@dataclass(frozen=True)
class UserProgram:
    """What the function of a file returned.

    Attributes:
        model: The module, or a function that runs a whole step.
        inputs: What the module is called with.
        tensor_plan: How tensor ranks split it, None if it does not say.
    """

    model: nn.Module | Callable[[], object]
    inputs: Sequence[Any] = ()
    tensor_plan: TensorPlan | None = None


def load_program(text: str, mode: AbstractContextManager[Any] | None = None) -> UserProgram:
    """Run ``FILE.py:FUNCTION`` and return what it made.

    The file runs as code with your rights: name only files that you trust. The function takes
    nothing. It returns a function that runs a step, or (module, inputs) or (module, inputs, tensor
    plan).

    Args:
        text: File and function.
        mode: Under which the function runs; by default, tensors that it makes have no content.

    Raises:
        UsageError: If there is no such file or function, if it fails or returns something else.
    """
    file, _, name = text.rpartition(":")
    path = Path(file)
    if not path.is_file():
        raise UsageError(f"{file} does not exist; give FILE.py:FUNCTION of a Python file.")
    found = _function(path, name)
    try:
        with mode or RememberingFakeMode():
            made = found()
    except LayerdagError:
        raise
    except (Exception, SystemExit) as error:
        raise UsageError(f"{text} failed: {type(error).__name__}: {error}") from error
    return _program(text, made)


def _function(path: Path, name: str) -> Callable[[], Any]:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no Python file; give FILE.py:FUNCTION.")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except LayerdagError:
        raise
    except (Exception, SystemExit) as error:
        raise UsageError(f"{path} failed: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    found = getattr(module, name, None)
    if not callable(found):
        known = [key for key, value in vars(module).items() if callable(value)]
        raise UsageError(f"{path} has no function '{name}'.{did_you_mean(name, known)}")
    return found


def _program(text: str, made: Any) -> UserProgram:
    if isinstance(made, tuple) and len(made) in (2, 3) and isinstance(made[0], nn.Module):
        inputs = made[1] if isinstance(made[1], list | tuple) else (made[1],)
        plan = made[2] if len(made) == 3 else None
        if plan is None or isinstance(plan, dict):
            return UserProgram(made[0], inputs, plan)
    if callable(made) and not isinstance(made, nn.Module):
        return UserProgram(made)
    raise UsageError(
        f"{text} returns {type(made).__name__}; return (module, inputs), (module, inputs, "
        "tensor plan), or a function that runs a step."
    )
