"""``layerdag workload stage``: the traces that STAGE writes for its own flags."""

import argparse
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerdag.cli.printing import add_limits, print_figures, require_few
from layerdag.errors import UsageError
from layerdag.runtime.reading import Limits
from layerdag.runtime.settings import attribute_docs
from layerdag.runtime.terminal import counted

if TYPE_CHECKING:
    from layerdag.workloads.stage.flags import StageFlags
    from layerdag.workloads.stage.job import StageJob
    from layerdag.workloads.stage.layout import StageLayout

SUMMARY = (
    "Write the traces that STAGE (astra-sim/stage) writes for the same flags, with its counts, "
    "sizes and groups. As in STAGE, sizes are numbers of elements, not bytes, a "
    "multiply-accumulate is one operation, and its pitfalls are kept: '--model_type llama' "
    "without '--mixed_precision true' is the gpt graph."
)
EXAMPLE = (
    "  layerdag workload stage --model_type gpt --num_stacks 8 --dp 8 --tp 8 --pp 4 \\\n"
    "      --dmodel 4096 --dff 16384 --head 32 --kvhead 32 --seq 2048 --out traces/gpt\n"
    "  layerdag workload stage --model_type moe --ep 4 --num_stacks 2 --json\n"
    "  layerdag workload stage --output_dir traces --output_name w.%d.et --num_stacks 4"
)

_LIMITS = Limits(max_ranks=65_536)
_NODE_BYTES = 110  # measured: 103 for gpt with 80 layers on 4,096 ranks
_IDLE = {
    "chakra_schema_version": "taken, without effect, as in STAGE",
    "print_gpu_vram": "taken, without effect: 'layerdag workload MODEL' tells memory",
}
_YES, _NO = ("true", "t", "1", "yes", "y"), ("false", "f", "0", "no", "n")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare STAGE's flags and our own."""
    from layerdag.workloads.stage.flags import StageFlags

    own = parser.add_argument_group("where to")
    own.add_argument("--out", metavar="PREFIX", help="write PREFIX.<rank>.et and groups")
    own.add_argument("--output_dir", metavar="DIR", help="write STAGE's own files, in this folder")
    own.add_argument("--output_name", metavar="NAME",
        help="their name, %%d for the rank (else NAME.%%d.et); groups in NAME.json")  # fmt: skip
    add_limits(own, _LIMITS)
    stage = parser.add_argument_group("STAGE's flags")
    told = attribute_docs(StageFlags)
    kinds: dict[type, tuple[Callable[[str], Any], str]]
    kinds = {bool: (_switch, "BOOL"), int: (int, "N"), str: (str, "WORD")}
    for field in fields(StageFlags):
        kind, metavar = kinds[type(field.default)]
        text = told[field.name].replace("``", "").rstrip(".")
        text = f"{text[0].lower()}{text[1:]} (default: {str(field.default).lower()})"
        stage.add_argument(f"--{field.name}", type=kind, default=field.default, metavar=metavar,
            help=text)  # fmt: skip
    for name, text in _IDLE.items():
        stage.add_argument(f"--{name}", metavar="WORD", help=text)


def _switch(word: str) -> bool:
    """Return what STAGE takes a word for: true, t, 1, yes, y, in any case, are true.

    STAGE takes every other word for false; here it must be one that says so.
    """
    if word.lower() not in (*_YES, *_NO):
        raise argparse.ArgumentTypeError(f"'{word:.40}' is neither true nor false")
    return word.lower() in _YES


def run(args: argparse.Namespace) -> int:
    """Write the traces and tell their figures."""
    from layerdag.traces.chakra.workload import require_free_prefix, write_workload
    from layerdag.workloads.stage.job import StageJob

    layout = _layout(args)
    if not (args.out or layout or args.json):
        raise UsageError(
            "Say where the traces go: --out PREFIX, or --output_dir and --output_name as in STAGE "
            "(or --json, for figures only)."
        )
    name = layout.pattern if layout else "w.%d.et"
    if args.out:
        require_free_prefix(args.out, overwrite=args.overwrite)
        name = f"{Path(args.out).name}.%d.et"
    if layout:
        layout.require_free(overwrite=args.overwrite)
    flags = stage_flags_of(args)
    what = f"STAGE's {flags.model_type}"
    require_few(args, what, flags.ranks, 0)
    job = StageJob(flags)
    if args.out or layout:
        require_few(args, what, flags.ranks, job.nodes * _NODE_BYTES)
    if args.out:
        write_workload(job.workload(), args.out, overwrite=args.overwrite)
    if layout:
        layout.write(job.workload(), overwrite=args.overwrite)
    figures = job.summary(name)
    print_figures(args.json, figures, _lines(job, figures))
    return 0


def stage_flags_of(args: argparse.Namespace) -> "StageFlags":
    """Return STAGE's flags among the arguments."""
    from layerdag.workloads.stage.flags import StageFlags

    return StageFlags(**{field.name: getattr(args, field.name) for field in fields(StageFlags)})


def _layout(args: argparse.Namespace) -> "StageLayout | None":
    """Return the place of STAGE's own files, None if it was not given."""
    from layerdag.workloads.stage.layout import StageLayout

    if args.output_dir is None and args.output_name is None:
        return None
    if args.output_dir is None or args.output_name is None:
        raise UsageError("--output_dir and --output_name belong together, as in STAGE.")
    return StageLayout(Path(args.output_dir), args.output_name)


def _lines(job: "StageJob", figures: dict[str, Any]) -> list[str]:
    flags, per_rank = job.flags, list(figures["per_rank"].values())
    lines = [
        f"{flags.model_type}: {counted(flags.ranks, 'rank')}, {figures['nodes']:,} nodes",
        "",
        f"{'first rank of stage':<20}{'nodes':>8}{'operations':>22}{'elements':>18}"
        f"{'collectives':>13}",
    ]
    for rank in range(0, flags.ranks, flags.ranks_per_stage):
        found = per_rank[rank]
        lines.append(
            f"{rank:<20}{found['nodes']:>8,}{found['num_ops']:>22,}"
            f"{found['tensor_size_elems']:>18,}{found['types'].get('COLL', 0):>13,}"
        )
    return lines
