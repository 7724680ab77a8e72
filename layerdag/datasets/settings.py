"""The settings of each data set; configs/data has a file for each with the same keys.

The loader of the same name takes them as keywords.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

LABEL_FILES = ("labels.csv", "labels.json")


def find_label_file(folder: Path) -> dict[str, Path]:
    """Return the label file of a folder as the option of its loader; nothing if there is none."""
    found = next((folder / name for name in LABEL_FILES if (folder / name).is_file()), None)
    return {} if found is None else {"labels": found}


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
    min_programs: int = 1
    avoid_copies: bool = False

    @property
    def data_name(self) -> str:
        """Name of the data set: that of the folder, also of the one that is called "."."""
        return self.folder.name or self.folder.resolve().name


@dataclass(frozen=True)
class LatentPreferentialConfig:
    """Generated DAGs with a hard rule; see ``load_latent_preferential``."""

    name: Literal["latent_preferential"] = "latent_preferential"
    rho: float = 0.0
    num_train: int = 1000
    num_val: int = 100
    num_test: int = 100
    seed: int = 0


@dataclass(frozen=True)
class ProgramsConfig:
    """Forward programs of an embedded corpus; see ``load_programs``."""

    name: Literal["programs"] = "programs"
    folder: Path | None = None
    corpus: Literal["collected", "public", "h100"] = "collected"
    families: tuple[str, ...] = ()
    seed: int = 0
    avoid_copies: bool = False
    operator_times: bool = False


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
    | ProgramsConfig
    | TpuTileConfig
)

CONFIGS: dict[str, type[DataConfig]] = {
    "alibaba": AlibabaConfig,
    "corpus": CorpusConfig,
    "dgrl": DgrlConfig,
    "folder": FolderConfig,
    "latent_preferential": LatentPreferentialConfig,
    "programs": ProgramsConfig,
    "tpu_tile": TpuTileConfig,
}
