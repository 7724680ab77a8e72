"""``run.json``: the settings of a run, for resuming it.

A checkpoint is made to be handed on, so its ``config.json`` names no path of the machine it was
trained on. Resuming needs the data again: ``run.json`` in the run's folder, beside the checkpoints
and never inside one, holds every setting, paths relative to the run's folder.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from layerdag.errors import DataError
from layerdag.runtime.files import write_text
from layerdag.runtime.json_shape import parse_json, plain_reason, require_shape
from layerdag.runtime.notes import Note
from layerdag.runtime.settings import flattened, grouped
from layerdag.training.checkpoint import LAST, RUN_FILE

_NOTICE = (
    "Private: names paths of this machine, for 'layerdag train resume=...'. "
    "Share the checkpoint folders, not this file."
)
# Settings of a data set that are paths, and settings that only say where a run lies.
_DATA_PATHS = ("folder", "labels")
_PLACES = ("out", "resume", "init")
# Settings of earlier versions, with the values that change nothing about the weights of a run.
_GONE: Mapping[str, Sequence[Any]] = {
    "training.cuda_graphs": (True, False),
    "data.blocks": ("whole",),
}


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
    if isinstance(value, Mapping):
        return {name: _public(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_public(inner) for inner in value]
    is_path = isinstance(value, str) and (os.path.isabs(value) or value.startswith("~"))
    return None if is_path else value


def run_record(
    directory: Path,
    config: Mapping[str, Any],
    substitutes: Mapping[str, Mapping[str, str]] | None = None,
    notes: Sequence[Note] = (),
) -> dict[str, Any]:
    """Return what the ``run.json`` of a run holds.

    Substitutes are new word -> private word, by attribute or condition.
    """
    data = dict(config.get("data") or {})
    for name in _DATA_PATHS:
        if data.get(name):
            data[name] = os.path.relpath(os.path.realpath(data[name]), os.path.realpath(directory))
    return {
        "notice": _NOTICE,
        "config": {k: v for k, v in config.items() if k not in _PLACES} | {"data": data},
        "words": dict(substitutes or {}),
        "notes": [note.to_json() for note in notes],
    }


def write_run_file(directory: Path, record: Mapping[str, Any]) -> None:
    """Write what ``run_record`` returned; only the owner of the run may read it."""
    file = directory / RUN_FILE
    write_text(file, json.dumps(record, indent=1) + "\n")
    file.chmod(0o600)


def read_run_file(directory: Path) -> dict[str, Any]:
    """Return the settings of ``run_record``, paths relative to the working folder.

    Raises:
        DataError: If there is no such file, or it is damaged.
    """
    file = directory / RUN_FILE
    try:
        content = parse_json(file.read_text(encoding="utf-8"))
        require_shape(content, {"config": {"data": {str: object}}})
        config, data = content["config"], dict(content["config"]["data"])
        for name in _DATA_PATHS:
            if data.get(name):
                data[name] = os.path.relpath(directory.resolve() / str(data[name]))
        return {**config, "data": data}
    except OSError as error:
        raise DataError(
            f"{file}: cannot be read ({error.strerror}); give the settings of the run again."
        ) from None
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{file}: is damaged ({plain_reason(error)}); give the settings of the run again."
        ) from None


def recorded_settings(directory: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the settings of a run, and names of recorded ones that are gone and had no effect.

    Those of a run that Python code started are its checkpoint's.
    """
    if (directory / RUN_FILE).is_file():
        kept: Any = read_run_file(directory)
    else:
        try:
            kept = parse_json((directory / LAST / "config.json").read_text(encoding="utf-8"))["run"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return {}, []  # what is missing is reported when the checkpoint is read
        if not isinstance(kept, dict) or "training" not in kept:
            return {}, []
    flat = flattened(kept)
    gone = [name for name, values in _GONE.items() if name in flat and flat[name] in values]
    return grouped({name: flat[name] for name in flat if name not in gone}), gone
