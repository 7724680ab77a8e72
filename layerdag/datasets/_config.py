"""The settings of each data set; configs/data has a file for each with the same keys.

The loader of the same name in ``layerdag.datasets.sources`` takes them as keywords.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from layerdag._runtime import build_settings
from layerdag.datasets._base import Blocks, GraphDataset
from layerdag.datasets._loading import loader_of
from layerdag.datasets.schema import NumberForm
from layerdag.errors import ConfigError


@dataclass(frozen=True)
class CorpusConfig:
    """The embedded corpus; see ``load_corpus``."""

    name: Literal["corpus"] = "corpus"
    folder: Path | None = None
    further: Path | None = None
    max_nodes: int = 2000
    families: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ()
    num_bins: int = 16
    blocks: Blocks = "whole"


@dataclass(frozen=True, kw_only=True)
class AlibabaConfig:
    """Batch jobs of Alibaba's cluster trace of 2018; see ``load_alibaba``."""

    name: Literal["alibaba"] = "alibaba"
    folder: Path
    num_graphs: int | None = 10_000
    min_nodes: int = 2
    max_nodes: int = 1_000
    seed: int = 0
    num_bins: int = 16


@dataclass(frozen=True, kw_only=True)
class DgrlConfig:
    """One family of the DGRL benchmark; see ``load_dgrl``."""

    name: Literal["dgrl"] = "dgrl"
    folder: Path
    label: str | None = None
    num_graphs: int | None = None
    seed: int = 0
    num_bins: int = 16


@dataclass(frozen=True, kw_only=True)
class FolderConfig:
    """A folder of traces or graphs; see ``load_folder``."""

    name: Literal["folder"] = "folder"
    folder: Path
    labels: Path | None = None
    seed: int = 0
    max_nodes: int = 10_000
    num_bins: int = 16
    held_out: float | None = None
    public_words: tuple[str, ...] | str = ()
    blocks: Blocks = "whole"
    numbers: NumberForm = "absolute"


@dataclass(frozen=True)
class LatentPreferentialConfig:
    """Generated DAGs with a hard rule; see ``load_latent_preferential``."""

    name: Literal["latent_preferential"] = "latent_preferential"
    rho: float = 0.0
    num_train: int = 1000
    num_val: int = 100
    num_test: int = 100
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class TpuTileConfig:
    """TPU Tile; see ``load_tpu_tile``."""

    name: Literal["tpu_tile"] = "tpu_tile"
    folder: Path


DataConfig = (
    AlibabaConfig
    | CorpusConfig
    | DgrlConfig
    | FolderConfig
    | LatentPreferentialConfig
    | TpuTileConfig
)

_CONFIGS: dict[str, type[DataConfig]] = {
    "alibaba": AlibabaConfig,
    "corpus": CorpusConfig,
    "dgrl": DgrlConfig,
    "folder": FolderConfig,
    "latent_preferential": LatentPreferentialConfig,
    "tpu_tile": TpuTileConfig,
}


def data_config(values: object) -> DataConfig:
    """Return the settings of the data set that ``values["name"]`` names.

    Raises:
        ConfigError: If the name or a setting is unknown, or a value has another type.
    """
    if not isinstance(values, Mapping) or "name" not in values:
        raise ConfigError(f"'data' must be a group of settings with a name, found {values!r:.40}.")
    loader_of(str(values["name"]))
    return build_settings(_CONFIGS[str(values["name"])], values, "data")


def load_config(config: DataConfig) -> GraphDataset:
    """Load a data set.

    Raises:
        DataError: If the files are missing or damaged.
    """
    arguments = {f.name: getattr(config, f.name) for f in fields(config) if f.name != "name"}
    return loader_of(config.name)(**arguments)
