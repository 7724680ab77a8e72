#!/usr/bin/env python
"""Collect the embedded corpus again: run every planned training step, measure, trace, pack.

    python data/make_corpus.py                 # everything, about half an hour on two cores
    python data/make_corpus.py --limit 20      # a few runs, to try it out

Interrupted, it continues where it stopped; delete the folder of raw runs to start over. Ranks are
processes on this machine that talk through gloo, one thread each, started once a world size.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "collect"))

from pack import describe, pack, write_examples  # noqa: E402  (the collection's modules are scripts, not a package)
from plan import RunPlan, corpus_plan  # noqa: E402

ATTEMPTS = 3
QUIET = {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR", "KINETO_LOG_LEVEL": "99"}


def missing(plans: Sequence[RunPlan], raw: Path) -> list[RunPlan]:
    """Return the runs of which a rank has not stored its result."""
    todo = []
    for plan in plans:
        folder = raw / plan.run
        if all((folder / f"{rank}.json").exists() for rank in range(plan.world_size)):
            (folder / "done").touch()
        else:
            todo.append(plan)
    return todo


def run_workers(plans: Sequence[RunPlan], world_size: int, raw: Path) -> None:
    """Start one process per rank, which together go through ``plans``; wait for their end."""
    names = ",".join(plan.run for plan in plans)
    command = [sys.executable, "-W", "ignore", str(HERE / "collect" / "worker.py")]
    command += ["--world-size", str(world_size), "--folder", str(raw), "--only", names]
    (raw / f"store{os.getpid()}").unlink(missing_ok=True)
    with (raw / f"log{world_size}.txt").open("a") as log:
        ranks = [
            subprocess.Popen(
                [*command, "--rank", str(rank)], env={**os.environ, **QUIET}, stdout=log, stderr=log
            )
            for rank in range(world_size)
        ]
        for process in ranks:
            process.wait()


def main() -> int:
    """Collect what is missing and pack the corpus."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--raw", type=Path, default=HERE / "raw", help="folder of the raw runs")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the corpus")
    parser.add_argument("--limit", type=int, help="collect only so many runs, spread over the plan")
    args = parser.parse_args()
    args.raw.mkdir(parents=True, exist_ok=True)
    plans = corpus_plan()
    if args.limit:
        plans = plans[:: max(1, len(plans) // args.limit)]
    for world_size in sorted({plan.world_size for plan in plans}):
        for _ in range(ATTEMPTS):
            todo = [p for p in missing(plans, args.raw) if p.world_size == world_size]
            if todo:
                print(f"{world_size} rank(s): {len(todo)} runs to collect", flush=True)
                run_workers(todo, world_size, args.raw)
    left = missing(plans, args.raw)
    records = pack(plans, args.raw, args.out)
    write_examples(records, args.out, args.out / "examples")
    print(describe(records))
    if left:
        print(f"{len(left)} runs failed, see the logs in {args.raw}: {[p.run for p in left]}")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
