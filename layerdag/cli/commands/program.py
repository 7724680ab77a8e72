"""``layerdag program``: the forward program of a model or a host trace, at any size."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerdag.cli.printing import print_figures
from layerdag.errors import UsageError
from layerdag.runtime.terminal import counted

if TYPE_CHECKING:
    from layerdag.programs.forward_program import Program
    from layerdag.validation.rules import Finding

SUMMARY = (
    "Record the forward program of a model: its operators with their arguments, sizes as "
    "expressions of a small table. A program can be resized, run, and turned into the trace of a "
    "training step on any number of ranks. FILE.py is run as code with your rights; name only "
    "files that you trust."
)
EXAMPLE = (
    "  layerdag program my_model.py:make_step --out mine.program.json\n"
    "  layerdag program host_trace.json.gz --print\n"
    "  layerdag program mine.program.json --size B0=64 --size w0=4096 --out wide.program.json\n"
    "  layerdag program mine.program.json --deepen 4 --out deep.program.json\n"
    "  layerdag program mine.program.json --step-time 0.01 --out longer.program.json\n"
    "  layerdag program mine.program.json --depth 24 --parameters 1e9 --out large.program.json\n"
    "  layerdag program host_traces --out programs            (of every host trace in a folder)\n"
    "  layerdag capture wide.program.json --data 8 --out traces/wide"
)

_PRESET, _COMPUTE = "small", "h100"
_TARGETS = (
    ("depth", int, "number of units, repeated or left out"),
    ("width", int, "first width of the table of sizes (w0)"),
    ("batch", int, "samples of one rank (B0)"),
    ("parameters", float, "number of parameters, by widths and rows of embeddings"),
    ("flops", float, "operations of products in a step, by the batch"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("source",
        help="FILE.py:FUNCTION, whose function returns (module, inputs); a host trace of "
        "PyTorch; a .program.json; or a folder of traces")  # fmt: skip
    parser.add_argument("--out", metavar="FILE",
        help="write the program, NAME.program.json; of a folder, a folder of programs")  # fmt: skip
    parser.add_argument("--size", action="append", default=[], metavar="NAME=N",
        help="another number in the table of sizes, such as B0=64; may be given again")  # fmt: skip
    parser.add_argument("--deepen", type=int, default=1, metavar="N",
        help="each unit that can follow itself, such as a block, N times in a row")  # fmt: skip
    for flag, kind, text in _TARGETS:
        parser.add_argument(f"--{flag}", type=kind, metavar="N", help=text)
    parser.add_argument("--step-time", type=float, metavar="S",
        help="sizes, the batch first, with which a step of one rank takes S seconds")  # fmt: skip
    parser.add_argument("--preset", metavar="NAME",
        help=f"cluster of --step-time (default: {_PRESET})")  # fmt: skip
    parser.add_argument("--compute", metavar="NAME",
        help=f"operator times of --step-time, as for simulate (default: {_COMPUTE})")  # fmt: skip
    parser.add_argument("--print", action="store_true", dest="show",
        help="print the program as readable Python")  # fmt: skip
    parser.add_argument("--phase", choices=("training", "inference"), default="training",
        help="whether it must end in a loss (default: %(default)s)")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Make the program, check it, write it and tell its figures; 1 if it cannot run."""
    from layerdag.programs.targets import Targets, solve_targets
    from layerdag.programs.validity import runs

    if args.step_time is None and (args.preset or args.compute):
        flag = "--preset" if args.preset else "--compute"
        raise UsageError(
            f"{flag} is of --step-time, which is not given; give it, or leave {flag} out."
        )
    sizes = _sizes(args.size)
    targets = Targets(args.depth, args.width, args.batch, args.parameters, args.flops,
                      args.step_time, args.preset or _PRESET, args.compute or _COMPUTE)  # fmt: skip
    if Path(args.source).is_dir():
        if sizes or args.deepen != 1 or args.show or targets.asked():
            raise UsageError(
                f"{args.source}: is a folder, of whose traces programs are recorded as they are; "
                "name one of these for another size, depth or --print."
            )
        return _of_folder(args)
    found = _program(args.source).resize(**sizes)
    if args.deepen != 1:
        found = found.deepen(args.deepen)
    met = solve_targets(found, targets, list(sizes)) if targets.asked() else None
    found = found if met is None else met.program
    findings = found.check(training=args.phase == "training")
    if args.out:
        found.save(args.out)
    figures = {
        "name": found.name,
        "calls": len(found),
        "sizes": dict(found.sizes),
        "parameters": found.parameters() if runs(findings) else None,
        "operators": found.operator_counts(),
        "blocks": [
            {"modules": list(block.modules), "nodes": block.length}
            for block in found.repeated_blocks()
        ],
        **({} if met is None else {"wanted": met.facts()}),
        "findings": [finding.to_json() for finding in findings],
        "notes": list(found.notes),
    }
    lines = found.source().splitlines() if args.show else []
    lines += [] if met is None else [each.sentence() for each in met.reached]
    print_figures(args.json, figures, [*lines, *_lines(figures, findings)])
    return 0 if runs(findings) else 1


def _of_folder(args: argparse.Namespace) -> int:
    """Write the program of every trace in a folder; 1 if there is none."""
    from layerdag.datasets.job_programs import programs_in
    from layerdag.graph.attributed_graph import STEP_TIMES
    from layerdag.runtime.files import write_bytes
    from layerdag.runtime.reading import read_whole

    if not args.out:
        raise UsageError(f"{args.source}: is a folder; name one for its programs, --out FOLDER.")
    source, out = Path(args.source), Path(args.out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(
            f"--out {out}: is there already, and older programs would stand among the new ones; "
            "name another folder."
        )
    written, left_out = [], []
    for found in programs_in(source, training=args.phase == "training"):
        if found.program is None:
            left_out.append({"name": found.name, "reason": found.reason})
            continue
        path = out / f"{found.name}.program.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        found.program.save(path)
        times = source / f"{found.name}{STEP_TIMES}"
        if times.is_file():
            write_bytes(out / f"{found.name}{STEP_TIMES}", read_whole(times))
        written.append({"name": found.name, "calls": len(found.program), "out": str(path)})
    lines = [f"left out: {row['name']}: {row['reason']}" for row in left_out]
    made, lost = counted(len(written), "program"), counted(len(left_out), "job")
    lines.append(f"{made} in {out}, {lost} left out")
    if args.phase == "training" and any("Record the loss" in row["reason"] for row in left_out):
        lines.append("steps without a loss, as of inference, are programs with --phase inference")
    if written:
        lines.append(f"learn from them: layerdag train data=folder data.folder={out}")
    print_figures(args.json, {"programs": written, "left_out": left_out}, lines)
    return 0 if written else 1


def _sizes(given: Sequence[str]) -> dict[str, int]:
    found = {}
    for text in given:
        name, equals, number = text.partition("=")
        if not equals or not number.isascii() or not number.isdigit():
            raise UsageError(f"--size {text}: write NAME=NUMBER, such as B0=64.")
        found[name] = int(number)
    return found


def _program(source: str) -> "Program":
    from contextlib import nullcontext

    from torch import nn

    from layerdag.capturing.user_code import load_user_model
    from layerdag.programs.sources import program

    if not (".py:" in source or source.endswith(".py")):
        return program(source)
    made = load_user_model(source, nullcontext())
    if not isinstance(made.model, nn.Module):
        raise UsageError(f"{source}: return (module, inputs); a function has no program.")
    return program(made.model, made.inputs, name=source.rpartition(":")[2])


def _lines(figures: dict[str, Any], findings: Sequence["Finding"]) -> list[str]:
    parameters = figures["parameters"]
    lines = [
        f"{figures['name']}: {figures['calls']:,} calls"
        + ("" if parameters is None else f", {parameters:,} parameters"),
        "sizes: " + ", ".join(f"{name}={number}" for name, number in figures["sizes"].items()),
    ]
    most = list(figures["operators"].items())[:8]
    lines.append("operators: " + ", ".join(f"{count} {name}" for name, count in most))
    lines += [
        f"blocks: {block['modules'][0]} to {block['modules'][-1]}, {len(block['modules'])} times "
        f"{block['nodes']} nodes"
        for block in figures["blocks"]
    ]
    lines += [f"note: {note}" for note in figures["notes"]]
    lines += [f"[{finding.rule.id}] {finding.sentence()}" for finding in findings]
    return lines
