"""A run of private tuning, from private graphs and the public checkpoint that they tune."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.encoding import load_with_schema
from layerdag.datasets.settings import DataConfig
from layerdag.dp.settings import Privacy
from layerdag.dp.tuning import PrivateRun
from layerdag.dp.units import Units, read_owners
from layerdag.errors import ConfigError
from layerdag.training.checkpoint import InitialWeights, checkpoint_schema
from layerdag.training.loggers import Logger, WandbLogger
from layerdag.training.settings import TrainSettings
from layerdag.training.warm_start import checkpoint_and_origin


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
    if data.schema.to_dict() != schema.to_dict() or data.extra_train:
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
        notes=data.notes,
    )
