"""Load a data set by name or folder."""

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, overload

from layerdag.codec.formats import may_be_read
from layerdag.datasets.conversion import GraphLike
from layerdag.datasets.dataset import GraphDataset, GraphSplit, split_named
from layerdag.datasets.settings import CONFIGS, DataConfig, find_label_file
from layerdag.datasets.splits import SplitFingerprint
from layerdag.errors import ConfigError, UsageError
from layerdag.runtime.files import entries_below
from layerdag.runtime.settings import build_settings, did_you_mean
from layerdag.samples.manifest import is_run

LOADERS = {
    "corpus": "layerdag.datasets.corpus",
    "programs": "layerdag.datasets.programs",
    "tpu_tile": "layerdag.datasets.tpu_tile",
    "dgrl": "layerdag.datasets.dgrl",
    "alibaba": "layerdag.datasets.alibaba",
    "latent_preferential": "layerdag.datasets.latent_preferential",
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
    folder: str | Path,
    labels: str | Path | None = None,
    *,
    public_words: Sequence[str] = (),
    as_jobs: bool = False,
) -> GraphDataset:
    """Load the data set in a folder with the loader's own settings; see ``load_dataset``.

    Words of a folder of graphs are renamed if they are neither public nor among ``public_words``
    ("all" keeps every word). With ``as_jobs`` traces are loaded as graphs even where they record
    arguments.

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
    if as_jobs and kind == "folder":
        from layerdag.datasets.folder import load_jobs  # torch is imported with it

        found = find_label_file(Path(folder)) if labels is None else {"labels": labels}
        return load_jobs(folder, public_words=public_words, **found)
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


def _check_options(loader: Callable[..., GraphDataset], options: Mapping[str, Any]) -> None:
    """Raise UsageError if the loader does not take an option."""
    known = [name for name in inspect.signature(loader).parameters if name != "folder"]
    for name in options:
        if name not in known:
            listed = ", ".join(known) or "none"
            raise UsageError(f"{loader.__name__} has no option '{name}'; known are: {listed}.")


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
    return build_settings(CONFIGS[str(values["name"])], values, "data")


def load_config(config: DataConfig) -> GraphDataset:
    """Load a data set.

    Raises:
        DataError: If the files are missing or damaged.
    """
    arguments = {f.name: getattr(config, f.name) for f in fields(config) if f.name != "name"}
    return loader_of(config.name)(**arguments)
