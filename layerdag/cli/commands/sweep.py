"""``layerdag sweep``: many workloads on many clusters."""

import argparse
import sys
from collections import Counter
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from layerdag.cli.printing import print_figures
from layerdag.errors import UsageError

if TYPE_CHECKING:
    from layerdag.simulator.sweep import SweepRow


SUMMARY = "Simulate many workloads on many clusters; speed-ups and Pareto front."
EXAMPLE = (
    "  layerdag sweep sweep.yml --out results.csv --plot results.png --processes 2\n"
    "  with sweep.yml:\n"
    "    workloads: {gpt: runs/gpt/workload}\n"
    "    systems: {ring: ring.json, direct: direct.json}\n"
    "    networks: {slow: slow.yml, fast: fast.yml}\n"
    "    compute: [reference, h100]\n"
    "    costs: {slow: 1.0, fast: 2.5}"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("sweep", help="YAML file; paths in it are relative to it")
    parser.add_argument("--out", required=True, metavar="FILE", help="results, .csv or .parquet")
    parser.add_argument("--plot", metavar="FILE", help="bars of all makespans, .png or .svg")
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="worker processes")
    parser.add_argument("--ray", metavar="ADDRESS",
        help='run on a Ray cluster instead: "auto", "host:port" or "ray://host:port"; its machines '
        "need layerdag and the same files under the same paths")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Run what is not in the journal beside ``--out`` yet, then write and print the tables."""
    from layerdag.runtime.files import file_lock, require_name
    from layerdag.runtime.terminal import track
    from layerdag.simulator.run import NOT_MODELED
    from layerdag.simulator.sweep import (
        draw,
        in_processes,
        pareto_front,
        read_sweep,
        run_on_ray,
        run_sweep,
        speed_ups,
        write_rows,
    )

    if args.processes < 1:
        raise UsageError(f"--processes is {args.processes}; it must be at least 1.")
    require_name(args.out, (".csv", ".parquet"))
    if args.plot:
        require_name(args.plot, (".png", ".svg"))
    points = read_sweep(args.sweep)
    run_all = partial(run_on_ray, args.ray) if args.ray else partial(in_processes, args.processes)
    out = Path(args.out)
    with file_lock(out.with_name(f".{out.name}.lock"), guarded=out):
        found = run_sweep(points, f"{args.out}.journal.jsonl", run_all)
        rows = list(track(found, "simulating", total=len(points)))
    rows.sort(key=_name)
    write_rows(rows, args.out)
    if args.plot:
        draw(rows, args.plot)
    gains, front = speed_ups(rows), pareto_front(rows)
    failed = [row for row in rows if row.error]
    figures = {
        "rows": [asdict(row) for row in rows],
        "speed_ups": {row.key: gain for row, gain in gains},
        "pareto_front": [row.key for row in front],
    }
    lines = [
        f"{gain:>8.2f}x {row.makespan_ns:>15} ns  {_name(row)}"
        for row, gain in sorted(gains, key=lambda entry: (entry[0].workload, -entry[1]))
    ]
    if any(row.cost for row in rows):
        lines += ["", "Pareto front of cost and makespan"]
        lines += [f"{row.cost:>9.2f} {row.makespan_ns:>15} ns  {_name(row)}" for row in front]
    lines += [f"failed: {_name(row)}: {row.error}" for row in failed]
    print_figures(args.json, figures, lines)
    for note, count in Counter(note for row in rows for note in row.notes.splitlines()).items():
        print(f"note: {note} ({count:,} of {len(rows):,} rows)", file=sys.stderr)
    print(f"not modeled: {'; '.join(NOT_MODELED)}", file=sys.stderr)
    return 1 if failed else 0


def _name(row: "SweepRow") -> str:
    names = [row.workload, row.system, row.network, row.compute, row.congestion]
    names += [row.group_collectives] if row.group_collectives != "hierarchical" else []
    return " | ".join(names)
