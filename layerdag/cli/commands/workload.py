"""``layerdag workload``: traces of jobs that nobody has to own.

``layerdag workload stage`` writes what STAGE writes for its own flags.
"""

import argparse
from typing import Any

from layerdag.cli import stage
from layerdag.cli.field_flags import add_step_flags, fields_given
from layerdag.cli.printing import (
    add_limits,
    communication_lines,
    notes_json,
    print_figures,
    print_json,
    print_notes,
    require_few,
    require_place,
)
from layerdag.errors import UsageError
from layerdag.plan import FORMULAS
from layerdag.runtime.reading import Limits
from layerdag.runtime.terminal import counted

SUMMARY = (
    "Write the trace of one step of a transformer on any number of ranks, from its shape and a "
    "plan: no device, no weights."
)
EXAMPLE = (
    "  layerdag workload llama3-8b --tensor 8 --data 4 --pipeline 2 --micro-batches 8 \\\n"
    "      --sequence 8192 --batch 64 --out traces/llama\n"
    "  layerdag simulate traces/llama --preset small --compute h100\n"
    "  layerdag workload path/to/config.json --tensor 2 --json      (a model of Hugging Face)\n"
    "  layerdag workload llama3-70b --phase decode --tensor 8 --sequence 4096 --batch 32 --json\n"
    "  layerdag workload llama3-70b --phase disaggregated --prefill-tensor 4 --decode-tensor 2 \\\n"
    "      --decode-data 2 --batch 8 --sequence 4096 --tokens 16 --out traces/split\n"
    "  layerdag workload vit-h14 --data 8 --batch 512 --json          (images)\n"
    "  layerdag workload --list\n"
    "  layerdag workload stage --help                     (STAGE's own flags and figures)"
)

_LIMITS = Limits(max_ranks=65_536)
_NODE_BYTES = 65  # measured: GPT-3 175B on 32,768 ranks, 1.90 GB for 29.5 million nodes
_SIDES = ("prefill_tensor", "decode_tensor", "decode_data")
"""Settings of one phase alone; `ld.workload` takes more of them."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("model", nargs="?", help="a model of --list, or a config.json")
    parser.add_argument("--list", action="store_true", help="show the models that are known")
    parser.add_argument("--out", metavar="PREFIX", help="write PREFIX.<rank>.et and groups")
    add_limits(parser, _LIMITS)
    add_step_flags(parser, FORMULAS)
    for name in _SIDES:
        side, word = name.split("_")
        parser.add_argument(f"--{side}-{word}", type=int, metavar="N",
            help=f"--{word} of the ranks that {side}, in phase disaggregated")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Write the workload and tell its figures."""
    from layerdag.traces.chakra.workload import write_workload
    from layerdag.workloads.by_name import job

    if args.list:
        return _list(args)
    if not args.model:
        raise UsageError("Name a model ('layerdag workload --list' shows them) or a config.json.")
    require_place(args)
    made = job(args.model, **fields_given(args, (*FORMULAS.settings, *_SIDES)))
    if args.out:
        figures = made.summary()
        require_few(args, figures["model"], figures["ranks"], figures["nodes"] * _NODE_BYTES)
        write_workload(made.workload(), args.out, overwrite=args.overwrite)
    figures = {**made.summary(), "notes": notes_json(made.notes)}
    print_figures(args.json, figures, _lines(figures))
    print_notes(made.notes)
    return 0


def _lines(figures: dict[str, Any]) -> list[str]:
    unit = "samples" if "samples" in figures else "tokens"
    lines = [
        f"{figures['model']}: {_counted(figures['parameters'])} parameters on "
        f"{counted(figures['ranks'], 'rank')}, {counted(figures['nodes'], 'node')}",
        f"{figures['flops']:.4g} floating-point operations, {figures[unit]:,} {unit}",
        f"{figures['peak_memory'] / 2**30:.1f} GiB at the fullest rank",
    ]
    if "transfer" in figures:
        moved = figures["transfer"]
        lines.append(
            f"{moved['bytes'] / 1e9:,.3f} GB of keys and values in {moved['messages']:,} messages "
            "from prefill to decode"
        )
    return lines + communication_lines(figures["communication"])


def _counted(parameters: int) -> str:
    return f"{parameters / 1e9:.2f} B" if parameters >= 10**9 else f"{parameters / 1e6:.2f} M"


def _list(args: argparse.Namespace) -> int:
    from layerdag.workloads.dlrm import RECOMMENDERS
    from layerdag.workloads.transformer.shapes import PRESETS

    if args.json:
        print_json({name: shape.parameters for name, shape in (PRESETS | RECOMMENDERS).items()})
        return 0
    for name, shape in PRESETS.items():
        active = shape.active_parameters
        more = f", {active / 1e9:.2f} B a token" if active != shape.parameters else ""
        print(f"{name:<18} {shape.parameters:>17,} parameters{more}")
    for name, recommender in RECOMMENDERS.items():
        print(f"{name:<18} {recommender.parameters:>17,} parameters")
    return 0


MODES = {"stage": stage}
"""Commands of their own, by the word after ``workload``."""
