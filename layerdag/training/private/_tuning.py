"""Private tuning: a public model, private units, and a promise beside the weights.

Shape letters: P tuned parameters, U units.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from layerdag.models import ModelSpec, build_model
from layerdag.training import (
    BEST,
    LAST,
    CheckpointContents,
    CheckpointMeta,
    InitialWeights,
    TrainResult,
    remove_checkpoints,
    require_replaceable_checkpoints,
    save_checkpoint,
)
from layerdag.training.monitoring import Logger
from layerdag.training.private._accountant import accountant_name, noise_multiplier
from layerdag.training.private._adapters import Adapters
from layerdag.training.private._attack import Attack
from layerdag.training.private._canaries import Canaries
from layerdag.training.private._gradients import Decisions, clipped
from layerdag.training.private._guarantee import Guarantee
from layerdag.training.private._noise import SecretGenerator
from layerdag.training.private._privacy import Privacy
from layerdag.training.private._units import Units

OWNER_ONLY = "owner_only/"
"""Beginning of the names of figures that follow from private graphs without noise."""

_NEIGHBORS = "one {unit} replaced by an empty one; the number of {unit}s is public"


@dataclass(frozen=True, eq=False)
class PrivateRun:
    """What to tune, on what, and where to put it.

    Attributes:
        spec: Of the public base, unchanged.
        start: Weights of the public base.
        schema: Of the public base, as JSON-serializable data.
        units: Private graphs, encoded by that schema.
        directory: Of the run; the checkpoint goes to its ``best``.
        privacy: What is promised; its ``epsilon`` is a number.
        seed: Of the first matrices of the adapters; public.
        run_config: Configuration on record; must not follow from the private graphs.
        overwrite: Whether checkpoints of an older run in ``directory`` may be replaced.
        left_out: Private graphs that the schema cannot express, with the reason: for the owner.
    """

    spec: ModelSpec
    start: InitialWeights
    schema: Mapping[str, Any]
    units: Units
    directory: Path
    privacy: Privacy
    seed: int = 0
    run_config: Mapping[str, Any] = field(default_factory=dict)
    overwrite: bool = False
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class PrivateResult:
    """How a private run ended.

    Attributes:
        run: As of any training run, without validation figures.
        guarantee: What is promised.
    """

    run: TrainResult
    guarantee: Guarantee


def tune(
    run: PrivateRun,
    *,
    device: torch.device | str = "cpu",
    loggers: Sequence[Logger] = (),
    generator: SecretGenerator | None = None,
) -> PrivateResult:
    """Tune a public model on private units, and write the checkpoint with its guarantee.

    The weights are the mean over the second half of the steps: nothing is selected, and no private
    graph is used but through the noisy sums.

    Args:
        run: What to tune.
        device: Where.
        loggers: Take figures that only the owner of the data may see (``OWNER_ONLY``).
        generator: Of noise, samples and coins; None draws a secret key.

    Raises:
        ConfigError: If the accountant is not installed, or the model is not ``fast``.
        UsageError: If checkpoints of another run stand there and may not be replaced.
    """
    began, privacy = time.monotonic(), run.privacy
    assert privacy.epsilon is not None
    require_replaceable_checkpoints(run.directory, overwrite=run.overwrite)
    delta = privacy.delta_for(run.units.count)
    rate = (privacy.steps, privacy.sampling_rate)
    multiplier = noise_multiplier(privacy.epsilon, delta, *rate)
    model = build_model(run.spec).to(device).eval()
    model.load_state_dict(dict(run.start.weights))
    generator = generator or SecretGenerator()
    adapters = Adapters(model, privacy.rank, run.seed)
    canaries = Canaries.drawn(adapters, privacy.canaries, generator)
    decisions = Decisions.of(adapters, canaries.beside(run.units, device))
    attack = Attack.begun(canaries, decisions, privacy, multiplier) if privacy.canaries else None
    tuner = _Tuner(decisions, run.units.count, privacy, multiplier, generator, loggers)
    after_P = tuner.mean_of_last_half()
    adapters.set(after_P)
    bound = None if attack is None else attack.lower_bound(delta)
    weights = adapters.merge()
    guarantee = Guarantee(
        epsilon=privacy.epsilon if multiplier else None,
        delta=delta,
        unit=privacy.unit,
        neighbors=_NEIGHBORS.format(unit=privacy.unit),
        accountant=accountant_name() if multiplier else "none",
        noise_multiplier=multiplier,
        sampling_rate=privacy.sampling_rate,
        steps=privacy.steps,
        clip=privacy.clip,
        trained_parameters=adapters.count,
        noise=generator.description,
        lower_bound=None if bound is None else bound.epsilon,
    )
    remove_checkpoints(run.directory)
    best = _write(run, weights, guarantee)
    seconds = time.monotonic() - began
    result = TrainResult("budget", privacy.steps, seconds, {}, best, run.directory / LAST)
    return PrivateResult(result, guarantee)


@dataclass(eq=False)
class _Tuner:
    """The steps of a run.

    Attributes:
        decisions: Of all units, canaries included.
        num_units: Units without canaries.
        privacy: Settings.
        multiplier: Standard deviation of the noise over the clipping norm.
        generator: Of noise and samples.
        loggers: Take private figures.
    """

    decisions: Decisions
    num_units: int
    privacy: Privacy
    multiplier: float
    generator: SecretGenerator
    loggers: Sequence[Logger]

    def mean_of_last_half(self) -> Float[Tensor, " P"]:
        """Make all steps; return the mean parameters of the second half of them."""
        privacy, adapters = self.privacy, self.decisions.adapters
        value_P = adapters.flat()
        speed_P, sum_P = torch.zeros_like(value_P), torch.zeros_like(value_P)
        first = privacy.steps // 2
        usual = privacy.clip * privacy.sampling_rate * self.num_units
        for step in range(privacy.steps):
            speed_P = privacy.momentum * speed_P + self._noisy_sum(step) / usual
            value_P = value_P - privacy.learning_rate * speed_P
            adapters.set(value_P)
            if step >= first:
                sum_P += value_P
        return sum_P / (privacy.steps - first)

    def _noisy_sum(self, step: int) -> Float[Tensor, " P"]:
        """Return the sum of the clipped gradients of a Poisson sample of the units, with noise."""
        privacy = self.privacy
        chosen_U = self.generator.coins(len(self.decisions.nodes_U), privacy.sampling_rate)
        gradient_UP, nats = self.decisions.gradients(chosen_U)
        self._log(step, nats, chosen_U, gradient_UP)
        noise_P = self.multiplier * privacy.clip * self.generator.normal(gradient_UP.shape[1])
        return clipped(gradient_UP, privacy.clip).sum(0) + noise_P

    def _log(
        self,
        step: int,
        nats: float,
        chosen_U: np.ndarray,
        gradient_UP: Float[Tensor, "U P"],
    ) -> None:
        """Hand private figures to the loggers; nats are those of the tuned decisions."""
        if not self.loggers:
            return
        norm_U = gradient_UP.norm(dim=1)[torch.from_numpy(chosen_U)]
        nodes = float(self.decisions.nodes_U[torch.from_numpy(chosen_U)].sum())
        figures = {
            f"{OWNER_ONLY}nats_per_node": nats / max(nodes, 1.0),
            f"{OWNER_ONLY}units": float(chosen_U.sum()),
            f"{OWNER_ONLY}clipped": float((norm_U > self.privacy.clip).double().mean()),
        }
        for logger in self.loggers:
            logger.log(step + 1, figures)


def _write(run: PrivateRun, weights: Mapping[str, Tensor], guarantee: Guarantee) -> Path:
    """Write the checkpoint; nothing in it follows from private graphs but the tuned weights.

    Hashes of the split and of the data would confirm a guess of them, so they are left out.
    """
    meta = CheckpointMeta(
        step=run.privacy.steps, seed=run.seed, origin=run.start.origin, privacy=guarantee
    )
    contents = CheckpointContents(run.spec, weights, run.schema, run.run_config, meta)
    save_checkpoint(run.directory / BEST, contents, overwrite=True)
    return run.directory / BEST
