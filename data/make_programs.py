#!/usr/bin/env python
"""Record forward programs and pack them: of the corpus, of public architectures, of measured steps.

    python data/make_programs.py --raw FOLDER --out data/programs --part 0 --parts 2
    python data/make_programs.py --corpus public --raw FOLDER --out data/programs/public --part 0
    python data/make_programs.py --corpus h100 --runs RUNS --raw RAW --out OUT --part 0

Plans and measured times of collected runs are those of data/index.jsonl and data/further, by the
name of the run. Public architectures need transformers, timm and torchvision; nothing is loaded
from elsewhere. RUNS has steps measured on a GPU: runs.jsonl, and a raw host trace of each,
runs/RUN.host.json.xz; programs of training steps are packed with a file of what was measured.
Interrupted, it continues. Without ``--part`` it packs what is recorded.
"""

import argparse
import json
import lzma
import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass
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
    parser.add_argument("--corpus", choices=tuple(_PLANS), default="collected")
    parser.add_argument("--runs", type=Path, help="folder of measured steps (h100)")
    parser.add_argument("--raw", type=Path, required=True, help="folder of the programs")
    parser.add_argument("--out", type=Path, required=True, help="folder of the packed programs")
    parser.add_argument("--part", type=int, help="which runs to record")
    parser.add_argument("--parts", type=int, default=1)
    args = parser.parse_args()
    args.raw.mkdir(parents=True, exist_ok=True)
    if args.part is not None:
        return record(args)
    code = pack(args.raw, args.out, measured=args.corpus == "h100")
    if args.corpus == "h100":
        write_steps(args.runs, args.raw, args.out)
    return code


def record(args: argparse.Namespace) -> int:
    """Record one part of the runs."""
    import torch

    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
    plans, program_of = _PLANS[args.corpus](args)
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
    """Return the family in the name of a run: "0000_mlp_single_ws1", "public_gpt_neo_00"."""
    if run.startswith(("public_", "h100_")):
        return run.partition("_")[2].rpartition("_")[0]
    return run.split("_")[1]


def _collected(_: argparse.Namespace) -> tuple[list[Any], Callable[[Any], Any]]:
    from plan import corpus_plan, further_plans
    from programs import program_of

    return [p for p in (*corpus_plan(), *further_plans()) if p.phase == "training"], program_of


def _public(_: argparse.Namespace) -> tuple[list[Any], Callable[[Any], Any]]:
    from public import program_of, public_plans

    return list(public_plans()), program_of


@dataclass(frozen=True)
class _MeasuredRun:
    """A training step that was measured: its name here, its host trace, what runs.jsonl says."""

    run: str
    trace: Path
    facts: dict[str, Any]


def _measured_runs(runs: Path) -> list[_MeasuredRun]:
    every = [json.loads(line) for line in (runs / "runs.jsonl").read_text().splitlines()]
    return [
        _MeasuredRun(f"h100_{f['family']}_{f['run']}", runs / f"runs/{f['run']}.host.json.xz", f)
        for f in every
        if f["phase"] == "train"
    ]


def _measured(args: argparse.Namespace) -> tuple[list[Any], Callable[[Any], Any]]:
    import layerdag as ld

    return _measured_runs(args.runs), lambda run: ld.program(run.trace, name=run.run)


_PLANS = {"collected": _collected, "public": _public, "h100": _measured}


def write_steps(runs: Path, raw: Path, out: Path) -> None:
    """Write the plan of each program's step, and what was measured of it."""
    from layerdag.datasets.run_plans import MEASURED_OPTIMIZERS, STEPS

    lines = [
        json.dumps(
            {
                "run": run.run,
                "family": run.facts["family"],
                "settings": {"optimizer": MEASURED_OPTIMIZERS[run.facts["optimizer"]]},
                "precision": run.facts["precision"],
                "step_times_s": run.facts["step_times_s"],
                "peak_bytes": run.facts["peak_bytes"],
            }
        )
        for run in _measured_runs(runs)
        if (raw / f"{run.run}.program.json").exists()
    ]
    (out / STEPS).write_text("".join(f"{line}\n" for line in lines))


def pack(raw: Path, out: Path, measured: bool = False) -> int:
    """Write the programs of each family as one compressed file of JSON lines.

    Of those that were measured, sizes need not hold in other tables than their own.
    """
    from layerdag.graph.formats.program_json import program_graph
    from layerdag.programs.inference import ShapeInference

    out.mkdir(parents=True, exist_ok=True)
    inference, inexact = ShapeInference(), 0
    lines: dict[str, list[str]] = {}
    for path in sorted(raw.glob("*.program.json")):
        data = json.loads(path.read_text())
        # Sizes that hold by chance at the recorded widths alone would teach a generator mistakes.
        if not measured and not inference.runs(program_graph(data, str(path))):
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
