"""What a sweep says: the rows as CSV or Parquet, speed-ups, the Pareto front, a picture."""

import csv
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

from layerdag._runtime import atomic_path
from layerdag.errors import UsageError
from layerdag.simulator.sweep._run import SweepRow

_COLUMNS = tuple(column.name for column in fields(SweepRow))


def write_rows(rows: Sequence[SweepRow], path: str | Path) -> None:
    """Write rows as Parquet (a name that ends in .parquet; needs pyarrow) or CSV.

    Raises:
        UsageError: If Parquet is asked for and pyarrow is not installed.
    """
    path = Path(path)
    with atomic_path(path) as draft:
        if path.suffix == ".parquet":
            _write_parquet(rows, draft)
            return
        with draft.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(asdict(row) for row in rows)


def _write_parquet(rows: Sequence[SweepRow], path: Path) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise UsageError(
            "Parquet needs the package pyarrow, which is not installed; write .csv instead."
        ) from None
    parquet.write_table(pyarrow.Table.from_pylist([asdict(row) for row in rows]), path)


def speed_ups(rows: Sequence[SweepRow]) -> list[tuple[SweepRow, float]]:
    """Return each complete row with its speed-up over the slowest of the same workload."""
    complete = [row for row in rows if not row.error and row.makespan_ns > 0]
    slowest: dict[str, int] = {}
    for row in complete:
        slowest[row.workload] = max(slowest.get(row.workload, 0), row.makespan_ns)
    return [(row, slowest[row.workload] / row.makespan_ns) for row in complete]


def pareto_front(rows: Sequence[SweepRow]) -> list[SweepRow]:
    """Return the complete rows that no other row of their workload beats in cost and makespan.

    A row is beaten by one that is no worse in both and better in one. Ordered by workload and cost.
    """
    front = []
    complete = [row for row in rows if not row.error]
    for row in complete:
        beaten = any(
            other.workload == row.workload
            and other.cost <= row.cost
            and other.makespan_ns <= row.makespan_ns
            and (other.cost, other.makespan_ns) != (row.cost, row.makespan_ns)
            for other in complete
        )
        if not beaten:
            front.append(row)
    return sorted(front, key=lambda row: (row.workload, row.cost, row.makespan_ns))


def draw(rows: Sequence[SweepRow], path: str | Path) -> None:
    """Draw the makespan of each complete point as bars, one group a workload."""
    from matplotlib.figure import Figure

    complete = sorted((r for r in rows if not r.error), key=lambda r: (r.workload, r.makespan_ns))
    figure = Figure(figsize=(7, 1 + 0.28 * len(complete)), layout="constrained")
    axes = figure.add_subplot()
    labels = [f"{r.workload} | {r.system} | {r.network} | {r.compute}" for r in complete]
    axes.barh(range(len(complete)), [r.makespan_ns / 1e6 for r in complete])
    axes.set_yticks(range(len(complete)), labels, fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("makespan, ms")
    kind = Path(path).suffix.removeprefix(".") or "png"
    with atomic_path(path) as draft:
        figure.savefig(draft, format=kind)
