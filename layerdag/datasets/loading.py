"""Load a data set by name or folder, with the settings of each loader.

The settings of each data set; configs/data has a file for each with the same keys.

The loader of the same name in ``layerdag.datasets`` takes them as keywords.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, overload

from layerdag.codec.formats import may_be_read
from layerdag.codec.sample_files import is_run
from layerdag.datasets.conversion import GraphLike
from layerdag.datasets.dataset import GraphDataset, GraphSplit, split_named
from layerdag.datasets.splits import SplitFingerprint
from layerdag.errors import ConfigError, UsageError
from layerdag.runtime.files import entries_below
from layerdag.runtime.settings import build_settings, did_you_mean

LOADERS = {
    "corpus": "layerdag.datasets.corpus",
    "programs": "layerdag.datasets.programs",
    "tpu_tile": "layerdag.datasets.published",
    "dgrl": "layerdag.datasets.dgrl",
    "alibaba": "layerdag.datasets.published",
    "latent_preferential": "layerdag.datasets.published",
    "folder": "layerdag.datasets.folder",
}
"""File whose function ``load_<name>`` loads the data set of that name."""

GENERATED = ("corpus", "programs", "latent_preferential")
"""Names of the data sets that need no folder."""

_REGISTERED: dict[str, Callable[..., GraphDataset]] = {}


def register_loader(name: str, function: Callable[..., GraphDataset]) -> None:
    """Add a data set of your own: ``load_dataset(name, **options)`` calls ``function(**options)``.

    Raises:
        UsageError: If the package itself has a data set of that name.
    """
    if name in LOADERS:
        raise UsageError(f"layerdag has a data set '{name}' itself; take another name.")
    _REGISTERED[name] = function


LABEL_FILES = ("labels.csv", "labels.json")

_DGRL_FILES = ("num-node-list.csv*", "train/node-label-root.csv*", "*/raw/is-timing-endpt.csv*")
"""A file of each family of DGRL: those in one folder, SR, TIME."""


def loader_of(name: str) -> Callable[..., GraphDataset]:
    """Return the loader of the data set ``name``; imported on first use.

    Raises:
        ConfigError: If there is no data set of that name; names the nearest one.
    """
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name not in LOADERS:
        known = (*LOADERS, *_REGISTERED)
        raise ConfigError(
            f"There is no data set '{name}'.{did_you_mean(name, known)} Known: {', '.join(known)}."
        )
    loader: Callable[..., GraphDataset] = getattr(
        importlib.import_module(LOADERS[name]), f"load_{name}"
    )
    return loader


@overload
def load_dataset(
    name_or_folder: str | Path | Sequence[GraphLike], *, split: None = None, **options: Any
) -> GraphDataset: ...


@overload
def load_dataset(
    name_or_folder: str | Path | Sequence[GraphLike], *, split: str, **options: Any
) -> GraphSplit: ...


def load_dataset(
    name_or_folder: str | Path | Sequence[GraphLike], *, split: str | None = None, **options: Any
) -> GraphDataset | GraphSplit:
    """Load a data set by its name, or whatever a folder holds.

    Args:
        name_or_folder: "corpus" and "programs" (embedded), "latent_preferential" (generated),
            a name that ``register_loader`` added, or a folder:
            a corpus (``index.jsonl``), programs (``.jsonl.xz``), TPU Tile (``.pth``), a family of
            DGRL
            (``num-node-list.csv``), Alibaba's ``batch_task.csv``, or traces or flow graphs of
            your own, with targets in ``labels.csv`` or ``labels.json``, or samples in parts; or a
            list of graphs, see ``GraphDataset``.
        split: "train", "val" or "test" for that part alone.
        **options: Of the loader in ``layerdag.datasets``, such as ``families=("mlp",)`` of
            the corpus, or ``labels="times.csv"`` and ``seed=1`` of your own folder. Graphs of your
            own keep their words, and so does what is trained on them; ``public_words=()`` renames
            those that are not public, as ``layerdag train`` does.

    Raises:
        UsageError: If it is neither a name nor a data set's folder, or an option is unknown.
        DataError: If a file is damaged, or nothing is left for training.
    """
    if split is not None:
        part = split_named(split)
        return load_dataset(name_or_folder, **options)[part]
    if not isinstance(name_or_folder, str | Path):
        return GraphDataset(name_or_folder, **options)
    if str(name_or_folder) in (*GENERATED, *_REGISTERED):
        name, arguments = str(name_or_folder), dict[str, Any]()
    else:
        folder = Path(name_or_folder)
        name = kind_of_folder(folder, options)
        arguments = {"folder": folder}
        if name == "folder" and options.get("labels") is None:
            arguments |= find_label_file(folder)
        if name == "folder" and "public_words" not in options:
            arguments["public_words"] = "all"
    loader = loader_of(name)
    _check_options(loader, options)
    return loader(**{**options, **arguments})


def read_dataset(
    folder: str | Path, labels: str | Path | None = None, *, public_words: Sequence[str] = ()
) -> GraphDataset:
    """Load the data set in a folder with the loader's own settings; see ``load_dataset``.

    Words of a folder of graphs are renamed if they are neither public nor among ``public_words``
    ("all" keeps every word).

    A label file counts for folders of traces or graphs alone, and is refused elsewhere. A DGRL
    family is labeled with its latencies on the Cortex-A76 processor.

    Raises:
        UsageError: If the folder is no data set, or has labels of its own and a file is named.
        DataError: If a file is damaged.
    """
    options: dict[str, Any] = {} if labels is None else {"labels": labels}
    options["public_words"] = public_words
    kind = kind_of_folder(Path(folder), options)
    if labels is not None:
        require_no_labels(folder, kind, labels)
    return load_dataset(Path(folder), **(options if kind == "folder" else {}))


def require_no_labels(folder: str | Path, kind: str, labels: str | Path) -> None:
    """Refuse a label file where it would not count.

    Raises:
        UsageError: If the folder is a data set that has its labels.
    """
    if kind != "folder":
        raise UsageError(
            f"{folder}: is a data set of the kind '{kind}' and has its labels; leave the label "
            f"file {labels} out."
        )


def read_learned_dataset(
    folder: str | Path, labels: str | Path | None, learned: SplitFingerprint | None
) -> GraphDataset:
    """Load the data set in a folder with private words renamed or kept, as a model learned it.

    Args:
        folder: Of the data set.
        labels: Label file, see ``read_dataset``.
        learned: The split that the model records, which depends on the words; None if it does not.

    Raises:
        UsageError: If the folder is no data set.
        DataError: If a file is damaged.
    """
    data = read_dataset(folder, labels)
    if learned is None or learned == data.split or not data.renamed:
        return data
    kept = read_dataset(folder, labels, public_words="all")
    return kept if learned == kept.split else data


def kind_of_folder(folder: Path, options: Mapping[str, Any]) -> str:
    """Return the name of the loader that reads a folder.

    Raises:
        UsageError: If it holds nothing that a loader reads.
    """
    if (folder / "index.jsonl").is_file():
        return "corpus"
    if any(folder.glob("*.jsonl.xz")):
        return "programs"
    if any(folder.glob("*.pth")):
        return "tpu_tile"
    if any(folder.glob("batch_task.csv*")):
        return "alibaba"
    if any(found for pattern in _DGRL_FILES for found in folder.glob(pattern)):
        return "dgrl"
    if is_run(folder):
        return "folder"
    if options.get("labels") is not None or find_label_file(folder):
        return "folder"
    below = entries_below(folder) if folder.is_dir() else []
    if any(path.is_file() and may_be_read(path) for path in below):
        return "folder"
    raise UsageError(
        f"{folder}: is no data set; give a corpus folder (with index.jsonl), a TPU Tile folder "
        "(with .pth files), a family of DGRL (with num-node-list.csv), Alibaba's batch_task.csv, "
        "or a folder of traces, compiled programs or flow graphs."
    )


def find_label_file(folder: Path) -> dict[str, Path]:
    """Return the label file of a folder as the option of its loader; nothing if there is none."""
    found = next((folder / name for name in LABEL_FILES if (folder / name).is_file()), None)
    return {} if found is None else {"labels": found}


def _check_options(loader: Callable[..., GraphDataset], options: Mapping[str, Any]) -> None:
    """Raise UsageError if the loader does not take an option."""
    known = [name for name in inspect.signature(loader).parameters if name != "folder"]
    for name in options:
        if name not in known:
            listed = ", ".join(known) or "none"
            raise UsageError(f"{loader.__name__} has no option '{name}'; known are: {listed}.")


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

_CONFIGS: dict[str, type[DataConfig]] = {
    "alibaba": AlibabaConfig,
    "corpus": CorpusConfig,
    "dgrl": DgrlConfig,
    "folder": FolderConfig,
    "latent_preferential": LatentPreferentialConfig,
    "programs": ProgramsConfig,
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
    if str(values["name"]) in _REGISTERED:
        raise ConfigError(
            f"data={values['name']} was registered in this process and has no settings here; load "
            "it with layerdag.load_dataset and pass the data set on."
        )
    return build_settings(_CONFIGS[str(values["name"])], values, "data")


def load_config(config: DataConfig) -> GraphDataset:
    """Load a data set.

    Raises:
        DataError: If the files are missing or damaged.
    """
    arguments = {f.name: getattr(config, f.name) for f in fields(config) if f.name != "name"}
    return loader_of(config.name)(**arguments)
