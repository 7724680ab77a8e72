"""``layerdag simulate``: run a workload on a described cluster."""

import argparse
import dataclasses
import json
import sys
from typing import TYPE_CHECKING

from layerdag.errors import UsageError

if TYPE_CHECKING:
    from layerdag.simulator import SimulationResult
    from layerdag.traces.trace import Workload

SUMMARY = "Run a workload on a described cluster; equal to ASTRA-sim's analytical backend."
EXAMPLE = (
    "  layerdag simulate --workload runs/gpt/workload --system system.json \\\n"
    "      --network network.yml --comm-group comm_group.json \\\n"
    "      --json result.json --trace timeline.json\n"
    "  (workload: runs/gpt/workload.0.et, runs/gpt/workload.1.et, ...; .et.gz as well)"
)
SHOWN_RANKS = 16


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags; those of ASTRA-sim are accepted under its own names too."""
    add = parser.add_argument
    add("--workload", "--workload-configuration", required=True, metavar="PREFIX",
        help="prefix of PREFIX.<rank>.et or PREFIX.<rank>.et.gz")  # fmt: skip
    add("--system", "--system-configuration", required=True, metavar="system.json",
        help="algorithms, chunking and local rates")  # fmt: skip
    add("--network", "--network-configuration", required=True, metavar="network.yml",
        help="dimensions of the network")  # fmt: skip
    add("--memory", "--remote-memory-configuration", metavar="memory.json",
        help="remote memory; none by default")  # fmt: skip
    add("--comm-group", "--comm-group-configuration", metavar="groups.json",
        help='communicator groups {"1": [0, 1], ...}; "empty" for none; by default a '
        "comm_group.json beside the workload, if there is one")  # fmt: skip
    add("--congestion", choices=("unaware", "aware"), default="unaware",
        help="whether messages share links (default: %(default)s)")  # fmt: skip
    add("--num-queues-per-dim", type=int, default=1, metavar="N",
        help="queues of a rank in each dimension (default: %(default)s)")  # fmt: skip
    add("--injection-scale", type=float, default=1.0, metavar="X",
        help="factor on the endpoint delay (default: %(default)s)")  # fmt: skip
    add("--rendezvous-protocol", choices=("true", "false"), default="false",
        help="receivers ask before each message (default: %(default)s)")  # fmt: skip
    add("--json", metavar="OUT", help='write the result as JSON; "-" for standard output')
    add("--trace", metavar="OUT.json", help="write a timeline for Perfetto")
    add("--nodes", metavar="OUT.csv", help="write issue and finish tick of every node")


def run(args: argparse.Namespace) -> int:
    """Simulate, write what was asked for, print a summary."""
    from layerdag.simulator import Congestion, RunOptions, simulate
    from layerdag.simulator.cluster_files import read_memory, read_network, read_system
    from layerdag.simulator.exports import write_nodes, write_summary, write_timeline

    if args.nodes == "-" or args.trace == "-":
        raise UsageError("--nodes and --trace need a file name; only --json may be '-'.")
    system, network = read_system(args.system), read_network(args.network)
    memory = read_memory(args.memory) if args.memory else None
    options = RunOptions(
        congestion=Congestion(args.congestion),
        queues_per_dimension=args.num_queues_per_dim,
        injection_scale=args.injection_scale,
        rendezvous=args.rendezvous_protocol == "true",
    )
    workload = _read_workload(args)
    result = simulate(workload, system, network, memory=memory, options=options)
    if args.nodes:
        write_nodes(result, args.nodes)
    if args.trace:
        write_timeline(result, args.trace)
    if args.json == "-":
        json.dump(result.summary(), sys.stdout, indent=1)
        print()
        return 0
    if args.json:
        write_summary(result, args.json)
    print(_summary(result))
    return 0


def _read_workload(args: argparse.Namespace) -> "Workload":
    """Read all ranks, with the groups that were asked for."""
    from layerdag.traces.workload import read_workload

    if args.comm_group == "empty":
        return dataclasses.replace(read_workload(args.workload), groups={})
    return read_workload(args.workload, args.comm_group)


def _summary(result: "SimulationResult") -> str:
    """Return the table of ranks that is printed on the terminal."""
    lines = [
        f"{result.num_nodes} nodes on {result.num_ranks} ranks, makespan "
        f"{result.makespan_ns} ns ({result.makespan_ns / 1e6:.3f} ms)",
        f"{'rank':>6} {'finish ns':>15} {'compute ns':>15} {'exposed ns':>15} {'exposed':>8}",
    ]
    columns = (result.rank_finish_ns, result.compute_ns, result.exposed_comm_ns)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    for rank, (finish, compute, exposed) in enumerate(rows[:SHOWN_RANKS]):
        share = exposed / finish if finish else 0.0
        lines.append(f"{rank:>6} {finish:>15} {compute:>15} {exposed:>15} {share:>8.1%}")
    if len(rows) > SHOWN_RANKS:
        lines.append(f"{len(rows) - SHOWN_RANKS} more ranks; --json writes them all")
    lines.append("exposed: communication, idle and CPU time outside GPU compute (ASTRA-sim's sum)")
    return "\n".join(lines)
