"""Surrogates as directories: ``surrogate.json`` and ``weights.safetensors``; no pickle."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays, save as save_arrays

from layerdag._runtime import FolderKind, atomic_folder, read_parsed, read_whole, strangers
from layerdag.errors import CheckpointError
from layerdag.graph import DAG, GraphSizes
from layerdag.surrogates._base import SurrogateModel, TargetScale
from layerdag.surrogates._boosting import BoostedTrees, fit_boosting

FORMAT = 1
FACTS, WEIGHTS = "surrogate.json", "weights.safetensors"


def _fit_boosting(
    dags: Sequence[DAG], target_B: np.ndarray, sizes: GraphSizes, seed: int
) -> SurrogateModel:
    return fit_boosting(dags, target_B, sizes, seed=seed)


def _fit_message_passing(
    dags: Sequence[DAG], target_B: np.ndarray, sizes: GraphSizes, seed: int
) -> SurrogateModel:
    # PyTorch Geometric takes seconds to import: only who needs it pays.
    from layerdag.surrogates._message_passing import fit_message_passing

    return fit_message_passing(dags, target_B, sizes, seed=seed)


FAMILIES = {"boosting": _fit_boosting, "message_passing": _fit_message_passing}
"""Fitting function by family name: ``fit(dags, target_B, sizes, seed)``."""


def save_surrogate(
    surrogate: SurrogateModel,
    folder: str | Path,
    notes: Mapping[str, object] | None = None,
    *,
    overwrite: bool = False,
) -> None:
    """Write a surrogate to a directory, whole or not at all.

    Args:
        surrogate: What to save.
        folder: Directory to make.
        notes: Further JSON-serializable facts (schema, data set, scores) kept beside it.
        overwrite: Whether a surrogate that stands there may be replaced; nothing else ever is.

    Raises:
        UsageError: If something stands there that may not be replaced, or another process is
            writing there.
    """
    facts = {
        "format": FORMAT,
        "family": surrogate.family,
        "config": dict(surrogate.config()),
        "notes": dict(notes or {}),
    }
    arrays = {name: np.ascontiguousarray(value) for name, value in surrogate.arrays().items()}
    with atomic_folder(folder, SURROGATE, overwrite=overwrite) as draft:
        (draft / FACTS).write_text(json.dumps(facts, indent=1) + "\n")
        (draft / WEIGHTS).write_bytes(save_arrays(arrays))


def _doubt_surrogate(folder: Path) -> str:
    """Return why a folder is not provably a surrogate that layerdag wrote, or ""."""
    strange = strangers(folder, (FACTS, WEIGHTS).__contains__)
    if strange:
        return strange
    try:
        facts = json.loads((folder / FACTS).read_text())
    except (OSError, ValueError, RecursionError):
        return f"has no readable {FACTS}"
    proved = isinstance(facts, dict) and "family" in facts and isinstance(facts.get("format"), int)
    return "" if proved else f"has a {FACTS} that is not of a surrogate"


SURROGATE = FolderKind("a surrogate", _doubt_surrogate)


def load_notes(folder: str | Path) -> dict[str, Any]:
    """Return the notes that were saved with a surrogate. Raises as ``load_surrogate``."""
    notes = _facts(Path(folder)).get("notes")
    return notes if isinstance(notes, dict) else {}


def load_surrogate(folder: str | Path) -> SurrogateModel:
    """Read a surrogate. The directory is not trusted: only plain numbers are taken from it.

    Raises:
        CheckpointError: If a file is missing, damaged, or of another format; names it.
    """
    folder = Path(folder)
    facts = _facts(folder)
    weights = folder / "weights.safetensors"
    rebuild: dict[str, Callable[[dict[str, Any], dict[str, np.ndarray]], SurrogateModel]] = {
        "boosting": _rebuild_boosting,
        "message_passing": _rebuild_message_passing,
    }
    family = facts.get("family")
    if family not in rebuild:
        raise CheckpointError(
            f"{folder / 'surrogate.json'}: the family is {family!r}; known are "
            f"{', '.join(rebuild)}. Use the version of layerdag that wrote it."
        )
    try:
        arrays = load_arrays(read_whole(weights, error=CheckpointError))
        return rebuild[family](facts["config"], arrays)
    except (
        *(SafetensorError, KeyError, TypeError, ValueError, IndexError, RuntimeError),
        *(AttributeError, OverflowError),
    ) as error:
        raise CheckpointError(
            f"{folder}: the surrogate is damaged ({type(error).__name__}: {error}); fit it again."
        ) from None


def _facts(folder: Path) -> dict[str, Any]:
    """Return the checked content of ``surrogate.json``."""
    path = folder / "surrogate.json"
    if not path.is_file():
        raise CheckpointError(
            f"{path}: there is no such file; give the directory of a fitted surrogate."
        )
    try:
        facts = json.loads(read_parsed(path, CheckpointError))
    except (ValueError, RecursionError):
        raise CheckpointError(f"{path}: is no JSON; fit the surrogate again.") from None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise CheckpointError(
            f"{path}: is not of surrogate format {FORMAT}; use the version of layerdag that wrote "
            "it, or fit it again."
        )
    return facts


def _sizes(config: Mapping[str, Any]) -> GraphSizes:
    """Return the sizes, with counts bounded so that a file cannot ask for all memory."""
    attributes = tuple(int(k) for k in config["sizes"]["attributes"])
    edge_types = int(config["sizes"]["edge_types"])
    if not attributes or not all(0 < k <= 1_000_000 for k in (*attributes, edge_types)):
        raise ValueError("sizes out of bounds")
    return GraphSizes(attributes=attributes, edge_types=edge_types)


def _scale(config: Mapping[str, Any]) -> TargetScale:
    scale = config["scale"]
    numbers = (float(scale[name]) for name in ("mean", "std", "low", "high"))
    return TargetScale(bool(scale["log"]), *numbers)


def _rebuild_boosting(config: dict[str, Any], arrays: dict[str, np.ndarray]) -> SurrogateModel:
    """Return boosted trees after checking that every child and column exists."""
    trees, nodes = arrays["left"].shape
    columns = {name: arrays[name] for name in ("feature", "threshold", "left", "right", "value")}
    if any(column.shape != (trees, nodes) for column in columns.values()):
        raise ValueError("arrays differ in shape")
    for name in ("left", "right"):
        if not ((columns[name] >= 0) & (columns[name] < nodes)).all():
            raise ValueError(f"'{name}' names a node that does not exist")
    depth = int(config["depth"])
    if not 0 <= depth <= nodes or not (columns["feature"] >= 0).all():
        raise ValueError("depth or feature out of bounds")
    return BoostedTrees(
        sizes=_sizes(config),
        scale=_scale(config),
        start=float(config["start"]),
        depth=depth,
        feature_TM=columns["feature"],
        threshold_TM=columns["threshold"],
        left_TM=columns["left"],
        right_TM=columns["right"],
        value_TM=columns["value"],
    )


def _rebuild_message_passing(
    config: dict[str, Any], arrays: dict[str, np.ndarray]
) -> SurrogateModel:
    """Return the network with its weights; a missing or misshapen weight raises RuntimeError."""
    import torch

    from layerdag.surrogates._message_passing import MessagePassingSurrogate, NetworkSettings
    from layerdag.surrogates._network import MessagePassingNetwork

    settings = NetworkSettings(**config["settings"])
    if not (0 < int(settings.width) <= 4096 and 0 < int(settings.rounds) <= 64):
        raise ValueError("width or rounds out of bounds")
    sizes = _sizes(config)
    network = MessagePassingNetwork(sizes, int(settings.width), int(settings.rounds))
    network.load_state_dict({name: torch.from_numpy(value) for name, value in arrays.items()})
    network.eval()
    return MessagePassingSurrogate(sizes, _scale(config), settings, network)
