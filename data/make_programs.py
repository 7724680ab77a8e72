#!/usr/bin/env python
"""Record the forward program of each training run of the corpus, and pack them.

    python data/make_programs.py --raw FOLDER --out data/programs --part 0 --parts 2

Plans and measured times are those of data/index.jsonl and data/further, by the name of the run.
Interrupted, it continues. Without ``--part`` it packs what is recorded.
"""

import argparse
import json
import lzma
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "collect"))


def main() -> int:
    """Record a part of the runs, or pack all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--raw", type=Path, required=True, help="folder of the programs")
    parser.add_argument("--out", type=Path, required=True, help="folder of the packed programs")
    parser.add_argument("--part", type=int, help="which runs to record")
    parser.add_argument("--parts", type=int, default=1)
    args = parser.parse_args()
    args.raw.mkdir(parents=True, exist_ok=True)
    return pack(args.raw, args.out) if args.part is None else record(args)


def record(args: argparse.Namespace) -> int:
    """Record one part of the runs."""
    import torch
    from plan import corpus_plan, further_plans
    from programs import program_of

    torch.set_num_threads(1)
    plans = [p for p in (*corpus_plan(), *further_plans()) if p.phase == "training"]
    failed = 0
    for plan in plans[args.part :: args.parts]:
        path = args.raw / f"{plan.run}.program.json"
        if path.exists():
            continue
        try:
            program_of(plan).save(path)
        except Exception as error:  # one run must not stop the others; all are counted
            failed += 1
            print(f"{plan.run}: {error}", file=sys.stderr, flush=True)
    print(f"{failed} runs failed")
    return 1 if failed else 0


def pack(raw: Path, out: Path) -> int:
    """Write the programs of each family as one compressed file of JSON lines."""
    out.mkdir(parents=True, exist_ok=True)
    lines: dict[str, list[str]] = {}
    for path in sorted(raw.glob("*.program.json")):
        data = json.loads(path.read_text())
        family = data["name"].split("_")[1]
        lines.setdefault(family, []).append(json.dumps(data, separators=(",", ":")) + "\n")
    for family, programs in lines.items():
        content = "".join(programs).encode()
        (out / f"{family}.jsonl.xz").write_bytes(lzma.compress(content, preset=9))
        print(f"{family}: {len(programs)} programs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
