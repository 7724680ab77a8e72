"""Training and sampling on a GPU, beside the processor of the same machine: one command, one JSON.

    python benchmarks/gpu.py --out outputs/gpu.json
    python benchmarks/gpu.py --tests               # and the tests that are marked "gpu"
    python benchmarks/gpu.py --cpu                 # in small, on the processor alone

It ends within ``--seconds``, six minutes by default. Every part runs in a process of its own with a
limit of its own; what fails or takes too long is a row with an ``error``. The file is written again
after every row, so that it is whole whenever the machine is taken away. A table is printed last.

Rows of training come from ``layerdag.training.loop.train``, those of sampling from
``DAGModel.sample`` and ``layerdag.sample``. In training, ``kernels`` and ``waits`` are operators
that the host dispatched (benchmarks/operator_counts.py); ``launches`` and ``stream_waits`` are
calls of CUDA that the profiler saw, and ``kernel_ms`` is the time in which kernels ran. The MFU is
the rate of matrix products of a step, counted by torch, over the data sheet's peak in bfloat16, or
over a large product on the same device where the device is unknown.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from device_rows import (
    Row,
    machine,
    same_graphs,
    sample_command,
    sample_jobs,
    sample_positions,
    sample_random,
    train_corpus,
    train_random,
)
from parts import Measurement, Part, run_parts

from layerdag.cli.main import limit_openmp_spin
from layerdag.runtime.files import write_text

ROOT = Path(__file__).resolve().parents[1]
BATCHES = (2_000, 16_000, 64_000, 256_000)
WIDE = {"width": 512, "depth": 6}
WIDER = {"width": 1024, "depth": 12}
ALL_PREFIXES = {"budget": 0}
SINGLE = {"sampling_precision": "float32"}


def gpu_parts(tests: bool) -> list[Part]:
    """Return the parts for a GPU and the processor beside it."""
    on_gpu = partial(_training, device="cuda", seconds=2.0)
    on_cpu = partial(_training, device="cpu", seconds=3.0)
    drawn = partial(_sampling, nodes=90)
    jobs = partial(_jobs, num=64, max_nodes=600)
    tested = Measurement({"what": "tests"}, partial(gpu_tests, 190))
    return [
        Part("training", 100, [
            Measurement({"what": "machine"}, machine),
            *(on_gpu("fast", batch_nodes=n) for n in BATCHES),
            on_gpu("fast", arguments=WIDE, batch_nodes=64_000),
        ]),
        Part("corpus", 60, [_corpus("cuda", 8.0), _corpus("cpu", 8.0)]),
        Part("samples", 80, [_samples(num=64, device=device) for device in ("cpu", "cuda")]),
        Part("cpu", 40, [on_cpu("fast", batch_nodes=n) for n in (2_000, 16_000)]),
        *([Part("tests", 200, [tested])] if tests else []),
        Part("wider", 40, [on_gpu("fast", arguments=WIDER, batch_nodes=64_000)]),
        Part("sampling", 90, [
            *(drawn("fast", graphs=n, device="cuda") for n in (64, 1024, 4096)),
            *(_shipped(num=n, device="cuda") for n in (32, 128, 1024)),
        ]),
        Part("jobs", 60, [jobs(best_of=n, device="cuda") for n in (1, None)]),
        Part("sampling, cpu", 90, [
            _shipped(num=32, device="cpu"),
            *(drawn("fast", graphs=n, device="cpu") for n in (64, 1024)),
        ]),
        Part("same", 40, [_same(best_of=n, num=32, max_nodes=60) for n in (1, 8)]),
        Part("reference", 40, [
            on_gpu("reference", arguments=ALL_PREFIXES, batch_nodes=1_200),
            drawn("reference", arguments=SINGLE, graphs=64, nodes=40, device="cuda"),
            on_cpu("reference", arguments=ALL_PREFIXES, batch_nodes=1_200),
        ]),
        Part("jobs, cpu", 60, [jobs(best_of=n, device="cpu") for n in (1, None)]),
    ]  # fmt: skip


def cpu_parts() -> list[Part]:
    """Return the same parts in small, for one thread of a processor."""
    small = {"width": 32, "depth": 1}
    trained = partial(_training, device="cpu", seconds=0.1, nodes=50, batch_nodes=100)
    drawn = partial(_sampling, graphs=2, nodes=24, device="cpu")
    return [
        Part("machine", 20, [Measurement({"what": "machine"}, machine)], 1),
        Part("training", 20, [trained("fast", arguments=small)], 1),
        Part("sampling", 20, [drawn("fast", arguments=small)], 1),
        Part("shipped", 20, [_shipped(num=1, device="cpu", nodes=24)], 1),
        Part("reference", 20, [
            trained("reference", arguments=ALL_PREFIXES),
            drawn("reference", arguments=SINGLE),
        ], 1),
        Part("jobs", 20, [_jobs(num=2, max_nodes=24, best_of=1, device="cpu")], 1),
        Part("samples", 40, [_samples(num=2, device="cpu")], 1),
        Part("same", 20, [_same(best_of=1, num=2, max_nodes=24, device="cpu")], 1),
    ]  # fmt: skip


def _training(
    model: str, *, arguments: Mapping[str, Any] | None = None, **options: Any
) -> Measurement:
    """Return the row of training on random graphs."""
    arguments = arguments or {}
    label = {"what": "training", "model": model, "device": options["device"], **arguments}
    work = partial(train_random, model, arguments, **options)
    return Measurement({**label, "batch_nodes": options["batch_nodes"]}, work)


def _sampling(
    model: str, *, arguments: Mapping[str, Any] | None = None, **options: Any
) -> Measurement:
    """Return the row of sampling without training."""
    arguments = arguments or {}
    label = {"what": "sampling", "model": model, **arguments, **options}
    return Measurement(label, partial(sample_random, model, arguments, **options))


def _shipped(*, num: int, device: str, nodes: int = 60) -> Measurement:
    """Return the row of the shipped checkpoint's positions."""
    label = {"what": "shipped checkpoint", "model": "fast", "device": device, "num": num}
    return Measurement(label, partial(sample_positions, num=num, nodes=nodes, device=device))


def _corpus(device: str, seconds: float) -> Measurement:
    """Return the row of training on the corpus."""
    label = {"what": "training on the corpus", "model": "fast", "device": device}
    return Measurement(label, partial(train_corpus, device=device, seconds=seconds))


def _jobs(**options: Any) -> Measurement:
    """Return the row of whole jobs."""
    label = {"what": "jobs", "model": "fast", **options}
    return Measurement(label, partial(sample_jobs, **options))


def _samples(*, num: int, device: str) -> Measurement:
    """Return the row of what ``layerdag sample`` takes, from its start to the last file."""
    label = {"what": "layerdag sample", "model": "fast", "device": device, "num": num}
    return Measurement(label, partial(sample_command, num=num, device=device))


def _same(*, device: str = "cuda", **options: Any) -> Measurement:
    """Return the row of graphs that are the same on both devices."""
    label = {"what": "same graphs", "model": "fast", "device": device, **options}
    return Measurement(label, partial(same_graphs, device=device, **options))


def gpu_tests(seconds: float) -> Row:
    """Run the tests that are marked "gpu", so long at most."""
    # Warnings of libraries of other versions are no failures of a measurement.
    words = ["-m", "gpu", "-n", "0", "-W", "default", "-v", "-p", "no:cacheprovider"]
    # -P: the package is the installed one, not the folder beside this command.
    command = [sys.executable, "-P", "-m", "pytest", *words, "tests/integration/test_gpu.py"]
    with tempfile.TemporaryFile("w+") as shown:
        try:
            code = subprocess.run(
                command, cwd=ROOT, stdout=shown, stderr=subprocess.STDOUT, timeout=seconds
            ).returncode
            error = {"error": f"pytest ended with {code}"} if code else {}
        except subprocess.TimeoutExpired:
            error = {"error": f"not done in {seconds:g} s"}
        shown.seek(0)
        lines = shown.read().splitlines() or ["nothing was printed"]
    print("\n".join(lines), flush=True)
    if "passed" not in lines[-1]:
        error = error or {"error": "no test passed; they need a GPU that torch sees"}
    return {"summary": lines[-1], "tail": lines[-200:], **error}


class Results:
    """The rows so far, in a file that is whole at any time."""

    def __init__(self, file: Path) -> None:
        self.rows: list[Row] = []
        self._file, self._start = file, time.monotonic()
        file.parent.mkdir(parents=True, exist_ok=True)

    def add(self, row: Row) -> None:
        """Take a row and write the file."""
        self.rows.append(row)
        content = {"seconds": time.monotonic() - self._start, "rows": self.rows}
        write_text(self._file, json.dumps(content, indent=1) + "\n")
        print(line(row), flush=True)


COLUMNS = {
    "graphs_per_s": "graphs/s", "nodes_per_s": "nodes/s", "step_ms": "ms a step",
    "position_ms": "ms a position", "mfu": "MFU", "kernels": "kernels", "waits": "waits",
    "launches": "launches", "stream_waits": "stream waits", "kernel_ms": "ms of kernels",
    "peak_mb": "MB", "load_s": "s to load", "first_steps_s": "s to the first lines",
    "same_share": "the same", "summary": "", "error": "ERROR",
}  # fmt: skip
"""Figures of the table, and what they are called there."""


def line(row: Row) -> str:
    """Return a row of the table."""
    known = {*COLUMNS, "part", "tail", "row_s", "flops_per_node", "operators", "copies"}
    label = " ".join(
        f"{value}" if name in ("what", "model", "device") else f"{name}={value}"
        for name, value in row.items()
        if name not in known and not isinstance(value, float)
    )
    figures = ", ".join(
        f"{row[name]:.4g} {unit}" if isinstance(row[name], float) else f"{unit} {row[name]}".strip()
        for name, unit in COLUMNS.items()
        if name in row
    )
    return f"{label}: {figures}"


def main() -> int:
    """Measure, write the file, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("outputs/gpu.json"))
    parser.add_argument("--seconds", type=float, default=360, help="of everything together")
    parser.add_argument("--cpu", action="store_true", help="in small, on the processor alone")
    parser.add_argument("--tests", action="store_true", help="run the tests marked gpu, too")
    parser.add_argument("--parts", nargs="+", metavar="NAME", help="only these parts")
    options = parser.parse_args()
    parts = cpu_parts() if options.cpu else gpu_parts(options.tests)
    names = [part.name for part in parts]
    if unknown := sorted(set(options.parts or ()) - set(names)):
        parser.error(f"There is no part {unknown[0]!r}; known are {', '.join(names)}.")
    limit_openmp_spin()  # as `layerdag train` does; the processes below inherit it
    os.environ.setdefault("LAYERDAG_CACHE", "off")
    results = Results(options.out)
    chosen = [part for part in parts if not options.parts or part.name in options.parts]
    # Once a driver is initialized, as imports may do, a forked process cannot use it.
    run_parts(chosen, options.seconds, results.add, "fork" if options.cpu else "spawn")
    failed = sum("error" in row for row in results.rows)
    print(f"{len(results.rows)} rows, {failed} with an error, in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
