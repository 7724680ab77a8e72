#!/usr/bin/env python
"""Collect further runs to train on: four times the corpus, no structure of which occurs again.

    python data/make_further.py --raw FOLDER --out data/further --ranks 1 2

None is for validation or tests, which stay those of the corpus. Interrupted, it continues.
"""

import argparse
import sys
from pathlib import Path

from make_corpus import ATTEMPTS, missing, run_workers
from pack import pack
from plan import further_plans


def main() -> int:
    """Collect what is missing and pack it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--raw", type=Path, required=True, help="folder of the raw runs")
    parser.add_argument("--out", type=Path, required=True, help="folder of the packed runs")
    parser.add_argument(
        "--ranks", type=int, nargs="+", default=[1, 2, 4], help="only runs of so many ranks"
    )
    args = parser.parse_args()
    args.raw.mkdir(parents=True, exist_ok=True)
    plans = [plan for plan in further_plans() if plan.world_size in args.ranks]
    for world_size in sorted(set(args.ranks)):
        for _ in range(ATTEMPTS):
            todo = [p for p in missing(plans, args.raw) if p.world_size == world_size]
            if todo:
                print(f"{world_size} rank(s): {len(todo)} runs to collect", flush=True)
                run_workers(todo, world_size, args.raw)
    left = missing(plans, args.raw)
    records = pack(plans, args.raw, args.out, split="train")
    print(f"{len(records)} runs packed, {len(left)} failed")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
