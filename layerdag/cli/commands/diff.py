"""``layerdag diff``: what differs between two traces, jobs or graphs."""

import argparse
import sys
from typing import TYPE_CHECKING

from layerdag.cli.printing import print_figures
from layerdag.errors import DataError, UsageError

if TYPE_CHECKING:
    from layerdag.differences.difference import Difference


SUMMARY = (
    "Align two traces, jobs or graphs, operator by operator, and tell what differs in operators, "
    "structure, time and communication."
)
EXAMPLE = (
    "  layerdag workload gpt2 --data 2 --out traces/before\n"
    "  layerdag workload gpt2 --data 2 --zero 1 --out traces/after\n"
    "  layerdag diff traces/before traces/after\n"
    "  layerdag diff before.graphml after.graphml --json\n"
    "  layerdag diff traces/before traces/after --ignore time --html diff.html\n"
    "  layerdag diff traces/before traces/after --simulate small\n"
    "\n"
    "exit codes of this verb, as of diff(1): 0 equal, 1 different, 2 wrong use, or something that "
    "cannot be read"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add = parser.add_argument
    for name in ("a", "b"):
        add(name, metavar=name.upper(),
            help="prefix, folder or file of a trace in any format, or a flow graph")  # fmt: skip
    add("--html", metavar="PAGE", help="page to write, .html; figures beside it as .json")
    add("--ignore", nargs="+", default=[], metavar="PART",
        help="what does not count as a difference: operators, structure, time, communication, "
        "labels")  # fmt: skip
    add("--simulate", choices=("small",), metavar="PRESET",
        help="simulate both and compare the makespans; the preset is small, as of 'layerdag "
        "simulate'")  # fmt: skip
    add("--all", action="store_true", help="show all rows, not the first of each")


def run(args: argparse.Namespace) -> int:
    """Print what differs; return 1 if something does."""
    from layerdag.differences.difference import lines

    if args.html:
        from layerdag.report.differences import require_replaceable_difference

        require_replaceable_difference(args.html)
    try:
        found = _found(args)
    except DataError as error:  # 1 says that both were read and differ
        raise UsageError(str(error)) from error
    if args.html:
        from layerdag.report.differences import write_difference

        print(f"wrote {write_difference(found, args.html)}", file=sys.stderr)
    print_figures(args.json, found.summary(), lines(found, None) if args.all else lines(found))
    return 0 if found.equal else 1


def _found(args: argparse.Namespace) -> "Difference":
    from layerdag.differences.comparison import diff
    from layerdag.simulator.cluster import Cluster

    cluster = Cluster(args.simulate) if args.simulate else None
    return diff(args.a, args.b, ignore=args.ignore, cluster=cluster)
