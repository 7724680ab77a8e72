"""``layerdag capture``: the trace of a PyTorch model's step, without a device or a cluster."""

import argparse
from typing import TYPE_CHECKING, Any

from layerdag.cli.field_flags import add_step_flags, fields_given
from layerdag.cli.printing import (
    add_limits,
    communication_lines,
    notes_json,
    print_figures,
    print_notes,
    require_few,
    require_place,
)
from layerdag.errors import UsageError
from layerdag.plan import RECORDED
from layerdag.runtime.terminal import counted

if TYPE_CHECKING:
    from layerdag.capturing.captured_step import CapturedStep


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

_NODE_BYTES = 250


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("model", nargs="?",
        help="a model of 'layerdag workload --list', a config.json, a .program.json, or "
        "FILE.py:FUNCTION, whose function returns (module, inputs), (module, inputs, tensor plan) "
        "or a step")  # fmt: skip
    parser.add_argument("--out", metavar="PREFIX", help="write PREFIX.<rank>.et and groups")
    add_limits(parser)
    add_step_flags(parser, RECORDED)


def run(args: argparse.Namespace) -> int:
    """Capture the step, write its traces and tell its figures."""
    from layerdag.traces.chakra.workload import write_workload

    if not args.model:
        raise UsageError(
            "Name a model ('layerdag workload --list' shows them), a config.json or "
            "FILE.py:FUNCTION."
        )
    require_place(args)
    captured = _captured(args)
    if args.out:
        ranks = captured.world.size
        nodes = sum(trace.num_nodes for trace in captured.stages) * ranks // len(captured.stages)
        require_few(args, captured.name, ranks, nodes * _NODE_BYTES)
        write_workload(captured.workload(), args.out, overwrite=args.overwrite)
    figures = {**captured.summary(), "notes": notes_json(captured.notes)}
    print_figures(args.json, figures, _lines(figures))
    print_notes(captured.notes)
    return 0


def _captured(args: argparse.Namespace) -> "CapturedStep":
    from torch import nn

    from layerdag.capturing.step import capture_model, capture_step
    from layerdag.capturing.user_code import load_user_model

    settings = fields_given(args, RECORDED.settings)
    if not (".py:" in args.model or args.model.endswith(".py")):
        if args.model.endswith((".program.json", ".program.json.gz")):
            from layerdag.programs.forward_program import Program

            return Program.load(args.model).step(**settings)
        return capture_model(args.model, **settings)
    program = load_user_model(args.model)
    if isinstance(program.model, nn.Module):
        return capture_model(
            program.model, program.inputs, tensor_plan=program.tensor_plan, **settings
        )
    return capture_step(program.model, name=args.model.rpartition(":")[2], **settings)


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
    return lines + communication_lines(figures["collectives"])
