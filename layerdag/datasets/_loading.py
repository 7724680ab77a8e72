"""Data sets by name or by folder: which loader reads them, and with which options."""

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from layerdag._runtime import did_you_mean
from layerdag.datasets._base import GraphDataset
from layerdag.datasets.samples import is_run
from layerdag.errors import ConfigError, UsageError

_SOURCES = "layerdag.datasets.sources"
_NAMES = ("corpus", "tpu_tile", "dgrl", "alibaba", "latent_preferential", "folder")
LOADERS = {name: f"load_{name}" for name in _NAMES}
"""Function of ``layerdag.datasets.sources`` by the name of its data set."""

GENERATED = ("corpus", "latent_preferential")
"""Names of the data sets that need no folder."""

LABEL_FILES = ("labels.csv", "labels.json")
_GRAPH_FILES = tuple(
    f"*{suffix}{packed}"
    for suffix in (".et", ".graphml", ".json", ".dot", ".gv")
    for packed in ("", ".gz", ".xz")
)

_DGRL_FILES = ("num-node-list.csv*", "train/node-label-root.csv*", "*/raw/is-timing-endpt.csv*")
"""A file of each family of DGRL: those in one folder, SR, TIME."""


def loader_of(name: str) -> Callable[..., GraphDataset]:
    """Return the loader of the data set ``name``; imported on first use.

    Raises:
        ConfigError: If there is no data set of that name; names the nearest one.
    """
    if name not in LOADERS:
        raise ConfigError(
            f"There is no data set '{name}'.{did_you_mean(name, LOADERS)} "
            f"Known: {', '.join(LOADERS)}."
        )
    loader: Callable[..., GraphDataset] = getattr(importlib.import_module(_SOURCES), LOADERS[name])
    return loader


def load_dataset(name_or_folder: str | Path, **options: Any) -> GraphDataset:
    """Load a data set by its name, or whatever a folder holds.

    Args:
        name_or_folder: "corpus" (the embedded one), "latent_preferential" (generated), or a folder:
            a corpus (``index.jsonl``), TPU Tile (``.pth``), a family of DGRL
            (``num-node-list.csv``), Alibaba's ``batch_task.csv``, or traces or flow graphs of
            your own, with targets in ``labels.csv`` or ``labels.json``, or samples in parts.
        **options: Of the loader in ``layerdag.datasets.sources``, such as ``families=("mlp",)`` of
            the corpus, or ``labels="times.csv"`` and ``seed=1`` of your own folder.

    Raises:
        UsageError: If it is neither a name nor a data set's folder, or an option is unknown.
        DataError: If a file is damaged, or nothing is left for training.
    """
    if str(name_or_folder) in GENERATED:
        name, arguments = str(name_or_folder), {}
    else:
        folder = Path(name_or_folder)
        name, arguments = kind_of_folder(folder, options), {"folder": folder}
        if name == "folder" and options.get("labels") is None:
            arguments |= _labels_in(folder)
    loader = loader_of(name)
    _check_options(loader, options)
    return loader(**{**options, **arguments})


def read_dataset(
    folder: str | Path, labels: str | Path | None = None, *, public_words: Sequence[str] = ()
) -> GraphDataset:
    """Load the data set in a folder with the loader's own settings; see ``load_dataset``.

    Words of a folder of graphs are renamed if they are neither public nor among ``public_words``
    ("all" keeps every word).

    A label file counts for folders of traces or graphs alone. A DGRL family is labeled with its
    latencies on the Cortex-A76 processor.

    Raises:
        UsageError: If the folder is no data set.
        DataError: If a file is damaged.
    """
    options: dict[str, Any] = {} if labels is None else {"labels": labels}
    if public_words:
        options["public_words"] = public_words
    kind = kind_of_folder(Path(folder), options)
    return load_dataset(Path(folder), **(options if kind == "folder" else {}))


def kind_of_folder(folder: Path, options: Mapping[str, Any]) -> str:
    """Return the name of the loader that reads a folder.

    Raises:
        UsageError: If it holds nothing that a loader reads.
    """
    if (folder / "index.jsonl").is_file():
        return "corpus"
    if any(folder.glob("*.pth")):
        return "tpu_tile"
    if any(folder.glob("batch_task.csv*")):
        return "alibaba"
    if any(found for pattern in _DGRL_FILES for found in folder.glob(pattern)):
        return "dgrl"
    if is_run(folder):
        return "folder"
    if options.get("labels") is not None or _labels_in(folder) or _holds_graphs(folder):
        return "folder"
    raise UsageError(
        f"{folder}: is no data set; give a corpus folder (with index.jsonl), a TPU Tile folder "
        "(with .pth files), a family of DGRL (with num-node-list.csv), Alibaba's batch_task.csv, "
        "or a folder of traces or flow graphs."
    )


def _labels_in(folder: Path) -> dict[str, Path]:
    """Return the label file of a folder as the option of its loader; nothing if there is none."""
    found = next((folder / name for name in LABEL_FILES if (folder / name).is_file()), None)
    return {} if found is None else {"labels": found}


def _holds_graphs(folder: Path) -> bool:
    """Return whether traces or flow graphs lie in or below a folder."""
    return any(next(folder.rglob(pattern), None) for pattern in _GRAPH_FILES)


def _check_options(loader: Callable[..., GraphDataset], options: Mapping[str, Any]) -> None:
    """Raise UsageError if the loader does not take an option."""
    known = [name for name in inspect.signature(loader).parameters if name != "folder"]
    for name in options:
        if name not in known:
            listed = ", ".join(known) or "none"
            raise UsageError(f"{loader.__name__} has no option '{name}'; known are: {listed}.")
