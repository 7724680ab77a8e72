"""``layerdag workload``: traces of jobs that nobody has to own.

``layerdag workload stage`` writes what STAGE writes for its own flags.
"""

import argparse
import json
import sys
from dataclasses import fields
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from layerdag.cli.printing import notes_json, print_figures, print_notes
from layerdag.cli.step_flags import add_step_flags, step_settings
from layerdag.errors import UsageError
from layerdag.plan import FORMULAS, SIDE_SETTINGS, SIDES
from layerdag.runtime.reading import Limits
from layerdag.runtime.terminal import counted

if TYPE_CHECKING:
    from layerdag.workloads.stage.flags import StageFlags
    from layerdag.workloads.stage.job import StageJob
    from layerdag.workloads.stage.layout import StageLayout


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


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("model", nargs="?", help="a model of --list, or a config.json")
    parser.add_argument("--list", action="store_true", help="show the models that are known")
    parser.add_argument("--out", metavar="PREFIX", help="write PREFIX.<rank>.et and groups")
    parser.add_argument("--overwrite", action="store_true", help="replace the workload there")
    parser.add_argument("--max-ranks", type=int, default=_LIMITS.max_ranks, metavar="N",
        help="refuse to write more ranks, one file each (default: %(default)s)")  # fmt: skip
    parser.add_argument("--max-bytes", type=int, default=_LIMITS.max_bytes, metavar="N",
        help="refuse to write more bytes, as estimated (default: %(default)s)")  # fmt: skip
    add_step_flags(parser, FORMULAS)
    for side, name in product(SIDES, SIDE_SETTINGS):
        word = name.replace("_", "-")
        parser.add_argument(f"--{side}-{word}", type=int, metavar="N",
            help=f"--{word} of the ranks that {side}, in phase disaggregated")  # fmt: skip
    parser.add_argument("--prefill-sequence-parallel", action="store_true", default=None,
        help="--sequence-parallel of the ranks that prefill")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Write the workload and tell its figures."""
    from layerdag.cli.main import gc_disabled, single_threaded_blas

    single_threaded_blas()
    with gc_disabled():
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    from layerdag.runtime.reading import require_few_bytes, require_few_ranks
    from layerdag.traces.chakra.workload import require_free_prefix, write_workload
    from layerdag.workloads.by_name import job

    if args.list:
        return _list(args)
    if not args.model:
        raise UsageError("Name a model ('layerdag workload --list' shows them) or a config.json.")
    if not args.out and not args.json:
        raise UsageError("Say where the traces go: --out PREFIX (or --json, for figures only).")
    if args.out:
        require_free_prefix(args.out, overwrite=args.overwrite)
    made = job(args.model, **_settings(args))
    if args.out:
        figures = made.summary()
        limits = Limits(args.max_ranks, args.max_bytes)
        require_few_ranks(figures["ranks"], limits, figures["model"])
        require_few_bytes(figures["nodes"] * _NODE_BYTES, limits, figures["model"])
        write_workload(made.workload(), args.out, overwrite=args.overwrite)
    figures = {**made.summary(), "notes": notes_json(made.notes)}
    print_figures(args.json, figures, _lines(figures))
    print_notes(made.notes)
    return 0


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    names = map("_".join, product(SIDES, SIDE_SETTINGS))
    sides = {name: getattr(args, name) for name in (*names, "prefill_sequence_parallel")}
    given = {name: value for name, value in sides.items() if value is not None}
    return {**step_settings(args, FORMULAS), **given}


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
    if figures["communication"]:
        lines += ["", f"{'communication (kind:group)':<32} {'nodes':>12} {'GB':>14}"]
    for name, held in figures["communication"].items():
        lines.append(f"{name:<32} {held['count']:>12,} {held['bytes'] / 1e9:>14,.3f}")
    return lines


def _counted(parameters: int) -> str:
    return f"{parameters / 1e9:.2f} B" if parameters >= 10**9 else f"{parameters / 1e6:.2f} M"


def _list(args: argparse.Namespace) -> int:
    from layerdag.workloads.dlrm import RECOMMENDERS
    from layerdag.workloads.transformer.shapes import PRESETS

    if args.json:
        document = {name: shape.parameters for name, shape in (PRESETS | RECOMMENDERS).items()}
        json.dump(document, sys.stdout, indent=1)
        print()
        return 0
    for name, shape in PRESETS.items():
        active = shape.active_parameters
        more = f", {active / 1e9:.2f} B a token" if active != shape.parameters else ""
        print(f"{name:<18} {shape.parameters:>17,} parameters{more}")
    for name, recommender in RECOMMENDERS.items():
        print(f"{name:<18} {recommender.parameters:>17,} parameters")
    return 0


STAGE_SUMMARY = (
    "Write the traces that STAGE (astra-sim/stage) writes for the same flags, with its counts, "
    "sizes and groups. As in STAGE, sizes are numbers of elements, not bytes, a "
    "multiply-accumulate is one operation, and its pitfalls are kept: '--model_type llama' "
    "without '--mixed_precision true' is the gpt graph."
)
STAGE_EXAMPLE = (
    "  layerdag workload stage --model_type gpt --num_stacks 8 --dp 8 --tp 8 --pp 4 \\\n"
    "      --dmodel 4096 --dff 16384 --head 32 --kvhead 32 --seq 2048 --out traces/gpt\n"
    "  layerdag workload stage --model_type moe --ep 4 --num_stacks 2 --json\n"
    "  layerdag workload stage --output_dir traces --output_name w.%d.et --num_stacks 4"
)

_STAGE_NODE_BYTES = 110  # measured: 103 for gpt with 80 layers on 4,096 ranks

_STAGE_NUMBERS = {
    "num_stacks": "layers",
    "dp": "data parallel degree",
    "tp": "tensor parallel degree; times --ep but for moe",
    "sp": "context parallel degree",
    "ep": "expert parallel degree",
    "pp": "pipeline parallel degree",
    "batch": "sequences of a step",
    "micro_batch": "sequences of a micro-batch (-1: the batch)",
    "seq": "tokens of a sequence",
    "dvocal": "vocabulary",
    "dmodel": "width",
    "dff": "width of the feed-forward layer",
    "head": "query heads",
    "kvhead": "key and value heads of the gated model and moe",
    "experts": "experts of a layer",
    "kexperts": "experts of a token",
}
_STAGE_SWITCHES = {
    "weight_sharded": "shard weights of layers over the data parallel ranks",
    "tpsp": "shard residuals over the tensor parallel ranks, too",
    "mixed_precision": "gated model for dense and llama; output on the last stage",
    "activation_recompute": "without effect, as in STAGE",
}
_STAGE_IDLE = {
    "chakra_schema_version": "taken, without effect, as in STAGE",
    "print_gpu_vram": "taken, without effect: 'layerdag workload MODEL' tells memory",
}


def configure_stage(parser: argparse.ArgumentParser) -> None:
    """Declare STAGE's flags and our own."""
    from layerdag.workloads.stage.flags import MODELS, StageFlags

    default = {field.name: field.default for field in fields(StageFlags)}
    own = parser.add_argument_group("where to")
    own.add_argument("--out", metavar="PREFIX", help="write PREFIX.<rank>.et and groups")
    own.add_argument("--output_dir", metavar="DIR", help="write STAGE's own files, in this folder")
    own.add_argument("--output_name", metavar="NAME",
        help="their name, %%d for the rank (else NAME.%%d.et); groups in NAME.json")  # fmt: skip
    own.add_argument("--overwrite", action="store_true", help="replace the traces there")
    own.add_argument("--max-ranks", type=int, default=_LIMITS.max_ranks, metavar="N",
        help="refuse to write more ranks, one file each (default: %(default)s)")  # fmt: skip
    own.add_argument("--max-bytes", type=int, default=_LIMITS.max_bytes, metavar="N",
        help="refuse to write more bytes, as estimated (default: %(default)s)")  # fmt: skip
    stage = parser.add_argument_group("STAGE's flags")
    stage.add_argument("--model_type", default=default["model_type"], metavar="WORD",
        help=f"{', '.join(MODELS)} (default: %(default)s)")  # fmt: skip
    for name, text in _STAGE_NUMBERS.items():
        stage.add_argument(f"--{name}", type=int, default=default[name], metavar="N",
            help=f"{text} (default: %(default)s)")  # fmt: skip
    for name, text in _STAGE_SWITCHES.items():
        stage.add_argument(f"--{name}", type=_stage_switch, default=default[name], metavar="BOOL",
            help=f"{text} (default: {str(default[name]).lower()})")  # fmt: skip
    for name, text in _STAGE_IDLE.items():
        stage.add_argument(f"--{name}", metavar="WORD", help=text)


def _stage_switch(word: str) -> bool:
    """Return what STAGE takes a word for: true, t, 1, yes, y, in any case, are true.

    STAGE takes every other word for false; here it must be one that says so.
    """
    if word.lower() not in (*_YES, *_NO):
        raise argparse.ArgumentTypeError(f"'{word:.40}' is neither true nor false")
    return word.lower() in _YES


_YES, _NO = ("true", "t", "1", "yes", "y"), ("false", "f", "0", "no", "n")


def run_stage(args: argparse.Namespace) -> int:
    """Write the traces and tell their figures."""
    from layerdag.cli.main import gc_disabled, single_threaded_blas

    single_threaded_blas()
    with gc_disabled():
        return _run_stage(args)


def _run_stage(args: argparse.Namespace) -> int:
    from layerdag.runtime.reading import require_few_bytes, require_few_ranks
    from layerdag.traces.chakra.workload import require_free_prefix, write_workload
    from layerdag.workloads.stage.job import StageJob

    layout = _stage_layout(args)
    if not (args.out or layout or args.json):
        raise UsageError(
            "Say where the traces go: --out PREFIX, or --output_dir and --output_name as in STAGE "
            "(or --json, for figures only)."
        )
    if args.out:
        require_free_prefix(args.out, overwrite=args.overwrite)
    if layout:
        layout.require_free(overwrite=args.overwrite)
    flags = stage_flags_of(args)
    limits, what = Limits(args.max_ranks, args.max_bytes), f"STAGE's {flags.model_type}"
    require_few_ranks(flags.ranks, limits, what)
    job = StageJob(flags)
    if args.out or layout:
        require_few_bytes(job.nodes * _STAGE_NODE_BYTES, limits, what)
    if args.out:
        write_workload(job.workload(), args.out, overwrite=args.overwrite)
    if layout:
        layout.write(job.workload(), overwrite=args.overwrite)
    figures = job.summary(_stage_file_name(args, layout))
    print_figures(args.json, figures, _stage_lines(job, figures))
    return 0


def stage_flags_of(args: argparse.Namespace) -> "StageFlags":
    """Return STAGE's flags among the arguments."""
    from layerdag.workloads.stage.flags import StageFlags

    names = ("model_type", *_STAGE_NUMBERS, *_STAGE_SWITCHES)
    return StageFlags(**{name: getattr(args, name) for name in names})


def _stage_layout(args: argparse.Namespace) -> "StageLayout | None":
    """Return the place of STAGE's own files, None if it was not given."""
    from layerdag.workloads.stage.layout import StageLayout

    if args.output_dir is None and args.output_name is None:
        return None
    if args.output_dir is None or args.output_name is None:
        raise UsageError("--output_dir and --output_name belong together, as in STAGE.")
    return StageLayout(Path(args.output_dir), args.output_name)


def _stage_file_name(args: argparse.Namespace, layout: "StageLayout | None") -> str:
    if args.out:
        return f"{Path(args.out).name}.%d.et"
    return layout.pattern if layout else "w.%d.et"


def _stage_lines(job: "StageJob", figures: dict[str, Any]) -> list[str]:
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


MODES = {
    "stage": SimpleNamespace(
        SUMMARY=STAGE_SUMMARY, EXAMPLE=STAGE_EXAMPLE, configure=configure_stage, run=run_stage
    ),
}
"""Commands of their own, by the word after ``workload``."""
