"""Losses under shadow models in one file per model, so that a stopped audit goes on."""

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from layerdag._runtime import (
    LOCK,
    FolderKind,
    atomic_path,
    locked,
    require_replaceable,
    strangers,
    track,
    write_text,
)

TARGET = "target.json"
_READ_ME = "README.txt"
_WARNING = (
    "This folder stays with the owner of the graphs. It holds how likely each real graph is under\n"
    "shadow models of an audit (layerdag audit --shadows). It may be deleted; then they are\n"
    "trained again.\n"
)


@dataclass(frozen=True, eq=False)
class ShadowModel:
    """What is kept of a shadow model.

    Attributes:
        loss_K: Nats per node of the scored graphs; NaN where it cannot express one.
        steps: Optimizer steps that it was trained for, 0 if unknown.
        seconds: That training it took.
    """

    loss_K: np.ndarray
    steps: int = 0
    seconds: float = 0.0


def kept_models(
    folder: Path,
    count: int,
    size: int,
    trained: Callable[[int, Path], ShadowModel],
    tell: Callable[[int, ShadowModel], None] = lambda *_: None,
) -> list[ShadowModel]:
    """Return shadow models from their files, and train those that have none.

    Args:
        folder: Of the files, which is there.
        count: Number of models.
        size: Number of scored graphs.
        trained: Takes the number of a model and a folder for it, which is removed afterwards: no
            weights of shadow models are kept.
        tell: Is told of each model.
    """
    models = []
    for shadow in track(range(count), "training shadow models", count):
        file = folder / f"{shadow:05d}.npz"
        model = _read(file, size)
        if model is None:
            model = _trained(file, shadow, trained)
        tell(shadow, model)
        models.append(model)
    return models


def _read(file: Path, size: int) -> ShadowModel | None:
    """Return a model from its file; None, and no file, if it is damaged."""
    if not file.is_file():
        return None
    try:
        with np.load(file, allow_pickle=False) as held:
            facts = held["facts"] if "facts" in held else np.zeros(2)
            model = ShadowModel(held["loss"], int(facts[0]), float(facts[1]))
        if model.loss_K.shape == (size,):
            return model
    except (OSError, ValueError, KeyError, EOFError, IndexError):
        pass
    file.unlink()
    return None


def _trained(file: Path, shadow: int, train: Callable[[int, Path], ShadowModel]) -> ShadowModel:
    """Return a model that is trained now, and write its file."""
    path = file.with_suffix(".run")
    shutil.rmtree(path, ignore_errors=True)
    try:
        model = train(shadow, path)
    finally:
        shutil.rmtree(path, ignore_errors=True)
    facts = np.array([model.steps, model.seconds])
    with atomic_path(file) as draft, draft.open("wb") as stream:
        np.savez(stream, allow_pickle=False, loss=model.loss_K, facts=facts)
    return model


@contextlib.contextmanager
def held_folder(path: Path, target: Mapping[str, object]) -> Iterator[Path]:
    """Hold a folder of losses for this process; those of another audit in it are discarded.

    Args:
        path: The folder, made if missing.
        target: What the losses depend on, as plain data.

    Raises:
        UsageError: If it holds anything else, or is in use.
    """
    wanted = json.dumps(dict(target), indent=1) + "\n"
    with locked(path.with_name(f".{path.name}.lock"), guarded=path):
        require_replaceable(path, _SHADOWS, overwrite=True)
        if path.is_dir() and _noted(path) != wanted:
            shutil.rmtree(path)
        path.mkdir(parents=True, exist_ok=True)
        write_text(path / TARGET, wanted)
        write_text(path / _READ_ME, _WARNING)
        yield path


def _noted(folder: Path) -> str:
    """Return what the losses in a folder depend on."""
    file = folder / TARGET
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""


def _doubt(folder: Path) -> str:
    """Return why a folder is not provably one of shadow models, or ""."""
    if not (folder / TARGET).is_file():
        return f"has no {TARGET} of an audit"
    return strangers(folder, _is_ours)


def _is_ours(name: str) -> bool:
    stem, _, ending = name.partition(".")
    of_model = stem.isdecimal() and ending in ("npz", "run")
    return of_model or name in (TARGET, _READ_ME, LOCK) or name.startswith(".")


_SHADOWS = FolderKind("the shadow models of an audit", _doubt)
