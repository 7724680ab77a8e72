#!/usr/bin/env python
"""Collect twins of runs of the corpus: the same on two ranks instead of four, or with more layers.

    python data/make_twins.py --raw FOLDER --out FOLDER

One run of a pair can be predicted from the other. Interrupted, it continues.
"""

import argparse
import sys
from pathlib import Path

from make_corpus import ATTEMPTS, missing, run_workers
from pack import pack
from plan import twin_plans


def main() -> int:
    """Collect what is missing and pack the twins."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--raw", type=Path, required=True, help="folder of the raw runs")
    parser.add_argument("--out", type=Path, required=True, help="folder of the packed twins")
    args = parser.parse_args()
    args.raw.mkdir(parents=True, exist_ok=True)
    plans = twin_plans()
    for world_size in (2, 1):
        for _ in range(ATTEMPTS):
            todo = [p for p in missing(plans, args.raw) if p.world_size == world_size]
            if todo:
                print(f"{world_size} rank(s): {len(todo)} runs to collect", flush=True)
                run_workers(todo, world_size, args.raw)
    left = missing(plans, args.raw)
    records = pack(plans, args.raw, args.out)
    print(f"{len(records)} twins packed, {len(left)} failed")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
