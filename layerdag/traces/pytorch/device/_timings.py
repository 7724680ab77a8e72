"""Measured start and duration of operators, by RecordFunction handle."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from layerdag._runtime import read_parsed, write_text
from layerdag.errors import TraceError


@dataclass(frozen=True)
class Timings:
    """Start and duration of each operator of one rank.

    Attributes:
        of: RecordFunction handle -> (start, duration), both in nanoseconds.
        source: File name for messages.
    """

    of: Mapping[int, tuple[int, int]]
    source: str = "<memory>"


def read_durations(path: str | Path) -> Timings:
    """Read a table ``{"cols": ["rf_id", "ts_us", "dur_us", ...], "rows": [...]}``.

    Raises:
        TraceError: If the file is missing or not such a table.
    """
    text = read_parsed(path, TraceError)
    try:
        table = json.loads(text)
        columns = {name: at for at, name in enumerate(table["cols"])}
        handle, start, length = columns["rf_id"], columns["ts_us"], columns["dur_us"]
        of = {
            row[handle]: (round(row[start] * 1000), round(row[length] * 1000))
            for row in table["rows"]
        }
    except (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError) as error:
        raise TraceError(
            f"{path} is no table of durations ({error}); give a JSON object with 'cols' "
            "(rf_id, ts_us, dur_us) and 'rows'."
        ) from error
    return Timings(of, str(path))


def write_durations(timings: Timings, path: str | Path) -> None:
    """Write a table that `read_durations` reads."""
    rows = [[rf_id, start / 1000, length / 1000] for rf_id, (start, length) in timings.of.items()]
    write_text(path, json.dumps({"cols": ["rf_id", "ts_us", "dur_us"], "rows": rows}))
