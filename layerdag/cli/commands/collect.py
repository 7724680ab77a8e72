"""``layerdag collect``: run a training script and keep the trace of one of its steps."""

import argparse
import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from layerdag.cli.printing import JSON, print_figures, print_json
from layerdag.errors import DataError, LayerdagError, UsageError
from layerdag.runtime.terminal import counted

if TYPE_CHECKING:
    from layerdag.capturing.running import Capture

SUMMARY = (
    "Run a training script and write the execution trace of one step, one file per rank. "
    "A step lasts from the end of one optimizer.step() to the end of the next."
)
EXAMPLE = (
    "  layerdag collect --out traces/mine train.py --epochs 1\n"
    "  layerdag collect --out traces/mine --nproc 2 train_ddp.py\n"
    "  layerdag collect --out traces/mine --sweep runs.txt train.py    # a line of runs.txt each\n"
    "  torchrun --nproc-per-node 2 -m layerdag collect --out traces/mine train_ddp.py"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's flags."""
    add = parser.add_argument
    add("script", type=Path, help="the training script (Python)")
    add("args", nargs=argparse.REMAINDER,
        help="arguments of the script; '--' may stand before them")  # fmt: skip
    add("--out", default="trace", metavar="PREFIX",
        help="write PREFIX.<rank>.et, PREFIX.comm_group.json and PREFIX.program.json (default: "
        "%(default)s)")  # fmt: skip
    add("--overwrite", action="store_true", help="replace the workload at PREFIX")
    add("--step", type=int, default=3,
        help="which step to trace; the ones before warm up (default: %(default)s)")  # fmt: skip
    add("--nproc", type=int, default=1, help="number of ranks to start with torchrun")
    add("--repeats", type=int, default=5, metavar="N",
        help="then measure N steps without the profiler and write their times as the label, "
        "PREFIX.steps.json; 0 for none (default: %(default)s)")  # fmt: skip
    add("--sweep", type=Path, metavar="FILE",
        help="run the script once for each line of FILE, which holds its arguments, and write "
        "PREFIX-<line>")  # fmt: skip
    add("--keep-going", action="store_true",
        help="let the script run to its end instead of stopping it once the trace is "
        "written")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Check the call, then run the script here or start one process per rank."""
    if not args.script.is_file():
        raise UsageError(f"{args.script} does not exist; give the path of a Python script.")
    if args.step < 2:
        raise UsageError(
            f"--step is {args.step}; a step begins when the one before ends: give 2 or more."
        )
    if args.nproc < 1:
        raise UsageError(f"--nproc is {args.nproc}; give the number of ranks, at least 1.")
    if args.repeats < 0:
        raise UsageError(f"--repeats is {args.repeats}; give 0 or more.")
    if args.args[:1] == ["--"]:
        args.args = args.args[1:]
    if args.sweep is not None:
        return _sweep(args)
    if "RANK" not in os.environ:
        from layerdag.traces.chakra.workload import require_free_prefix

        require_free_prefix(args.out, overwrite=args.overwrite)
        program = Path(f"{args.out}.program.json")
        if program.exists() and not args.overwrite:
            raise UsageError(
                f"{program}: a program lies there already, and that of the step would replace it; "
                "name another prefix, or allow it with --overwrite."
            )
        if args.nproc > 1:
            return _start_ranks(args)
    return _collect_here(args)


def _collect_here(args: argparse.Namespace) -> int:
    # Must be set before torch is imported: its observers announce themselves on standard error.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    from layerdag.capturing.running import capture, collect_step

    after = partial(_write_program, args.out)
    # What the script prints is no part of the JSON document.
    with contextlib.redirect_stdout(sys.stderr) if args.json else contextlib.nullcontext():
        found = collect_step(
            args.script,
            args.args,
            partial(capture, args.out, overwrite=args.overwrite, after=after),
            args.step,
            repeats=args.repeats,
            keep_going=args.keep_going,
        )
    times, ranks = list(found.step_times_s), found.world_size
    lines = [f"{found.path}: {counted(found.nodes, 'node')}"]
    if found.rank == 0 and args.repeats:
        lines.append(_label(args.out, times, ranks))
    figures = {"out": args.out, "ranks": ranks, "nodes": found.nodes, "step_times_s": times}
    if not args.json or found.rank == 0:
        print_figures(args.json, figures, lines)
    if ranks > 1:
        # Files are written. Threads of gloo that are alive when Python takes the script's objects
        # apart abort the process now and then ("terminate called without an active exception").
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    return 0


def _write_program(prefix: str, captured: "Capture", host: Path) -> None:
    from layerdag.programs.sources import program

    if captured.rank:
        return
    path = Path(f"{prefix}.program.json")
    path.unlink(missing_ok=True)
    try:
        found = program(host, name=Path(prefix).name)
    except Exception as error:  # the trace is worth more than its program
        kind = "" if isinstance(error, LayerdagError) else f"{type(error).__name__}: "
        told = kind + str(error).replace(str(host), "the step")
        print(f"{path}: not written, for the step has no program: {told}")
        return
    found.save(path)
    print(f"{path}: {len(found)} calls", *found.notes, sep="\n  ")


def _label(prefix: str, seconds: Sequence[float], ranks: int) -> str:
    import statistics

    from layerdag.graph.attributed_graph import write_step_times

    if not seconds:
        return "step time: not measured, for the script did no further steps"
    path = write_step_times(prefix, seconds, ranks)
    least, middle = min(seconds), statistics.median(seconds)
    return f"{path}: {least:.4g} s at least, {middle:.4g} s in the median of {len(seconds)} steps"


def _sweep(args: argparse.Namespace) -> int:
    """Collect one job for each line of a file; 1 if any of them failed."""
    try:
        lines = args.sweep.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--sweep: {args.sweep} cannot be read ({error}).") from None
    runs = []
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                if "\0" in line:
                    raise ValueError("holds a null byte")
                runs.append((number, line, shlex.split(line)))
            except ValueError as error:
                raise UsageError(
                    f"--sweep: {args.sweep}, line {number}: {str(error).lower()}; correct it."
                ) from None
    if not runs:
        raise UsageError(f"--sweep: {args.sweep} holds no line with arguments.")
    failed, figures = [], []
    for number, line, own in runs:
        out = f"{args.out}-{number}"
        print(f"{out}: {line.strip()}", flush=True, file=sys.stderr if args.json else sys.stdout)
        command = [sys.executable, "-m", "layerdag", "collect", "--nproc", str(args.nproc)]
        done = subprocess.run(
            [*command, *_words(args, out), *own],
            check=False,
            stdout=subprocess.PIPE if args.json else None,
        )
        if done.returncode:
            failed.append(out)
        elif args.json:
            figures.append(json.loads(done.stdout))
    if failed:
        raise DataError(
            f"{len(failed)} of {len(runs)} runs of {args.script} failed ({', '.join(failed[:5])}); "
            "what they said stands above."
        )
    if args.json:
        print_json(figures)
    return 0


def _words(args: argparse.Namespace, out: str) -> list[str]:
    """Return the words of a call of the verb that writes to ``out``."""
    words = ["--out", out, "--step", str(args.step), "--repeats", str(args.repeats)]
    words += ["--keep-going"] if args.keep_going else []
    words += ["--overwrite"] if args.overwrite else []
    words += [JSON] if args.json else []
    return [*words, str(args.script), "--", *args.args]


def _start_ranks(args: argparse.Namespace) -> int:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(args.nproc), "-m", "layerdag", "collect"]
    # The launcher reports a failed rank with a traceback of its own; the rank's line says more.
    with subprocess.Popen(
        [*command, *_words(args, args.out)],
        stderr=subprocess.PIPE,
        text=True,
        env={"OMP_NUM_THREADS": "1", **os.environ},
    ) as process:
        assert process.stderr is not None, "stderr is a pipe"
        said = [
            line
            for line in process.stderr
            if not (line.startswith(("W1", "E1", "I1", "USDT:")) or "torch/distributed" in line)
        ]
    if process.returncode:
        own = [line for line in said if line.startswith("layerdag: error:")]
        reason = (own[:1] or said[-1:] or [""])[0].removeprefix("layerdag: error:").strip()
        reason = reason or f"torchrun ended with code {process.returncode} without a word."
        raise DataError(f"{args.nproc} ranks of {args.script} failed: {reason}")
    sys.stderr.writelines(said)
    return 0
