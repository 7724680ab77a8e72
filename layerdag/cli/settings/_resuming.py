"""``layerdag train resume=RUN`` alone: the run's own settings, with the user's on top."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from layerdag._runtime import flattened
from layerdag.cli.settings._places import config_dir
from layerdag.cli.settings._run_file import read_run_file
from layerdag.training import LAST, RUN_FILE, run_of

_GROUPS = ("data", "model")
# What says how to start, not what to train.
_OF_THE_CALL = ("out", "resume", "init", "overwrite", "dry_run", "experiment")


def with_own_settings(overrides: Sequence[str]) -> list[str]:
    """Return the words of ``train`` with the settings of the run to resume before the user's own.

    Later words win. Without ``resume=...``, or where the run kept no settings, the words stay as
    they are.
    """
    run = next((w.partition("=")[2] for w in overrides if re.match(r"\+{0,2}resume=", w)), "null")
    if run.strip("'\"") in ("", "null") or "," in run:
        return list(overrides)
    settings = _kept(run_of(Path(run.strip("'\""))))
    given = {override.lstrip("+~").partition("=")[0] for override in overrides}
    chosen = [
        f"{group}={settings[group]['name']}"
        for group in _GROUPS
        if group not in given and _is_option(group, settings.get(group))
    ]
    kept = {k: v for k, v in settings.items() if k not in _OF_THE_CALL and k not in given}
    values = flattened(kept)
    leaves = [f"++{key}={_word(value)}" for key, value in values.items() if key not in given]
    return [*chosen, *leaves, *overrides]


def _kept(directory: Path) -> dict[str, Any]:
    """Return the settings that a run kept; of one that Python code started, its checkpoint's."""
    if (directory / RUN_FILE).is_file():
        return read_run_file(directory)
    try:
        kept = json.loads((directory / LAST / "config.json").read_text(encoding="utf-8"))["run"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}  # what is missing is reported when the checkpoint is read
    return kept if isinstance(kept, dict) and "training" in kept else {}


def _is_option(group: str, settings: object) -> bool:
    """Return whether a group of settings names one of the files of its group."""
    name = settings.get("name") if isinstance(settings, Mapping) else None
    return isinstance(name, str) and (config_dir() / group / f"{name}.yaml").is_file()


def _word(value: Any) -> str:
    """Return a value as Hydra's grammar of overrides writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ",".join(map(_word, value)) + "]"
    if isinstance(value, str):
        # Inside quotes a backslash is plain unless a quote follows it.
        return "'" + re.sub(r"(\\*)('|$)", _escaped, value) + "'"
    return repr(value)


def _escaped(end: "re.Match[str]") -> str:
    """Return backslashes before a quote, or before the end, doubled, and the quote escaped."""
    return end[1] * 2 + ("\\'" if end[2] else "")
