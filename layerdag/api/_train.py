"""Training in one call: a data set in, a checkpoint out."""

import shutil
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from layerdag.api._warm_start import warm_start
from layerdag.datasets import GraphDataset, load_dataset
from layerdag.errors import UsageError
from layerdag.models import ModelSpec, spec_for
from layerdag.training import (
    InitialWeights,
    LoadedCheckpoint,
    TrainingRun,
    TrainSettings,
    clear_run,
    held_run,
    load_checkpoint,
    require_free,
    train as train_run,
)
from layerdag.training.monitoring import Logger


def train(  # noqa: PLR0913 - what to train, from what, where to, how
    data: GraphDataset | str | Path,
    model: str | None = None,
    *,
    init: str | Path | None = None,
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
        model: "fast", or "reference" (LayerDAG as published); None is "fast", or with ``init`` the
            model of that checkpoint.
        init: Start from the weights of a checkpoint: its folder, or that of a run, or "pretrained"
            for the one inside the package. Words, bins and conditions of the data are mapped to
            those of the checkpoint, and the model's settings are the checkpoint's
            (docs/how-to/few-graphs.md).
        out: Folder of the run, with checkpoints in ``best`` and ``last``. None keeps nothing: the
            checkpoint's files last as long as the returned object.
        settings: How to train; ``TrainSettings()`` by default, 1000 steps.
        device: Where.
        overwrite: Whether an older run in ``out`` may be replaced; nothing else ever is.
        loggers: Take figures while it trains; see ``layerdag.training.monitoring``.
        **model_options: Arguments of the model, such as ``width=64``.

    Raises:
        ConfigError: If there is no such model or option, or it contradicts ``init``.
        CheckpointError: If ``init`` cannot be read.
        GraphError: If the training or the validation part is empty.
        UsageError: If ``out`` holds a run that may not be replaced, or is in use.
        TrainingError: If training diverged.
    """
    if isinstance(data, TrainingRun):
        raise UsageError("train takes a data set; for a TrainingRun call layerdag.training.train.")
    if not isinstance(data, GraphDataset):
        data = load_dataset(data)
    settings = settings or TrainSettings()
    if init is None:
        spec, start = spec_for(data, model or "fast", model_options), None
    else:
        warm = warm_start(init, data, model, model_options, seed=settings.seed)
        spec, start = warm.spec, warm.start
    if out is not None:
        run = _run(data, spec, Path(out), start, settings, overwrite=overwrite)
        return _trained(run, settings, device, loggers)
    directory = Path(tempfile.mkdtemp(prefix="layerdag-"))
    try:
        run = _run(data, spec, directory, start, settings, overwrite=False)
        checkpoint = _trained(run, settings, device, loggers)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    weakref.finalize(checkpoint, shutil.rmtree, directory, ignore_errors=True)
    return checkpoint


def _run(
    data: GraphDataset,
    spec: ModelSpec,
    directory: Path,
    start: InitialWeights | None,
    settings: TrainSettings,
    *,
    overwrite: bool,
) -> TrainingRun:
    """Return the training run of a model on a data set."""
    return TrainingRun(
        spec=spec,
        train=data.batch("train"),
        validation=data.batch("val"),
        directory=directory,
        schema=data.schema.to_dict(),
        run_config={"training": asdict(settings)},
        data_fingerprint=data.fingerprint,
        split=data.split,
        overwrite=overwrite,
        start=start,
    )


def _trained(
    run: TrainingRun,
    settings: TrainSettings,
    device: torch.device | str,
    loggers: Sequence[Logger],
) -> LoadedCheckpoint:
    """Train in the folder of the run, which no other process may use, and read the best weights."""
    with held_run(run.directory):
        require_free(run.directory, overwrite=run.overwrite)
        clear_run(run.directory)
        result = train_run(run, settings, device=device, loggers=loggers)
        return load_checkpoint(result.best, device)
