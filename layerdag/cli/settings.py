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
    """Which model, and the tree of settings that its constructor takes."""

    name: str
    config: Any


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Everything that ``layerdag train`` was asked to do; the YAML files say what each means."""

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
