"""What ``layerdag train`` was asked to do as one tree of dataclasses, from the composed YAML.

``configs/train.yaml`` with its groups has the same keys.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from layerdag.cli.compose import to_plain_dict
from layerdag.datasets.loading import data_config
from layerdag.datasets.settings import DataConfig
from layerdag.dp.settings import Privacy
from layerdag.models.spec import model_config
from layerdag.runtime.settings import build_settings
from layerdag.training.loggers import LoggerSettings, wandb_mode
from layerdag.training.settings import TrainSettings

NO_PRIVACY = Privacy()


@dataclass(frozen=True)
class ModelChoice:
    """Which model, and its settings.

    Attributes:
        name: "fast" or "reference".
        config: The tree that the model's constructor takes.
    """

    name: str
    config: Any


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Everything that ``layerdag train`` was asked to do.

    Attributes:
        data: The data set.
        model: The model.
        training: How to train.
        logger: Where figures go.
        seed: All randomness of the run comes from it.
        conditions: Names to condition on; None: all that the data set has.
        device: "auto", "cpu" or "cuda".
        threads: Of torch on a processor; 0 leaves torch's own choice.
        out: Folder of the run.
        overwrite: Whether an older run that lies in ``out`` may be replaced.
        init: Checkpoint whose weights the run starts from.
        resume: Folder of a run to go on with.
        dry_run: Whether to print the settings and stop.
        privacy: Differentially private tuning of ``init``; off by default.
    """

    data: DataConfig
    model: ModelChoice
    training: TrainSettings
    logger: LoggerSettings
    seed: int = 0
    conditions: tuple[str, ...] | None = None
    device: str = "auto"
    threads: int = 0
    out: Path
    overwrite: bool = False
    init: Path | None = None
    resume: Path | None = None
    dry_run: bool = False
    privacy: Privacy = NO_PRIVACY


def train_config(config: DictConfig) -> TrainConfig:
    """Return the tree of a composed ``train.yaml``.

    Raises:
        ConfigError: If a setting is unknown, missing, of another type or out of bounds, or Weights
            & Biases is asked for and cannot be used.
    """
    plain = to_plain_dict(config)
    model, logger = dict(plain["model"]), dict(plain["logger"])
    name = str(model.pop("name"))
    training = {**plain["training"], "seed": plain["seed"]}
    logger["wandb"] = wandb_mode(logger.get("wandb"))
    return build_settings(
        TrainConfig,
        {
            **plain,
            "data": data_config(plain["data"]),
            "model": ModelChoice(name, model_config(name, model)),
            "training": build_settings(TrainSettings, training, "training"),
            "logger": build_settings(LoggerSettings, logger, "logger"),
            "privacy": build_settings(Privacy, plain["privacy"], "privacy"),
        },
    )
