"""Training in one call: a data set in, a checkpoint out."""

import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.encoding import load_with_schema
from layerdag.datasets.loading import DataConfig, load_dataset
from layerdag.dp.settings import Privacy, Units, read_owners
from layerdag.dp.tuning import PrivateRun, tune_privately
from layerdag.errors import ConfigError, UsageError
from layerdag.models.base import ModelSpec
from layerdag.training.checkpoint import (
    InitialWeights,
    LoadedCheckpoint,
    checkpoint_schema,
    load_checkpoint,
)
from layerdag.training.loggers import Logger, WandbLogger
from layerdag.training.loop import train as train_run
from layerdag.training.run import TrainingRun, clear_run, require_free, run_lock
from layerdag.training.settings import TrainSettings
from layerdag.training.weight_transfer import checkpoint_and_origin, spec_for, warm_start


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
    privacy: Privacy | None = None,
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
        loggers: Take figures while it trains; see ``layerdag.training``.
        privacy: Tune few parameters of ``init`` under differential privacy instead, on the
            training part alone, by the schema of ``init`` (docs/how-to/differential-privacy.md).
        **model_options: Arguments of the model, such as ``width=64``.

    Raises:
        ConfigError: If there is no such model or option, or it contradicts ``init``, or something
            would reveal private graphs.
        CheckpointError: If ``init`` cannot be read.
        GraphError: If the training or the validation part is empty.
        UsageError: If ``out`` holds a run that may not be replaced, or is in use.
        TrainingError: If training diverged.
    """
    if isinstance(data, TrainingRun):
        raise UsageError(
            "train takes a data set; for a TrainingRun call layerdag.training.loop.train."
        )
    if privacy is not None and privacy.is_on:
        require_private(privacy, init, settings, {"model": model, **model_options}, loggers)
        assert init is not None
        seed = TrainSettings().seed if settings is None else settings.seed
        run = private_run(data, init, privacy, Path(), seed=seed, overwrite=overwrite)
        return _kept(out, lambda folder: _tuned(run, folder, device, loggers))
    if not isinstance(data, GraphDataset):
        data = load_dataset(data)
    settings = settings or TrainSettings()
    if init is None:
        spec, start = spec_for(data, model or "fast", model_options), None
    else:
        warm = warm_start(init, data, model, model_options, seed=settings.seed)
        spec, start = warm.spec, warm.start

    def trained(folder: Path) -> LoadedCheckpoint:
        run = _run(data, spec, folder, start, settings, overwrite=overwrite)
        return _trained(run, settings, device, loggers)

    return _kept(out, trained)


def _kept(out: str | Path | None, make: Callable[[Path], LoadedCheckpoint]) -> LoadedCheckpoint:
    """Return what ``make`` leaves in a folder: ``out``, or one that lasts as long as the result."""
    if out is not None:
        return make(Path(out))
    directory = Path(tempfile.mkdtemp(prefix="layerdag-"))
    try:
        checkpoint = make(directory)
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
    with run_lock(run.directory):
        require_free(run.directory, overwrite=run.overwrite)
        clear_run(run.directory)
        result = train_run(run, settings, device=device, loggers=loggers)
        return load_checkpoint(result.best, device)


def require_private(
    privacy: Privacy,
    init: str | Path | None,
    settings: TrainSettings | None,
    model_options: Mapping[str, Any],
    loggers: Sequence[Logger] = (),
) -> None:
    """Refuse what private tuning does not do, or what would break its promise.

    Raises:
        ConfigError: Names it.
    """
    epsilon = privacy.epsilon
    if init is None:
        raise ConfigError(
            f"privacy.epsilon={epsilon} tunes weights that never saw the private graphs; name "
            "their checkpoint with init=FOLDER."
        )
    if any(value is not None for value in model_options.values()):
        names = ", ".join(name for name, value in model_options.items() if value is not None)
        raise ConfigError(f"With privacy.epsilon the model is that of init; leave out {names}.")
    if settings is not None and settings != TrainSettings(seed=settings.seed):
        raise ConfigError(
            "The settings of 'training' are those of ordinary training, which privacy.epsilon "
            "replaces; set privacy.steps, privacy.learning_rate and the like instead."
        )
    if any(isinstance(logger, WandbLogger) for logger in loggers):
        raise ConfigError(
            "Figures of private tuning follow from private graphs without noise and stay with "
            "their owner; leave Weights & Biases off with privacy.epsilon."
        )


def private_run(
    data: GraphDataset | DataConfig | str | Path,
    init: str | Path,
    privacy: Privacy,
    directory: Path,
    *,
    seed: int = 0,
    run_config: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> PrivateRun:
    """Return a run of private tuning.

    Args:
        data: The private graphs: what ``load_with_schema`` takes, or returned for the schema of
            ``init``.
        init: The public checkpoint.
        privacy: What is promised.
        directory: Of the run.
        seed: Of the adapters.
        run_config: On record in the checkpoint.
        overwrite: Whether an older run there may be replaced.

    Raises:
        ConfigError: If the schema of ``data`` was learned from private graphs.
        CheckpointError: If ``init`` cannot be read.
        DataError: If graphs or owners cannot be read.
    """
    base, origin = checkpoint_and_origin(init)
    schema = checkpoint_schema(base)
    if not isinstance(data, GraphDataset):
        data = load_with_schema(data, schema)
    if data.schema.to_dict() != schema.to_dict() or data.further:
        raise ConfigError(
            f"{data.name}: words, bins and scales were learned from its graphs, which would reveal "
            "them; load it with those of the public checkpoint: "
            "layerdag.datasets.encoding.load_with_schema(FOLDER, checkpoint_schema(BASE))."
        )
    names = data.names["train"]
    owners = names if privacy.owners is None else read_owners(privacy.owners, names)
    return PrivateRun(
        spec=base.spec,
        start=InitialWeights(base.model.state_dict(), origin),
        schema=base.schema,
        units=Units.from_owners(data.batch("train"), owners),
        directory=directory,
        privacy=privacy,
        seed=seed,
        run_config=run_config or {},
        overwrite=overwrite,
        left_out=data.left_out,
    )


def _tuned(
    run: PrivateRun, folder: Path, device: torch.device | str, loggers: Sequence[Logger]
) -> LoadedCheckpoint:
    """Tune in a folder, which no other process may use, and read the weights."""
    with run_lock(folder):
        require_free(folder, overwrite=run.overwrite)
        clear_run(folder)
        result = tune_privately(replace(run, directory=folder), device=device, loggers=loggers)
        return load_checkpoint(result.run.best, device)
