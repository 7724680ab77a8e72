"""``layerdag simulate``: run a workload on a described cluster."""

import argparse
import dataclasses
import sys
from typing import TYPE_CHECKING

from layerdag.cli.printing import (
    add_strict,
    notes_json,
    print_figures,
    print_notes,
    strict_code,
    warn,
)
from layerdag.errors import UsageError
from layerdag.runtime.terminal import counted
from layerdag.simulator.compute_choice import CHOICES

if TYPE_CHECKING:
    from layerdag.simulator.calibration import CalibratedMachine
    from layerdag.simulator.cluster import Cluster
    from layerdag.simulator.config import RunOptions
    from layerdag.simulator.run import Variation
    from layerdag.traces.trace import Workload


SUMMARY = "Run a workload on a described cluster; equal to ASTRA-sim's analytical backend."
EXAMPLE = (
    "  layerdag workload gpt2 --data 2 --out traces/gpt2\n"
    "  layerdag simulate traces/gpt2 --preset small --compute h100 --report\n"
    "  layerdag simulate runs/gpt/workload --system system.json \\\n"
    "      --network network.yml --comm-group comm_group.json \\\n"
    "      --trace timeline.json --json > result.json\n"
    "  (workload: runs/gpt/workload.0.et, runs/gpt/workload.1.et, ...; .et.gz as well)\n"
    "  layerdag simulate traces/gpt2 --preset small \\\n"
    "      --compute systolic:128x128,clock=0.94,bandwidth=900\n"
    "\n"
    "compute models (--compute MODEL):\n" + "".join(f"  {line}\n" for line in CHOICES.splitlines())
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags; those of ASTRA-sim are accepted under its own names too."""
    add = parser.add_argument
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
    add("--group-collectives", choices=("flat", "hierarchical"),
        help="collectives of groups that are grids of ranks: one flat ring, or phase by phase in "
        "the dimensions they span (default: hierarchical)")  # fmt: skip
    add("--reference-semantics", action="store_true",
        help="every tick as in ASTRA-sim, whose groups communicate in flat rings")  # fmt: skip
    add("--collectives", metavar="HOW",
        help="a device (h100, h200, ...): collectives take the time measured in a node of 8, each "
        "rank by itself, and among nodes the last dimension of the network adds a ring or a tree, "
        "as NCCL chooses; simulated: all run on the network (default: the device of --compute "
        "where its collectives were measured and nodes of the network have 8)")  # fmt: skip
    add("--missing-implementations", choices=("refuse", "skip"), default="refuse",
        help="collectives whose implementation list has no entry for a dimension: refuse them, or "
        "leave that dimension out, as the reference does (default: %(default)s)")  # fmt: skip
    add("--host", metavar="HOW",
        help="time of the host: model (of eager PyTorch, before each node), measured (calls and "
        "gaps of a profile; measured:X scales them, measured:step=SECONDS until the step lasts as "
        "long as without profiler) or none (default: as in the trace)")  # fmt: skip
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
    add_strict(parser)


def run(args: argparse.Namespace) -> int:
    """Simulate, write what was asked for, print a summary."""
    from layerdag.simulator.calibration import read_machine
    from layerdag.simulator.report import describe
    from layerdag.simulator.run import NOT_MODELED, simulate, write_nodes, write_timeline

    if args.nodes == "-" or args.trace == "-":
        raise UsageError("--nodes and --trace need a file name.")
    if args.backend == "astra-sim":
        return _run_binary(args)
    for flag in ("--logging-folder", "--logging-configuration"):
        if getattr(args, flag[2:].replace("-", "_")) is not None:
            note = f"layerdag: note: {flag} has no effect; layerdag writes no logs"
            print(note, file=sys.stderr)
    if args.binary:
        raise UsageError("--binary needs --backend astra-sim.")
    for flag in ("preset", "system", "network", "compute"):
        if args.machine and getattr(args, flag):
            raise UsageError(f"--machine states what --{flag} would; leave one of them out.")
    workload = _read_workload(args)
    machine = read_machine(args.machine) if args.machine else None
    result = simulate(
        workload,
        _cluster(args, machine, workload.num_ranks),
        compute=args.compute,
        host=args.host or "",
        variation=_variation(args),
        what_if=args.what_if,
    )
    document, lines = describe(
        result,
        details=args.report,
        machine=machine,
        capacity_gb=args.memory_capacity,
        warn=warn if args.over_capacity == "warn" else None,
    )
    if args.nodes:
        write_nodes(result, args.nodes)
    if args.trace:
        write_timeline(result, args.trace)
    print_figures(args.json, {**document, "input_notes": notes_json(workload.notes)}, lines)
    print_notes(workload.notes)
    for note in (*result.notes, *_unused_measurements(args, workload, result.program.cluster)):
        print(f"note: {note}", file=sys.stderr)
    print(f"not modeled: {'; '.join(NOT_MODELED)}", file=sys.stderr)
    return strict_code(workload.notes, strict=args.strict)


def _unused_measurements(
    args: argparse.Namespace, workload: "Workload", cluster: "Cluster"
) -> list[str]:
    """Return a note on the host's time and on collectives that were measured and are not used."""
    from layerdag.simulator.fitted_collectives import device_of
    from layerdag.simulator.host_time import knows_calls

    compute, found = args.compute or "", []
    if not args.host and compute.startswith("measured:") and knows_calls(workload):
        found.append("the host's time is not in this step; --host model adds it")
    asked = args.collectives or args.reference_semantics or args.group_collectives
    device = device_of(compute)
    if not (asked or cluster.system.fitted_collectives or not device or workload.num_ranks == 1):
        found.append(
            "collectives run on the network as described, whose nodes are not of 8 ranks, whose "
            f"links are not those of {device}, or share messages; --collectives {device} takes "
            "NCCL's times"
        )
    return found


def _run_binary(args: argparse.Namespace) -> int:
    from layerdag.simulator.astra_sim import AstraRequest, run_binary, write_ticks

    usual = {
        **dict.fromkeys(("preset", "machine", "compute", "host", "collectives", "trace"), None),
        **{"slow": [], "noise": None, "report": False, "what_if": False, "memory_capacity": None},
        **{"congestion": "unaware", "missing_implementations": "refuse", "comm_streams": 1},
    }
    refused = [name for name, value in usual.items() if getattr(args, name) != value]
    refused += ["group_collectives"] if args.group_collectives == "hierarchical" else []
    if refused:
        flag = refused[0].replace("_", "-")
        raise UsageError(
            f"--{flag} is layerdag's own; leave it out with --backend astra-sim (whether links are "
            "shared is decided by which of its binaries you give)."
        )
    if not args.binary or not args.system or not args.network:
        raise UsageError("--backend astra-sim needs --binary, --system and --network.")
    workload = _read_workload(args)
    files = (args.binary, _prefix(args), args.system, args.network, args.memory)
    logs = (args.logging_configuration, args.logging_folder)
    outcome = run_binary(workload, AstraRequest(*files, _options(args), args.timeout, *logs))
    if args.nodes:
        write_ticks(outcome, workload, args.nodes)
    lines = [
        f"{counted(len(outcome.ticks), 'node')} on {counted(workload.num_ranks, 'rank')}, makespan "
        f"{max(outcome.finish_ns)} ns, as ASTRA-sim reports; every node is done"
    ]
    print_figures(args.json, outcome.summary(), lines)
    return 0


def _options(args: argparse.Namespace) -> "RunOptions":
    from layerdag.simulator.config import Congestion, RunOptions

    return RunOptions(
        congestion=Congestion(args.congestion),
        queues_per_dimension=args.num_queues_per_dim,
        injection_scale=args.injection_scale,
        rendezvous=args.rendezvous_protocol == "true",
        comm_streams=args.comm_streams,
    )


def _cluster(
    args: argparse.Namespace, machine: "CalibratedMachine | None", num_ranks: int
) -> "Cluster":
    """Return what to run on."""
    from layerdag.simulator.cluster import Cluster, read_memory

    if args.preset and (args.system or args.network):
        raise UsageError("--preset replaces --system and --network; give one or the others.")
    if machine is not None:
        cluster = machine.with_ranks(num_ranks)
    elif args.preset:
        cluster = Cluster(args.preset, num_ranks=num_ranks)
    elif args.system and args.network:
        cluster = Cluster.from_files(system=args.system, network=args.network)
    else:
        raise UsageError("--system and --network are needed (or --preset small in their place).")
    return cluster.changed(
        options=_options(args),
        memory=read_memory(args.memory) if args.memory else None,
        collectives=args.collectives,
        group_collectives=args.group_collectives,
        missing=args.missing_implementations,
        reference_semantics=args.reference_semantics,
    )


def _variation(args: argparse.Namespace) -> "Variation | None":
    """Return how ranks differ, None if they do not."""
    from layerdag.simulator.run import PowerLawNoise, Variation

    if not args.slow and not args.noise:
        return None
    try:
        pairs = [entry.split("=") for entry in args.slow]
        factors = {int(rank): float(factor) for rank, factor in pairs}
        parts = args.noise.split(",") if args.noise else []
        numbers = [float(part) for part in parts]
        if len(numbers) not in (0, 3):
            raise ValueError
    except ValueError:
        raise UsageError("write --slow RANK=FACTOR and --noise EXPONENT,SCALE,SEED.") from None
    noise = PowerLawNoise(numbers[0], numbers[1], int(numbers[2])) if numbers else None
    return Variation(factors, noise)


def _read_workload(args: argparse.Namespace) -> "Workload":
    from layerdag.simulator.collectives import reject_world_description
    from layerdag.traces.chakra.workload import read_workload

    if args.comm_group == "empty":
        return dataclasses.replace(read_workload(_prefix(args)), groups={})
    workload = read_workload(_prefix(args), args.comm_group)
    reject_world_description(workload)
    return workload


def _prefix(args: argparse.Namespace) -> str:
    """Return the prefix of the workload, which may be given in two ways."""
    if args.prefix and args.workload:
        raise UsageError(
            f"the workload is given twice, as {args.prefix} and with --workload; give it once."
        )
    if not (args.prefix or args.workload):
        raise UsageError("the workload is missing; write 'layerdag simulate PREFIX ...'.")
    return str(args.prefix or args.workload)
