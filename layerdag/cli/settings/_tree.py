"""What a verb was asked to do as one tree of dataclasses, from the composed YAML.

``configs/train.yaml`` and ``configs/sample.yaml`` with their groups have the same keys.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from layerdag._runtime import Limits, build_settings
from layerdag.api import read
from layerdag.cli.settings._compose import as_plain
from layerdag.datasets import DataConfig, data_config
from layerdag.datasets.samples import PART_FORMATS
from layerdag.errors import UsageError
from layerdag.graph import Condition
from layerdag.models import model_config
from layerdag.sampling import REQUESTED, GenerationSettings, PartSettings
from layerdag.sampling.writing import PART_SIZE
from layerdag.training import TrainSettings
from layerdag.training.monitoring import LoggerSettings, wandb_mode
from layerdag.training.private import Privacy

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


@dataclass(frozen=True, kw_only=True)
class SampleConfig:
    """Everything that ``layerdag sample`` was asked to do.

    See ``GenerationSettings``, and ``PartSettings`` for samples in parts.
    """

    checkpoint: str = "pretrained"
    out: Path
    overwrite: bool = False
    format: str = "auto"
    members: str = "auto"
    part_size: int = PART_SIZE
    shard: str | None = None
    label: Condition | None = None
    conditions: Mapping[str, Any] = field(default_factory=dict)
    num: int = 16
    seed: int = 0
    ranks: int | None = None
    steps: int | None = None
    guidance: float | None = None
    temperature: float | None = None
    best_of: int | None = None
    redraws: int | None = None
    labels: str = REQUESTED
    prefix: Path | None = None
    prefix_layers: int | None = None
    suffix_layers: int | None = None
    max_nodes: int = 10_000
    max_ranks: int = 4096
    max_bytes: int = 16_000_000_000
    batch_size: int | None = None
    processes: int | None = None
    device: str = "auto"
    threads: int = 1
    dry_run: bool = False

    def generation(self) -> GenerationSettings:
        """Return what to sample.

        Raises:
            UsageError: If a value is out of bounds.
            DataError: If the prefix cannot be read.
        """
        label = {} if self.label is None else {"label": self.label}
        return GenerationSettings(
            num=self.num,
            seed=self.seed,
            conditions={**self.conditions, **label},
            ranks=self.ranks,
            steps=self.steps,
            guidance=self.guidance,
            temperature=self.temperature,
            best_of=self.best_of,
            redraws=self.redraws,
            labels=self.labels,
            prefix=None if self.prefix is None else read(self.prefix),
            prefix_layers=self.prefix_layers,
            suffix_layers=self.suffix_layers,
            max_nodes=self.max_nodes,
            batch_size=self.batch_size,
            processes=self.processes,
            limits=Limits(self.max_ranks, self.max_bytes),
        )

    def parts(self) -> PartSettings | None:
        """Return how samples are cut into parts; None for a file or folder of each.

        Raises:
            UsageError: If a setting of parts is given for another format, or is out of bounds.
        """
        if self.format in PART_FORMATS:
            return PartSettings(self.format, self.members, self.part_size, self.shard)
        for name, value, usual in (
            ("members", self.members, "auto"),
            ("part_size", self.part_size, PART_SIZE),
            ("shard", self.shard, None),
        ):
            if value != usual:
                raise UsageError(
                    f"{name}={value} is of samples in parts; ask for format=tar or format=parquet, "
                    "or leave it out."
                )
        return None


def train_config(config: DictConfig) -> TrainConfig:
    """Return the tree of a composed ``train.yaml``.

    Raises:
        ConfigError: If a setting is unknown, missing, of another type or out of bounds, or Weights
            & Biases is asked for and cannot be used.
    """
    plain = as_plain(config)
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


def sample_config(config: DictConfig) -> SampleConfig:
    """Return the tree of a composed ``sample.yaml``.

    Raises:
        ConfigError: If a setting is unknown or of another type.
    """
    return build_settings(SampleConfig, as_plain(config))
