"""One optimizer step: losses of some micro-batches, gradients over all processes, AdamW."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from layerdag.errors import TrainingError
from layerdag.graph import DAGBatch
from layerdag.models import DAGModel, LossTerm
from layerdag.training import ParameterGroup, TrainSettings, World
from layerdag.training.optimization._precision import matrix_precision


class Optimizer:
    """AdamW over the parameter groups of a model.

    The gradient is the mean over micro-batches (of all processes) of the sum over objectives of the
    loss, divided by the mean number of decisions of a micro-batch so far. Dividing by each
    micro-batch's own number instead would weigh the decisions of small graphs far more than those
    of large ones, since a micro-batch holds graphs of similar size.

    W processes with K micro-batches each equal one process with W * K.
    """

    def __init__(
        self,
        model: DAGModel,
        groups: Sequence[ParameterGroup],
        settings: TrainSettings,
        world: World,
    ) -> None:
        self._model, self._groups, self._settings, self._world = model, groups, settings, world
        self._names = [name for group in groups for name in group.objectives]
        self._counts = dict.fromkeys(self._names, 0.0)
        self._batches = 0
        self._step_counts = dict.fromkeys(self._names, 0.0)
        self._parameters = list(model.parameters())
        matrices = [p for p in self._parameters if p.ndim >= 2]
        others = [p for p in self._parameters if p.ndim < 2]
        self.adam = torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": settings.optimizer.weight_decay},
                {"params": others, "weight_decay": 0.0},
            ],
            lr=settings.optimizer.learning_rate,
            fused=True,
        )

    def add_gradient(self, batch: DAGBatch, noise_seed: int) -> dict[str, Tensor]:
        """Add the gradient of one micro-batch; return the mean loss of each objective.

        All randomness, dropout included, comes from ``noise_seed``; the state of torch's own
        generator is put back, so that a resumed run needs none of it.
        """
        device = batch.x_NA.device
        cuda = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices=cuda):
            torch.manual_seed(noise_seed)
            generator = torch.Generator(device).manual_seed(noise_seed)
            with matrix_precision(self._settings.precision, device):
                terms = self._model.losses(batch, generator)
            active = [name for g in self._groups if not g.stopped for name in g.objectives]
            shares = [terms[name].total / self._usual_count(name, terms[name]) for name in active]
            (torch.stack(shares).sum() / self._settings.accumulate).backward()
        return {name: terms[name].mean().detach() for name in active}

    def _usual_count(self, name: str, term: LossTerm) -> float:
        """Take in the decisions of a micro-batch; return their mean number up to the last step."""
        count = float(term.count)
        self._step_counts[name] += count
        return max(self._counts[name] / self._batches if self._batches else count, 1.0)

    def step(self, rate: float, flags_F: Tensor, step: int) -> Tensor:
        """Average and clip the gradients, move the weights, clear the gradients.

        Args:
            rate: Learning rate.
            flags_F: Numbers to be summed over the processes on the same trip.
            step: For the message of an error.

        Returns:
            The summed flags.

        Raises:
            TrainingError: If a gradient is not finite; the weights are not touched then.
        """
        counts = torch.tensor(list(self._step_counts.values()), device=flags_F.device)
        sums = self._world.average_gradients(self._parameters, torch.cat([flags_F, counts]))
        self._clip(step)
        self._take_counts(sums[flags_F.numel() :].tolist())
        for group in self.adam.param_groups:
            group["lr"] = rate
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)
        return sums[: flags_F.numel()]

    def state_dict(self) -> dict[str, Any]:
        """Return what resuming needs."""
        return {"adam": self.adam.state_dict(), "counts": self._counts, "batches": self._batches}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a ``state_dict``."""
        self.adam.load_state_dict(state["adam"])
        self._counts = {name: float(state["counts"][name]) for name in self._names}
        self._batches = int(state["batches"])

    def _take_counts(self, counts: Sequence[float]) -> None:
        """Add the decisions of one step of all processes to the running mean."""
        for name, count in zip(self._names, counts, strict=True):
            self._counts[name] += count
        self._batches += self._settings.accumulate * self._world.size
        self._step_counts = dict.fromkeys(self._names, 0.0)

    def _clip(self, step: int) -> None:
        """Clip the gradient of each group by its own norm."""
        limit = self._settings.optimizer.gradient_clip or float("inf")
        active = [group for group in self._groups if not group.stopped]
        norms = [nn.utils.clip_grad_norm_(list(g.parameters.values()), limit) for g in active]
        for group, norm in zip(active, torch.stack(norms).tolist(), strict=True):
            if not norm < float("inf"):
                raise TrainingError(
                    f"Training diverged at step {step}: the gradient of '{group.name}' has norm "
                    f"{norm}. Lower training.optimizer.learning_rate or "
                    "training.optimizer.gradient_clip, and resume from the last checkpoint."
                )
