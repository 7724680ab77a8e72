"""Numbers that are asked of sampled programs, against those that they have.

    python benchmarks/program_conditions.py --num 40 --out FILE.json

Each number is asked for alone of programs drawn at the defaults, and counted on the program, or on
its derived and simulated step. A miss is |reached / asked - 1|; programs without such a size, and
those that no step can be derived of, are counted apart.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import layerdag as ld
from layerdag.errors import LayerdagError
from layerdag.programs.forward_program import Program
from layerdag.programs.targets import Targets, solve_targets

ASKED: dict[str, dict[str, Any]] = {
    "depth": {"depth": 12},
    "width": {"width": 512},
    "batch": {"batch": 24},
    "parameters": {"parameters": 50e6},
    "flops": {"flops": 1e12},
    "step_time": {"step_time": 0.02},
    "step_time, data=8": {"step_time": 0.02, "plan": {"data": 8}},
}


def row(programs: list[Program], asked: dict[str, Any]) -> dict[str, Any]:
    """Return the misses of one number."""
    misses, without, refused = [], 0, 0
    begin = time.process_time()
    for program in programs:
        try:
            (found,) = solve_targets(program, Targets(**asked)).reached
        except LayerdagError:
            refused += 1
            continue
        if found.exists:
            misses.append(found.miss)
        else:
            without += 1
    return {
        "asked": asked, "of": len(misses), "without_such_a_size": without, "refused": refused,
        "exact": float(np.mean(np.array(misses) == 0)) if misses else None,
        "median_miss": float(np.median(misses)) if misses else None,
        "p90_miss": float(np.quantile(misses, 0.9)) if misses else None,
        "processor_seconds_per_program": round((time.process_time() - begin) / len(programs), 2),
    }  # fmt: skip


def main() -> None:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--num", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    programs = [sample.program for sample in ld.sample("programs", args.num, args.seed)]
    rows: dict[str, Any] = {"samples": args.num, "seed": args.seed}
    for name, asked in ASKED.items():
        rows[name] = row(programs, asked)
        text = json.dumps(rows, indent=1)
        if args.out:
            args.out.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
