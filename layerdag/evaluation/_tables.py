"""A similarity report as a table to read and as plain data to save."""

import math
from dataclasses import asdict
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from layerdag.evaluation._similarity import SimilarityReport, SimilarityRow


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
    plain = _plain(asdict(report))
    assert isinstance(plain, dict)
    return plain


def _cells(row: "SimilarityRow") -> tuple[str, ...]:
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
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, Enum):
        return value.value
    return None if isinstance(value, float) and not math.isfinite(value) else value
