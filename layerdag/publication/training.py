"""Train the model of a release on the private graphs."""

import shutil
from dataclasses import asdict, replace
from pathlib import Path

from layerdag.datasets.dataset import GraphDataset
from layerdag.errors import CheckpointError
from layerdag.publication.settings import ReleaseSettings
from layerdag.publication.workspace import TRAINING, PrivateWorkspace
from layerdag.training.checkpoint import (
    BEST,
    LoadedCheckpoint,
    load_checkpoint,
)
from layerdag.training.loop import train
from layerdag.training.model_spec import spec_for
from layerdag.training.run import TrainingRun, TrainResult, assemble
from layerdag.training.settings import LearningRateSchedule, OptimizerConfig, TrainSettings

WIDTH = 128


def run_of(settings: ReleaseSettings, data: GraphDataset, folder: Path) -> TrainingRun:
    """Return what is trained."""
    return assemble(
        data,
        folder,
        spec_for(data, "fast", {"width": WIDTH}),
        run_config={"release": True, "seed": settings.seed},
        overwrite=True,
    )


def train_model(
    settings: ReleaseSettings, data: GraphDataset, work: PrivateWorkspace, seconds: float
) -> LoadedCheckpoint:
    """Return the best checkpoint of the model that is sampled, trained now if need be.

    What an earlier call trained on the same data is taken, or gone on with; a run on other data,
    which stands there no longer, is discarded.

    Raises:
        KeyboardInterrupt: If the run was stopped; what was learned is kept.
        TrainingError: If training diverged.
    """
    path = work.path / TRAINING
    noted = work.stages.get("train", {})
    if noted.get("fingerprint") != data.fingerprint:
        shutil.rmtree(path, ignore_errors=True)
    elif "steps" in noted:
        return load_checkpoint(path / BEST)
    work.note("train", {"fingerprint": data.fingerprint})
    run = run_of(settings, data, path)
    result = train_or_resume(run, settings, seconds)
    best = load_checkpoint(result.best)
    work.note(
        "train",
        {
            "steps": result.step,
            "best_step": best.meta.step,
            "seconds": round(result.seconds, 1),
            "reason": result.reason,
            "fingerprint": data.fingerprint,
        },
    )
    return best


def train_or_resume(run: TrainingRun, settings: ReleaseSettings, seconds: float) -> TrainResult:
    """Train, from where an earlier call was stopped if it was.

    Args:
        run: What is trained, and where.
        settings: Of the release.
        seconds: Most seconds that it may take.

    Raises:
        KeyboardInterrupt: If the run was stopped; what was learned is kept.
        TrainingError: If training diverged.
    """
    plan = training_settings(settings, seconds)
    run = replace(run, run_config={**run.run_config, "training": asdict(plan)})
    try:
        result = train(run, plan, resume_from=run.last)
    except CheckpointError:  # there is nothing to go on with, or it is damaged
        result = train(run, plan)
    if not result.is_finished:
        raise KeyboardInterrupt(
            f"training stopped at step {result.step}; the same command goes on from there."
        )
    return result


def training_settings(settings: ReleaseSettings, seconds: float) -> TrainSettings:
    """Return how to train: few steps and an early end, for what is overfitted gives away."""
    return TrainSettings(
        seed=settings.seed,
        max_steps=settings.steps,
        max_seconds=max(seconds, 1.0),
        batch_nodes=3000,
        optimizer=OptimizerConfig(learning_rate=2e-3, weight_decay=0.05),
        lr_schedule=LearningRateSchedule("cosine", 50),
        ema_decay=0.98,
        evaluate_every=50,
        patience=5,
        precision="auto",
    )
