"""Results as files: the ticks of every node as CSV, and a timeline that Perfetto opens."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path

from layerdag._runtime import atomic_path
from layerdag.simulator import SimulationResult
from layerdag.simulator.engine import Slot
from layerdag.traces import NodeType

NODE_COLUMNS = (
    "sys", "node_id", "node_type", "issue_tick", "finish_tick", "type", "name",
)  # fmt: skip
"""Columns of the CSV file with every node; the first five are those of the reference's log."""

_LANE = {
    Slot.CPU: "CPU",
    Slot.COMPUTE: "compute",
    Slot.COMM: "communication",
    Slot.NONE: "receive",
}


def _lanes(result: SimulationResult) -> dict[int, str]:
    """Return number and name of every lane; further communication streams follow the slots."""
    lanes = {int(slot): name for slot, name in _LANE.items()}
    streams = result.program.cluster.options.comm_streams
    return lanes | {_lane(Slot.COMM, i): f"communication {i + 1}" for i in range(1, streams)}


def _lane(slot: int, stream: int) -> int:
    """Return the lane of a node by its slot and its communication stream."""
    return len(_LANE) + stream - 1 if stream else slot


def write_nodes(result: SimulationResult, path: str | Path) -> None:
    """Write a row of ``NODE_COLUMNS`` for every node, by rank and node id."""
    with atomic_path(path) as draft, draft.open("w", encoding="utf-8", newline="") as file:
        write = csv.writer(file, lineterminator="\n")
        write.writerow(NODE_COLUMNS)
        for rank in range(result.num_ranks):
            trace = result.program.workload.traces[rank]
            name_of = dict(zip(trace.id_N.tolist(), trace.names(), strict=True))
            write.writerows(
                (rank, node, kind, start, end, NodeType(kind).name, name_of[node])
                for node, kind, start, end in _ticks(result, rank)
            )


def _ticks(result: SimulationResult, rank: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (id, type, issue, finish) of each node of ``rank``."""
    nodes, rows = result.nodes(rank), result.rows(rank)
    return zip(
        nodes.id_N.tolist(),
        nodes.type_N.tolist(),
        result.issue_ns[rows].tolist(),
        result.finish_ns[rows].tolist(),
        strict=True,
    )


def write_timeline(result: SimulationResult, path: str | Path) -> None:
    """Write a Chrome trace: one process per rank, one lane per slot or communication stream, in us.

    Source: the Trace Event Format ("X" complete events and "M" metadata), which Perfetto and
    chrome://tracing read.
    """
    with atomic_path(path) as draft, draft.open("w", encoding="utf-8") as file:
        file.write('{"displayTimeUnit":"ns","traceEvents":[\n')
        file.write(",\n".join(_lane_names(result)))
        for rank in range(result.num_ranks):
            for event in _spans(result, rank):
                file.write(",\n" + json.dumps(event, separators=(",", ":")))
        file.write("\n]}\n")


def _lane_names(result: SimulationResult) -> Iterator[str]:
    for rank in range(result.num_ranks):
        label = {"ph": "M", "pid": rank, "name": "process_name", "args": {"name": f"rank {rank}"}}
        yield json.dumps(label)
        for lane, name in _lanes(result).items():
            named = {"name": name}
            yield json.dumps(
                {"ph": "M", "pid": rank, "tid": lane, "name": "thread_name", "args": named}
            )


def _spans(result: SimulationResult, rank: int) -> Iterator[dict[str, object]]:
    """Yield one complete event for each node of ``rank``."""
    trace, nodes = result.program.workload.traces[rank], result.nodes(rank)
    name_of = dict(zip(trace.id_N.tolist(), trace.names(), strict=True))
    lanes = zip(nodes.slot_N.tolist(), result.lane[result.rows(rank)].tolist(), strict=True)
    for (node, kind, start, end), lane in zip(_ticks(result, rank), lanes, strict=True):
        yield {
            "ph": "X",
            "pid": rank,
            "tid": _lane(*lane),
            "name": name_of[node] or f"node {node}",
            "cat": NodeType(kind).name,
            "ts": start / 1000,
            "dur": (end - start) / 1000,
            "args": {"id": node, "issue_ns": start, "finish_ns": end},
        }
