"""``layerdag workload``: traces of jobs that nobody has to own."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from layerdag.cli.notes import notes_json, print_notes
from layerdag.cli.words import counted
from layerdag.errors import UsageError
from layerdag.runtime.reading import Limits

if TYPE_CHECKING:
    from layerdag.runtime.notes import Note
    from layerdag.workloads.dlrm import RecommenderJob
    from layerdag.workloads.transformer.job import DisaggregatedJob, SymbolicJob


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

_PLAN = (
    ("data", "replicas that share the batch"),
    ("tensor", "ranks that share each layer's matrices"),
    ("pipeline", "stages that share the layers"),
    ("context", "ranks that share each sequence"),
    ("expert", "ranks that share the experts; inside data x context, as in Megatron-LM"),
    ("virtual-stages", "groups of layers that each stage holds (interleaved 1F1B)"),
    ("zero", "ZeRO stage: 1 shares optimizer states, 2 gradients, too, 3 parameters, too"),
)
_STEP = (
    ("batch", "sequences of a step, of all replicas together (default: one a micro-batch)"),
    (
        "sequence",
        "tokens of a sequence; in decode those in the KV cache (default: 2048; images: theirs)",
    ),
    ("micro-batches", "parts into which a replica cuts its share of the batch"),
    ("tokens", "tokens that decode makes"),
)
_SIDES = tuple(
    (f"{side}-{word}", f"the same of the ranks that {side}, in phase disaggregated")
    for side in ("prefill", "decode")
    for word in ("data", "tensor", "pipeline", "expert", "micro-batches")
)
_WORDS = (
    ("schedule", "order of micro-batches: 1f1b, interleaved, gpipe, zb-h1 (zero-bubble)"),
    ("recompute", "what the backward pass computes again: none, selective (attention), full"),
    ("attention", "flash, or unfused, which keeps all scores"),
    (
        "phase",
        "training, prefill, decode, inference (a forward pass without KV cache), "
        "disaggregated (prefill and decode on ranks of their own)",
    ),
    ("precision", "bf16, fp16, bf16-fp32-gradients, fp32"),
    ("causal", "operations of causal attention: full square (as published), half of it"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("model", nargs="?", help="a model of --list, or a config.json")
    parser.add_argument("--list", action="store_true", help="show the models that are known")
    parser.add_argument("--out", metavar="PREFIX", help="write PREFIX.<rank>.et and groups")
    parser.add_argument("--overwrite", action="store_true", help="replace the workload there")
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE",
        help="the figures as JSON to FILE, or in place of the table")  # fmt: skip
    parser.add_argument("--max-ranks", type=int, default=_LIMITS.max_ranks, metavar="N",
        help="refuse to write more ranks, one file each (default: %(default)s)")  # fmt: skip
    parser.add_argument("--max-bytes", type=int, default=_LIMITS.max_bytes, metavar="N",
        help="refuse to write more bytes, as estimated (default: %(default)s)")  # fmt: skip
    for flag, text in (*_PLAN, *_STEP, *_SIDES):
        parser.add_argument(f"--{flag}", type=int, metavar="N", help=text)
    parser.add_argument("--sequence-parallel", action="store_true", default=None,
        help="split norms and residuals over the tensor ranks, too")  # fmt: skip
    parser.add_argument("--prefill-sequence-parallel", action="store_true", default=None,
        help="the same of the ranks that prefill")  # fmt: skip
    for flag, text in _WORDS:
        parser.add_argument(f"--{flag}", metavar="WORD", help=text)


def run(args: argparse.Namespace) -> int:
    """Write the workload and tell its figures."""
    from layerdag.cli.main import gc_disabled, single_threaded_blas

    single_threaded_blas()
    with gc_disabled():
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    from layerdag.cli.main import print_figures
    from layerdag.runtime.reading import require_few_bytes, require_few_ranks
    from layerdag.traces.chakra.workload import require_free_prefix, write_workload
    from layerdag.workloads.dlrm import RECOMMENDERS, recommender_job
    from layerdag.workloads.transformer.job import disaggregated_job, transformer_job

    if args.list:
        return _list(args)
    if not args.model and args.json not in (None, "-"):
        raise UsageError(f"'{args.json}' was taken as the file of --json; name the model first.")
    if not args.model:
        raise UsageError("Name a model ('layerdag workload --list' shows them) or a config.json.")
    if not args.out and not args.json:
        raise UsageError("Say where the traces go: --out PREFIX (or --json, for figures only).")
    if args.out:
        require_free_prefix(args.out, overwrite=args.overwrite)
    make: Callable[..., SymbolicJob | DisaggregatedJob | RecommenderJob] = (
        disaggregated_job if args.phase == "disaggregated" else transformer_job
    )
    make = recommender_job if args.model in RECOMMENDERS else make
    made = make(args.model, **_settings(args))
    if args.out:
        figures = made.summary()
        limits = Limits(args.max_ranks, args.max_bytes)
        require_few_ranks(figures["ranks"], limits, figures["model"])
        require_few_bytes(figures["nodes"] * _NODE_BYTES, limits, figures["model"])
        write_workload(made.workload(), args.out, overwrite=args.overwrite)
    figures = {**made.summary(), "notes": notes_json(_notes(made))}
    print_figures(args.json, figures, _lines(figures))
    print_notes(_notes(made))
    return 0


def _notes(made: "SymbolicJob | DisaggregatedJob | RecommenderJob") -> Sequence["Note"]:
    """Return what was not understood of the file that describes the model."""
    from layerdag.workloads.transformer.shapes import ModelShape

    return made.shape.notes if isinstance(made.shape, ModelShape) else ()


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return what was given of plan and step."""
    names = [flag.replace("-", "_") for flag, _ in (*_PLAN, *_STEP, *_SIDES, *_WORDS)]
    names += ["sequence_parallel", "prefill_sequence_parallel"]
    given = {name: getattr(args, name) for name in names}
    return {name: value for name, value in given.items() if value is not None}


def _lines(figures: dict[str, Any]) -> list[str]:
    """Return the figures as a table."""
    unit = "samples" if "samples" in figures else "tokens"
    lines = [
        f"{figures['model']}: {_counted(figures['parameters'])} parameters on "
        f"{counted(figures['ranks'], 'rank')}, {figures['nodes']:,} nodes",
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
    """Show the models that are known."""
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
