"""``layerdag capture``: the trace of a PyTorch model's step, without a device or a cluster."""

import argparse
from typing import TYPE_CHECKING, Any

from layerdag.cli.printing import counted, notes_json, print_figures, print_notes
from layerdag.errors import UsageError
from layerdag.runtime.reading import Limits

if TYPE_CHECKING:
    from layerdag.capturing.step import CapturedStep


SUMMARY = (
    "Write the trace of one step of a PyTorch model on any number of ranks: the step runs on "
    "tensors without content in a process group that does not exist. FILE.py is run as code with "
    "your rights; name only files that you trust."
)
EXAMPLE = (
    "  layerdag capture llama3-8b --sequence 8192 --tensor 8 --out traces/llama\n"
    "  layerdag simulate traces/llama --preset small --compute h100\n"
    "  layerdag capture llama3-8b --tensor 2 --fsdp 2 --data 2 --layers 4 --json\n"
    "  layerdag capture path/to/config.json --phase inference --json    (a model of Hugging Face)\n"
    "  layerdag capture my_model.py:make_step --data 8 --out traces/mine    (a model of your own)\n"
    "  layerdag capture mine.program.json --pipeline 4 --micro-batches 8 --out traces/stages"
)

_LIMITS = Limits()
_NODE_BYTES = 250

_NUMBERS = (
    ("data", "replicas that share the batch; gradients are averaged by all-reduce"),
    ("fsdp", "ranks that share parameters, gradients and optimizer states (fully_shard)"),
    ("tensor", "ranks that share each layer's matrices (DTensor)"),
    ("pipeline", "stages that share a program's units, one after the other"),
    ("micro-batches", "times that a program runs in a pipeline (default: one for each stage)"),
    (
        "batch",
        "sequences of a step, of all ranks (default: one for each data and fsdp rank and pass)",
    ),
    ("sequence", "tokens of a sequence (default: 2048)"),
    ("layers", "capture so many layers of a known model only"),
    ("accumulate", "forward and backward passes whose gradients are summed before the update"),
    ("bucket-bytes", "gradients summed at once by --data, as DDP; 0 for each alone (25 MiB)"),
)
_WORDS = (
    ("phase", "training (forward, backward, optimizer), inference"),
    ("precision", "of a known model: bf16, fp16, fp32; of others: fp32 (as is), bf16 (autocast)"),
    (
        "optimizer",
        "adamw, adam, sgd, adagrad, rmsprop or none; with momentum, nesterov, decay and "
        "fused, foreach, forloop, such as sgd-momentum-foreach (default: adamw, fused)",
    ),
    ("device", "whose kernels run: h100 or another GPU (default: cpu, a processor's)"),
    ("fsdp-unit", "what is gathered at once: layer, module"),
    ("schedule", "order of micro-batches: 1f1b, gpipe"),
)
_SWITCHES = (
    ("sequence-parallel", "split norms and residuals over the tensor ranks, too"),
    ("keep-gathered", "keep parameters gathered between forward and backward"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("model", nargs="?",
        help="a model of 'layerdag workload --list', a config.json, a .program.json, or "
        "FILE.py:FUNCTION, whose function returns (module, inputs), (module, inputs, tensor plan) "
        "or a step")  # fmt: skip
    parser.add_argument("--out", metavar="PREFIX", help="write PREFIX.<rank>.et and groups")
    parser.add_argument("--overwrite", action="store_true", help="replace the workload there")
    parser.add_argument("--max-ranks", type=int, default=_LIMITS.max_ranks, metavar="N",
        help="refuse to write more ranks, one file each (default: %(default)s)")  # fmt: skip
    parser.add_argument("--max-bytes", type=int, default=_LIMITS.max_bytes, metavar="N",
        help="refuse to write more bytes, as estimated (default: %(default)s)")  # fmt: skip
    for flag, text in _NUMBERS:
        parser.add_argument(f"--{flag}", type=int, metavar="N", help=text)
    parser.add_argument("--clip", type=float, metavar="NORM",
        help="scale gradients down to this norm of all together before the update")  # fmt: skip
    parser.add_argument("--cuts", metavar="MODULES", type=lambda text: tuple(text.split(",")),
        help="modules with which stages begin, such as layers.4,layers.8 (default: equal shares of "
        "the operations)")  # fmt: skip
    for flag, text in _WORDS:
        parser.add_argument(f"--{flag}", metavar="WORD", help=text)
    for flag, text in _SWITCHES:
        parser.add_argument(f"--{flag}", action="store_true", default=None, help=text)


def run(args: argparse.Namespace) -> int:
    """Capture the step, write its traces and tell its figures."""
    from layerdag.runtime.reading import require_few_bytes, require_few_ranks
    from layerdag.traces.chakra.workload import require_free_prefix, write_workload

    if not args.model:
        raise UsageError(
            "Name a model ('layerdag workload --list' shows them), a config.json or "
            "FILE.py:FUNCTION."
        )
    if not args.out and not args.json:
        raise UsageError("Say where the traces go: --out PREFIX (or --json, for figures only).")
    if args.out:
        require_free_prefix(args.out, overwrite=args.overwrite)
    captured = _captured(args)
    if args.out:
        limits = Limits(args.max_ranks, args.max_bytes)
        ranks = captured.world.size
        nodes = sum(trace.num_nodes for trace in captured.stages) * ranks // len(captured.stages)
        require_few_ranks(ranks, limits, captured.name)
        require_few_bytes(nodes * _NODE_BYTES, limits, captured.name)
        write_workload(captured.workload(), args.out, overwrite=args.overwrite)
    figures = {**captured.summary(), "notes": notes_json(captured.notes)}
    print_figures(args.json, figures, _lines(figures))
    print_notes(captured.notes)
    return 0


def _captured(args: argparse.Namespace) -> "CapturedStep":
    from torch import nn

    from layerdag.capturing.step import capture_model, capture_step, load_program

    settings = _settings(args)
    if not (".py:" in args.model or args.model.endswith(".py")):
        if args.model.endswith((".program.json", ".program.json.gz")):
            from layerdag.programs.forward_program import Program

            return Program.load(args.model).step(**settings)
        return capture_model(args.model, **settings)
    program = load_program(args.model)
    if isinstance(program.model, nn.Module):
        return capture_model(
            program.model, program.inputs, tensor_plan=program.tensor_plan, **settings
        )
    return capture_step(program.model, name=args.model.rpartition(":")[2], **settings)


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    names = [flag.replace("-", "_") for flag, _ in (*_NUMBERS, *_WORDS, *_SWITCHES)]
    names += ["clip", "cuts"]
    return {name: getattr(args, name) for name in names if getattr(args, name) is not None}


def _count(parameters: int) -> str:
    """Return a number of parameters as it is printed: 8.03 B, 124 M, 9,610."""
    for unit, name in ((1e9, "B"), (1e6, "M")):
        if parameters >= unit:
            return f"{parameters / unit:.3g} {name}"
    return f"{parameters:,}"


def _lines(figures: dict[str, Any]) -> list[str]:
    kinds = [f"{count:,} {kind}" for kind, count in figures["operators"].items() if count]
    lines = [
        f"{figures['model']}: {_count(figures['parameters'])} parameters on "
        f"{counted(figures['ranks'], 'rank')}, {counted(figures['nodes'], 'node')} on each",
        f"operators: {', '.join(kinds)}",
        f"{figures['flops']:.4g} floating-point operations on each rank",
    ]
    if "stages" in figures:
        lines += ["", f"{'stage':<32} {'nodes':>12} {'messages':>9} {'GB':>14}"]
    for number, held in enumerate(figures.get("stages", ())):
        sent = f"{held['messages']:>9,} {held['sent_bytes'] / 1e9:>14,.3f}"
        lines.append(f"{number:<32} {held['nodes']:>12,} {sent}")
    if figures["collectives"]:
        lines += ["", f"{'communication (kind:group)':<32} {'nodes':>12} {'GB':>14}"]
    for name, held in figures["collectives"].items():
        lines.append(f"{name:<32} {held['count']:>12,} {held['bytes'] / 1e9:>14,.3f}")
    return lines
