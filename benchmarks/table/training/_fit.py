"""A fit of so many steps, whatever the load of the machine."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import layerdag as ld
from layerdag.datasets.dataset import GraphDataset
from layerdag.models.spec import ModelSpec
from layerdag.training.checkpoint import LoadedCheckpoint, load_checkpoint
from layerdag.training.loop import train
from layerdag.training.model_spec import spec_for
from layerdag.training.run import assemble
from layerdag.training.settings import LearningRateSchedule, OptimizerConfig

from .._learners import FittedModel
from ..baselines._base import most_nodes

PLAIN = {"guidance": 1.0, "best_of": 1, "batch_size": 100}


def trained_in(
    folder: Path, data: GraphDataset, spec: ModelSpec, settings: ld.TrainSettings
) -> LoadedCheckpoint:
    """Train a model in a folder and return the weights that the validation part chooses."""
    run = assemble(data, folder, spec)
    result = train(run, settings)
    if result.reason != "budget":
        raise SystemExit(f"Stopped by {result.reason}; the same command goes on.")
    return load_checkpoint(result.best)


def fit_steps(
    data: GraphDataset, steps: int, seed: int, settings: Mapping[str, Any], **options: Any
) -> FittedModel:
    """Train ``model=fast`` with a cosine schedule; its samples are one draw without guidance.

    Args:
        data: Training and validation graphs.
        steps: Of the optimizer.
        seed: Of the fit.
        settings: ``batch_nodes``, ``learning_rate``, and ``evaluations``, of which the best gives
            the weights.
        **options: Of the model.
    """
    given = ld.TrainSettings(
        seed=seed,
        max_steps=steps,
        batch_nodes=settings["batch_nodes"],
        optimizer=OptimizerConfig(learning_rate=settings["learning_rate"]),
        lr_schedule=LearningRateSchedule(shape="cosine"),
        ema_decay=0.99,
        patience=0,
        evaluate_every=max(steps // settings["evaluations"], 1),
        log_every=1,
    )
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = trained_in(Path(folder), data, spec_for(data, "fast", options), given)
    return FittedModel(checkpoint, {**PLAIN, "max_nodes": 2 * most_nodes(data)})
