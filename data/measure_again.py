#!/usr/bin/env python
"""Measure runs of four ranks, and their twins on two, once more: how far are repeats apart?

    python data/measure_again.py --session 1 --out data/again.jsonl

Appends a line for each run: its name, the session, the load of the machine when it ended, and the
wall time of each repeat (slowest rank) and its processor time (all ranks). No trace is taken.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "collect"))

import torch  # noqa: E402
from plan import RunPlan, corpus_plan, twin_plans  # noqa: E402  (scripts, not a package)
from steps import build_step  # noqa: E402
from torch import distributed  # noqa: E402

WARM_UP = 3
QUIET = {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}


def plans(world_size: int) -> list[RunPlan]:
    """Return the runs of four ranks of the corpus, or their twins on two."""
    if world_size == 4:
        return [plan for plan in corpus_plan() if plan.world_size == 4]
    return [plan for plan in twin_plans() if plan.run.endswith(".ws2")]


def repeats(plan: RunPlan, args: argparse.Namespace) -> tuple[list[float], list[float]]:
    """Return wall times of the slowest rank and processor times of all, in seconds."""
    step = build_step(plan, args.rank)
    for _ in range(WARM_UP):
        step()
    begin = time.perf_counter()
    step()
    once = torch.tensor([time.perf_counter() - begin])
    distributed.all_reduce(once, distributed.ReduceOp.MAX)
    count = min(args.most, max(args.least, int(args.seconds / float(once))))
    wall, processor = torch.zeros((2, count), dtype=torch.float64)
    for at in range(count):
        distributed.barrier()
        worked, begin = time.process_time(), time.perf_counter()
        step()
        wall[at] = time.perf_counter() - begin
        processor[at] = time.process_time() - worked
    distributed.all_reduce(wall, distributed.ReduceOp.MAX)
    distributed.all_reduce(processor)
    rounded = [[round(seconds, 7) for seconds in times.tolist()] for times in (wall, processor)]
    return rounded[0], rounded[1]


def work(args: argparse.Namespace) -> None:
    """Go through the runs as one rank; rank 0 writes."""
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", store=distributed.FileStore(args.store, args.world_size), rank=args.rank,
        world_size=args.world_size, timeout=timedelta(seconds=60),
    )  # fmt: skip
    for plan in plans(args.world_size):
        wall, processor = repeats(plan, args)
        if args.rank == 0:
            load = round(os.getloadavg()[0], 2)
            row = {"run": plan.run, "session": args.session, "load": load}
            row |= {"step_times_s": wall, "processor_s": processor}
            with args.out.open("a") as out:
                out.write(json.dumps(row) + "\n")
    distributed.destroy_process_group()


def main() -> int:
    """Start the ranks, first four, then two; or be one of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--session", type=int, required=True, help="number of this session")
    parser.add_argument("--out", type=Path, required=True, help="file that lines are added to")
    parser.add_argument("--seconds", type=float, default=0.25, help="of repeats of a run, about")
    parser.add_argument("--least", type=int, default=5, help="repeats of a run at least")
    parser.add_argument("--most", type=int, default=10, help="repeats of a run at most")
    for name, kind in (("rank", int), ("world-size", int), ("store", str)):
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank is not None:
        work(args)
        return 0
    failed = 0
    for world_size in (4, 2):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-W", "ignore", *sys.argv, "--store", f"{folder}/store"]
            command += ["--world-size", str(world_size), "--rank"]
            ranks = [
                subprocess.Popen([*command, str(rank)], env={**os.environ, **QUIET})
                for rank in range(world_size)
            ]
            failed += sum(process.wait() != 0 for process in ranks)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
