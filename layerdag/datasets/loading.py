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
from layerdag.datasets.settings import CONFIGS, DataConfig, FolderConfig, find_label_file
from layerdag.datasets.splits import SplitFingerprint
from layerdag.errors import ConfigError, UsageError
from layerdag.runtime.files import entries_below
from layerdag.runtime.settings import build_settings, did_you_mean
from layerdag.samples.manifest import is_run

GENERATED = ("corpus", "programs", "latent_preferential")
"""Names of the data sets that need no folder."""

_REGISTERED: dict[str, Callable[..., GraphDataset]] = {}
_DGRL_FILES = ("num-node-list.csv*", "train/node-label-root.csv*", "*/raw/is-timing-endpt.csv*")
"""A file of each family of DGRL: those in one folder, SR, TIME."""


def register_loader(name: str, function: Callable[..., GraphDataset]) -> None:
    """Add a data set of your own: ``load_dataset(name, **options)`` calls ``function(**options)``.

    Raises UsageError if the package itself has a data set of that name.
    """
    if name in CONFIGS:
        raise UsageError(f"layerdag has a data set '{name}' itself; take another name.")
    _REGISTERED[name] = function


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
            a name that ``register_loader`` added, or a folder: a corpus (``index.jsonl``), programs
            (``.jsonl.xz``), TPU Tile (``.pth``), a family of DGRL (``num-node-list.csv``),
            Alibaba's ``batch_task.csv``, or traces or flow graphs of your own, with targets in
            ``labels.csv`` or ``labels.json``, or samples in parts; or a list of graphs, see
            ``GraphDataset``.
        split: "train", "val" or "test" for that part alone.
        **options: Settings of ``layerdag.datasets.settings``, such as ``families=("mlp",)`` of
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
    if str(name_or_folder) in _REGISTERED:
        function = _REGISTERED[str(name_or_folder)]
        _check_options(str(name_or_folder), options, list(inspect.signature(function).parameters))
        return function(**options)
    if str(name_or_folder) in GENERATED:
        name, given = str(name_or_folder), options
    else:
        folder = Path(name_or_folder)
        name = kind_of_folder(folder, options)
        given = {**options, "folder": folder}
        if name == "folder":
            given = {"public_words": "all", **given}
            if options.get("labels") is None:
                given |= find_label_file(folder)
    known = [field.name for field in fields(CONFIGS[name]) if field.name != "name"]
    _check_options(name, options, known)
    return load_config(build_settings(CONFIGS[name], given))


def _check_options(name: str, options: Mapping[str, Any], known: Sequence[str]) -> None:
    for option in options:
        if option not in known:
            listed = ", ".join(known) or "none"
            raise UsageError(f"data={name} has no option '{option}'; known are: {listed}.")


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
    arguments. A label file counts for folders of traces or graphs alone. Raises UsageError if the
    folder is no data set, or has labels of its own and a file is named, and DataError if a file is
    damaged.
    """
    folder = Path(folder)
    kind = kind_of_folder(folder, {"labels": labels})
    if labels is not None:
        require_no_labels(folder, kind, labels)
    if kind != "folder":
        return load_dataset(folder)
    from layerdag.datasets.folder import load_folder  # torch is imported with it

    words = public_words if isinstance(public_words, str) else tuple(public_words)
    known = find_label_file(folder).get("labels") if labels is None else Path(labels)
    config = FolderConfig(folder=folder, labels=known, public_words=words)
    return load_folder(config, as_jobs=as_jobs)


def require_no_labels(folder: str | Path, kind: str, labels: str | Path) -> None:
    """Refuse a label file where it would not count.

    Raises UsageError if the folder is a data set that has its labels.
    """
    if kind != "folder":
        raise UsageError(
            f"{folder}: is a data set of the kind '{kind}' and has its labels; leave the label "
            f"file {labels} out."
        )


def read_learned_dataset(
    folder: str | Path, labels: str | Path | None, learned: SplitFingerprint | None
) -> GraphDataset:
    """Load the data set in a folder as a model learned it, by the split that the model records.

    Private words may have been renamed or kept, and traces that record arguments may have been
    learned as programs or as graphs of jobs. Raises as ``read_dataset``.
    """
    first = read_dataset(folder, labels)
    if learned in (None, first.split):
        return first
    as_jobs = (False, True) if kind_of_folder(Path(folder), {"labels": labels}) == "folder" else ()
    for jobs in as_jobs:
        data = read_dataset(folder, labels, as_jobs=True) if jobs else first
        if learned == data.split:
            return data
        if data.renamed:
            kept = read_dataset(folder, labels, public_words="all", as_jobs=jobs)
            if learned == kept.split:
                return kept
    return first


def kind_of_folder(folder: Path, options: Mapping[str, Any]) -> str:
    """Return the name of the data set that a folder holds.

    Raises UsageError if it holds nothing that a loader reads.
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
    if is_run(folder) or options.get("labels") is not None or find_label_file(folder):
        return "folder"
    below = entries_below(folder) if folder.is_dir() else []
    if any(path.is_file() and may_be_read(path) for path in below):
        return "folder"
    raise UsageError(
        f"{folder}: is no data set; give a corpus folder (with index.jsonl), a TPU Tile folder "
        "(with .pth files), a family of DGRL (with num-node-list.csv), Alibaba's batch_task.csv, "
        "or a folder of traces, compiled programs or flow graphs."
    )


def data_config(values: object) -> DataConfig:
    """Return the settings of the data set that ``values["name"]`` names.

    Raises ConfigError if the name or a setting is unknown, or a value has another type.
    """
    if not isinstance(values, Mapping) or "name" not in values:
        raise ConfigError(f"'data' must be a group of settings with a name, found {values!r:.40}.")
    name = str(values["name"])
    if name in _REGISTERED:
        raise ConfigError(
            f"data={name} was registered in this process and has no settings here; load it with "
            "layerdag.load_dataset and pass the data set on."
        )
    if name not in CONFIGS:
        known = (*CONFIGS, *_REGISTERED)
        raise ConfigError(
            f"There is no data set '{name}'.{did_you_mean(name, known)} Known: {', '.join(known)}."
        )
    return build_settings(CONFIGS[name], values, "data")


def load_config(config: DataConfig) -> GraphDataset:
    """Load a data set with the function ``load_<name>`` of the file of that name.

    Raises DataError if the files are missing or damaged.
    """
    loader = importlib.import_module(f"layerdag.datasets.{config.name}")
    data: GraphDataset = getattr(loader, f"load_{config.name}")(config)
    return data
