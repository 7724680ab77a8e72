"""Label files: what is known of each graph of a folder, by name."""

import csv
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from layerdag._runtime import read_parsed, write_text
from layerdag.datasets import SPLITS, Split
from layerdag.datasets.schema import LABEL
from layerdag.errors import DataError
from layerdag.graph import Condition

NAME, SPLIT = "name", "split"
STEP_TIMES = ".steps.json"
"""Ending of the file with the measured step times of a job, behind the prefix of its traces."""


@dataclass(frozen=True)
class Labels:
    """The content of a label file.

    Attributes:
        conditions: Conditions by name of the graph.
        splits: Split by name of the graph, where the file says.
    """

    conditions: Mapping[str, Mapping[str, Condition]]
    splits: Mapping[str, Split]

    def with_folders(self) -> "Labels":
        """Return the labels with a second name each, that of a graph in a folder called like it.

        So ``sample-00000`` also names ``sample-00000/sample-00000``, as samples are written.
        """
        inside = {name: f"{name}/{name.rpartition('/')[2]}" for name in self.conditions}
        return Labels(
            {inside[name]: values for name, values in self.conditions.items()}
            | {**self.conditions},
            {inside[name]: split for name, split in self.splits.items()} | {**self.splits},
        )


def read_labels(path: str | Path) -> Labels:
    """Read a label file.

    CSV has a header with a column ``name``; JSON is ``{name: value}`` or ``{name: {condition:
    value}}``. A column ``split`` holds train, val or test; every other one is a condition, a
    number where every value of it is one, else a category. Empty cells are unknown.

    Raises:
        DataError: If the file is missing or of another form; names the line or graph.
    """
    path = Path(path)
    data = read_parsed(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: the label file cannot be read ({error}).") from None
    rows = _json_rows(path, text) if path.suffix.lower() == ".json" else _csv_rows(path, text)
    splits = {
        name: _split(path, name, row.pop(SPLIT)) for name, row in rows.items() if SPLIT in row
    }
    numeric = _numeric_columns(rows)
    conditions = {
        name: {key: float(value) if key in numeric else value for key, value in row.items()}
        for name, row in rows.items()
    }
    return Labels(conditions, splits)


def _csv_rows(path: Path, text: str) -> dict[str, dict[str, str]]:
    """Return the cells that are not empty, by name and column."""
    reader = csv.DictReader(text.splitlines())
    if not reader.fieldnames or NAME not in reader.fieldnames:
        raise DataError(
            f"{path}: the first line must name the columns, one of them '{NAME}', such as "
            f"'{NAME},{LABEL}'; found {reader.fieldnames}."
        )
    rows: dict[str, dict[str, str]] = {}
    for number, row in enumerate(reader, start=2):
        if None in row or None in row.values():
            raise DataError(f"{path}: line {number} has not as many cells as the first line.")
        name = _new(path, row.pop(NAME), rows)
        rows[name] = {column: cell for column, cell in row.items() if cell.strip()}
    return rows


def _json_rows(path: Path, text: str) -> dict[str, dict[str, str]]:
    """Return the values as text, by name and condition."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is no JSON ({error}).") from None
    if not isinstance(data, dict):
        raise DataError(f"{path}: must hold an object with a graph's name for each value.")
    rows: dict[str, dict[str, str]] = {}
    for name, value in data.items():
        cells = value if isinstance(value, dict) else {LABEL: value}
        if not all(isinstance(cell, str | int | float) for cell in cells.values()):
            raise DataError(f"{path}: graph '{name}' has a value that is no number and no string.")
        rows[name] = {str(k): str(v) for k, v in cells.items()}
    return rows


def _new(path: Path, name: str, rows: Mapping[str, object]) -> str:
    """Return the name, or raise DataError if it occurs twice."""
    if name in rows:
        raise DataError(f"{path}: graph '{name}' occurs twice; keep one line for each.")
    return name


def _split(path: Path, name: str, word: str) -> Split:
    """Return the split that a word names."""
    for split in SPLITS:
        if word.strip() == split:
            return split
    raise DataError(
        f"{path}: graph '{name}' is of split '{word}'; write one of {', '.join(SPLITS)}."
    )


def _numeric_columns(rows: Mapping[str, Mapping[str, str]]) -> set[str]:
    """Return the columns all of whose values are finite numbers."""
    columns = {key for row in rows.values() for key in row}
    return {
        key for key in columns if all(_is_number(row[key]) for row in rows.values() if key in row)
    }


def _is_number(text: str) -> bool:
    """Return whether a text is a finite number."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def write_step_times(prefix: str | Path, seconds: Sequence[float], ranks: int) -> Path:
    """Write measured step times beside the traces of a job, as ``PREFIX.steps.json``.

    Args:
        prefix: Of the traces.
        seconds: Wall time of each measured step, the slowest rank of each; at least one.
        ranks: Number of ranks.
    """
    path = Path(f"{prefix}{STEP_TIMES}")
    document = {
        "step_time_s": {
            "min": min(seconds),
            "median": statistics.median(seconds),
            "repeats": list(seconds),
        },
        "ranks": ranks,
        "measured": "wall time of later steps, without profiler; slowest rank of each",
    }
    write_text(path, json.dumps(document, indent=1) + "\n")
    return path


def read_step_time(path: str | Path) -> float:
    """Return the least of the step times that ``write_step_times`` wrote, in seconds.

    Raises:
        DataError: If the file holds none.
    """
    try:
        least = json.loads(read_parsed(path))["step_time_s"]["min"]
        is_number = isinstance(least, int | float) and not isinstance(least, bool)
        if is_number and math.isfinite(least) and least > 0:
            return float(least)
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise DataError(f"{path}: holds no measured step time; collect the trace again.")
