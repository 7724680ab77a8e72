"""``layerdag simulate``: run a workload on a described cluster."""

import argparse
import dataclasses
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from layerdag.cli.printing import (
    add_strict,
    counted,
    group_equal_rows,
    notes_json,
    print_figures,
    print_notes,
    strict_code,
)
from layerdag.errors import SimulationError, UsageError
from layerdag.simulator.compute_choice import CHOICES

if TYPE_CHECKING:
    from layerdag.simulator.analysis import Breakdown
    from layerdag.simulator.cluster import Cluster
    from layerdag.simulator.compute import ComputeModel
    from layerdag.simulator.config import RunOptions, SystemConfig
    from layerdag.simulator.measured_kernels import MeasuredKernels
    from layerdag.simulator.run import SimulationResult, Variation
    from layerdag.traces.trace import Workload


SHOWN_NODES = 10
SHOWN_RANKS = 16
MAX_CAPACITY_GB = 1e9


def summary(result: "SimulationResult") -> list[str]:
    """Return the lines that are printed on the terminal in any case."""
    lines = [
        f"{counted(result.num_nodes, 'node')} on {counted(result.num_ranks, 'rank')}, makespan "
        f"{result.makespan_ns} ns ({result.makespan_ns / 1e6:.3f} ms)",
        f"{'rank':>6} {'finish ns':>15} {'compute ns':>15} {'exposed ns':>15} {'exposed':>8}",
    ]
    columns = (result.rank_finish_ns, result.compute_ns, result.exposed_comm_ns)
    rows = group_equal_rows(zip(*(column.tolist() for column in columns), strict=True))
    for rank, (finish, compute, exposed) in rows[:SHOWN_RANKS]:
        fraction = exposed / finish if finish else 0.0
        lines.append(f"{rank:>6} {finish:>15} {compute:>15} {exposed:>15} {fraction:>8.1%}")
    if len(rows) > SHOWN_RANKS:
        more = counted(len(rows) - SHOWN_RANKS, "kind")
        lines.append(f"{more} of ranks more; --json writes them all")
    lines.append("exposed: communication, idle and CPU time outside GPU compute (ASTRA-sim's sum)")
    unused_us = _unused_us(result)
    if unused_us:
        lines.append(
            "communication takes the network's time; what the trace recorded for it "
            f"({unused_us / 1000:,.3f} ms on rank 0), and 'layerdag info' counts, is not used"
        )
    return lines


def interval(
    args: argparse.Namespace, result: "SimulationResult"
) -> tuple[dict[str, Any], list[str]]:
    """Return what --machine adds to the JSON document and to the terminal."""
    from layerdag.simulator.calibration import read_machine

    machine, seconds = read_machine(args.machine), result.makespan_ns / 1e9
    sharing, spread = machine.sharing(result.num_ranks), machine.spread(result.num_ranks)
    document: dict[str, Any] = {"step_s": seconds, "ranks_per_core": sharing}
    lines = ["", f"step time {seconds * 1e3:,.3f} ms"]
    if sharing > 1:
        lines[1] += f"; ranks take turns, {sharing:g} on a core"
    if spread is None:
        return {"prediction": document}, [*lines, "too few measured runs for an interval"]
    low, high = seconds * spread.low, seconds * spread.high
    document |= {"low_s": low, "high_s": high, "runs": spread.runs}
    lines.append(
        f"between {low * 1e3:,.3f} and {high * 1e3:,.3f} ms if this run is like four in five of "
        f"{spread.runs:.0f} measured ones, each left out of the fit"
    )
    if result.num_ranks > spread.most_ranks:
        lines.append(
            f"on more ranks than were measured ({spread.most_ranks:.0f}), where errors are larger"
        )
    return {"prediction": document}, lines


def kernel_times(
    compute: "MeasuredKernels", result: "SimulationResult"
) -> tuple[dict[str, Any], list[str]]:
    """Return how the kernels of the busiest rank were timed, and the bounds of its busy time."""
    import numpy as np

    from layerdag.traces.trace import NodeType

    rank = int(np.argmax(result.compute_ns))
    trace = result.program.workload.traces[rank]
    on_host_N = trace.integers("is_cpu_op")[0] != 0
    rows = np.flatnonzero((trace.type_N == NodeType.COMP) & ~on_host_N)
    times = compute.kernel_times(trace, rows)
    busy_s, low_s, high_s = (us / 1e6 for us in times.busy_us)
    document = {"rank": rank, "nodes": times.counts}
    document |= {"busy_s": busy_s, "low_s": low_s, "high_s": high_s}
    ways = ", ".join(f"{count} by {HOW[way]}" for way, count in times.counts.items() if count)
    line = f"kernels of rank {rank}: {ways or 'none'}; busy {busy_s * 1e3:,.3f} ms"
    bounds = f"between {low_s * 1e3:,.3f} and {high_s * 1e3:,.3f} ms nine times in ten"
    lines = ["", f"{line}, {bounds}"]
    if compute.note:
        document["note"] = compute.note
        lines.append(compute.note)
    return {"kernel_times": document}, lines


HOW = {
    "table": "tables of measured kernels",
    "roofline": "the roofline of their kernel",
    "family": "a roofline of their family",
}
"""How a kernel was timed, by the words of ``MeasuredKernels``."""


def _unused_us(result: "SimulationResult") -> int:
    """Return how long the simulated communication of rank 0 took where it was recorded."""
    import numpy as np

    from layerdag.simulator.lowering import NodeKind

    trace, nodes = result.program.workload.traces[0], result.nodes(0)
    recorded_us_N = trace.duration_us_N[np.argsort(trace.id_N, kind="stable")]
    simulated = (NodeKind.SEND, NodeKind.RECV, NodeKind.COLLECTIVE)
    return int(recorded_us_N[np.isin(nodes.kind_N, simulated)].sum())


def report(result: "SimulationResult") -> tuple[dict[str, Any], list[str]]:
    """Return what --report adds to the JSON document and to the terminal."""
    from layerdag.simulator.analysis import breakdown, by_kind, by_node, critical_path

    parts = breakdown(result)
    path = critical_path(result)
    names, kinds = by_node(result, path), by_kind(result, path)
    rows = [dict(zip(parts.parts, row, strict=True)) for row in parts.time_ns_RP.tolist()]
    document = {
        "breakdown": {str(rank): row for rank, row in enumerate(rows)},
        "critical_path": [
            {
                "rank": node.rank,
                "node": int(result.nodes(node.rank).id_N[node.row]),
                "start": node.start_ns,
                "finish": node.finish_ns,
                "began_after": node.reason,
            }
            for node in path
        ],
        "critical_path_by_kind": kinds,
        "critical_path_by_name": names,
    }
    lines = ["", "where the time goes (exposed parts only)", *_breakdown_lines(parts)]
    lines += ["", f"critical path: {counted(len(path), 'node')}, by kind"]
    lines += _longest(kinds, result.makespan_ns)
    lines += ["the longest names on it", *_longest(names, result.makespan_ns)]
    return document, lines


def _longest(times: dict[str, int], makespan_ns: int) -> list[str]:
    return [
        f"{time:>15} ns {time / max(makespan_ns, 1):>7.1%}  {name}"
        for name, time in list(times.items())[:SHOWN_NODES]
    ]


def _breakdown_lines(parts: "Breakdown") -> list[str]:
    """Return where the time goes in ms: the mean of all ranks, and ranks alike once."""
    rows = [("mean", parts.time_ns_RP.mean(axis=0).tolist())]
    rows += group_equal_rows(parts.time_ns_RP.tolist())[:SHOWN_RANKS]
    lines = [f"{'rank':>6}" + "".join(f"{part:>13}" for part in (*parts.parts, "total"))]
    lines.append(f"{'ms':>6}")
    for label, row in rows:
        cells = "".join(f"{value / 1e6:>13.3f}" for value in (*row, sum(row)))
        lines.append(f"{label:>6}{cells}")
    return lines


def peak_memory(
    args: argparse.Namespace, result: "SimulationResult"
) -> tuple[dict[str, Any], list[str]]:
    """Return the peaks of local memory; raise or warn where they exceed --memory-capacity."""
    from layerdag.simulator.analysis import local_memory

    capacity = args.memory_capacity
    if capacity is not None and not 0 < capacity < MAX_CAPACITY_GB:
        raise UsageError(f"--memory-capacity is {capacity}; give a positive number of GB.")
    try:
        memory = local_memory(result)
    except SimulationError as error:
        if capacity is not None:
            raise
        return {"peak_memory_error": str(error)}, ["", f"peak local memory is not known: {error}"]
    over = memory.over(int(capacity * 1e9)) if capacity is not None else ""
    if over and args.over_capacity == "error":
        raise SimulationError(over)
    if over:
        print(f"layerdag: warning: {over}", file=sys.stderr)
    # Where no node names its tensors, the peak is that of single operators: worth no line.
    tells = capacity is not None or memory.listed_R.any()
    return memory.summary(), ["", memory.line()] if tells else []


def tracked_memory(result: "SimulationResult") -> tuple[dict[str, Any], list[str]]:
    """Write and return the local memory as ASTRA-sim's track-local-mem tells it."""
    from layerdag.simulator.astra_sim import in_units, reference_memory, write_memory

    prefix = result.program.cluster.system.local_mem_trace
    peaks: dict[str, int] = {}
    for found in reference_memory(result):
        write_memory(found, prefix)
        peaks[str(found.rank)] = found.peak
    highest = max(peaks.values())
    lines = ["", f"peak memory usage: {in_units(highest)} (as track-local-mem counts it; each"]
    lines[1] += f" rank's in {prefix}.<rank>.json)"
    return {"tracked_peak_memory_bytes": peaks}, lines


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags; those of ASTRA-sim are accepted under its own names too."""
    _configure_inputs(parser.add_argument)
    _configure_run(parser.add_argument)
    _configure_outputs(parser.add_argument)
    add_strict(parser)


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
    for name in ("compute", "comm"):
        add(f"--{name}-scale", type=float, metavar="X",
            help="accepted and without effect, as in ASTRA-sim")  # fmt: skip


def _configure_outputs(add: Callable[..., object]) -> None:
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

__all__ = ["EXAMPLE", "SUMMARY", "configure", "run"]


def run(args: argparse.Namespace) -> int:
    """Simulate, write what was asked for, print a summary."""
    from layerdag.cli.main import gc_disabled, single_threaded_blas

    single_threaded_blas()
    with gc_disabled():
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    from layerdag.simulator.measured_kernels import MeasuredKernels
    from layerdag.simulator.run import simulate

    if args.nodes == "-" or args.trace == "-":
        raise UsageError("--nodes and --trace need a file name.")
    tell_ignored(args)
    if args.backend == "astra-sim":
        return _run_binary(args)
    if args.binary:
        raise UsageError("--binary needs --backend astra-sim.")
    workload = _read_workload(args)
    cluster, compute = _cluster(args, workload.num_ranks)
    workload = _with_host(args, workload, cluster, compute)
    result = simulate(workload, cluster, compute=compute, variation=_variation(args))
    document, lines = result.summary(), summary(result)
    if isinstance(compute, MeasuredKernels):
        more, further = kernel_times(compute, result)
        document, lines = {**document, **more}, lines + further
    for wanted, extra in (
        (args.report or args.memory_capacity is not None, lambda: peak_memory(args, result)),
        (args.report, lambda: report(result)),
        (cluster.system.track_local_mem, lambda: tracked_memory(result)),
        (args.what_if, lambda: _what_if(args, workload, cluster, compute)),
        (args.machine, lambda: interval(args, result)),
    ):
        if wanted:
            more, further = extra()
            document, lines = {**document, **more}, lines + further
    if args.nodes or args.trace:
        _write_ticks(args, result)
    print_figures(args.json, {**document, "input_notes": notes_json(workload.notes)}, lines)
    print_notes(workload.notes)
    from layerdag.simulator.run import NOT_MODELED

    for note in (*result.notes, *_other_collectives(args, cluster, result.num_ranks)):
        print(f"note: {note}", file=sys.stderr)
    print(f"not modeled: {'; '.join(NOT_MODELED)}", file=sys.stderr)
    return strict_code(workload.notes, strict=args.strict)


def _other_collectives(args: argparse.Namespace, cluster: "Cluster", num_ranks: int) -> list[str]:
    """Say that collectives of the device of --compute were measured, where they are not used."""
    from layerdag.simulator.fitted_collectives import device_of

    asked = args.collectives or args.reference_semantics or args.group_collectives
    device = device_of(args.compute or "")
    if asked or cluster.system.fitted_collectives or not device or num_ranks == 1:
        return []
    return [
        "collectives run on the network as described, whose nodes are not of 8 ranks, whose links "
        f"are not those of {device}, or share messages; --collectives {device} takes NCCL's times"
    ]


def _with_host(
    args: argparse.Namespace, workload: "Workload", cluster: "Cluster", compute: "ComputeModel"
) -> "Workload":
    from layerdag.simulator.host_time import (
        HOST_CHOICES,
        host_scale,
        knows_calls,
        with_host_model,
        with_measured_host,
    )
    from layerdag.simulator.run import simulate

    word, _, rest = (args.host or "").partition(":")
    if not word:
        if (args.compute or "").startswith("measured:") and knows_calls(workload):
            print(
                "note: the host's time is not in this step; --host model adds it", file=sys.stderr
            )
        return workload
    if word not in HOST_CHOICES or (rest and word != "measured"):
        raise UsageError(f"--host is '{args.host}'; write {', '.join(HOST_CHOICES)}.")
    if word == "model":
        return with_host_model(workload)
    if word == "none":
        return with_measured_host(workload, 0.0)
    try:
        number = float(rest.removeprefix("step=")) if rest else 1.0
    except ValueError:
        raise UsageError(
            f"--host is '{args.host}'; write measured:0.5 or measured:step=0.0123."
        ) from None
    if not rest.startswith("step="):
        return with_measured_host(workload, number)

    def makespan_s(changed: "Workload") -> float:
        return simulate(changed, cluster, compute=compute).makespan_ns / 1e9

    scale = host_scale(makespan_s, workload, number)
    print(f"layerdag: note: the host's time is scaled by {scale:.3f}", file=sys.stderr)
    return with_measured_host(workload, scale)


def _write_ticks(args: argparse.Namespace, result: "SimulationResult") -> None:
    """Write the ticks of every node where they were asked for."""
    from layerdag.simulator.run import write_nodes, write_timeline

    if args.nodes:
        write_nodes(result, args.nodes)
    if args.trace:
        write_timeline(result, args.trace)


def _run_binary(args: argparse.Namespace) -> int:
    from layerdag.simulator.astra_sim import AstraLogs, AstraRequest, run_binary, write_ticks

    ours = (
        "preset",
        "machine",
        "compute",
        "host",
        "collectives",
        "slow",
        "noise",
        "trace",
        "report",
        "what_if",
        "memory_capacity",
    )
    refused = [name for name in ours if getattr(args, name)]
    refused += ["congestion"] if args.congestion != "unaware" else []
    refused += ["group_collectives"] if args.group_collectives == "hierarchical" else []
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


def _cluster(args: argparse.Namespace, num_ranks: int) -> "tuple[Cluster, ComputeModel]":
    from layerdag.simulator.cluster import Cluster, read_memory
    from layerdag.simulator.compute_choice import compute_model
    from layerdag.simulator.run import with_measured_collectives

    options = _options(args)
    if args.machine:
        return _machine(args, num_ranks, options)
    if args.preset and (args.system or args.network):
        raise UsageError("--preset replaces --system and --network; give one or the others.")
    if args.preset:
        preset = Cluster.preset(args.preset)
        cluster = dataclasses.replace(preset.with_ranks(num_ranks), options=options)
        if args.memory:
            cluster = dataclasses.replace(cluster, memory=read_memory(args.memory))
        cluster = dataclasses.replace(cluster, system=_asked(args, cluster.system))
        name = args.compute or preset.compute
        return with_measured_collectives(cluster, name), compute_model(name, cluster.system)
    if not args.system or not args.network:
        raise UsageError("--system and --network are needed (or --preset small in their place).")
    cluster = Cluster.from_files(
        system=args.system, network=args.network, memory=args.memory, options=options
    )
    cluster = dataclasses.replace(cluster, system=_asked(args, cluster.system))
    name = args.compute or "reference"
    return with_measured_collectives(cluster, name), compute_model(name, cluster.system)


def _machine(
    args: argparse.Namespace, num_ranks: int, options: "RunOptions"
) -> "tuple[Cluster, ComputeModel]":
    from layerdag.simulator.calibration import read_machine
    from layerdag.simulator.cluster import read_memory

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
    from layerdag.simulator.config import GroupCollectives, MissingImplementations
    from layerdag.simulator.fitted_collectives import fitted_devices

    if args.reference_semantics and args.group_collectives == "hierarchical":
        raise UsageError(
            "--reference-semantics runs groups as flat rings; leave --group-collectives out."
        )
    if args.collectives and args.reference_semantics:
        raise UsageError("--reference-semantics simulates collectives; leave --collectives out.")
    if args.collectives not in (None, _SIMULATED, *fitted_devices()):
        raise UsageError(
            f"no collectives were measured on '{args.collectives}'; known are "
            f"{', '.join(fitted_devices())}, and {_SIMULATED} runs all on the network."
        )
    groups = args.group_collectives or ("flat" if args.reference_semantics else "hierarchical")
    return dataclasses.replace(
        system,
        group_collectives=GroupCollectives(groups),
        missing=MissingImplementations(args.missing_implementations),
        fitted_collectives=_fitted_collectives(args),
    )


_SIMULATED = "simulated"
"""Of --collectives: all of them run on the network."""


def _fitted_collectives(args: argparse.Namespace) -> str | None:
    """Return the device whose collectives are taken, "" for none, None for that of --compute."""
    device: str | None = args.collectives
    if device is None:
        return "" if args.reference_semantics or args.group_collectives else None
    return "" if device == _SIMULATED else device


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

    prefix = workload_prefix(args)
    if args.comm_group == "empty":
        return dataclasses.replace(read_workload(prefix), groups={})
    workload = read_workload(prefix, args.comm_group)
    reject_world_description(workload)
    return workload


def _what_if(
    args: argparse.Namespace, workload: "Workload", cluster: "Cluster", compute: "ComputeModel"
) -> tuple[dict[str, Any], list[str]]:
    from layerdag.simulator.analysis import sensitivities

    found = sensitivities(workload, cluster, compute, _variation(args))
    lines = ["", "what if"]
    lines += [f"{e.makespan_ns:>15} ns {e.gain:>+7.2%}  {e.change}" for e in found]
    return {"what_if": [dataclasses.asdict(entry) for entry in found]}, lines
