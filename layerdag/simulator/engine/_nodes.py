"""Nodes of one trace as the kernel's columns, in ascending node id."""

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from layerdag.errors import SimulationError
from layerdag.graph import pointers
from layerdag.traces import NodeType, Trace, Wire, wire_name
from layerdag.traces.chakra import value_of

MAX_TIME_NS = 10**15
"""Longest node or message that is run, 11 days: sums of many stay far from the clock's end."""


class NodeKind(IntEnum):
    """Values of enum NodeKind in native/sim/sim.h."""

    TIMER = 0
    MEMORY = 1
    SEND = 2
    RECV = 3
    COLLECTIVE = 4
    SKIP = 5


class Slot(IntEnum):
    """Values of enum Slot in native/sim/sim.h."""

    CPU = 0
    COMPUTE = 1
    COMM = 2
    NONE = 3


@dataclass(frozen=True, eq=False)
class ClassProgram:
    """The nodes of one trace in ascending id.

    Attributes:
        id_N: uint64 node ids.
        type_N: uint8 ``NodeType``.
        kind_N: uint8 ``NodeKind``.
        slot_N: uint8 ``Slot``.
        duration_or_bytes_N: int64, ns of timers and memory nodes, bytes of messages.
        peer_N: int32, other rank of messages, plan of collectives, else 0.
        tag_N: int64, tag of messages, group index of collectives (-1 for all ranks).
        child_ptr: int64 (N+1,).
        child_E: int32 rows.
        indegree_N: int32.
        groups: Distinct group indexes of its collectives, of its first rank.
        peers: Distinct ranks that its messages go to or come from, of its first rank.
        stated: Distinct ranks that its messages state as the rank of the trace itself.
    """

    id_N: np.ndarray
    type_N: np.ndarray
    kind_N: np.ndarray
    slot_N: np.ndarray
    duration_or_bytes_N: np.ndarray
    peer_N: np.ndarray
    tag_N: np.ndarray
    child_ptr: np.ndarray
    child_E: np.ndarray
    indegree_N: np.ndarray
    groups: tuple[int, ...]
    peers: tuple[int, ...]
    stated: frozenset[int]


def for_rank(nodes: ClassProgram, roles: tuple[int, ...]) -> ClassProgram:
    """Return the nodes of a class as a rank runs them, in groups and with peers of its own.

    Args:
        nodes: The class.
        roles: What stands for each of ``nodes.groups``, then for each of ``nodes.peers``.
    """
    groups, peers = roles[: len(nodes.groups)], roles[len(nodes.groups) :]
    if (groups, peers) == (nodes.groups, nodes.peers):
        return nodes
    message_N = (nodes.kind_N == NodeKind.SEND) | (nodes.kind_N == NodeKind.RECV)
    grouped_N = (nodes.kind_N == NodeKind.COLLECTIVE) & (nodes.tag_N >= 0)
    peer_N, tag_N = nodes.peer_N.copy(), nodes.tag_N.copy()
    tag_N[grouped_N] = np.array(groups)[positions_in(nodes.groups, tag_N[grouped_N])]
    peer_N[message_N] = np.array(peers)[positions_in(nodes.peers, peer_N[message_N])]
    return replace(nodes, peer_N=peer_N, tag_N=tag_N, groups=groups, peers=peers)


def positions_in(known: tuple[int, ...], values: np.ndarray) -> np.ndarray:
    """Return the place of each value in ``known``, which has it."""
    order = np.argsort(known, kind="stable")
    return order[np.searchsorted(known, values, sorter=order)] if values.size else values


class NodeColumns:
    """The columns under construction, with what is needed to name a node in an error."""

    def __init__(
        self,
        trace: Trace,
        order: np.ndarray,
        id_N: np.ndarray,
        type_N: np.ndarray,
        on_cpu_N: np.ndarray,
    ) -> None:
        count = len(order)
        self.trace, self.order, self.id_N = trace, order, id_N
        self.type_N, self.on_cpu_N = type_N, on_cpu_N
        self.kind_N = np.full(count, NodeKind.TIMER, dtype=np.uint8)
        self.slot_N = np.zeros(count, dtype=np.uint8)
        self.duration_or_bytes_N = np.zeros(count, dtype=np.int64)
        self.peer_N = np.zeros(count, dtype=np.int32)
        self.tag_N = np.full(count, -1, dtype=np.int64)

    def error(self, wrong_N: np.ndarray, what: str) -> SimulationError:
        """Return an error about the first node of a mask."""
        return self.error_at(np.flatnonzero(wrong_N), what)

    def error_at(self, rows: np.ndarray, what: str) -> SimulationError:
        """Return an error about the first of ``rows``."""
        return SimulationError(f"{self.trace.source}: node {int(self.id_N[rows[0]])} {what}.")

    def attribute(self, name: str, wanted_N: np.ndarray) -> np.ndarray:
        """Return an integer attribute of the nodes of a mask, all of which must carry it."""
        value_N, present_N = self.trace.integers(name)
        missing = wanted_N & ~present_N[self.order]
        if missing.any():
            raise self.error(missing, f"lacks the attribute '{name}'; add it")
        return value_N[self.order][wanted_N]

    def check_time(self, rows: np.ndarray, size: np.ndarray, rate: float) -> None:
        """Refuse sizes whose transfer at ``rate`` bytes per ns would overflow the clock."""
        wrong = (size < 0) | (size / rate > MAX_TIME_NS)
        if wrong.any():
            found = int(size[np.argmax(wrong)])
            raise self.error_at(
                rows[wrong], f"moves {found} bytes, which is negative or takes longer than 1e15 ns"
            )

    def involved(self) -> dict[int, tuple[bool, ...]]:
        """Return ``involved_dim`` by position in the trace, where it is given.

        Raises:
            SimulationError: If it is no bool_list, or a node carries two that differ.
        """
        trace, table = self.trace, self.trace.attributes
        if "involved_dim" not in trace.strings:
            return {}
        name = trace.strings.index("involved_dim")
        row_A = np.flatnonzero(table.name_A == name)
        node_A = np.searchsorted(table.ptr_N1, row_A, side="right") - 1
        found: dict[int, tuple[bool, ...]] = {}
        for row, node in zip(row_A.tolist(), node_A.tolist(), strict=True):
            wire, id = int(table.wire_A[row]), int(trace.id_N[node])
            if wire != Wire.BOOL + 1:
                raise SimulationError(
                    f"{trace.source}: node {id} carries involved_dim as {wire_name(wire)}; "
                    "write a bool_list."
                )
            value = tuple(map(bool, _listed(value_of(table, row, trace.strings))))
            if found.setdefault(node, value) != value:
                raise SimulationError(
                    f"{trace.source}: node {id} carries involved_dim twice; keep one."
                )
        return found


def _listed(value: object) -> tuple[object, ...]:
    """Return the elements of a list attribute."""
    return value if isinstance(value, tuple) else (value,)


def slots(type_N: np.ndarray, on_cpu_N: np.ndarray) -> np.ndarray:
    """Return which one-slot resource each node takes while it runs."""
    by_type = np.full(256, Slot.COMM, dtype=np.uint8)
    by_type[[NodeType.INVALID, NodeType.COMM_RECV]] = Slot.NONE
    by_type[NodeType.COMP] = Slot.COMPUTE
    slot_N = by_type[type_N]
    slot_N[on_cpu_N & (type_N != NodeType.INVALID)] = Slot.CPU
    return slot_N


def children(
    trace: Trace, order: np.ndarray, id_N: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (child_ptr, child_E, indegree_N) of the union of data and control dependencies."""
    count = len(id_N)
    parent_id = np.concatenate([trace.data_deps.values, trace.ctrl_deps.values])
    position = np.arange(count)
    owner = np.concatenate(
        [np.repeat(position, np.diff(deps.ptr_N1)) for deps in (trace.data_deps, trace.ctrl_deps)]
    )
    row_of = np.empty(count, dtype=np.int64)
    row_of[order] = position
    child_E = row_of[owner]
    parent_E = np.searchsorted(id_N, parent_id)
    dangling = (parent_E == count) | (id_N[np.minimum(parent_E, count - 1)] != parent_id)
    if dangling.any():
        first = int(np.argmax(dangling))
        raise SimulationError(
            f"{trace.source}: node {int(id_N[child_E[first]])} depends on node "
            f"{int(parent_id[first])}, which does not exist; add it or drop the dependency."
        )
    key_E = np.sort(parent_E * count + child_E)
    key_E = key_E[np.diff(key_E, prepend=-1) > 0]
    parent_E, child_E = np.divmod(key_E, count)
    child_ptr = pointers(np.bincount(parent_E, minlength=count))
    indegree_N = np.bincount(child_E, minlength=count).astype(np.int32)
    return child_ptr.astype(np.int64), child_E.astype(np.int32), indegree_N
