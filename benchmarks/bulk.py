"""Processor time and memory of many samples in parts: ``python benchmarks/bulk.py --num 2000``.

Prints one JSON object for each format: processor time of a job by stage (each without the stages
inside it), its nodes and bytes, and the peak memory of the process. Stages:

- conditions: drawing what the request leaves open,
- network: drawing codes of nodes and edges,
- running: of programs, their calls on fake tensors and for real,
- decoding: from codes to names and numbers,
- traces: the step of a program derived, or a job unfolded to one trace per rank (tar only),
- encoding: bytes of the files in a tar, or columns of a table,
- rest: writing, hashing, the index.

``--kill N`` starts ``layerdag sample``, kills it with SIGKILL when N parts are there and half a
second has passed, repeats the command, and compares the files with those of a run that was not
killed.
"""

import argparse
import contextlib
import functools
import hashlib
import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from layerdag.samples import table as tables
from layerdag.samples.manifest import SampleRun
from layerdag.sampling import generation as drawing
from layerdag.sampling.execution_check import ExecutionCheck
from layerdag.sampling.generated import SampleFiles
from layerdag.sampling.parts import PartSettings, write_parts
from layerdag.sampling.program_draws import ProgramDraws
from layerdag.sampling.settings import GenerationSettings
from layerdag.training.checkpoint import SAMPLED, checkpoint_path, load_checkpoint


class Stopwatch:
    """Processor time of functions, each without that of the functions inside it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._inside = [0.0]

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``function`` with its time added to the stage ``name``."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            self._inside.append(0.0)
            start = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                spent = time.process_time() - start
                self.seconds[name] += spent - self._inside.pop()
                self._inside[-1] += spent

        return call


@contextlib.contextmanager
def stages(watch: Stopwatch) -> Iterator[None]:
    """Time the stages inside the block."""
    from layerdag.schema.schema import GraphSchema

    owners: list[tuple[Any, str, str]] = [
        (drawing.Sampler, "requested", "conditions"),
        (drawing, "sample_checked", "network"),
        (ExecutionCheck, "add", "running"),
        (ProgramDraws, "_checked", "running"),
        (GraphSchema, "decode", "decoding"),
        (GraphSchema, "codes", "decoding"),
        (SampleFiles, "from_sample", "traces"),
        (SampleFiles, "encoded", "encoding"),
        (tables, "sample_table", "encoding"),
    ]
    before = [(owner, name, vars(owner)[name]) for owner, name, _ in owners]
    for owner, name, stage in owners:
        timed = watch.timed(stage, getattr(owner, name))
        bound = isinstance(vars(owner)[name], classmethod)
        setattr(owner, name, staticmethod(timed) if bound else timed)
    try:
        yield
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


def measured(args: argparse.Namespace, file_format: str, folder: Path) -> dict[str, Any]:
    """Write samples in this process and return the figures."""
    checkpoint = load_checkpoint(checkpoint_path(args.checkpoint))
    conditions = {"num_nodes": float(args.nodes)} if args.nodes else {}
    parts = PartSettings(file_format, part_size=args.part_size)
    warm = GenerationSettings(num=2, seed=1, conditions=conditions, best_of=args.best_of)
    write_parts(checkpoint, warm, folder / "warm", parts)
    settings = GenerationSettings(
        num=args.num, seed=args.seed, conditions=conditions, best_of=args.best_of
    )
    watch = Stopwatch()
    wall, start = time.monotonic(), time.process_time()
    with stages(watch):
        write_parts(checkpoint, settings, folder / "out", parts)
    spent, wall = time.process_time() - start, time.monotonic() - wall
    indices = list(SampleRun.read(folder / "out").parts_at(folder / "out"))
    each = {name: 1e3 * seconds / args.num for name, seconds in sorted(watch.seconds.items())}
    each["rest"] = 1e3 * spent / args.num - sum(each.values())
    return {
        "format": file_format,
        "num": args.num,
        "nodes_mean": sum(e["nodes"] for i in indices for e in i.samples) / args.num,
        "bytes_of_a_job": round(sum(index.num_bytes for index in indices) / args.num),
        "processor_ms_of_a_job": round(1e3 * spent / args.num, 2),
        "wall_ms_of_a_job": round(1e3 * wall / args.num, 2),
        "stages_ms": {name: round(value, 2) for name, value in each.items()},
        "peak_memory_MB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def killed(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Kill a run, repeat it, and compare it with one that was not killed."""
    words = [
        f"checkpoint={args.checkpoint}",
        *(f"num={args.num}", f"part_size={args.part_size}", f"seed={args.seed}", "format=tar"),
        *([f"+conditions.num_nodes={args.nodes}"] if args.nodes else []),
        *([f"best_of={args.best_of}"] if args.best_of else []),
    ]
    command = [sys.executable, "-m", "layerdag", "sample", *words]
    out, whole = folder / "killed", folder / "whole"
    with subprocess.Popen([*command, f"out={out}"], stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and len(list(out.glob("part-*.json"))) < args.kill:
            time.sleep(0.05)
        time.sleep(0.5)  # the next part is being filled
        process.send_signal(signal.SIGKILL)
    left = SampleRun.read(out).count_parts(out)
    for folder_of_run in (out, whole):
        subprocess.run(
            [*command, f"out={folder_of_run}"], check=True, stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
    return {
        "killed_after_parts": args.kill,
        "exit_code": process.returncode,
        "parts_kept": left,
        "parts": SampleRun.read(out).num_parts,
        "equal_to_a_whole_run": _hashes(out) == _hashes(whole),
    }


def _hashes(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def main() -> None:
    """Measure each format in this process, one after the other."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--checkpoint", default=SAMPLED)
    parser.add_argument("--num", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=0, help="requested; by default left open")
    parser.add_argument("--best-of", type=int, default=None, help="default: that of the model")
    parser.add_argument("--part-size", type=int, default=1000)
    parser.add_argument("--formats", nargs="*", default=["tar"], choices=["tar", "parquet"])
    parser.add_argument("--kill", type=int, default=None, metavar="PARTS")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for file_format in args.formats:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measured(args, file_format, Path(folder)), indent=1), flush=True)
    if args.kill is not None:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(killed(args, Path(folder)), indent=1))


if __name__ == "__main__":
    main()
