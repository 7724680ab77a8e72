"""Labels that lie beside traces: label files, lists of runs, step times that were measured."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from layerdag._runtime import read_parsed
from layerdag.datasets.files import STEP_TIMES, read_labels, read_step_time
from layerdag.datasets.schema import LABEL
from layerdag.errors import DataError
from layerdag.graph import Condition

_NAMES = ("name", "run", "uid", "job", "trace")
_TIMES = (LABEL, "step_time_s_min", "step_time_s", "step_time")
_WORDS = ("family", "strategy", "phase")


@dataclass(frozen=True)
class FoundLabels:
    """What is known of each job.

    Attributes:
        conditions: Conditions by the name of the job.
        sources: Files they come from.
        faulty: Files that could not be used, with the reason.
    """

    conditions: Mapping[str, Mapping[str, Condition]] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    faulty: tuple[str, ...] = ()


def find_labels(folder: Path, given: Path | None = None) -> FoundLabels:
    """Return the labels of jobs below a folder.

    Args:
        folder: Of the traces.
        given: The label file; None looks for ``labels.csv``, ``labels.json``, lists of runs
            (``.jsonl``) and step times that ``layerdag collect`` measured.

    Raises:
        DataError: If the given file cannot be read.
    """
    if given is not None:
        return FoundLabels(_read(given, folder if given.is_relative_to(folder) else None), (
            given.name,
        ))  # fmt: skip
    found: dict[str, dict[str, Condition]] = {}
    sources, faulty = [], []
    for path in sorted(folder.rglob("*"), key=_rank_of_file):
        if _rank_of_file(path)[0] == 9 or not path.is_file():
            continue
        try:
            rows = _read(path, folder)
        except DataError as error:
            faulty.append(str(error))
            continue
        if rows:
            sources.append(path.relative_to(folder).as_posix())
        for name, row in rows.items():
            found.setdefault(name, {}).update(row)
    return FoundLabels(found, tuple(sources), tuple(faulty))


def _rank_of_file(path: Path) -> tuple[int, str]:
    """Return how much a file of labels counts, later ones win; 9 for other files."""
    order = 9
    if path.name.endswith(STEP_TIMES):
        order = 0
    elif path.suffix == ".jsonl":
        order = 1
    elif path.name in ("labels.csv", "labels.json"):
        order = 2
    return order, str(path)


def _read(path: Path, folder: Path | None) -> dict[str, dict[str, Condition]]:
    """Return the conditions in one file, by names below ``folder``."""
    if path.name.endswith(STEP_TIMES):
        rows: Mapping[str, Mapping[str, Condition]] = _measured(path)
    elif path.suffix == ".jsonl":
        rows = dict(_listed(path))
    else:
        rows = read_labels(path).conditions
    at = "" if folder is None else path.parent.relative_to(folder).as_posix()
    prefix = "" if at in ("", ".") else f"{at}/"
    return {f"{prefix}{name}": dict(row) for name, row in rows.items() if row}


def _measured(path: Path) -> dict[str, dict[str, Condition]]:
    """Return the least step time that was measured for one job."""
    return {path.name.removesuffix(STEP_TIMES): {LABEL: read_step_time(path)}}


def _listed(path: Path) -> Iterator[tuple[str, dict[str, Condition]]]:
    """Yield name and conditions of each line that names a job and its time."""
    for line in read_parsed(path).decode("utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(row, dict):
            continue
        name = next((str(row[key]) for key in _NAMES if isinstance(row.get(key), str)), None)
        if name is not None:
            yield name, _conditions(row)


def _conditions(row: Mapping[str, Any]) -> dict[str, Condition]:
    """Return the label and what kind of job it is."""
    time = next((n for key in _TIMES if (n := _number(row.get(key))) is not None), None)
    conditions: dict[str, Condition] = {
        key: row[key] for key in _WORDS if isinstance(row.get(key), str)
    }
    return conditions if time is None else {**conditions, LABEL: time}


def _number(value: object) -> float | None:
    """Return a positive finite number, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value > 0 else None
