"""Replay of an imported trace with its measured durations, idle time kept as explicit delays.

A trace says what must wait for what. What it does not say (Python between two operators, the
latency of a launch) shows as idle time: a node starts later than its dependencies allow. Written
down as delay nodes, a trace replays to the time it was measured with, if and only if no dependency
is false: a false one makes a node start later than it did.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from layerdag.errors import TraceError
from layerdag.traces.trace import NodeType, Ragged, Trace, dependency_edges


@dataclass(frozen=True)
class Replay:
    """A measured step and its replay.

    Attributes:
        measured_ns: From the first start to the last end in the trace.
        replayed_ns: The same by dependencies, durations and delays.
        delay_ns: The delays on the way to the last end: time that the trace does not explain.
    """

    measured_ns: int
    replayed_ns: int
    delay_ns: int

    @property
    def error(self) -> float:
        """Relative error of the replay."""
        return abs(self.replayed_ns - self.measured_ns) / max(self.measured_ns, 1)

    @property
    def delay_share(self) -> float:
        """Share of the replayed time that is delay."""
        return self.delay_ns / max(self.replayed_ns, 1)


def replay(trace: Trace) -> Replay:
    """Replay a trace whose nodes carry ``duration_ns``; a start in ``start_ns`` is more exact.

    In a CPU trace the nodes that compute also wait for each other in order of their start: one
    thread ran them. Nodes without a measured duration are left out.

    Raises:
        TraceError: If no node was measured, or the dependencies name an absent node or an id twice.
    """
    exact_N, is_exact_N = trace.integers("start_ns")
    start_N = np.where(is_exact_N, exact_N, trace.start_us_N.astype(np.int64) * 1000)
    length_N, timed_N = trace.integers("duration_ns")
    if not timed_N.any():
        raise TraceError(
            f"{trace.source}: no node carries 'duration_ns'; import the trace "
            "together with the profile of the same step."
        )
    parents = _parents(trace, start_N, timed_N)
    order = np.argsort(np.where(timed_N, start_N, np.iinfo(np.int64).max), kind="stable")
    end: dict[int, int] = {}
    idle: dict[int, int] = {}
    for node in order[: int(timed_N.sum())].tolist():
        known = [parent for parent in parents[node] if parent in end]
        last = max(known, key=end.__getitem__, default=-1)
        ready = end.get(last, 0)
        measured = max((int(start_N[p] + length_N[p]) for p in known), default=0)
        delay = max(int(start_N[node]) - measured, 0)
        end[node] = ready + delay + int(length_N[node])
        idle[node] = idle.get(last, 0) + delay
    finish = max(end, key=end.__getitem__)
    first = int(start_N[timed_N].min())
    measured_ns = int((start_N + length_N)[timed_N].max()) - first
    return Replay(measured_ns, end[finish] - first, idle[finish] - first)


def _parents(trace: Trace, start_N: np.ndarray, timed_N: np.ndarray) -> list[list[int]]:
    """Return the rows that each row waits for."""
    dependency_edges(trace)  # raises where they are faulty
    row_of = {int(number): row for row, number in enumerate(trace.id_N.tolist())}
    parents = [_rows(trace.data_deps, row, row_of) for row in range(trace.num_nodes)]
    for row in range(trace.num_nodes):
        parents[row] += _rows(trace.ctrl_deps, row, row_of)
    host_N, _ = trace.integers("is_cpu_op")
    devices, _ = trace.texts("device")
    if host_N.any() or set(devices) - {"cpu", ""}:
        return parents
    computing = np.flatnonzero((trace.type_N == NodeType.COMP) & timed_N)
    thread = computing[np.argsort(start_N[computing], kind="stable")].tolist()
    for before, after in pairwise(thread):
        parents[after].append(before)
    return parents


def _rows(deps: Ragged, row: int, row_of: dict[int, int]) -> list[int]:
    """Return the rows of a node's dependencies."""
    return [row_of[number] for number in deps.of(row).tolist()]
