"""The flags of ``layerdag simulate``; what ASTRA-sim has is accepted under its own names too."""

import argparse
import sys
from collections.abc import Callable

from layerdag.errors import UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags; those of ASTRA-sim are accepted under its own names too."""
    _configure_inputs(parser.add_argument)
    _configure_run(parser.add_argument)
    _configure_outputs(parser.add_argument)


def _configure_inputs(add: Callable[..., object]) -> None:
    add("prefix", nargs="?", metavar="PREFIX",
        help="prefix of PREFIX.<rank>.et or PREFIX.<rank>.et.gz, or a folder with one such "
        "set")  # fmt: skip
    add("--workload", "--workload-configuration", metavar="PREFIX",
        help="the same, as ASTRA-sim takes it")  # fmt: skip
    add("--system", "--system-configuration", metavar="system.json",
        help="algorithms, chunking and local rates")  # fmt: skip
    add("--network", "--network-configuration", metavar="network.yml",
        help="dimensions of the network")  # fmt: skip
    add("--preset", choices=("small",),
        help="instead of --system and --network: one switch, 25 GB/s and 1000 ns per link, rings, "
        "measured durations")  # fmt: skip
    add("--machine", metavar="machine.json",
        help="instead of --system, --network and --compute: a machine that 'layerdag calibrate' "
        "fitted to measured steps; also prints the interval of the step time")  # fmt: skip
    add("--compute", metavar="MODEL",
        help="times of compute nodes, one of the compute models below "
        "(default: reference, under --preset measured)")  # fmt: skip
    add("--memory", "--remote-memory-configuration", metavar="memory.json",
        help="remote memory; none by default")  # fmt: skip
    add("--comm-group", "--comm-group-configuration", metavar="groups.json",
        help='communicator groups {"1": [0, 1], ...}; "empty" for none; by default a '
        "comm_group.json beside the workload, if there is one")  # fmt: skip


def _configure_run(add: Callable[..., object]) -> None:
    add("--congestion", choices=("unaware", "aware", "aware-multi"), default="unaware",
        help="whether messages share links; aware-multi takes several dimensions, which the "
        "reference does not (default: %(default)s)")  # fmt: skip
    add("--num-queues-per-dim", type=int, default=1, metavar="N",
        help="queues of a rank in each dimension (default: %(default)s)")  # fmt: skip
    add("--comm-streams", type=int, default=1, metavar="N",
        help="communication nodes that a rank runs at once, the lowest free stream first; the "
        "reference has one (default: %(default)s)")  # fmt: skip
    add("--injection-scale", type=float, default=1.0, metavar="X",
        help="factor on the endpoint delay (default: %(default)s)")  # fmt: skip
    add("--group-collectives", choices=("flat", "hierarchical"), default="flat",
        help="collectives of groups that span whole dimensions: one flat ring as in the reference, "
        "or phase by phase in these dimensions (default: %(default)s)")  # fmt: skip
    add("--missing-implementations", choices=("refuse", "skip"), default="refuse",
        help="collectives whose implementation list has no entry for a dimension: refuse them, or "
        "leave that dimension out, as the reference does (default: %(default)s)")  # fmt: skip
    add("--slow", action="append", default=[], metavar="RANK=FACTOR",
        help="multiply one rank's compute times, e.g. 3=1.5; may be repeated")  # fmt: skip
    add("--noise", metavar="EXPONENT,SCALE,SEED",
        help="power-law noise on every compute node, e.g. 2.5,0.1,0")  # fmt: skip
    add("--rendezvous-protocol", choices=("true", "false"), default="false",
        help="receivers ask before each message (default: %(default)s)")  # fmt: skip
    add("--backend", choices=("layerdag", "astra-sim"), default="layerdag",
        help="who simulates: layerdag, or your own ASTRA-sim (default: %(default)s)")  # fmt: skip
    add("--binary", metavar="PATH",
        help="executable of ASTRA-sim's analytical backend, for --backend astra-sim")  # fmt: skip
    add("--timeout", type=float, default=3600.0, metavar="SECONDS",
        help="give up a run of --binary after this time (default: %(default)s)")  # fmt: skip
    add("--logging-folder", metavar="DIR",
        help="where --backend astra-sim leaves ASTRA-sim's logs; else without effect")  # fmt: skip
    add("--logging-configuration", metavar="FILE",
        help="given to ASTRA-sim by --backend astra-sim; else without effect")  # fmt: skip
    for name in ("compute", "comm"):
        add(f"--{name}-scale", type=float, metavar="X",
            help="accepted and without effect, as in ASTRA-sim")  # fmt: skip


def _configure_outputs(add: Callable[..., object]) -> None:
    add("--json", metavar="OUT", help='write the result as JSON; "-" for standard output')
    add("--trace", metavar="OUT.json", help="write a timeline for Perfetto")
    add("--nodes", metavar="OUT.csv", help="write issue and finish tick of every node")
    add("--report", action="store_true",
        help="also tell where the time goes and what is on the critical path")  # fmt: skip
    add("--memory-capacity", type=float, metavar="GB",
        help="local memory of a rank in 1e9 bytes; exceeding it is what --over-capacity says "
        "(default: no limit)")  # fmt: skip
    add("--over-capacity", choices=("error", "warn"), default="error",
        help="what becomes of a run whose tensors do not fit (default: %(default)s)")  # fmt: skip
    add("--what-if", action="store_true",
        help="simulate again with each part of the cluster 10 %% better")  # fmt: skip


def workload_prefix(args: argparse.Namespace) -> str:
    """Return the prefix of the workload, which may be given in two ways.

    Raises:
        UsageError: If it is given in both, or in none.
    """
    if args.prefix and args.workload:
        raise UsageError(
            f"the workload is given twice, as {args.prefix} and with --workload; give it once."
        )
    prefix = args.prefix or args.workload
    if not prefix:
        raise UsageError("the workload is missing; write 'layerdag simulate PREFIX ...'.")
    return str(prefix)


def tell_ignored(args: argparse.Namespace) -> None:
    """Say on standard error which of ASTRA-sim's flags have no effect."""
    ignored = ["compute_scale", "comm_scale"]
    if args.backend == "layerdag":
        ignored += ["logging_folder", "logging_configuration"]
    for name in ignored:
        if getattr(args, name) is not None:
            why = ", as in ASTRA-sim" if name.endswith("scale") else "; layerdag writes no logs"
            print(f"layerdag: note: --{name.replace('_', '-')} has no effect{why}", file=sys.stderr)
