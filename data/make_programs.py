#!/usr/bin/env python
"""Record forward programs and pack them: of the corpus' training runs, or of public architectures.

    python data/make_programs.py --raw FOLDER --out data/programs --part 0 --parts 2
    python data/make_programs.py --corpus public --raw FOLDER --out data/programs/public --part 0

Plans and measured times of collected runs are those of data/index.jsonl and data/further, by the
name of the run. Public architectures need transformers, timm and torchvision; nothing is loaded
from elsewhere. Interrupted, it continues. Without ``--part`` it packs what is recorded.
"""

import argparse
import json
import lzma
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "collect"))


_MOST_BYTES = 6 << 30
"""Memory for a model; a larger one counts as failed."""


def main() -> int:
    """Record a part of the runs, or pack all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", choices=("collected", "public"), default="collected")
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

    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
    plans, program_of = _PLANS[args.corpus]()
    failed = 0
    for plan in plans[args.part :: args.parts]:
        path = args.raw / f"{plan.run}.program.json"
        if path.exists() or (args.raw / f"{plan.run}.failed").exists():
            continue
        try:
            program_of(plan).save(path)
        except Exception as error:  # one run must not stop the others; all are counted
            failed += 1
            (args.raw / f"{plan.run}.failed").write_text(f"{error}\n")
            print(f"{plan.run}: {error}", file=sys.stderr, flush=True)
    print(f"{failed} runs failed")
    return 1 if failed else 0


def _family(run: str) -> str:
    """Return the family in the name of a run, "0000_mlp_single_ws1" or "public_gpt_neo_00"."""
    if run.startswith("public_"):
        return run.removeprefix("public_").rpartition("_")[0]
    return run.split("_")[1]


def _collected() -> tuple[list[Any], Callable[[Any], Any]]:
    from plan import corpus_plan, further_plans
    from programs import program_of

    return [p for p in (*corpus_plan(), *further_plans()) if p.phase == "training"], program_of


def _public() -> tuple[list[Any], Callable[[Any], Any]]:
    from public import program_of, public_plans

    return list(public_plans()), program_of


_PLANS = {"collected": _collected, "public": _public}


def pack(raw: Path, out: Path) -> int:
    """Write the programs of each family as one compressed file of JSON lines."""
    from layerdag.graph.formats.program_json import program_graph
    from layerdag.programs.inference import ShapeInference

    out.mkdir(parents=True, exist_ok=True)
    inference, inexact = ShapeInference(), 0
    lines: dict[str, list[str]] = {}
    for path in sorted(raw.glob("*.program.json")):
        data = json.loads(path.read_text())
        # Sizes that hold by chance at the recorded widths alone would teach a generator mistakes.
        if not inference.runs(program_graph(data, str(path))):
            inexact += 1
            continue
        family = _family(data["name"])
        lines.setdefault(family, []).append(json.dumps(data, separators=(",", ":")) + "\n")
    for family, programs in lines.items():
        content = "".join(programs).encode()
        (out / f"{family}.jsonl.xz").write_bytes(lzma.compress(content, preset=9))
        print(f"{family}: {len(programs)} programs")
    print(f"{inexact} programs left out, which do not run with sizes that all differ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
