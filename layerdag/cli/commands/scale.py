"""``layerdag scale``: a trace made larger, by rules."""

import argparse
from typing import TYPE_CHECKING, Any

from layerdag.cli.printing import counted, notes_json, print_figures, print_notes
from layerdag.errors import UsageError
from layerdag.runtime.reading import Limits

if TYPE_CHECKING:
    pass


SUMMARY = (
    "Write your own trace on more ranks or with more layers: fold it into classes of ranks and "
    "repeated blocks, change degrees and counts by rules, write every rank."
)
EXAMPLE = (
    "  layerdag workload gpt2 --data 2 --out traces/gpt2\n"
    "  layerdag scale traces/gpt2 --ranks 1024 --out traces/gpt2_1024\n"
    "  layerdag simulate traces/gpt2_1024 --preset small\n"
    "  layerdag scale traces/mine --data 64 --layers 80 --out traces/mine_large\n"
    "  layerdag scale traces/mine --ranks 512 --json          (what changes; nothing is written)"
)

_LIMITS = Limits(max_ranks=65_536)
_DEGREES = (
    ("ranks", "all ranks; the data-parallel degree follows, or the only degree that there is"),
    ("data", "data-parallel degree; each rank keeps its batch"),
    ("tensor", "tensor-parallel degree"),
    ("layers", "layers of the model, those of all pipeline stages together"),
    ("layers-now", "layers that the trace has, where several numbers of blocks repeat"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("trace", help="a workload: prefix, folder or file of any format")
    parser.add_argument("--out", metavar="PREFIX", help="write PREFIX.<rank>.et and groups")
    parser.add_argument("--overwrite", action="store_true", help="replace the workload there")
    for flag, text in _DEGREES:
        parser.add_argument(f"--{flag}", type=int, metavar="N", help=text)
    parser.add_argument("--plan", metavar="KINDS",
        help="what the axes of ranks are, where the trace does not tell: 'tensor,data', that of "
        "neighboring ranks first")  # fmt: skip
    parser.add_argument("--max-ranks", type=int, default=_LIMITS.max_ranks, metavar="N",
        help="refuse to write more ranks, one file each (default: %(default)s)")  # fmt: skip
    parser.add_argument("--max-bytes", type=int, default=_LIMITS.max_bytes, metavar="N",
        help="refuse to write more bytes, as estimated (default: %(default)s)")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Write the workload and tell what has changed."""
    from layerdag.cli.main import gc_disabled, single_threaded_blas

    single_threaded_blas()
    with gc_disabled():
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    from layerdag.traces.chakra.workload import require_free_prefix, write_workload
    from layerdag.workloads.scaling.rescaling import scale

    if not args.out and not args.json:
        raise UsageError("Say where the traces go: --out PREFIX (or --json, for figures only).")
    if args.out:
        require_free_prefix(args.out, overwrite=args.overwrite)
    names = [flag.replace("-", "_") for flag, _ in _DEGREES]
    asked = {name: getattr(args, name) for name in names}
    limits = Limits(args.max_ranks, args.max_bytes)
    made = scale(args.trace, **asked, plan=args.plan, limits=limits)
    if args.out:
        write_workload(made.workload, args.out, overwrite=args.overwrite)
    notes = made.workload.notes
    figures = {**made.found, "input_notes": notes_json(notes)}
    print_figures(args.json, figures, _lines(made.found))
    print_notes(notes)
    return 0


def _lines(found: dict[str, Any]) -> list[str]:
    ranks, nodes = found["ranks"], found["nodes"]
    lines = [
        f"{found['source']}: {counted(ranks['before'], 'rank')} to {ranks['after']:,}, "
        f"{nodes['before']:,} nodes to {nodes['after']:,}",
        f"{counted(len(found['classes']), 'class')} of ranks that run the same program",
    ]
    for axis in found["plan"]:
        shards = ", sharded" if axis["sharded"] else ""
        lines.append(f"{axis['kind']}{shards}: {axis['before']} to {axis['after']} ranks")
    if found["layers"]:
        lines.append(f"layers: {found['layers']['before']} to {found['layers']['after']}")
    if found["changes"]:
        lines += [
            "",
            f"{'changed, on one rank of class':<34} {'nodes':>8} {'before':>18} {'after':>18}",
        ]
    for change in found["changes"]:
        what = f"{change['class']}: {change['what']}"
        lines.append(
            f"{what:<34} {change['nodes']:>8,} {change['before']:>18,} {change['after']:>18,}"
        )
    return [*lines, "", *found["notes"]]
