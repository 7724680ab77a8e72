"""Training in one call: a data set in, a checkpoint out."""

import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from layerdag.datasets import GraphDataset, load_dataset
from layerdag.errors import UsageError
from layerdag.models import ModelSpec, spec_for
from layerdag.training import (
    LoadedCheckpoint,
    TrainJob,
    TrainSettings,
    clear_run,
    held_run,
    load_checkpoint,
    require_free,
    train as train_job,
)
from layerdag.training.monitoring import Logger


def train(
    data: GraphDataset | str | Path,
    model: str = "fast",
    *,
    out: str | Path | None = None,
    settings: TrainSettings | None = None,
    device: torch.device | str = "cpu",
    overwrite: bool = False,
    loggers: Sequence[Logger] = (),
    **model_options: Any,
) -> LoadedCheckpoint:
    """Train a model and return its best checkpoint, ready for ``sample``.

    Args:
        data: A data set, or what ``load_dataset`` takes.
        model: "fast", or "reference" (LayerDAG as published).
        out: Folder of the run, with checkpoints in ``best`` and ``last``. None keeps nothing: the
            checkpoint's files last as long as the returned object.
        settings: How to train; ``TrainSettings()`` by default, 1000 steps.
        device: Where.
        overwrite: Whether an older run in ``out`` may be replaced; nothing else ever is.
        loggers: Take figures while it trains; see ``layerdag.training.monitoring``.
        **model_options: Arguments of the model, such as ``width=64``.

    Raises:
        ConfigError: If there is no such model or option.
        GraphError: If the training or the validation part is empty.
        UsageError: If ``out`` holds a run that may not be replaced, or is in use.
        TrainingError: If training diverged.
    """
    if isinstance(data, TrainJob):
        raise UsageError("train takes a data set; for a TrainJob call layerdag.training.train.")
    if not isinstance(data, GraphDataset):
        data = load_dataset(data)
    if out is not None:
        job = _job(data, spec_for(data, model, model_options), Path(out), overwrite=overwrite)
        return _trained(job, settings, device, loggers)
    directory = Path(tempfile.mkdtemp(prefix="layerdag-"))
    try:
        job = _job(data, spec_for(data, model, model_options), directory, overwrite=False)
        checkpoint = _trained(job, settings, device, loggers)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    weakref.finalize(checkpoint, shutil.rmtree, directory, ignore_errors=True)
    return checkpoint


def _job(data: GraphDataset, spec: ModelSpec, directory: Path, *, overwrite: bool) -> TrainJob:
    """Return the training job of a model on a data set."""
    return TrainJob(
        spec=spec,
        train=data.batch("train"),
        validation=data.batch("val"),
        directory=directory,
        schema=data.schema.to_dict(),
        data_fingerprint=data.fingerprint,
        split=data.split,
        overwrite=overwrite,
    )


def _trained(
    job: TrainJob,
    settings: TrainSettings | None,
    device: torch.device | str,
    loggers: Sequence[Logger],
) -> LoadedCheckpoint:
    """Train in the folder of the job, which no other process may use, and read the best weights."""
    with held_run(job.directory):
        require_free(job.directory, overwrite=job.overwrite)
        clear_run(job.directory)
        result = train_job(job, settings or TrainSettings(), device=device, loggers=loggers)
        return load_checkpoint(result.best, device)
