"""The report of ``layerdag simulate``: the document of ``--json`` and lines for people."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from layerdag.errors import SimulationError, UsageError
from layerdag.runtime.terminal import counted, group_equal_rows
from layerdag.simulator.analysis import (
    Breakdown,
    breakdown,
    by_kind,
    by_node,
    critical_path,
    local_memory,
)
from layerdag.simulator.calibration import CalibratedMachine
from layerdag.simulator.lowering import NodeKind
from layerdag.simulator.run import SimulationResult
from layerdag.traces.trace import NodeType

SHOWN_NODES = 10
SHOWN_RANKS = 16
MAX_CAPACITY_GB = 1e9


def describe(
    result: SimulationResult,
    *,
    details: bool = False,
    machine: CalibratedMachine | None = None,
    capacity_gb: float | None = None,
    warn: Callable[[str], object] | None = None,
) -> tuple[dict[str, Any], list[str]]:
    """Return what a run came to, as the document of ``--json`` and as lines for people.

    Args:
        result: Of ``simulate``.
        details: Whether to add where the time goes, the critical path and the peak of memory.
        machine: Adds the interval of the step time on it.
        capacity_gb: Local memory of a rank in 1e9 bytes; None for no limit.
        warn: Takes the sentence on a rank whose tensors do not fit; None refuses such a run.

    Raises:
        SimulationError: If tensors do not fit.
        UsageError: If the capacity is not positive.
    """
    document, lines = result.summary(), _summary(result)
    parts: list[tuple[dict[str, Any], list[str]]] = []
    kernels = _kernel_times(result)
    if kernels is not None:
        parts.append(kernels)
    if details or capacity_gb is not None:
        parts.append(_peak_memory(result, capacity_gb, warn))
    if details:
        parts.append(_where_time_goes(result))
    if result.program.cluster.system.track_local_mem:
        parts.append(_tracked_memory(result))
    if result.what_if:
        gains = [f"{e.makespan_ns:>15} ns {e.gain:>+7.2%}  {e.change}" for e in result.what_if]
        rows = [dataclasses.asdict(entry) for entry in result.what_if]
        parts.append(({"what_if": rows}, ["", "what if", *gains]))
    if machine is not None:
        parts.append(_interval(result, machine))
    for more, further in parts:
        document |= more
        lines += further
    return document, lines


def _summary(result: SimulationResult) -> list[str]:
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
    # How long the simulated communication of rank 0 took where it was recorded.
    trace = result.program.workload.traces[0]
    recorded_us_N = trace.duration_us_N[np.argsort(trace.id_N, kind="stable")]
    simulated = (NodeKind.SEND, NodeKind.RECV, NodeKind.COLLECTIVE)
    unused_us = int(recorded_us_N[np.isin(result.nodes(0).kind_N, simulated)].sum())
    if unused_us:
        lines.append(
            "communication takes the network's time; what the trace recorded for it "
            f"({unused_us / 1000:,.3f} ms on rank 0), and 'layerdag info' counts, is not used"
        )
    return lines


def _interval(
    result: SimulationResult, machine: CalibratedMachine
) -> tuple[dict[str, Any], list[str]]:
    """Return the interval of the step time of a calibrated machine."""
    seconds = result.makespan_s
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


def _kernel_times(result: SimulationResult) -> tuple[dict[str, Any], list[str]] | None:
    """Return how the kernels of the busiest rank were timed, and the bounds of its busy time."""
    rank = int(np.argmax(result.compute_ns))
    trace = result.program.workload.traces[rank]
    on_host_N = trace.integers("is_cpu_op")[0] != 0
    rows = np.flatnonzero((trace.type_N == NodeType.COMP) & ~on_host_N)
    explained = result.compute.explain(trace, rows)
    if explained is None:
        return None
    document, line, notes = explained
    lines = ["", f"kernels of rank {rank}: {line}", *notes]
    return {"kernel_times": {"rank": rank, **document}}, lines


def _where_time_goes(result: SimulationResult) -> tuple[dict[str, Any], list[str]]:
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
    for heading, times in ((None, kinds), ("the longest names on it", names)):
        lines += [heading] if heading else []
        lines += [
            f"{time:>15} ns {time / max(result.makespan_ns, 1):>7.1%}  {name}"
            for name, time in list(times.items())[:SHOWN_NODES]
        ]
    return document, lines


def _breakdown_lines(parts: Breakdown) -> list[str]:
    """Return where the time goes in ms: the mean of all ranks, and ranks alike once."""
    rows = [("mean", parts.time_ns_RP.mean(axis=0).tolist())]
    rows += group_equal_rows(parts.time_ns_RP.tolist())[:SHOWN_RANKS]
    lines = [f"{'rank':>6}" + "".join(f"{part:>13}" for part in (*parts.parts, "total"))]
    lines.append(f"{'ms':>6}")
    for label, row in rows:
        cells = "".join(f"{value / 1e6:>13.3f}" for value in (*row, sum(row)))
        lines.append(f"{label:>6}{cells}")
    return lines


def _peak_memory(
    result: SimulationResult, capacity_gb: float | None, warn: Callable[[str], object] | None
) -> tuple[dict[str, Any], list[str]]:
    """Return the peaks of local memory; raise or warn where they exceed the capacity."""
    if capacity_gb is not None and not 0 < capacity_gb < MAX_CAPACITY_GB:
        raise UsageError(f"--memory-capacity is {capacity_gb}; give a positive number of GB.")
    try:
        memory = local_memory(result)
    except SimulationError as error:
        if capacity_gb is not None:
            raise
        return {"peak_memory_error": str(error)}, ["", f"peak local memory is not known: {error}"]
    over = memory.over(int(capacity_gb * 1e9)) if capacity_gb is not None else ""
    if over and warn is None:
        raise SimulationError(over)
    if over and warn is not None:
        warn(over)
    # Where no node names its tensors, the peak is that of single operators: worth no line.
    is_known = capacity_gb is not None or memory.listed_R.any()
    return memory.summary(), ["", memory.line()] if is_known else []


def _tracked_memory(result: SimulationResult) -> tuple[dict[str, Any], list[str]]:
    """Write and return the local memory as ASTRA-sim's track-local-mem reports it."""
    from layerdag.simulator.astra_sim import in_units, reference_memory, write_memory

    prefix = result.program.cluster.system.local_mem_trace
    peaks: dict[str, int] = {}
    for rank in range(result.num_ranks):
        found = reference_memory(result, rank)
        write_memory(found, prefix)
        peaks[str(rank)] = found.peak
    highest = max(peaks.values())
    lines = ["", f"peak memory usage: {in_units(highest)} (as track-local-mem counts it; each"]
    lines[1] += f" rank's in {prefix}.<rank>.json)"
    return {"tracked_peak_memory_bytes": peaks}, lines
