"""``layerdag simulate``: run a workload on a described cluster."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from layerdag.cli.simulate_report import peak_memory, report
from layerdag.cli.start import without_blas_threads, without_garbage_search
from layerdag.errors import UsageError

if TYPE_CHECKING:
    from layerdag.simulator import RunOptions, SimulationResult, SystemConfig, Variation
    from layerdag.simulator.compute import ComputeModel
    from layerdag.simulator.program import Cluster
    from layerdag.traces.trace import Workload

SUMMARY = "Run a workload on a described cluster; equal to ASTRA-sim's analytical backend."
EXAMPLE = (
    "  layerdag simulate --workload data/examples/ddp_mlp --preset small --report\n"
    "  layerdag simulate --workload runs/gpt/workload --system system.json \\\n"
    "      --network network.yml --comm-group comm_group.json \\\n"
    "      --json result.json --trace timeline.json\n"
    "  (workload: runs/gpt/workload.0.et, runs/gpt/workload.1.et, ...; .et.gz as well)"
)
SHOWN_RANKS = 16


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags; those of ASTRA-sim are accepted under its own names too."""
    _configure_inputs(parser.add_argument)
    _configure_outputs(parser.add_argument)


def _configure_inputs(add: Callable[..., object]) -> None:
    add("--workload", "--workload-configuration", required=True, metavar="PREFIX",
        help="prefix of PREFIX.<rank>.et or PREFIX.<rank>.et.gz")  # fmt: skip
    add("--system", "--system-configuration", metavar="system.json",
        help="algorithms, chunking and local rates")  # fmt: skip
    add("--network", "--network-configuration", metavar="network.yml",
        help="dimensions of the network")  # fmt: skip
    add("--preset", choices=("small",),
        help="instead of --system and --network: one switch, 25 GB/s and 1000 ns a link, rings, "
        "measured durations")  # fmt: skip
    add("--compute", metavar="MODEL",
        help="times of compute nodes: 'reference' (ASTRA-sim's), 'measured' (duration_ns where "
        "there is one), or the roofline of a device: a100-40, a100-80, h100, h200, tpu-v3, tpu-v4 "
        "(default: reference, under --preset measured)")  # fmt: skip
    add("--memory", "--remote-memory-configuration", metavar="memory.json",
        help="remote memory; none by default")  # fmt: skip
    add("--comm-group", "--comm-group-configuration", metavar="groups.json",
        help='communicator groups {"1": [0, 1], ...}; "empty" for none; by default a '
        "comm_group.json beside the workload, if there is one")  # fmt: skip
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


def run(args: argparse.Namespace) -> int:
    """Simulate, write what was asked for, print a summary."""
    without_blas_threads()
    with without_garbage_search():
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    from layerdag.simulator.run import simulate_on

    if args.nodes == "-" or args.trace == "-":
        raise UsageError("--nodes and --trace need a file name; only --json may be '-'.")
    if args.backend == "astra-sim":
        return _run_binary(args)
    if args.binary:
        raise UsageError("--binary needs --backend astra-sim.")
    workload = _read_workload(args)
    cluster, compute = _cluster(args, workload.num_ranks)
    result = simulate_on(workload, cluster, compute, _variation(args))
    document, lines = result.summary(), _summary(result)
    for wanted, extra in (
        (args.report or args.memory_capacity is not None, lambda: peak_memory(args, result)),
        (args.report, lambda: report(result)),
        (args.what_if, lambda: _what_if(args, workload, cluster, compute)),
    ):
        if wanted:
            more, told = extra()
            document, lines = {**document, **more}, lines + told
    if args.nodes or args.trace:
        _write_ticks(args, result)
    _tell(args, document, lines)
    return 0


def _write_ticks(args: argparse.Namespace, result: "SimulationResult") -> None:
    """Write the ticks of every node where they were asked for."""
    from layerdag.simulator.exports import write_nodes, write_timeline

    if args.nodes:
        write_nodes(result, args.nodes)
    if args.trace:
        write_timeline(result, args.trace)


def _tell(args: argparse.Namespace, document: dict[str, Any], lines: list[str]) -> None:
    """Write the JSON document where it was asked for, and the lines unless it takes their place."""
    if args.json == "-":
        json.dump(document, sys.stdout, indent=1)
        print()
        return
    if args.json:
        from layerdag.files import write_text

        write_text(args.json, json.dumps(document, indent=1) + "\n")
    print("\n".join(lines))


def _run_binary(args: argparse.Namespace) -> int:
    """Let the user's ASTRA-sim run the same files."""
    from layerdag.simulator.astra_binary import AstraRequest, run_binary, write_ticks

    ours = ("preset", "compute", "slow", "noise", "trace", "report", "what_if", "memory_capacity")
    refused = [name for name in ours if getattr(args, name)]
    refused += ["congestion"] if args.congestion != "unaware" else []
    refused += ["group_collectives"] if args.group_collectives != "flat" else []
    refused += ["comm_streams"] if args.comm_streams != 1 else []
    if refused:
        flag = refused[0].replace("_", "-")
        raise UsageError(
            f"--{flag} is layerdag's own; leave it out with --backend astra-sim (whether links are "
            "shared is decided by which of its binaries you give)."
        )
    if not args.binary or not args.system or not args.network:
        raise UsageError("--backend astra-sim needs --binary, --system and --network.")
    workload = _read_workload(args)
    files = (args.binary, args.workload, args.system, args.network, args.memory)
    outcome = run_binary(workload, AstraRequest(*files, _options(args), args.timeout))
    if args.nodes:
        write_ticks(outcome, workload, args.nodes)
    lines = [
        f"{len(outcome.ticks)} nodes on {workload.num_ranks} ranks, makespan "
        f"{max(outcome.finish_ns)} ns, as ASTRA-sim reports; every node is done"
    ]
    _tell(args, outcome.summary(), lines)
    return 0


def _options(args: argparse.Namespace) -> "RunOptions":
    """Return what ASTRA-sim takes from its command line."""
    from layerdag.simulator import Congestion, RunOptions

    return RunOptions(
        congestion=Congestion(args.congestion),
        queues_per_dimension=args.num_queues_per_dim,
        injection_scale=args.injection_scale,
        rendezvous=args.rendezvous_protocol == "true",
        comm_streams=args.comm_streams,
    )


def _cluster(args: argparse.Namespace, num_ranks: int) -> "tuple[Cluster, ComputeModel]":
    """Return the cluster of the flags, and the times of compute nodes on it."""
    from layerdag.simulator import GroupCollectives, MemoryConfig, small_cluster
    from layerdag.simulator.cluster_files import read_memory, read_network, read_system
    from layerdag.simulator.program import Cluster

    options = _options(args)
    memory = read_memory(args.memory) if args.memory else MemoryConfig()
    groups = GroupCollectives(args.group_collectives)
    if args.preset and (args.system or args.network):
        raise UsageError("--preset replaces --system and --network; give one or the others.")
    if args.preset:
        system, network = small_cluster(num_ranks)
        system = dataclasses.replace(system, group_collectives=groups)
        return Cluster(network, system, memory, options), _compute(args, system, "measured")
    if not args.system or not args.network:
        raise UsageError("--system and --network are needed (or --preset small in their place).")
    system, network = read_system(args.system), read_network(args.network)
    system = dataclasses.replace(system, group_collectives=groups)
    return Cluster(network, system, memory, options), _compute(args, system, "reference")


def _compute(args: argparse.Namespace, system: "SystemConfig", default: str) -> "ComputeModel":
    """Return the compute-cost model of --compute."""
    from layerdag.simulator.compute_choice import compute_model

    return compute_model(args.compute or default, system)


def _variation(args: argparse.Namespace) -> "Variation | None":
    """Return how ranks differ, None if they do not."""
    from layerdag.simulator import PowerLawNoise, Variation

    if not args.slow and not args.noise:
        return None
    try:
        pairs = [entry.split("=") for entry in args.slow]
        factors = {int(rank): float(factor) for rank, factor in pairs}
        words = args.noise.split(",") if args.noise else []
        numbers = [float(word) for word in words]
        if len(numbers) not in (0, 3):
            raise ValueError
    except ValueError:
        raise UsageError("write --slow RANK=FACTOR and --noise EXPONENT,SCALE,SEED.") from None
    noise = PowerLawNoise(numbers[0], numbers[1], int(numbers[2])) if numbers else None
    return Variation(factors, noise)


def _read_workload(args: argparse.Namespace) -> "Workload":
    """Read all ranks, with the groups that were asked for."""
    from layerdag.traces.workload import read_workload

    if args.comm_group == "empty":
        return dataclasses.replace(read_workload(args.workload), groups={})
    return read_workload(args.workload, args.comm_group)


def _what_if(
    args: argparse.Namespace, workload: "Workload", cluster: "Cluster", compute: "ComputeModel"
) -> tuple[dict[str, Any], list[str]]:
    """Return what --what-if adds to the JSON document and to the terminal."""
    from layerdag.simulator.what_if import sensitivities

    found = sensitivities(workload, cluster, compute, _variation(args))
    lines = ["", "what if"]
    lines += [f"{e.makespan_ns:>15} ns {e.gain:>+7.2%}  {e.change}" for e in found]
    return {"what_if": [dataclasses.asdict(entry) for entry in found]}, lines


def _summary(result: "SimulationResult") -> list[str]:
    """Return the lines that are printed on the terminal in any case."""
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
    return lines
