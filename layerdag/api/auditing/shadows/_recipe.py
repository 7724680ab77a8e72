"""How a checkpoint was trained, as far as it says, to train shadow models in the same way."""

from dataclasses import dataclass, replace
from pathlib import Path

from layerdag._runtime import build_settings
from layerdag.api import PRETRAINED, WarmStart, checkpoint_folder, warm_start
from layerdag.datasets import GraphDataset
from layerdag.errors import CheckpointError, ConfigError, UsageError
from layerdag.models import ModelSpec, spec_for
from layerdag.sampling import checkpoint_fingerprint
from layerdag.training import (
    BucketedSource,
    InitialWeights,
    LoadedCheckpoint,
    TrainSettings,
)


@dataclass(frozen=True, eq=False)
class Recipe:
    """How shadow models of a checkpoint are trained.

    Attributes:
        spec: The audited model.
        settings: Of its training.
        is_recorded: Whether the checkpoint says how it was trained; else these are the usual ones.
        passes: Over its training graphs that it made.
        init: Checkpoint that it started from; None for random weights.
    """

    spec: ModelSpec
    settings: TrainSettings
    is_recorded: bool
    passes: float
    init: str | Path | None

    def start_for(self, data: GraphDataset, seed: int) -> tuple[ModelSpec, InitialWeights | None]:
        """Return model and initial weights for a data set; the model measures its own graphs."""
        if self.init is None:
            return spec_for(data, self.spec.name, self.spec.arguments), None
        warm: WarmStart = warm_start(
            self.init, data, self.spec.name, self.spec.arguments, seed=seed
        )
        return warm.spec, warm.start

    def settings_for(
        self, data: GraphDataset, seed: int, steps: int | None, seconds: float | None
    ) -> tuple[TrainSettings, int]:
        """Return how to train on a data set, and the steps of as many passes as the target made.

        There is one validation, at the end: nothing is selected, for graphs that a model is
        selected by would be neither members nor others.

        Args:
            data: Of the shadow model.
            seed: Of order and noise.
            steps: Most steps; None for as many passes as the target made.
            seconds: Most seconds; None for no limit.
        """
        planned = max(round(self.passes * micro_batches(data, self.settings)), 1)
        most = planned if steps is None else min(steps, planned)
        return replace(
            self.settings,
            seed=seed,
            max_steps=most,
            max_seconds=seconds,
            evaluate_every=most + 1,
            patience=0,
            log_every=most + 1,
        ), planned


def micro_batches(data: GraphDataset, settings: TrainSettings) -> float:
    """Return how many optimizer steps one pass over the training graphs takes."""
    source = BucketedSource(data.batch("train"), settings.batch_graphs, settings.batch_nodes, 0)
    return len(source.epoch_batches(0)) / settings.accumulate


def recipe_of(checkpoint: LoadedCheckpoint, data: GraphDataset, init: str | Path | None) -> Recipe:
    """Return the recipe of a checkpoint.

    Args:
        checkpoint: The audited one.
        data: What it was trained on, in its codes.
        init: The checkpoint that it started from, where that is not the shipped one.

    Raises:
        UsageError: If it started from a checkpoint that is not at hand, or from none.
        CheckpointError: If its settings cannot be used.
    """
    recorded = checkpoint.run_config.get("training")
    try:
        settings = build_settings(TrainSettings, recorded or {}, "training")
    except ConfigError as error:
        raise CheckpointError(
            f"{checkpoint.path}: shadow models cannot be trained as it says ({error}); "
            "leave --shadows out, or name a checkpoint of this version of layerdag."
        ) from error
    return Recipe(
        spec=checkpoint.spec,
        settings=settings,
        is_recorded=bool(recorded),
        passes=checkpoint.meta.step / micro_batches(data, settings),
        init=_start_of(checkpoint, init),
    )


def _start_of(checkpoint: LoadedCheckpoint, init: str | Path | None) -> str | Path | None:
    """Return the checkpoint that a checkpoint started from; None for random weights."""
    origin = checkpoint.meta.origin
    if origin is None:
        if init is not None:
            raise UsageError(
                f"{checkpoint.path}: started from random weights, so its shadow models do; leave "
                f"--init out, found {init}."
            )
        return None
    if init is None and origin.name != PRETRAINED:
        raise UsageError(
            f"{checkpoint.path}: started from the checkpoint '{origin.name}', and shadow models "
            "must do the same; name its folder with --init."
        )
    start = PRETRAINED if init is None else init
    if origin.fingerprint not in ("", checkpoint_fingerprint(checkpoint_folder(start))):
        raise UsageError(
            f"{start}: is not the checkpoint that {checkpoint.path} started from ('{origin.name}', "
            "by the hash of its weights); name the right one with --init."
        )
    return start
