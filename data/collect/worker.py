"""One rank of the collection: runs its share of every planned run and stores what it measured."""

import argparse
import contextlib
import gc
import gzip
import json
import os
import sys
import tempfile
import time
import traceback
from datetime import timedelta
from pathlib import Path

import torch
from plan import RunPlan, corpus_plan, further_plans, twin_plans
from steps import Step, build_step
from torch import distributed

from layerdag.capturing.running import record_raw
from layerdag.runtime.files import write_bytes, write_text
from layerdag.traces.pytorch.kineto import read_timings

WARM_UP = 3
MIN_REPEATS, MAX_REPEATS, SECONDS = 5, 10, 0.4
TIMEOUT = timedelta(seconds=60)


def collect(plan: RunPlan, rank: int, folder: Path) -> None:
    """Warm up, measure and trace one run; store the rank's raw trace and times under ``folder``."""
    step = build_step(plan, rank)
    for _ in range(WARM_UP):
        step()
    host = folder / f"{rank}.host.json"
    with tempfile.TemporaryDirectory() as scratch:
        profile = Path(scratch, "profile.json")
        with record_raw(host, profile):
            step()
        times_ns = dict(read_timings(profile).of)
        write_text(folder / f"{rank}.dur.json", json.dumps(times_ns))
    write_bytes(host.with_suffix(".json.gz"), gzip.compress(host.read_bytes(), 3))
    host.unlink()
    load = os.getloadavg()[0]
    about = {"step_times_s": measure(step, plan.world_size), "load": load}
    write_text(folder / f"{rank}.json", json.dumps(about))


def measure(step: Step, world_size: int) -> list[float]:
    """Return the wall time of repeated steps in seconds; all ranks do the same number."""
    begin = time.perf_counter()
    step()
    seconds = torch.tensor([time.perf_counter() - begin])
    if world_size > 1:
        distributed.all_reduce(seconds, distributed.ReduceOp.MAX)
    repeats = min(MAX_REPEATS, max(MIN_REPEATS, int(SECONDS / float(seconds))))
    times = []
    for _ in range(repeats):
        if world_size > 1:
            distributed.barrier()
        begin = time.perf_counter()
        step()
        times.append(round(time.perf_counter() - begin, 7))
    return times


def main() -> int:
    """Go through the runs of one world size; runs that are stored already are skipped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world-size", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--only", default="", help="names of the runs, separated by commas")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.world_size > 1:
        store = distributed.FileStore(str(args.folder / f"store{os.getppid()}"), args.world_size)
        distributed.init_process_group(
            "gloo", store=store, rank=args.rank, world_size=args.world_size, timeout=TIMEOUT
        )
    wanted = set(args.only.split(","))
    for plan in (*corpus_plan(), *twin_plans(), *further_plans()):
        if plan.run not in wanted:
            continue
        folder = args.folder / plan.run
        folder.mkdir(parents=True, exist_ok=True)
        print(plan.run, flush=True)
        try:
            collect(plan, args.rank, folder)
        except Exception:  # one run that fails must not end the others; it is tried again later
            traceback.print_exc()
        gc.collect()
    if args.world_size > 1:
        with contextlib.suppress(RuntimeError):
            distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
