"""A similarity report as a table to read and as plain data to save."""

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from layerdag.evaluation.metrics import Declaration, SimilarityRow

if TYPE_CHECKING:
    from layerdag.evaluation._similarity import SimilarityReport


def as_table(report: "SimilarityReport") -> str:
    """Return one line per metric: the figure, that of real training graphs, and their ratio."""
    names = ("metric", "generated", "real", "ratio", "95 %", "")
    rows = [names, *(_cells(row) for row in report.rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(names) - 1)]
    lines = [
        f"{report.generated} generated graphs and {report.train} real training graphs, each "
        f"against {report.test} real test graphs; a ratio of 1 is as near as real graphs are"
    ]
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:], strict=True)]
        lines.append("  ".join((*cells, row[-1])).rstrip())
    return "\n".join(lines)


def as_plain(report: "SimilarityReport") -> dict[str, Any]:
    """Return the report as JSON-serializable data, a number that is not finite as None."""
    return {field.name: _plain(getattr(report, field.name)) for field in fields(report)}


def _cells(row: SimilarityRow) -> tuple[str, ...]:
    """Return the cells of one metric; a metric that failed says why in the last one."""
    note = row.generated.error or row.metric.goal.value + " is better"
    interval = row.ratio_interval
    between = "" if interval is None else f"[{_number(interval.low)}, {_number(interval.high)}]"
    values = (row.generated.value, row.reference.value, row.ratio)
    return (row.metric.name, *map(_number, values), between, note)


def _number(value: float | None) -> str:
    """Return three significant digits, a dash for no number."""
    return "-" if value is None or not math.isfinite(value) else f"{value:.3g}"


def _plain(value: object) -> object:
    """Return nested data without enums, tuples and numbers that JSON does not have."""
    if isinstance(value, Declaration):
        return _plain(value.to_dict())
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, Enum):
        return value.value
    return None if isinstance(value, float) and not math.isfinite(value) else value
