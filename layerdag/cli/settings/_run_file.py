"""What a run keeps of its settings: all of them for resuming, those without paths to be shared.

A checkpoint is made to be handed on, so its ``config.json`` names no path of the machine it was
trained on. Resuming needs the data again: ``run.json`` in the run's folder, beside the checkpoints
and never inside one, holds every setting, paths relative to the run's folder.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from layerdag._runtime import write_text
from layerdag.errors import CheckpointError, DataError
from layerdag.training import RUN_FILE

_NOTICE = (
    "Private: names paths of this machine, for 'layerdag train resume=...'. "
    "Share the checkpoint folders, not this file."
)
# Settings of a data set that are paths, and settings that only say where a run lies.
_DATA_PATHS = ("folder", "labels")
_PLACES = ("out", "resume", "init")


def public_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run without any path; of labels and owners the bare name is kept."""
    public = {name: _public(value) for name, value in config.items() if name not in _PLACES}
    data = config.get("data")
    if isinstance(data, Mapping):
        kept = {k: _public(v) for k, v in data.items() if k not in _DATA_PATHS}
        labels = data.get("labels")
        public["data"] = {**kept, "labels": Path(labels).name} if labels else kept
    privacy = config.get("privacy")
    if isinstance(privacy, Mapping) and privacy.get("owners"):
        public["privacy"] = {**privacy, "owners": Path(str(privacy["owners"])).name}
    return public


def _public(value: Any) -> Any:
    """Return a setting without the texts in it that are absolute paths."""
    if isinstance(value, Mapping):
        return {name: _public(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_public(inner) for inner in value]
    is_path = isinstance(value, str) and (os.path.isabs(value) or value.startswith("~"))
    return None if is_path else value


def write_run_file(
    directory: Path,
    config: Mapping[str, Any],
    substitutes: Mapping[str, Mapping[str, str]] | None = None,
) -> None:
    """Write every setting of a run to its ``run.json``, which only its owner may read.

    Args:
        directory: Of the run.
        config: All settings.
        substitutes: New word -> private word that it stands for, by attribute or condition.
    """
    data = dict(config.get("data") or {})
    for name in _DATA_PATHS:
        if data.get(name):
            data[name] = os.path.relpath(os.path.realpath(data[name]), os.path.realpath(directory))
    settings = {k: v for k, v in config.items() if k not in _PLACES} | {"data": data}
    file = directory / RUN_FILE
    content = {"notice": _NOTICE, "config": settings, "words": dict(substitutes or {})}
    _write_for_the_owner(file, json.dumps(content, indent=1) + "\n")


@contextlib.contextmanager
def run_file_if_taken_up(directory: Path) -> Iterator[None]:
    """Put the run's ``run.json`` back if its checkpoint does not fit the settings written to it.

    Otherwise settings that cannot go on with a run would be those of the next attempt.
    """
    file = directory / RUN_FILE
    before = file.read_text(encoding="utf-8") if file.is_file() else None
    try:
        yield
    except CheckpointError:
        if before is not None:
            _write_for_the_owner(file, before)
        raise


def _write_for_the_owner(file: Path, text: str) -> None:
    """Write a file that nobody else may read."""
    write_text(file, text)
    file.chmod(0o600)


def read_run_file(directory: Path) -> dict[str, Any]:
    """Return the settings that ``write_run_file`` wrote, paths relative to the working folder.

    Raises:
        DataError: If there is no such file, or it is damaged.
    """
    file = directory / RUN_FILE
    try:
        config = json.loads(file.read_text(encoding="utf-8"))["config"]
        data = dict(config["data"])
        for name in _DATA_PATHS:
            if data.get(name):
                data[name] = os.path.relpath(directory.resolve() / str(data[name]))
        return {**config, "data": data}
    except OSError as error:
        raise DataError(
            f"{file}: cannot be read ({error.strerror}); give the settings of the run again."
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{file}: is damaged ({error!r}); give the settings of the run again."
        ) from None
