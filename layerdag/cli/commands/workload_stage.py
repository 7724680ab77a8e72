"""``layerdag workload stage``: the traces that STAGE writes, for STAGE's own flags."""

import argparse
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerdag.cli.words import counted
from layerdag.errors import UsageError
from layerdag.runtime.reading import Limits

if TYPE_CHECKING:
    from layerdag.workloads.stage.flags import StageFlags, StageLayout
    from layerdag.workloads.stage.job import StageJob


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

_NUMBERS = {
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
_SWITCHES = {
    "weight_sharded": "shard weights of layers over the data parallel ranks",
    "tpsp": "shard residuals over the tensor parallel ranks, too",
    "mixed_precision": "gated model for dense and llama; output on the last stage",
    "activation_recompute": "without effect, as in STAGE",
}
_IDLE = {
    "chakra_schema_version": "taken, without effect, as in STAGE",
    "print_gpu_vram": "taken, without effect: 'layerdag workload MODEL' tells memory",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare STAGE's flags and our own."""
    from layerdag.workloads.stage.flags import MODELS, StageFlags

    default = {field.name: field.default for field in fields(StageFlags)}
    own = parser.add_argument_group("where to")
    own.add_argument("--out", metavar="PREFIX", help="write PREFIX.<rank>.et and groups")
    own.add_argument("--output_dir", metavar="DIR", help="write STAGE's own files, in this folder")
    own.add_argument("--output_name", metavar="NAME",
        help="their name, %%d for the rank (else NAME.%%d.et); groups in NAME.json")  # fmt: skip
    own.add_argument("--overwrite", action="store_true", help="replace the traces there")
    own.add_argument("--json", nargs="?", const="-", metavar="FILE",
        help="figures of all ranks as JSON to FILE, or in place of the table")  # fmt: skip
    own.add_argument("--max-ranks", type=int, default=_LIMITS.max_ranks, metavar="N",
        help="refuse to write more ranks, one file each (default: %(default)s)")  # fmt: skip
    own.add_argument("--max-bytes", type=int, default=_LIMITS.max_bytes, metavar="N",
        help="refuse to write more bytes, as estimated (default: %(default)s)")  # fmt: skip
    stage = parser.add_argument_group("STAGE's flags")
    stage.add_argument("--model_type", default=default["model_type"], metavar="WORD",
        help=f"{', '.join(MODELS)} (default: %(default)s)")  # fmt: skip
    for name, text in _NUMBERS.items():
        stage.add_argument(f"--{name}", type=int, default=default[name], metavar="N",
            help=f"{text} (default: %(default)s)")  # fmt: skip
    for name, text in _SWITCHES.items():
        stage.add_argument(f"--{name}", type=_switch, default=default[name], metavar="BOOL",
            help=f"{text} (default: {str(default[name]).lower()})")  # fmt: skip
    for name, text in _IDLE.items():
        stage.add_argument(f"--{name}", metavar="WORD", help=text)


def _switch(word: str) -> bool:
    """Return what STAGE takes a word for: true, t, 1, yes, y, in any case, are true."""
    return word.lower() in ("true", "t", "1", "yes", "y")


def run(args: argparse.Namespace) -> int:
    """Write the traces and tell their figures."""
    from layerdag.cli.main import gc_disabled, single_threaded_blas

    single_threaded_blas()
    with gc_disabled():
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    from layerdag.cli.main import print_figures
    from layerdag.runtime.reading import require_few_bytes, require_few_ranks
    from layerdag.traces.chakra.workload import require_free_prefix, write_workload
    from layerdag.workloads.stage.job import StageJob

    layout = _layout(args)
    if not (args.out or layout or args.json):
        raise UsageError(
            "Say where the traces go: --out PREFIX, or --output_dir and --output_name as in STAGE "
            "(or --json, for figures only)."
        )
    if args.out:
        require_free_prefix(args.out, overwrite=args.overwrite)
    if layout:
        layout.require_free(overwrite=args.overwrite)
    flags = flags_of(args)
    limits, what = Limits(args.max_ranks, args.max_bytes), f"STAGE's {flags.model_type}"
    require_few_ranks(flags.ranks, limits, what)
    job = StageJob(flags)
    if args.out or layout:
        require_few_bytes(job.nodes * _NODE_BYTES, limits, what)
    if args.out:
        write_workload(job.workload(), args.out, overwrite=args.overwrite)
    if layout:
        layout.write(job.workload(), overwrite=args.overwrite)
    figures = job.summary(_file_name(args, layout))
    print_figures(args.json, figures, _lines(job, figures))
    return 0


def flags_of(args: argparse.Namespace) -> "StageFlags":
    """Return STAGE's flags among the arguments."""
    from layerdag.workloads.stage.flags import StageFlags

    names = ("model_type", *_NUMBERS, *_SWITCHES)
    return StageFlags(**{name: getattr(args, name) for name in names})


def _layout(args: argparse.Namespace) -> "StageLayout | None":
    """Return the place of STAGE's own files, None if it was not given."""
    from layerdag.workloads.stage.flags import StageLayout

    if args.output_dir is None and args.output_name is None:
        return None
    if args.output_dir is None or args.output_name is None:
        raise UsageError("--output_dir and --output_name belong together, as in STAGE.")
    return StageLayout(Path(args.output_dir), args.output_name)


def _file_name(args: argparse.Namespace, layout: "StageLayout | None") -> str:
    if args.out:
        return f"{Path(args.out).name}.%d.et"
    return layout.pattern if layout else "w.%d.et"


def _lines(job: "StageJob", figures: dict[str, Any]) -> list[str]:
    """Return the figures of each stage's first rank as a table."""
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
