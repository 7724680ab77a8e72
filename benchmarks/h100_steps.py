"""How far measured steps of one H100 lie from those of ``--compute measured:h100 --host model``.

``python benchmarks/h100_steps.py RUNS.jsonl [--leave run|family|none] [--no-tables]``, or
``--profiles`` for device-busy time of profiles alone and joined with host traces, where
RUNS.jsonl and ``runs/`` beside it are as ``benchmarks/fit_kernels.py`` reads them. Kernels and host
are fitted to the runs that are not judged (``none``: the numbers that the package ships). Prints
median and 90th percentile of the relative error of device-busy time and of the step, and how often
the interval of device-busy time, which is to hold nine times in ten, does.
"""

import argparse
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from fit_kernels import Rows, collect, fit_all

from layerdag.simulator.cluster import Cluster
from layerdag.simulator.host_time import HOST_CALLS, HostCosts, with_host_model
from layerdag.simulator.measured_kernels import FittedKernels, MeasuredKernels
from layerdag.simulator.run import simulate
from layerdag.traces.pytorch.importer import import_host, import_pytorch, kernel_times
from layerdag.traces.trace import NodeType, Trace, Workload

FOLDS = 8
HOST_BOUND = 0.75


@dataclass
class Run:
    """A measured step: what was recorded, its trace, its kernels by family, its device time."""

    facts: dict[str, Any]
    trace: Trace
    rows: Rows
    busy_ns: int

    @property
    def step_ns(self) -> float:
        """Median of the steps that were timed without profiler."""
        return float(np.median(self.facts["step_times_s"])) * 1e9

    @property
    def counts(self) -> tuple[int, int]:
        """Operators and calls of the host."""
        return self.trace.num_nodes, int(self.trace.integers(HOST_CALLS)[0].sum())


def read(line: str, folder: Path) -> Run:
    """Read one run."""
    facts: dict[str, Any] = json.loads(line)
    rows: Rows = defaultdict(list)
    collect(facts, folder, rows)
    host, profile = (folder / f"{facts['run']}.{kind}.json.xz" for kind in ("host", "device"))
    return Run(facts, import_host(host).trace, rows, sum(kernel_times(host, profile)))


def fit_host(runs: list[Run]) -> HostCosts:
    """Fit the host's costs to the steps that wait for the host, by their relative error."""
    from scipy.optimize import nnls

    bound = [run for run in runs if run.busy_ns < HOST_BOUND * run.step_ns]
    table = np.array([run.counts for run in bound]) / np.array([[r.step_ns] for r in bound])
    weight, costs = np.ones(len(bound)), np.zeros(2)
    for _ in range(20):
        costs, _ = nnls(table * weight[:, None], weight)
        weight = 1 / np.sqrt(np.maximum(np.abs(table @ costs - 1), 0.03))
    return HostCosts(*costs.tolist())


def predicted(
    run: Run, fits: FittedKernels | None, host: HostCosts, tables: bool
) -> tuple[Any, bool]:
    """Return the simulated step, and whether the interval of device-busy time holds."""
    tf32 = run.facts["precision"] == "tf32"
    compute = MeasuredKernels("h100", tf32=tf32, tables=tables, fits=fits)
    workload = with_host_model(Workload(traces=(run.trace,)), host)
    cluster = Cluster.preset("small").with_ranks(1)
    rows = np.flatnonzero(run.trace.type_N == NodeType.COMP)
    _, low, high = compute.kernel_times(run.trace, rows).busy_us
    holds = low * 1000 <= run.busy_ns <= high * 1000
    return simulate(workload, cluster, compute=compute), holds


def judge_profiles(lines: list[str], folder: Path) -> None:
    """Print errors of device-busy time of kernels as profiles show them, fits as shipped."""
    for name in ("alone", "joined"):
        errors = []
        for facts in map(json.loads, lines):
            host, device = (
                folder / f"{facts['run']}.{kind}.json.xz" for kind in ("host", "device")
            )
            trace = import_pytorch(host if name == "joined" else None, device).trace
            on_device = (trace.type_N == NodeType.COMP) & (trace.integers("is_cpu_op")[0] == 0)
            rows = np.flatnonzero(on_device)
            busy_us = trace.integers("duration_ns")[0][rows].sum() / 1e3
            model = MeasuredKernels("h100", tf32=facts["precision"] == "tf32")
            errors.append(abs(model.kernel_times(trace, rows).busy_us[0] / busy_us - 1))
        told = f"median {np.median(errors):.1%}, p90 {np.quantile(errors, 0.9):.1%}"
        print(f"profiles {name}, device-busy time: {told}, {len(errors)} steps", flush=True)


def main() -> None:
    """Judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--leave", choices=("run", "family", "none"), default="family")
    parser.add_argument("--no-tables", action="store_true")
    parser.add_argument("--profiles", action="store_true")
    args = parser.parse_args()
    lines = args.runs.read_text().splitlines()
    if args.profiles:
        return judge_profiles(lines, args.runs.parent / "runs")
    runs = [read(line, args.runs.parent / "runs") for line in lines]
    order = np.random.default_rng(0).permutation(len(runs))
    fold_of = {
        "run": [int(order[at]) % FOLDS for at in range(len(runs))],
        "family": [run.facts["family"] for run in runs],
        "none": [0] * len(runs),
    }[args.leave]
    errors, held = [], []
    for fold in sorted(set(fold_of)):
        rest = [run for run, own in zip(runs, fold_of, strict=True) if own != fold]
        fits, host = None, HostCosts()
        if rest:
            rows: Rows = defaultdict(list)
            for run in rest:
                for key, measured in run.rows.items():
                    rows[key] += measured
            fits, host = FittedKernels("h100", fit_all(rows)), fit_host(rest)
        for run, own in zip(runs, fold_of, strict=True):
            if own == fold:
                result, holds = predicted(run, fits, host, not args.no_tables)
                busy = result.compute_ns[0] / run.busy_ns - 1
                step = result.makespan_ns / run.step_ns - 1
                errors.append((busy, step))
                held.append(holds)
                facts = run.facts
                name = f"{facts['run']} {facts['family']} {facts['phase']} {facts['precision']}"
                print(f"{name:42} busy {busy:+.1%} step {step:+.1%}", flush=True)
    for name, column in zip(("device-busy time", "step"), np.abs(np.array(errors)).T, strict=True):
        print(f"{name}: median {np.median(column):.1%}, p90 {np.quantile(column, 0.9):.1%}")
    print(f"device-busy time inside of its interval: {np.mean(held):.0%} of {len(held)}")
    print(f"host, all runs: {fit_host(runs)}")


if __name__ == "__main__":
    main()
