"""What ``layerdag simulate --report`` and ``--memory-capacity`` add to a result."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from layerdag.errors import SimulationError, UsageError

if TYPE_CHECKING:
    from layerdag.simulator import SimulationResult

SHOWN_NODES = 10
SHOWN_RANKS = 16
MAX_CAPACITY_GB = 1e9


def summary(result: "SimulationResult") -> list[str]:
    """Return the lines that are printed on the terminal in any case."""
    lines = [
        f"{result.num_nodes} nodes on {result.num_ranks} ranks, makespan "
        f"{result.makespan_ns} ns ({result.makespan_ns / 1e6:.3f} ms)",
        f"{'rank':>6} {'finish ns':>15} {'compute ns':>15} {'exposed ns':>15} {'exposed':>8}",
    ]
    columns = (result.rank_finish_ns, result.compute_ns, result.exposed_comm_ns)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    for rank, (finish, compute, exposed) in enumerate(rows[:SHOWN_RANKS]):
        fraction = exposed / finish if finish else 0.0
        lines.append(f"{rank:>6} {finish:>15} {compute:>15} {exposed:>15} {fraction:>8.1%}")
    if len(rows) > SHOWN_RANKS:
        lines.append(f"{len(rows) - SHOWN_RANKS} more ranks; --json writes them all")
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


def _unused_us(result: "SimulationResult") -> int:
    """Return how long the simulated communication of rank 0 took where it was recorded."""
    import numpy as np

    from layerdag.simulator.engine import NodeKind

    trace, nodes = result.program.workload.traces[0], result.nodes(0)
    recorded_us_N = trace.duration_us_N[np.argsort(trace.id_N, kind="stable")]
    simulated = (NodeKind.SEND, NodeKind.RECV, NodeKind.COLLECTIVE)
    return int(recorded_us_N[np.isin(nodes.kind_N, simulated)].sum())


def report(result: "SimulationResult") -> tuple[dict[str, Any], list[str]]:
    """Return what --report adds to the JSON document and to the terminal."""
    from layerdag.simulator.analysis import break_down, by_node, critical_path

    parts = break_down(result)
    path = critical_path(result)
    names = by_node(result, path)
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
        "critical_path_by_name": names,
    }
    lines = ["", "where the time goes (exposed parts only)", parts.table()]
    lines += ["", f"critical path: {len(path)} nodes; the longest names on it"]
    for name, time in list(names.items())[:SHOWN_NODES]:
        lines.append(f"{time:>15} ns {time / max(result.makespan_ns, 1):>7.1%}  {name}")
    return document, lines


def peak_memory(
    args: argparse.Namespace, result: "SimulationResult"
) -> tuple[dict[str, Any], list[str]]:
    """Return the peaks of local memory; raise or warn where they exceed --memory-capacity."""
    from layerdag.simulator.analysis import local_memory

    capacity = args.memory_capacity
    if capacity is not None and not 0 < capacity < MAX_CAPACITY_GB:
        raise UsageError(f"--memory-capacity is {capacity}; give a positive number of GB.")
    memory = local_memory(result)
    over = memory.over(int(capacity * 1e9)) if capacity is not None else ""
    if over and args.over_capacity == "error":
        raise SimulationError(over)
    if over:
        print(f"layerdag: warning: {over}", file=sys.stderr)
    # Where no node names its tensors, the peak is that of single operators: worth no line.
    tells = capacity is not None or memory.listed_R.any()
    return memory.summary(), ["", memory.line()] if tells else []
