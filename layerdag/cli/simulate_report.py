"""What ``layerdag simulate --report`` and ``--memory-capacity`` add to a result."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from layerdag.errors import SimulationError, UsageError

if TYPE_CHECKING:
    from layerdag.simulator import SimulationResult

SHOWN_NODES = 10
MAX_CAPACITY_GB = 1e9


def report(result: "SimulationResult") -> tuple[dict[str, Any], list[str]]:
    """Return what --report adds to the JSON document and to the terminal."""
    from layerdag.simulator.breakdown import break_down
    from layerdag.simulator.critical_path import by_node, critical_path

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
    from layerdag.simulator.liveness import local_memory

    capacity = args.memory_capacity
    if capacity is not None and not 0 < capacity < MAX_CAPACITY_GB:
        raise UsageError(f"--memory-capacity is {capacity}; give a positive number of GB.")
    memory = local_memory(result)
    over = memory.over(int(capacity * 1e9)) if capacity is not None else ""
    if over and args.over_capacity == "error":
        raise SimulationError(over)
    if over:
        print(f"layerdag: warning: {over}", file=sys.stderr)
    return memory.summary(), ["", memory.line()]
