"""The critical path of a run: the chain of nodes and waits that ends with the last node.

Walked backwards from the node that finishes last. A node began when its slowest dependency ended,
or when its slot became free; a collective or receive ended as late as it did because some rank
joined late, in which case the path goes on at that rank.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from layerdag.simulator import SimulationResult
from layerdag.simulator.engine import ClassProgram, NodeKind, Program, Slot


@dataclass(frozen=True)
class PathNode:
    """One node on the critical path.

    Attributes:
        rank: Its rank.
        row: Its row among the rank's nodes in ascending id.
        start_ns: From when on it determined the path: its issue, or the end of what it waited for.
        finish_ns: When it ended.
        reason: Why it began no earlier: "dependency", "slot" or "start".
    """

    rank: int
    row: int
    start_ns: int
    finish_ns: int
    reason: str


def critical_path(result: SimulationResult) -> tuple[PathNode, ...]:
    """Return the critical path of ``result`` from its first to its last node."""
    walker = _Walker(result)
    rank = int(np.argmax(result.rank_finish_ns))
    row = int(np.argmax(result.finish_ns[result.rows(rank)]))
    path = [walker.step(rank, row)]
    while path[-1].reason != "start":
        path.append(walker.step(*walker.before(path[-1])))
    return tuple(reversed(path))


def by_node(result: SimulationResult, path: tuple[PathNode, ...]) -> dict[str, int]:
    """Return the ns on ``path`` by node name, longest first."""
    total: dict[str, int] = defaultdict(int)
    for node in path:
        trace = result.program.workload.traces[node.rank]
        position = int(np.argsort(trace.id_N, kind="stable")[node.row])
        total[trace.names()[position]] += node.finish_ns - node.start_ns
    return dict(sorted(total.items(), key=lambda item: -item[1]))


class _Walker:
    """Answers what determined a node's start and end."""

    def __init__(self, result: SimulationResult) -> None:
        self._result = result
        self._program: Program = result.program
        self._joined = _collectives(self._program)
        self._sent = _messages(self._program)
        self._parents: dict[int, list[list[int]]] = {}

    def times(self, rank: int, row: int) -> tuple[int, int]:
        """Return (issue, finish) in ns."""
        at = int(self._program.out_ptr[rank]) + row
        return int(self._result.issue_ns[at]), int(self._result.finish_ns[at])

    def step(self, rank: int, row: int) -> PathNode:
        """Return the path node of (rank, row), moved to the rank that joined last."""
        finish = self.times(rank, row)[1]
        rank, row = max(self._partners(rank, row), key=lambda at: self.times(*at)[0])
        issue = self.times(rank, row)[0]
        reason = "start" if issue == 0 else "dependency"
        if reason == "dependency" and self._parent_ending_at(rank, row, issue) is None:
            reason = "slot" if self._slot_holder(rank, row, issue) is not None else "start"
        return PathNode(rank, row, issue, finish, reason)

    def before(self, node: PathNode) -> tuple[int, int]:
        """Return (rank, row) of what ended when ``node`` began."""
        found = self._parent_ending_at(node.rank, node.row, node.start_ns)
        if found is None:
            found = self._slot_holder(node.rank, node.row, node.start_ns)
        assert found is not None
        return node.rank, found

    def _partners(self, rank: int, row: int) -> list[tuple[int, int]]:
        nodes = self._program.of_rank(rank)
        if nodes.kind_N[row] == NodeKind.COLLECTIVE:
            return self._joined[rank, row]
        if nodes.kind_N[row] == NodeKind.RECV and (rank, row) in self._sent:
            return [(rank, row), self._sent[rank, row]]
        return [(rank, row)]

    def _parent_ending_at(self, rank: int, row: int, time: int) -> int | None:
        which = int(self._program.class_of_rank[rank])
        if which not in self._parents:
            self._parents[which] = _parents(self._program.classes[which])
        ending = (p for p in self._parents[which][row] if self.times(rank, p)[1] == time)
        return next(ending, None)

    def _slot_holder(self, rank: int, row: int, time: int) -> int | None:
        slot_N = self._program.of_rank(rank).slot_N
        if slot_N[row] == Slot.NONE:
            return None
        rows = self._result.rows(rank)
        ended_N = (self._result.finish_ns[rows] == time) & (slot_N == slot_N[row])
        ended_N &= self._result.issue_ns[rows] < time
        return int(np.argmax(ended_N)) if ended_N.any() else None


def _parents(nodes: ClassProgram) -> list[list[int]]:
    """Return the parents of each row."""
    parents: list[list[int]] = [[] for _ in nodes.id_N]
    source = np.repeat(np.arange(len(nodes.id_N)), np.diff(nodes.child_ptr))
    for parent, child in zip(source.tolist(), nodes.child_E.tolist(), strict=True):
        parents[child].append(parent)
    return parents


def _in_issue_order(program: Program, rank: int, kind: NodeKind) -> list[int]:
    return np.flatnonzero(program.of_rank(rank).kind_N == kind).tolist()


def _collectives(program: Program) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Return for each collective (rank, row) the nodes of all ranks that take part in it.

    The n-th collective of a group on one rank belongs to the n-th on the others, in ascending id.
    """
    together: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for rank in range(program.num_ranks):
        seen: dict[int, int] = defaultdict(int)
        tag_N = program.of_rank(rank).tag_N
        for row in _in_issue_order(program, rank, NodeKind.COLLECTIVE):
            group = int(tag_N[row])
            together[group, seen[group]].append((rank, row))
            seen[group] += 1
    return {member: members for members in together.values() for member in members}


def _messages(program: Program) -> dict[tuple[int, int], tuple[int, int]]:
    """Return for each receive (rank, row) its send, the n-th with the n-th of equal messages."""
    sends: dict[tuple[int, int, int, int], list[tuple[int, int]]] = defaultdict(list)
    receives: dict[tuple[int, int, int, int], list[tuple[int, int]]] = defaultdict(list)
    for rank in range(program.num_ranks):
        nodes = program.of_rank(rank)
        for kind, table in ((NodeKind.SEND, sends), (NodeKind.RECV, receives)):
            for row in _in_issue_order(program, rank, kind):
                peer, tag, size = (
                    int(c[row]) for c in (nodes.peer_N, nodes.tag_N, nodes.duration_or_bytes_N)
                )
                ends = (rank, peer) if kind is NodeKind.SEND else (peer, rank)
                table[*ends, tag, size].append((rank, row))
    return {
        receive: send
        for key, found in receives.items()
        for receive, send in zip(found, sends[key], strict=False)
    }
