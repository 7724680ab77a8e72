"""The optimizer: AdamW, averaged weights, precision, choice of the best step.

Shape letters: G groups of parameters, O objectives.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any

import torch
from torch import Tensor, nn

from layerdag.dag.dag import DAGBatch
from layerdag.errors import TrainingError
from layerdag.models.base import DAGModel, LossTerm
from layerdag.runtime.rng import derive_seed
from layerdag.training.batches import ProcessGroup
from layerdag.training.parts import PartThreads
from layerdag.training.recorded_steps import LossGradients, PaddedBatch, RecordedSteps, Recorder
from layerdag.training.settings import LearningRateSchedule, TrainSettings


class ExponentialMovingAverage:
    """Moving average of the parameters of ``model``; buffers are constants of the data and stay.

    The decay grows as (1 + n) / (10 + n) up to ``decay``, so that the first weights are forgotten.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._parameters = dict(model.named_parameters())
        self._decay = decay
        self._updates = 0
        self._shadow = {name: p.detach().clone() for name, p in self._parameters.items()}
        self._live = [p.detach() for p in self._parameters.values()]

    @torch.no_grad()
    def update(self) -> None:
        """Move the average toward the present weights."""
        self._updates += 1
        decay = min(self._decay, (1 + self._updates) / (10 + self._updates))
        torch._foreach_lerp_(list(self._shadow.values()), self._live, 1 - decay)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Let the model compute with the averaged weights inside the block."""
        live = {name: p.detach().clone() for name, p in self._parameters.items()}
        copy_weights(self._parameters, self._shadow)
        try:
            yield
        finally:
            copy_weights(self._parameters, live)

    def weights(self) -> dict[str, Tensor]:
        """Return the averaged weights by parameter name; the tensors change with ``update``."""
        return self._shadow

    def state_dict(self) -> dict[str, object]:
        """Return what resuming needs."""
        return {"updates": self._updates, "shadow": self._shadow}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Continue from a ``state_dict``."""
        updates, shadow = state["updates"], state["shadow"]
        assert isinstance(updates, int)
        assert isinstance(shadow, dict)
        self._updates = updates
        copy_weights(self._shadow, shadow)


@torch.no_grad()
def copy_weights(target: Mapping[str, Tensor], source: Mapping[str, Tensor]) -> None:
    """Copy the tensors of ``source`` into those of ``target`` with the same name."""
    for name, tensor in target.items():
        tensor.copy_(source[name])


FLOOR = 0.1


def learning_rate_factor(schedule: LearningRateSchedule, step: int, progress: float) -> float:
    """Return the factor of the peak rate at ``step``.

    ``progress`` is the used fraction of the budget.
    """
    warm = min(1.0, (step + 1) / (schedule.warmup_steps + 1))
    if schedule.shape == "constant":
        return warm
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    return warm * (FLOOR + (1 - FLOOR) * cosine)


# x86 instructions for bfloat16, as torch.cpu.get_capabilities() names them; ARM is not measured.
_INSTRUCTIONS = ("avx512_bf16", "amx_bf16")


def matrix_precision(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Return the context in which losses are computed: autocast to bfloat16, or nothing.

    Only matrix products lose digits; sums over many rows stay in single precision
    (``layers.to_float32``), and so do weights and gradients. "auto" is bfloat16 where the device
    has instructions for it, which pays with micro-batches of thousands of nodes.
    """
    low = precision == "bfloat16" or (precision == "auto" and has_bfloat16(device))
    return torch.autocast(device.type, torch.bfloat16) if low else nullcontext()


def has_bfloat16(device: torch.device) -> bool:
    """Return whether the device multiplies matrices of bfloat16 faster than of float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # Not there in older torch, where emulation would be slower than float32.
    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(bool(capabilities.get(name)) for name in _INSTRUCTIONS)


@dataclass(eq=False)
class ParameterGroup:
    """Parameters that are selected and stopped together, and the best weights they have had."""

    name: str  # the objective's name, or "total" for several
    objectives: tuple[str, ...]  # names of the loss terms
    parameters: dict[str, nn.Parameter]  # the parameters they train, by name in the model
    best: float = math.inf  # lowest validation likelihood so far, nats per graph
    best_step: int = 0  # step at which it was reached
    num_bad_validations: int = 0  # validations since then, which early stopping counts
    stopped: bool = False  # whether training of these parameters is over
    weights: dict[str, Tensor] = field(default_factory=dict)  # the parameters at the best step

    def update(self, score: float, step: int, weights: Mapping[str, Tensor], patience: int) -> bool:
        """Take in one validation; return whether it is the best so far.

        The score is in nats per graph; lower is better.
        """
        # The first one counts whatever it is: a run always leaves weights behind.
        if score < self.best or not self.weights:
            self.best, self.best_step, self.num_bad_validations = score, step, 0
            self.weights = {name: weights[name].detach().clone() for name in self.parameters}
            return True
        self.num_bad_validations += 1
        if patience and self.num_bad_validations >= patience:
            self.stop()
        return False

    def stop(self) -> None:
        """Freeze the parameters."""
        self.stopped = True
        for parameter in self.parameters.values():
            parameter.requires_grad_(False)
            parameter.grad = None

    def state_dict(self) -> dict[str, Any]:
        """Return what resuming needs."""
        plain = {k: getattr(self, k) for k in ("best", "best_step", "stopped")}
        return {**plain, "stale": self.num_bad_validations, "weights": self.weights}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a ``state_dict``."""
        self.best, self.best_step = float(state["best"]), int(state["best_step"])
        self.num_bad_validations = int(state["stale"])
        self.weights = dict(state["weights"])
        if state["stopped"]:
            self.stop()


def parameter_groups(model: DAGModel) -> list[ParameterGroup]:
    """Return one group of parameters for the objectives that share them."""
    groups = model.objective_parameters()
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    covered = {id(p) for parameters in groups.values() for p in parameters}
    assert covered == set(names), "objective_parameters() must name every parameter of the model"
    return [
        ParameterGroup(
            objectives[0] if len(objectives) == 1 else "total",
            objectives,
            {names[id(p)]: p for p in parameters},
        )
        for objectives, parameters in groups.items()
    ]


def best_weights(model: DAGModel, groups: list[ParameterGroup]) -> dict[str, Tensor]:
    """Return the state dict of ``model`` with each group of parameters at its best."""
    state = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    with torch.no_grad():
        for group in groups:
            copy_weights({name: state[name] for name in group.weights}, group.weights)
    return state


class FusedAdamW:
    """AdamW (Loshchilov and Hutter, arXiv 1711.05101) as one operator for each weight decay.

    It is PyTorch's operator and its states; PyTorch's class imports a compiler before its first
    step, which takes longer than the step.
    """

    _BETAS = (0.9, 0.999)
    _EPSILON = 1e-8

    def __init__(self, groups: Sequence[tuple[Sequence[nn.Parameter], float]]) -> None:
        self._groups = [(list(parameters), decay) for parameters, decay in groups]
        self._states: dict[int, dict[str, Tensor]] = {}

    @torch.no_grad()
    def step(self, rate: float, not_finite: Tensor) -> None:
        """Move the weights and clear the gradients.

        Nothing changes where ``not_finite`` is 1.
        """
        for parameters, decay in self._groups:
            given: list[Tensor] = [p for p in parameters if p.grad is not None]
            if not given:
                continue
            states = [self._state_of(p) for p in given]
            steps = [state["step"] for state in states]
            torch._foreach_add_(steps, 1)
            torch._fused_adamw_(
                given,
                [p.grad for p in given if p.grad is not None],
                [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states],
                [],
                steps,
                lr=rate,
                beta1=self._BETAS[0],
                beta2=self._BETAS[1],
                weight_decay=decay,
                eps=self._EPSILON,
                amsgrad=False,
                maximize=False,
                grad_scale=None,
                found_inf=not_finite,
            )
            torch._foreach_sub_(steps, [not_finite] * len(steps))
            for parameter in given:
                parameter.grad = None

    def _state_of(self, parameter: Tensor) -> dict[str, Tensor]:
        state = self._states.get(id(parameter))
        if state is None:
            names = ("exp_avg", "exp_avg_sq")
            step = torch.zeros((), dtype=torch.float32, device=parameter.device)
            state = {"step": step, **{name: torch.zeros_like(parameter) for name in names}}
            self._states[id(parameter)] = state
        return state

    def state_dict(self) -> dict[str, Any]:
        """Return what resuming needs, in the form of PyTorch's optimizers."""
        parameters = [p for group, _ in self._groups for p in group]
        number = {id(p): i for i, p in enumerate(parameters)}
        return {
            "state": {
                number[id(p)]: self._states[id(p)] for p in parameters if id(p) in self._states
            },
            "param_groups": [
                {"params": [number[id(p)] for p in group], "weight_decay": decay}
                for group, decay in self._groups
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a ``state_dict``, or from that of PyTorch's optimizer.

        Raises:
            ValueError: If it is of other parameters.
        """
        sizes = [len(group["params"]) for group in state["param_groups"]]
        if sizes != [len(group) for group, _ in self._groups]:
            raise ValueError(f"the optimizer's groups have {sizes} parameters")
        parameters = [p for group, _ in self._groups for p in group]
        self._states = {}
        for number, saved in state["state"].items():
            own = self._state_of(parameters[int(number)])
            copy_weights(own, saved)


def _gradients(loss: Tensor, trained: Sequence[nn.Parameter]) -> Sequence[Tensor | None]:
    return torch.autograd.grad(loss, trained, allow_unused=True)


class Optimizer:
    """AdamW over the parameter groups of a model.

    The gradient is the mean over micro-batches (of all processes) of the sum over objectives of the
    loss, divided by the mean number of decisions of a micro-batch so far. Dividing by each
    micro-batch's own number instead would weigh the decisions of small graphs far more than those
    of large ones, since a micro-batch holds graphs of similar size.

    W processes with K micro-batches each equal one process with W * K.

    Attributes:
        part_threads: Threads that compute the parts of a micro-batch.
    """

    def __init__(
        self,
        model: DAGModel,
        groups: Sequence[ParameterGroup],
        settings: TrainSettings,
        world: ProcessGroup,
    ) -> None:
        self._model, self._groups, self._settings, self._world = model, groups, settings, world
        self._names = [name for group in groups for name in group.objectives]
        self._counts = dict.fromkeys(self._names, 0.0)
        self._batches = 0
        self._step_counts = dict.fromkeys(self._names, 0.0)
        self._parameters = list(model.parameters())
        matrices = [p for p in self._parameters if p.ndim >= 2]
        others = [p for p in self._parameters if p.ndim < 2]
        decay = settings.optimizer.weight_decay
        self.adam = FusedAdamW(((matrices, decay), (others, 0.0)))
        self._norms: list[tuple[int, list[str], Tensor]] = []
        self.part_threads = PartThreads()

    def add_gradient(
        self,
        parts: Sequence[DAGBatch],
        noise_seed: int,
        meanwhile: Callable[[], None] | None = None,
    ) -> dict[str, Tensor]:
        """Add the gradient of one micro-batch; return the mean loss of each objective.

        All randomness, dropout included, comes from ``noise_seed``; the state of torch's own
        generator is put back, so that a resumed run needs none of it. There is one part until
        ``has_counts``; on a processor parts may have gone through ``prepared``. See
        ``PartThreads.map`` for ``meanwhile``.
        """
        device, active = self._parameters[0].device, self._active()
        seeds = [noise_seed, *(derive_seed(noise_seed, n) for n in range(1, len(parts)))]

        def computed(number: int) -> tuple[dict[str, LossTerm], Sequence[Tensor | None]]:
            part = parts[number]
            prepared = part if part.derived is not None else self._model.prepared(part)
            generator = torch.Generator(device).manual_seed(seeds[number])
            with matrix_precision(self._settings.precision, device):
                terms = self._model.losses(prepared, generator)
            shares = [
                terms[name].total / self._usual_count(name, float(terms[name].count))
                for name in active
            ]
            loss = torch.stack(shares).sum() / self._settings.accumulate
            return terms, _gradients(loss, self._trained())

        cuda = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices=cuda):
            torch.manual_seed(noise_seed)
            found = []
            for terms, gradients in self.part_threads.map(computed, range(len(parts)), meanwhile):
                self._accumulate(gradients)
                found.append(terms)
        sums = {name: reduce(add, (terms[name] for terms in found)) for name in active}
        for name, term in sums.items():
            self._step_counts[name] += float(term.count)
        return {name: term.mean().detach() for name, term in sums.items()}

    def add_recorded_gradient(self, padded: PaddedBatch, noise_seed: int) -> dict[str, Tensor]:
        """Do the same with a step that was recorded (``RecordedSteps``)."""
        active = self._active()
        counts = [padded.counts[name] for name in active]
        usual = [self._usual_count(name, padded.counts[name]) for name in active]
        for name, count in zip(active, counts, strict=True):
            self._step_counts[name] += count
        numbers = [*usual, *counts, *[1.0] * (2 * (len(self._names) - len(active)))]
        found = self._steps.run(padded, tuple(active), numbers, noise_seed)
        gradients = found.gradients
        if self._settings.accumulate > 1:  # the next micro-batch overwrites these
            gradients = [None if new is None else new.clone() for new in gradients]
        self._accumulate(gradients)
        return dict(zip(active, found.mean_O.clone(), strict=True))

    def record_with(self, record: Recorder, device: torch.device) -> None:
        """Let ``add_recorded_gradient`` record steps on ``device``."""
        numbers = 2 * len(self._names)
        self._steps = RecordedSteps(self._loss_gradients, numbers, device, record)

    def _loss_gradients(
        self, batch: DAGBatch, numbers: Tensor, generator: torch.Generator
    ) -> LossGradients:
        """Return losses and gradients of a batch; numbers are usual and own counts."""
        active = self._active()
        usual_O, count_O = numbers[: 2 * len(active)].chunk(2)
        with matrix_precision(self._settings.precision, batch.x_NA.device):
            terms = self._model.losses(batch, generator)
        total_O = torch.stack([terms[name].total for name in active])
        loss = (total_O / usual_O).sum() / self._settings.accumulate
        return LossGradients(total_O.detach() / count_O, _gradients(loss, self._trained()))

    def _active(self) -> list[str]:
        return [name for g in self._groups if not g.stopped for name in g.objectives]

    def _trained(self) -> list[nn.Parameter]:
        return [p for p in self._parameters if p.requires_grad]

    def _accumulate(self, gradients: Sequence[Tensor | None]) -> None:
        for parameter, new in zip(self._trained(), gradients, strict=True):
            if new is not None:
                parameter.grad = new if parameter.grad is None else parameter.grad + new

    @property
    def has_counts(self) -> bool:
        """Whether the mean number of decisions of a micro-batch is known."""
        return self._batches > 0

    def _usual_count(self, name: str, count: float) -> float:
        """Return the mean number of decisions of a micro-batch up to the last step.

        The first step takes the ``count`` of its own micro-batch.
        """
        return max(self._counts[name] / self._batches if self._batches else count, 1.0)

    def step(self, rate: float, flags: Sequence[float], step: int) -> list[float]:
        """Average and clip the gradients, move the weights, clear the gradients.

        If a gradient is not finite, the weights are not touched, and ``require_finite`` says so:
        whether it is, is known to the device alone, which is not waited for. Flags are summed over
        the processes on the same trip, and returned.
        """
        sums = [*flags, *self._step_counts.values()]
        if self._world.size > 1:
            device = self._parameters[0].device
            sums_F = torch.tensor(sums, device=device)
            sums = self._world.average_gradients(self._parameters, sums_F).tolist()
        for name, count in zip(self._names, sums[len(flags) :], strict=True):
            self._counts[name] += count
        self._batches += self._settings.accumulate * self._world.size
        self._step_counts = dict.fromkeys(self._names, 0.0)
        self.adam.step(rate, self._clip(step))
        return sums[: len(flags)]

    def require_finite(self) -> None:
        """Raise TrainingError if a gradient of a step since the last call was not finite."""
        norms, self._norms = self._norms, []
        if not norms:
            return
        rows = iter(torch.cat([norm_G for _, _, norm_G in norms]).tolist())
        for step, names, _ in norms:
            for name in names:
                if not (norm := next(rows)) < float("inf"):
                    raise TrainingError(
                        f"Training diverged at step {step}: the gradient of '{name}' has norm "
                        f"{norm}. Lower training.optimizer.learning_rate or "
                        "training.optimizer.gradient_clip, and resume from the last checkpoint."
                    )

    def state_dict(self) -> dict[str, Any]:
        """Return what resuming needs."""
        return {"adam": self.adam.state_dict(), "counts": self._counts, "batches": self._batches}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a ``state_dict``."""
        self.adam.load_state_dict(state["adam"])
        self._counts = {name: float(state["counts"][name]) for name in self._names}
        self._batches = int(state["batches"])

    @torch.no_grad()
    def _clip(self, step: int) -> Tensor:
        """Clip the gradient of each group by its own norm; return whether one is not finite.

        The new gradients are copies: those of one pass may share their memory.
        """
        limit = self._settings.optimizer.gradient_clip or float("inf")
        active = [group for group in self._groups if not group.stopped]
        norms = []
        for group in active:
            given = [p for p in group.parameters.values() if p.grad is not None]
            gradients = [p.grad for p in given if p.grad is not None]
            norm = torch.zeros(())
            if gradients:
                norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
                factor = (limit / (norm + 1e-6)).clamp(max=1.0)
                clipped = torch._foreach_mul(gradients, factor)
                for parameter, gradient in zip(given, clipped, strict=True):
                    parameter.grad = gradient
            norms.append(norm)
        norm_G = torch.stack(norms)
        self._norms.append((step, [group.name for group in active], norm_G))
        return (norm_G < float("inf")).all().logical_not().float()
