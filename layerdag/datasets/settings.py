"""The settings of each data set; configs/data has a file for each with the same keys."""

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
    """Jobs of a corpus folder (layout in ``layerdag.traces.pytorch``), one graph per run.

    Attributes:
        folder: A corpus folder; None is the embedded corpus.
        further: Folder, or its name inside ``folder``, of more runs to train on; runs whose graph
            is in the corpus are left out. Open conditions and times of nodes are still drawn as in
            the corpus alone.
        max_nodes: Larger graphs are left out, and listed.
        families: Keep only these model families; all if empty.
        strategies: Keep only these strategies; all if empty.
    """

    name: Literal["corpus"] = "corpus"
    folder: Path | None = None
    further: Path | None = None
    max_nodes: int = 2000
    families: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ()
    num_bins: int = 16


@dataclass(frozen=True, kw_only=True)
class AlibabaConfig:
    """Batch jobs of Alibaba's cluster trace of 2018.

    Attributes:
        folder: With ``batch_task.csv``, ``.gz`` or ``.xz``.
        num_graphs: Take the first so many jobs; None for all.
        min_nodes: Jobs with fewer tasks are left out, and those with more than ``max_nodes``.
    """

    name: Literal["alibaba"] = "alibaba"
    folder: Path
    num_graphs: int | None = 10_000
    min_nodes: int = 2
    max_nodes: int = 1_000
    seed: int = 0
    num_bins: int = 16


@dataclass(frozen=True, kw_only=True)
class DgrlConfig:
    """One family of the DGRL benchmark.

    Attributes:
        label: Of computational graphs "cortex" (Cortex-A76 CPU; default), "630gpu", "640gpu"
            (Adreno) or "vpu"; milliseconds. Of AMP "gain" (default), "pm", "bw" or "fom". Of TIME
            "setup" (default) or "hold", the least slack.
        num_graphs: Use the first so many; all by default, and always of SR and TIME.
    """

    name: Literal["dgrl"] = "dgrl"
    folder: Path
    label: str | None = None
    num_graphs: int | None = None
    seed: int = 0
    num_bins: int = 16


@dataclass(frozen=True, kw_only=True)
class FolderConfig:
    """A folder of traces or graphs.

    Attributes:
        folder: With traces or flow graphs, not both, at any depth; or with samples in parts.
        labels: CSV or JSON, see ``read_labels``. By default the label of a graph is the step time
            that ``layerdag collect`` measured (``NAME.steps.json``), if there is one.
        max_nodes: Larger graphs are left out, and listed.
        held_out: Share of the graphs for validation and test together; None for a tenth each, but
            at least ten each as long as that is no more than a fifth.
        public_words: Words of flow graphs and of conditions that may enter the schema, beside those
            that are public (``private_words.py``); the others are renamed. "all" keeps every word.
        min_programs: Leave out, and list, training programs with a call or an expression of sizes
            that fewer programs of distinct structure have, as it would point to one of them.
        avoid_copies: Keep a hash of each program's structure in the schema, of held-out ones too,
            so that no sample repeats one.
    """

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
    """Generated DAGs with a hard rule of tolerance ``rho`` (``latent_preferential.py``)."""

    name: Literal["latent_preferential"] = "latent_preferential"
    rho: float = 0.0
    num_train: int = 1000
    num_val: int = 100
    num_test: int = 100
    seed: int = 0


@dataclass(frozen=True)
class ProgramsConfig:
    """Forward programs of a folder with a file of JSON lines for each family.

    Attributes:
        folder: With ``FAMILY.jsonl.xz``; None is an embedded one.
        corpus: Embedded one: "collected" from training runs; "public", architectures of public
            packages; or "h100", steps measured on a GPU, with the least step time (s) as label and
            the peak of memory as ``peak_bytes``.
        families: Keep only these; all if empty.
        avoid_copies: Keep a hash of each structure in the schema, of held-out ones too, so that
            samples repeat none. Whoever has the checkpoint can ask whether a program was in the
            data set, so this is for public programs.
        operator_times: Keep the times of operators of training programs in the schema, so that
            steps of samples have times. Reading the traces takes some seconds.
    """

    name: Literal["programs"] = "programs"
    folder: Path | None = None
    corpus: Literal["collected", "public", "h100"] = "collected"
    families: tuple[str, ...] = ()
    seed: int = 0
    avoid_copies: bool = False
    operator_times: bool = False


@dataclass(frozen=True, kw_only=True)
class TpuTileConfig:
    """TPU Tile, from ``.pth`` files."""

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
    "corpus": CorpusConfig,
    "programs": ProgramsConfig,
    "tpu_tile": TpuTileConfig,
    "dgrl": DgrlConfig,
    "alibaba": AlibabaConfig,
    "latent_preferential": LatentPreferentialConfig,
    "folder": FolderConfig,
}
