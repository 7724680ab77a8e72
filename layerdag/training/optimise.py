"""One optimiser step: losses of some micro-batches, gradients over all processes, AdamW."""

from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from layerdag.errors import TrainingError
from layerdag.graph.batch import DAGBatch
from layerdag.model.base import DAGModel
from layerdag.training.distributed import World
from layerdag.training.selection import Track
from layerdag.training.settings import TrainSettings


class Optimiser:
    """AdamW over the tracks of a model.

    The gradient is the mean over micro-batches (of all processes) of the sum over objectives of the
    mean loss a decision; W processes with K micro-batches each equal one process with W * K.
    """

    def __init__(
        self, model: DAGModel, tracks: Sequence[Track], settings: TrainSettings, world: World
    ) -> None:
        self._model, self._tracks, self._settings, self._world = model, tracks, settings, world
        self._parameters = list(model.parameters())
        matrices = [p for p in self._parameters if p.ndim >= 2]
        others = [p for p in self._parameters if p.ndim < 2]
        self.adam = torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": settings.weight_decay},
                {"params": others, "weight_decay": 0.0},
            ],
            lr=settings.learning_rate,
            foreach=True,
        )

    def add_gradient(self, batch: DAGBatch, noise_seed: int) -> dict[str, Tensor]:
        """Add the gradient of one micro-batch; return the mean loss of each objective.

        All randomness, dropout included, comes from ``noise_seed``; the state of torch's own
        generator is put back, so that a resumed run needs none of it.
        """
        device = batch.x_NA.device
        cuda = [device] if device.type == "cuda" else []
        low = self._settings.precision == "bfloat16" and device.type == "cuda"
        cast = torch.autocast("cuda", torch.bfloat16) if low else nullcontext()
        with torch.random.fork_rng(devices=cuda):
            torch.manual_seed(noise_seed)
            generator = torch.Generator(device).manual_seed(noise_seed)
            with cast:
                terms = self._model.losses(batch, generator)
            active = [name for t in self._tracks if not t.stopped for name in t.objectives]
            means = {name: terms[name].mean() for name in active}
            loss = torch.stack(list(means.values())).sum() / self._settings.accumulate
            loss.backward()
        return {name: mean.detach() for name, mean in means.items()}

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
        flags_F = self._world.average_gradients(self._parameters, flags_F)
        self._clip(step)
        for group in self.adam.param_groups:
            group["lr"] = rate
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)
        return flags_F

    def _clip(self, step: int) -> None:
        """Clip the gradient of each track by its own norm."""
        limit = self._settings.gradient_clip or float("inf")
        active = [track for track in self._tracks if not track.stopped]
        norms = [nn.utils.clip_grad_norm_(list(t.parameters.values()), limit) for t in active]
        for track, norm in zip(active, torch.stack(norms).tolist(), strict=True):
            if not norm < float("inf"):
                raise TrainingError(
                    f"Training diverged at step {step}: the gradient of '{track.name}' has norm "
                    f"{norm}. Lower training.learning_rate or training.gradient_clip, and resume "
                    "from the last checkpoint."
                )
