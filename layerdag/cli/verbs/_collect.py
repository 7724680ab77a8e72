"""``layerdag collect``: run a training script and keep the trace of one of its steps."""

import argparse
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from layerdag.errors import DataError, UsageError

SUMMARY = (
    "Run a training script and write the execution trace of one step, one file per rank. "
    "A step lasts from the end of one optimizer.step() to the end of the next."
)
EXAMPLE = (
    "  layerdag collect --out traces/mine train.py --epochs 1\n"
    "  layerdag collect --out traces/mine --nproc 2 train_ddp.py\n"
    "  torchrun --nproc-per-node 2 -m layerdag collect --out traces/mine train_ddp.py"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's flags."""
    parser.add_argument("script", type=Path, help="the training script (Python)")
    parser.add_argument(
        "args", nargs=argparse.REMAINDER, help="arguments of the script; '--' may stand before them"
    )
    parser.add_argument(
        "--out",
        default="trace",
        metavar="PREFIX",
        help="write PREFIX.<rank>.et and PREFIX.comm_group.json (default: %(default)s)",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace a workload that lies at PREFIX"
    )
    parser.add_argument(
        "--step",
        type=int,
        default=3,
        help="which step to trace; the ones before warm up (default: %(default)s)",
    )
    parser.add_argument("--nproc", type=int, default=1, help="start so many ranks with torchrun")
    parser.add_argument(
        "--keep-going",
        action="store_true",
        help="let the script run to its end instead of stopping it once the trace is written",
    )


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
    if args.args[:1] == ["--"]:
        args.args = args.args[1:]
    if "RANK" not in os.environ:
        from layerdag.traces import require_free_prefix

        require_free_prefix(args.out, overwrite=args.overwrite)
    if args.nproc > 1 and "RANK" not in os.environ:
        return _start_ranks(args)
    # Must be set before torch is imported: its observers announce themselves on standard error.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    from layerdag.cli import collect_step
    from layerdag.traces.pytorch import capture

    path, nodes = collect_step(
        args.script,
        args.args,
        partial(capture, args.out, overwrite=args.overwrite),
        args.step,
        args.keep_going,
    )
    print(f"{path}: {nodes} nodes")
    return 0


def _start_ranks(args: argparse.Namespace) -> int:
    """Start this command once a rank with torchrun's launcher, and wait."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(args.nproc), "-m", "layerdag", "collect"]
    command += ["--out", args.out, "--step", str(args.step)]
    command += ["--keep-going"] if args.keep_going else []
    command += ["--overwrite"] if args.overwrite else []
    # The launcher reports a failed rank with a traceback of its own; the rank's line says more.
    with subprocess.Popen(
        [*command, str(args.script), "--", *args.args],
        stderr=subprocess.PIPE,
        text=True,
        env={"OMP_NUM_THREADS": "1", **os.environ},
    ) as process:
        assert process.stderr is not None, "stderr is a pipe"
        said = [line for line in process.stderr if _is_wanted(line)]
    if process.returncode:
        told = [line for line in said if line.startswith("layerdag: error:")]
        reason = told[0].removeprefix("layerdag: error:").strip() if told else "".join(said[-1:])
        reason = reason.strip() or f"torchrun ended with code {process.returncode} without a word."
        raise DataError(f"{args.nproc} ranks of {args.script} failed: {reason}")
    sys.stderr.writelines(said)
    return 0


def _is_wanted(line: str) -> bool:
    """Return whether a line on standard error comes from the script or from layerdag."""
    return not line.startswith(("W1", "E1", "I1", "USDT:")) and "torch/distributed" not in line
