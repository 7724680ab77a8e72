"""``layerdag simulate``: run a workload on a described cluster."""

import argparse
import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Any

from layerdag.cli import without_blas_threads, without_garbage_search
from layerdag.cli.output import interval, peak_memory, report, summary
from layerdag.cli.settings import configure, tell_ignored, workload_prefix
from layerdag.errors import UsageError
from layerdag.simulator.compute import CHOICES

if TYPE_CHECKING:
    from layerdag.simulator import Cluster, RunOptions, SimulationResult, SystemConfig, Variation
    from layerdag.simulator.compute import ComputeModel
    from layerdag.traces import Workload

SUMMARY = "Run a workload on a described cluster; equal to ASTRA-sim's analytical backend."
EXAMPLE = (
    "  layerdag simulate data/examples/ddp_mlp --preset small --report\n"
    "  layerdag simulate runs/gpt/workload --system system.json \\\n"
    "      --network network.yml --comm-group comm_group.json \\\n"
    "      --json result.json --trace timeline.json\n"
    "  (workload: runs/gpt/workload.0.et, runs/gpt/workload.1.et, ...; .et.gz as well)\n"
    "  layerdag simulate data/examples/ddp_mlp --preset small \\\n"
    "      --compute systolic:128x128,clock=0.94,bandwidth=900\n"
    "\n"
    "compute models (--compute MODEL):\n" + "".join(f"  {line}\n" for line in CHOICES.splitlines())
)

__all__ = ["EXAMPLE", "SUMMARY", "configure", "run"]


def run(args: argparse.Namespace) -> int:
    """Simulate, write what was asked for, print a summary."""
    without_blas_threads()
    with without_garbage_search():
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    from layerdag.simulator import simulate

    if args.nodes == "-" or args.trace == "-":
        raise UsageError("--nodes and --trace need a file name; only --json may be '-'.")
    tell_ignored(args)
    if args.backend == "astra-sim":
        return _run_binary(args)
    if args.binary:
        raise UsageError("--binary needs --backend astra-sim.")
    workload = _read_workload(args)
    cluster, compute = _cluster(args, workload.num_ranks)
    result = simulate(workload, cluster, compute=compute, variation=_variation(args))
    document, lines = result.summary(), summary(result)
    for wanted, extra in (
        (args.report or args.memory_capacity is not None, lambda: peak_memory(args, result)),
        (args.report, lambda: report(result)),
        (args.what_if, lambda: _what_if(args, workload, cluster, compute)),
        (args.machine, lambda: interval(args, result)),
    ):
        if wanted:
            more, further = extra()
            document, lines = {**document, **more}, lines + further
    if args.nodes or args.trace:
        _write_ticks(args, result)
    _tell(args, document, lines)
    for note in result.notes:
        print(f"layerdag: note: {note}", file=sys.stderr)
    return 0


def _write_ticks(args: argparse.Namespace, result: "SimulationResult") -> None:
    """Write the ticks of every node where they were asked for."""
    from layerdag.simulator.analysis import write_nodes, write_timeline

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
        from layerdag._runtime import write_text

        write_text(args.json, json.dumps(document, indent=1) + "\n")
    print("\n".join(lines))


def _run_binary(args: argparse.Namespace) -> int:
    """Let the user's ASTRA-sim run the same files."""
    from layerdag.simulator.astra import AstraLogs, AstraRequest, run_binary, write_ticks

    ours = (
        "preset",
        "machine",
        "compute",
        "slow",
        "noise",
        "trace",
        "report",
        "what_if",
        "memory_capacity",
    )
    refused = [name for name in ours if getattr(args, name)]
    refused += ["congestion"] if args.congestion != "unaware" else []
    refused += ["group_collectives"] if args.group_collectives != "flat" else []
    refused += ["missing_implementations"] if args.missing_implementations != "refuse" else []
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
    files = (args.binary, workload_prefix(args), args.system, args.network, args.memory)
    logs = AstraLogs(args.logging_configuration, args.logging_folder)
    outcome = run_binary(workload, AstraRequest(*files, _options(args), args.timeout, logs))
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
    from layerdag.simulator import Cluster
    from layerdag.simulator.astra import read_memory
    from layerdag.simulator.compute import compute_model

    options = _options(args)
    if args.machine:
        return _machine(args, num_ranks, options)
    if args.preset and (args.system or args.network):
        raise UsageError("--preset replaces --system and --network; give one or the others.")
    if args.preset:
        preset = Cluster.preset(args.preset)
        cluster = dataclasses.replace(preset.sized(num_ranks), options=options)
        if args.memory:
            cluster = dataclasses.replace(cluster, memory=read_memory(args.memory))
        cluster = dataclasses.replace(cluster, system=_asked(args, cluster.system))
        return cluster, compute_model(args.compute or preset.compute, cluster.system)
    if not args.system or not args.network:
        raise UsageError("--system and --network are needed (or --preset small in their place).")
    cluster = Cluster.from_files(
        system=args.system, network=args.network, memory=args.memory, options=options
    )
    cluster = dataclasses.replace(cluster, system=_asked(args, cluster.system))
    return cluster, compute_model(args.compute or "reference", cluster.system)


def _machine(
    args: argparse.Namespace, num_ranks: int, options: "RunOptions"
) -> "tuple[Cluster, ComputeModel]":
    """Return the cluster and the times of compute nodes of a calibrated machine."""
    from layerdag.simulator.astra import read_memory
    from layerdag.simulator.calibration import read_machine

    for flag in ("preset", "system", "network", "compute"):
        if getattr(args, flag):
            raise UsageError(f"--machine states what --{flag} would; leave one of them out.")
    machine = read_machine(args.machine)
    cluster = dataclasses.replace(machine.cluster(num_ranks), options=options)
    if args.memory:
        cluster = dataclasses.replace(cluster, memory=read_memory(args.memory))
    cluster = dataclasses.replace(cluster, system=_asked(args, cluster.system))
    return cluster, machine.compute(num_ranks)


def _asked(args: argparse.Namespace, system: "SystemConfig") -> "SystemConfig":
    """Return the system with what the flags say about collectives."""
    from layerdag.simulator import GroupCollectives, MissingImplementations

    return dataclasses.replace(
        system,
        group_collectives=GroupCollectives(args.group_collectives),
        missing=MissingImplementations(args.missing_implementations),
    )


def _variation(args: argparse.Namespace) -> "Variation | None":
    """Return how ranks differ, None if they do not."""
    from layerdag.simulator import PowerLawNoise, Variation

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
    """Read all ranks, with the groups that were asked for."""
    from layerdag.simulator.engine import refuse_described_world
    from layerdag.traces import read_workload

    prefix = workload_prefix(args)
    if args.comm_group == "empty":
        return dataclasses.replace(read_workload(prefix), groups={})
    workload = read_workload(prefix, args.comm_group)
    refuse_described_world(workload)
    return workload


def _what_if(
    args: argparse.Namespace, workload: "Workload", cluster: "Cluster", compute: "ComputeModel"
) -> tuple[dict[str, Any], list[str]]:
    """Return what --what-if adds to the JSON document and to the terminal."""
    from layerdag.simulator.analysis import sensitivities

    found = sensitivities(workload, cluster, compute, _variation(args))
    lines = ["", "what if"]
    lines += [f"{e.makespan_ns:>15} ns {e.gain:>+7.2%}  {e.change}" for e in found]
    return {"what_if": [dataclasses.asdict(entry) for entry in found]}, lines
