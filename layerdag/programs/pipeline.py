"""Runs the stages of a program (``stages``) by ``torch.distributed.pipelining``, rank after rank.

Each stage is run as the rank that it is, by PyTorch's own stages and schedules, in a process group
that does not exist. Messages are those that the schedule sends. Only the first rank of each stage
is run: its replicas do the same with their own neighbors.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, final
from unittest import mock

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.distributed.pipelining import PipelineStage, _utils
from torch.distributed.pipelining.microbatch import TensorChunkSpec, _Replicate
from torch.distributed.pipelining.schedules import _PipelineSchedule, get_schedule_class
from torch.distributed.tensor import DTensor

from layerdag.capturing.captured_step import CapturedStep, captured_trace
from layerdag.capturing.fake_tensors import RememberingFakeMode
from layerdag.capturing.fake_world import FakeWorld, fake_world, group_ranks
from layerdag.capturing.optimizers import by_mesh, clip_gradients
from layerdag.capturing.parallel import TensorPlan, parallelize
from layerdag.capturing.recorder import OperatorRecorder
from layerdag.capturing.replica_gradients import ReplicaGradients
from layerdag.capturing.step import (
    capture_errors,
    fake_copy,
    forward_pass,
    loss_of,
    optimizer_with_states,
    refuse_sizes,
)
from layerdag.errors import UsageError
from layerdag.plan import StepSettings
from layerdag.traces.trace import Trace


@final
@dataclass(frozen=True)
class TensorForm:
    """A tensor that a stage takes or gives."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    trained: bool = False  # whether a gradient goes back for it
    # Dimension of the micro-batches in a model's input; None for an input that all micro-batches
    # share
    batch_dim: int | None = None

    def empty(self) -> Tensor:
        """Return such a tensor, of the mode that is on."""
        tensor = torch.empty_strided(self.shape, self.strides, dtype=self.dtype)
        return tensor.requires_grad_(self.trained)

    def of_all(self, micro_batches: int) -> Tensor:
        """Return the input of all micro-batches together, without content."""
        shape = list(self.shape)
        if self.batch_dim is not None:
            shape[self.batch_dim] *= micro_batches
        return torch.zeros(shape, dtype=self.dtype)

    def split(self) -> Any:
        """Return how PyTorch splits it into micro-batches."""
        return _Replicate if self.batch_dim is None else TensorChunkSpec(self.batch_dim)


@final
@dataclass(frozen=True)
class StageModule:
    """The module of one stage."""

    body: nn.Module  # the module; it is called with what is received, then with inputs of the model
    received: tuple[TensorForm, ...]  # tensors that the stage before gives; none for the first one
    # Tensors for the stage after, or what the last one returns: its loss
    given: tuple[TensorForm, ...]
    inputs: tuple[TensorForm, ...]  # inputs of the model that this stage reads itself
    # Paths of parameters that other stages hold, too, with those stages, ascending
    shared: tuple[tuple[str, tuple[int, ...]], ...] = ()
    # How tensor ranks share the module; paths are those of ``body``
    tensor_plan: TensorPlan | None = None


def capture_pipeline(
    name: str, stages: Sequence[StageModule], settings: StepSettings, parameters: int
) -> CapturedStep:
    """Capture one step of a pipeline of a model with so many parameters.

    Raises:
        UsageError: If plan and step do not fit together, if the step depends on the content of
            tensors, or if torch.distributed is in use.
    """
    require_pipeline(name, settings)
    across = _sharing(stages, settings)
    traces, elementwise = [], set[str]()
    per_stage = settings.plan.ranks // len(stages)
    for number, stage in enumerate(stages):
        with fake_world(settings.plan.mesh, number * per_stage, across) as world:
            rank = _Rank(name, number, stage, settings, world)
            traces.append(_peers(rank.run(), world.rank))
            elementwise |= rank.recorder.elementwise
    world = FakeWorld(settings.plan.mesh, across=across)
    return CapturedStep(name, tuple(traces), world, settings, parameters, frozenset(elementwise))


def require_pipeline(name: str, settings: StepSettings) -> None:
    """Raise UsageError if there are settings that a pipeline does not have."""
    plan, step = settings.plan, settings.step
    refuse_sizes(name, step)
    if step.accumulate > 1:
        raise UsageError(
            f"{name}: micro-batches of a pipeline are what accumulate is without one; give "
            f"micro_batches={step.accumulate * max(1, step.micro_batches)} and leave it out."
        )
    if plan.schedule == "1f1b" and micro_batches(settings) < plan.pipeline:
        raise UsageError(
            f"{name}: schedule 1f1b keeps {plan.pipeline} stages busy with at least so many "
            f"micro-batches, not {step.micro_batches}; give more, or schedule gpipe."
        )


def micro_batches(settings: StepSettings) -> int:
    """Return how many micro-batches go through the pipeline."""
    return settings.step.micro_batches or settings.plan.pipeline


def _sharing(stages: Sequence[StageModule], settings: StepSettings) -> dict[str, np.ndarray]:
    rank_SD = np.arange(settings.plan.ranks).reshape(len(stages), -1)
    sets = {held for stage in stages for _, held in stage.shared}
    return {_role(held): rank_SD[list(held)].T for held in sorted(sets)}


def _role(stages: Sequence[int]) -> str:
    return f"stages {' and '.join(map(str, stages))}"


def _peers(trace: Trace, rank: int) -> Trace:
    """Return a trace with peers by their place: 0 for the stage before, 1 for the one after."""
    table = trace.attributes
    ends = [trace.strings.index(n) for n in ("comm_src", "comm_dst") if n in trace.strings]
    at_E = np.isin(table.name_A, ends)
    word_A = np.where(at_E, table.word_A > rank, table.word_A).astype(table.word_A.dtype)
    return replace(trace, attributes=replace(table, word_A=word_A))


class _Called(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, *received: Tensor, **inputs: Tensor) -> Any:
        """Return what the module returns."""
        return self.body(*received, *inputs.values())


class _Stage(PipelineStage):
    """PyTorch's stage; it tells where passes begin, and averages gradients over replicas."""

    def __init__(self, rank: "_Rank", module: nn.Module) -> None:
        form, world = rank.stage, rank.world
        mesh = world.along("pipeline")
        assert mesh is not None
        first = form.inputs if rank.number == 0 else form.received
        super().__init__(
            module,
            rank.number,
            rank.settings.plan.pipeline,
            torch.device("cpu"),
            input_args=tuple(tensor.empty() for tensor in first),
            output_args=tuple(tensor.empty() for tensor in form.given),
            group=mesh.get_group(),
        )
        self._rank = rank

    def forward_one_chunk(self, *args: Any, **keywords: Any) -> Any:
        """Run the forward pass of a micro-batch."""
        self._rank.begin_task()
        with forward_pass(self._rank.settings.step):
            return super().forward_one_chunk(*args, **keywords)

    def backward_one_chunk(self, *args: Any, **keywords: Any) -> None:
        """Run the backward pass of a micro-batch."""
        self._rank.begin_task()
        super().backward_one_chunk(*args, **keywords)

    def backward_maybe_with_nosync(
        self, backward_type: Any, bwd_kwargs: dict[str, Any], last_backward: bool = False
    ) -> Any:
        """Run it; replicas average their gradients in that of the last micro-batch, as DDP does."""
        plan, data = self._rank.settings.plan, self._rank.world.along("data")
        if not last_backward or data is None or plan.fsdp > 1:
            return super().backward_maybe_with_nosync(backward_type, bwd_kwargs, last_backward)
        replicas = ReplicaGradients(self.submod, data, plan.bucket_bytes)
        found = super().backward_maybe_with_nosync(backward_type, bwd_kwargs, last_backward)
        replicas.finish()
        return found

    def scale_grads(self, grad_scale_factor: int) -> None:
        """Divide the gradients by the number of micro-batches."""
        with self._rank.recorder.updating():
            super().scale_grads(grad_scale_factor)


class _Rank:
    """One rank of a pipeline: runs its stage, which has a number, and records it."""

    def __init__(
        self, name: str, number: int, stage: StageModule, settings: StepSettings, world: FakeWorld
    ) -> None:
        self.name, self.number, self.stage = name, number, stage
        self.settings, self.world = settings, world
        self._fake = RememberingFakeMode()
        self._body = fake_copy(stage.body, self._fake)
        self.recorder = OperatorRecorder(self._body)
        self._tasks: list[int] = []

    def begin_task(self) -> None:
        """Note that the pass of a micro-batch begins here."""
        self._tasks.append(len(self.recorder.operations))

    def run(self) -> Trace:
        """Run the step of this rank and return its trace."""
        module, step, fake = _Called(self._body), self.settings.step, self._fake
        source = f"{self.name}, stage {self.number}"
        count, forms = micro_batches(self.settings), self.stage.inputs
        with capture_errors(self.recorder, source):
            parallelize(module, self.settings.plan, self.world, self._tensor_plan())
            trained = step.training and any(p.requires_grad for p in module.parameters())
            optimizer = optimizer_with_states(module, step, fake) if trained else None
            with fake, _without_vote():
                schedule = self._schedule(_Stage(self, module))
                given = {f"input{at}": form.of_all(count) for at, form in enumerate(forms)}
                args = tuple(given.values()) if self.number == 0 else ()
                keywords: dict[str, Any] = given if self.number else {}
                with self.recorder:
                    if not step.training:
                        with torch.no_grad():
                            schedule.step(*args, return_outputs=False, **keywords)
                    else:
                        # The loss is in the program: what PyTorch would compare with is unused.
                        keywords |= {"target": torch.empty(count), "losses": []}
                        schedule.step(*args, return_outputs=False, **keywords)
                    if trained:
                        self._update(module, optimizer)
        self._label_messages()
        return captured_trace(self.recorder, self.world, group_ranks(), source, self._tasks)

    def _tensor_plan(self) -> TensorPlan | None:
        plan = self.stage.tensor_plan
        if plan is None or isinstance(plan, Mapping):
            return plan and {f"body.{path}": style for path, style in plan.items()}
        return lambda _, mesh: plan(self._body, mesh)

    def _schedule(self, stage: _Stage) -> Any:
        """Return the schedule; the program's loss is the last stage's output."""
        forms = self.stage.inputs
        splits = {f"input{at}": form.split() for at, form in enumerate(forms)}
        return get_schedule_class(self.settings.plan.schedule)(
            stage,
            micro_batches(self.settings),
            loss_fn=(lambda output, _: loss_of(output)) if self.settings.step.training else None,
            args_chunk_spec=tuple(splits.values()) if self.number == 0 and forms else None,
            kwargs_chunk_spec=splits if self.number and forms else None,
        )

    def _update(self, module: nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
        mesh, largest = self.world.along("pipeline"), self.settings.step.clip
        with self.recorder.updating():
            for path, held in self.stage.shared:
                grad = module.get_parameter(f"body.{path}").grad
                if grad is not None:
                    own = list(self.world.own(_role(held)))
                    group = distributed.new_group(own, use_local_synchronization=True)
                    local = grad.to_local() if isinstance(grad, DTensor) else grad
                    distributed.all_reduce(local, group=group)
            if largest and mesh is not None:
                clip_gradients(by_mesh(module), largest, mesh.get_group())
        if optimizer is not None:
            optimizer.step()

    def _label_messages(self) -> None:
        operations = self.recorder.operations
        for at, op in enumerate(operations):
            if op.name not in ("c10d::send", "c10d::recv_") or op.values is None:
                continue
            upstream = (int(op.values[2]) < self.number) == (op.name == "c10d::send")
            labels = dict(op.labels) | {"phase": "backward" if upstream else "forward"}
            operations[at] = replace(op, labels=tuple(labels.items()))


_VOTES = ("_warmup_p2p", "_initialize_pipeline_distributed_state")
"""The vote of schedules up to PyTorch 2.14, and since 2.15."""


@contextmanager
def _without_vote() -> Iterator[None]:
    """Leave out the vote on whether shapes are known, which reads the content of tensors.

    Raises:
        UsageError: If the schedules of this version of PyTorch have none that is known.
    """
    vote = next((name for name in _VOTES if name in vars(_PipelineSchedule)), None)
    if vote is None:
        raise UsageError(
            f"PyTorch {torch.__version__}: its pipeline schedules begin in a way that is not "
            "known; use PyTorch 2.15 or an older one, or capture the step without a pipeline."
        )

    def known(_: Any, stages: Sequence[PipelineStage], *more: Any) -> None:
        for stage in stages:
            stage._inference_mode = _utils.InferenceMode.STATIC

    with mock.patch.object(_PipelineSchedule, vote, known):
        yield
