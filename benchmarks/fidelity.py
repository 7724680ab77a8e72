"""How faithfully imported traces replay, by source: one command, one table.

    python benchmarks/fidelity.py DATA > docs/explanation/fidelity.md
    python benchmarks/fidelity.py DATA --json

Replays every single-process trace and every profile with GPU activity of the reference data with
its measured durations and explicit delays (`layerdag.traces`), and counts the structures
of each SPMD run.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from replay import replay

from layerdag.errors import TraceError
from layerdag.runtime.reading import read_whole
from layerdag.runtime.terminal import track
from layerdag.traces.pytorch.importer import ImportResult, import_host, import_pytorch
from layerdag.traces.pytorch.kineto import Timings


@dataclass(frozen=True)
class Row:
    """One replayed trace."""

    source: str
    file: str
    nodes: int
    joined_fraction: float
    measured_ms: float
    error: float
    delay_share: float


def row_of(source: str, path: Path, result: ImportResult) -> Row:
    """Replay an imported trace."""
    done = replay(result.trace)
    return Row(
        source,
        path.name,
        result.trace.num_nodes,
        result.joined_fraction,
        done.measured_ns / 1e6,
        done.error,
        done.delay_share,
    )


def read_durations(path: Path) -> Timings:
    """Read durations of the reference data: ``{"cols": ["rf_id", "ts_us", "dur_us"], "rows"}``."""
    rows = json.loads(read_whole(path, error=TraceError))["rows"]
    return Timings({row[0]: (round(row[1] * 1000), round(row[2] * 1000)) for row in rows})


def collected(folder: Path) -> Iterator[Row]:
    """Yield a row for each single-process trace of the collected set."""
    for path in track(sorted(folder.glob("ws1*.et.json.gz")), "collected"):
        timings = read_durations(path.with_name(path.name.replace(".et.", ".dur.")))
        yield row_of("collected, CPU, one process", path, import_host(path, timings))


def profiles(folder: Path) -> Iterator[Row]:
    """Yield a row for each profile with device activity."""
    manifest = json.loads((folder / "manifest.json").read_text())
    kineto = [row for row in manifest if row["kind"] == "kineto"]
    for row in track(kineto, "profiles"):
        path = folder / row["file"]
        try:
            yield row_of(f"{row['source']}, GPU", path, import_pytorch(None, path))
        except TraceError as error:
            print(f"refused: {error}", file=sys.stderr)


def spmd(folder: Path) -> tuple[int, int]:
    """Return how many SPMD runs of the collected set there are, and how many have one structure."""
    structures: dict[str, set[bytes]] = {}
    paths = [path for path in folder.glob("ws[24]*.et.json.gz") if "_pp" not in path.name]
    for path in track(sorted(paths), "SPMD"):
        trace = import_host(path).trace
        columns = (trace.data_deps.ptr_N1, trace.data_deps.values, trace.ctrl_deps.values)
        content = b"".join(c.tobytes() for c in columns) + "\n".join(trace.names()).encode()
        structures.setdefault(path.name.rsplit("_r", 1)[0], set()).add(content)
    return len(structures), sum(len(found) == 1 for found in structures.values())


def table(rows: Iterable[Row], runs: tuple[int, int]) -> str:
    """Return the page with one line a source."""
    by_source: dict[str, list[Row]] = {}
    for row in rows:
        by_source.setdefault(row.source, []).append(row)
    lines = [
        "# Fidelity of the importers",
        "",
        "Made by `python benchmarks/fidelity.py FOLDER > docs/explanation/fidelity.md`. A trace is",
        "replayed along its dependencies with measured durations; idle time that no dependency",
        "explains is kept as explicit delays. A zero error says that no dependency is false and",
        "nothing is lost, not that the trace predicts other machines. Beside it is the share of",
        "delay: Python between two operators, launch latency, profiler overhead.",
        "",
        "| source | traces | nodes, median | joined, median | error, median | error, 90 % "
        "| error, worst | delay, median |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for source, found in by_source.items():
        error = np.array([row.error for row in found])
        lines.append(
            f"| {source} | {len(found)} | {np.median([r.nodes for r in found]):.0f} "
            f"| {np.median([r.joined_fraction for r in found]):.1%} | {np.median(error):.3%} "
            f"| {np.quantile(error, 0.9):.3%} | {error.max():.3%} "
            f"| {np.median([r.delay_share for r in found]):.0%} |"
        )
    lines += ["", f"SPMD runs whose ranks all have one structure: {runs[1]} of {runs[0]}."]
    return "\n".join(lines)


def main() -> int:
    """Print the table, or every row as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="folder with 'collected' and 'traces'")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = [*collected(args.data / "collected"), *profiles(args.data / "traces")]
    runs = spmd(args.data / "collected")
    if args.json:
        print(json.dumps({"rows": [asdict(row) for row in rows], "spmd": runs}))
    else:
        print(table(rows, runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
