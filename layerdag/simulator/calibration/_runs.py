"""Measured steps: from a table beside one's traces, or from a corpus folder."""

import csv
import io
import math
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from layerdag._runtime import read_whole
from layerdag.errors import ConfigError
from layerdag.traces import INDEX, Workload, read_index, read_runs, read_workload

MAX_TABLE_BYTES = 16 << 20
_COLUMNS = ("workload", "seconds")


@dataclass(frozen=True, eq=False)
class MeasuredRun:
    """A step that was measured.

    Attributes:
        workload: Traces of all ranks.
        seconds: Wall time of the step without a profiler: of several repeats the least, which
            other work on the machine disturbs least.
        name: For messages.
    """

    workload: Workload
    seconds: float
    name: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.seconds < math.inf:
            raise ConfigError(
                f"run '{self.name}' took {self.seconds} s; a measured time must be positive."
            )

    @property
    def num_ranks(self) -> int:
        """Number of ranks."""
        return self.workload.num_ranks


def read_runs_of(
    path: str | Path, *, families: Collection[str] = (), ranks: Collection[int] = ()
) -> list[MeasuredRun]:
    """Read measured steps.

    Args:
        path: A corpus folder (with ``index.jsonl``), or a CSV with the columns ``workload``
            (prefix or folder of its traces, relative to the CSV) and ``seconds``; rows with the
            same workload are repeats, of which the least counts.
        families: Only runs of these model families of a corpus; empty for all.
        ranks: Only runs on so many ranks; empty for any number.

    Raises:
        ConfigError: If the file cannot be read or holds no run that was asked for; names the line.
        TraceError: If a trace cannot be read.
    """
    path = Path(path)
    if path.is_dir():
        found = _of_corpus(path, families, ranks)
    elif families:
        raise ConfigError(f"{path}: families are those of a corpus folder; a table has none.")
    else:
        found = [run for run in _of_table(path) if not ranks or run.num_ranks in ranks]
    if not found:
        raise ConfigError(f"{path}: holds no run of those that were asked for.")
    return found


def _of_corpus(
    folder: Path, families: Collection[str], ranks: Collection[int]
) -> list[MeasuredRun]:
    if not (folder / INDEX).is_file():
        raise ConfigError(
            f"{folder}: has no {INDEX}; give the folder of a corpus, or a CSV with the columns "
            "workload and seconds."
        )
    records = [
        record
        for record in read_index(folder)
        if (not families or record.family in families) and (not ranks or record.world_size in ranks)
    ]
    return [
        MeasuredRun(run.workload(), run.record.step_time_s_min, run.record.run)
        for run in read_runs(folder, records)
    ]


def _of_table(path: Path) -> list[MeasuredRun]:
    text = read_whole(path, MAX_TABLE_BYTES, ConfigError).decode("utf-8-sig", errors="replace")
    table = csv.DictReader(io.StringIO(text))
    if not set(_COLUMNS) <= set(table.fieldnames or ()):
        raise ConfigError(
            f"{path}: needs the columns workload and seconds; found "
            f"{', '.join(table.fieldnames or ()) or 'none'}."
        )
    least: dict[str, float] = {}
    for row in table:
        try:
            prefix, seconds = str(row["workload"]), float(row["seconds"])
        except (TypeError, ValueError):
            raise ConfigError(
                f"{path}: line {table.line_num} states no number of seconds ({row['seconds']!r})."
            ) from None
        least[prefix] = min(seconds, least.get(prefix, math.inf))
    return [
        MeasuredRun(read_workload(path.parent / prefix), seconds, prefix)
        for prefix, seconds in least.items()
    ]
