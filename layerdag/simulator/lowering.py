"""Lower traces to the nodes and messages of the event loop."""

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from layerdag.errors import ConfigError, SimulationError, TraceError
from layerdag.graph.topology import pointers
from layerdag.hardware.collectives import CollectiveType
from layerdag.simulator.collectives import (
    SUPPORTED,
    CollectivePlan,
    GroupIndex,
    RankStride,
    plan_collective,
)
from layerdag.simulator.compute import SKIPPED, ComputeModel, recorded_ns
from layerdag.simulator.config import (
    MAX_TIME_NS,
    GroupCollectives,
    MemoryConfig,
    MemoryKind,
    NetworkConfig,
    SystemConfig,
    UnsupportedCollectives,
)
from layerdag.simulator.fitted_collectives import OPERATIONS, NetworkLink, collective_ns
from layerdag.traces.analysis import is_group_name
from layerdag.traces.builder import value_of
from layerdag.traces.chakra.storage import storage_bytes
from layerdag.traces.trace import NodeType, Trace, Wire, communicates, wire_name


class NodeKind(IntEnum):
    """Values of enum NodeKind in native/sim/sim.h."""

    TIMER = 0
    MEMORY = 1
    SEND = 2
    RECV = 3
    COLLECTIVE = 4
    SKIP = 5
    SPAN = 6


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
        id_N: uint64.
        type_N: uint8 ``NodeType``.
        kind_N: uint8 ``NodeKind``.
        slot_N: uint8 ``Slot``.
        cost_N: int64, ns of timers and memory nodes, bytes of messages.
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
    cost_N: np.ndarray
    peer_N: np.ndarray
    tag_N: np.ndarray
    child_ptr: np.ndarray
    child_E: np.ndarray
    indegree_N: np.ndarray
    groups: tuple[int, ...]
    peers: tuple[int, ...]
    stated: frozenset[int]


def for_rank(nodes: ClassProgram, roles: tuple[int, ...]) -> ClassProgram:
    """Return the nodes of a class as a rank runs them, with groups and then peers of its own."""
    groups, peers = roles[: len(nodes.groups)], roles[len(nodes.groups) :]
    if (groups, peers) == (nodes.groups, nodes.peers):
        return nodes
    message_N = (nodes.kind_N == NodeKind.SEND) | (nodes.kind_N == NodeKind.RECV)
    grouped_N = (nodes.type_N == NodeType.COMM_COLL) & (nodes.tag_N >= 0)
    peer_N, tag_N = nodes.peer_N.copy(), nodes.tag_N.copy()
    tag_N[grouped_N] = np.array(groups)[positions_in(nodes.groups, tag_N[grouped_N])]
    peer_N[message_N] = np.array(peers)[positions_in(nodes.peers, peer_N[message_N])]
    return replace(nodes, peer_N=peer_N, tag_N=tag_N, groups=groups, peers=peers)


_SLOT_OF_TYPE = np.full(256, Slot.COMM, dtype=np.uint8)
"""One-slot resource that a node takes while it runs, unless it is on the CPU."""
_SLOT_OF_TYPE[[NodeType.INVALID, NodeType.COMM_RECV]] = Slot.NONE
_SLOT_OF_TYPE[[NodeType.BATCH, NodeType.CHECKPOINT]] = Slot.NONE
_SLOT_OF_TYPE[NodeType.COMP] = Slot.COMPUTE
_SLOT_OF_TYPE[NodeType.STORAGE] = Slot.CPU  # the host issues it and waits


def positions_in(known: tuple[int, ...], values: np.ndarray) -> np.ndarray:
    """Return the place of each value in ``known``, which has it."""
    order = np.argsort(known, kind="stable")
    return order[np.searchsorted(known, values, sorter=order)] if values.size else values


class KernelColumns:
    """The columns under construction, with what is needed to name a node in an error."""

    def __init__(self, trace: Trace) -> None:
        count = trace.num_nodes
        self.trace, self.order = trace, np.argsort(trace.id_N, kind="stable")
        self.id_N, self.type_N = trace.id_N[self.order], trace.type_N[self.order]
        self.on_cpu_N = trace.integers("is_cpu_op")[0][self.order] != 0
        self.kind_N = np.full(count, NodeKind.TIMER, dtype=np.uint8)
        self.slot_N = _SLOT_OF_TYPE[self.type_N]
        self.slot_N[self.on_cpu_N & (self.slot_N != Slot.NONE)] = Slot.CPU
        self.cost_N = np.zeros(count, dtype=np.int64)
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
            found_value = value_of(table, row, trace.strings)
            listed = found_value if isinstance(found_value, tuple) else (found_value,)
            value = tuple(map(bool, listed))
            if found.setdefault(node, value) != value:
                raise SimulationError(
                    f"{trace.source}: node {id} carries involved_dim twice; keep one."
                )
        return found


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


TAG_MODULUS = 500_000_000
MAX_TAG = 2**31 - 1

_ENDS = (
    (NodeType.COMM_SEND, NodeKind.SEND, "comm_dst", "comm_src"),
    (NodeType.COMM_RECV, NodeKind.RECV, "comm_src", "comm_dst"),
)
"""Type, kind, the attribute with the other rank, and the one with the rank of the trace itself."""


def lower_messages(nodes: KernelColumns, num_ranks: int, slowest: float) -> None:
    """Fill the columns of sends and receives; ``slowest`` is the lowest rate in bytes per ns."""
    for type_, kind, peer, _ in _ENDS:
        wanted = nodes.type_N == type_
        if not wanted.any():
            continue
        rows = np.flatnonzero(wanted)
        rank = nodes.attribute(peer, wanted)
        outside = (rank < 0) | (rank >= num_ranks)
        if outside.any():
            found = int(rank[np.argmax(outside)])
            raise nodes.error_at(
                rows[outside], f"has {peer} {found}, but ranks are 0 to {num_ranks - 1}"
            )
        size = nodes.attribute("comm_size", wanted)
        if (size <= 0).any():
            raise nodes.error_at(rows[size <= 0], "has no positive comm_size; give its bytes")
        nodes.check_time(rows, size, slowest)
        tag = nodes.attribute("comm_tag", wanted)
        odd = (tag < 0) | (tag > MAX_TAG)
        if odd.any():
            found = int(tag[np.argmax(odd)])
            raise nodes.error_at(rows[odd], f"has comm_tag {found}; tags are 0 to {MAX_TAG}")
        nodes.kind_N[wanted] = kind
        nodes.peer_N[wanted] = rank
        nodes.cost_N[wanted] = size
        nodes.tag_N[wanted] = tag % TAG_MODULUS


def declared_ranks(trace: Trace) -> frozenset[int]:
    """Return the ranks that sends state as their own in comm_src, and receives in comm_dst."""
    found: set[int] = set()
    for type_, _, _, own in _ENDS:
        is_end_N = trace.type_N == type_
        if is_end_N.any():
            value_N, present_N = trace.integers(own)
            found |= set(value_N[is_end_N & present_N].tolist())
    return frozenset(found)


DEFAULT_INVOLVED = 4
"""Dimensions that take part without ``involved_dim``; the reference has no more."""

_KNOWN_TYPES = ", ".join(
    f"{int(kind)} ({kind.name})" for kind in (*sorted(SUPPORTED), CollectiveType.BROADCAST)
)


class Lowering:
    """Lowers traces one after the other and collects the distinct collectives on the way."""

    def __init__(
        self,
        system: SystemConfig,
        network: NetworkConfig,
        memory: MemoryConfig,
        compute: ComputeModel,
        groups: GroupIndex,
    ) -> None:
        self._system = system
        self._network = network
        self._memory = memory
        self._compute = compute
        self._groups = groups
        self._num_ranks = network.num_npus
        rates = [dimension.bytes_per_ns for dimension in network.dimensions]
        self._slowest = min([*rates, system.local_mem_bw_gb or rates[0]])
        self._plan_of: dict[tuple[object, ...], int] = {}
        self.plans: list[CollectivePlan] = []
        """Distinct plans met so far."""
        self._lines: dict[int, tuple[RankStride, ...] | None] = {}

    def lower(self, trace: Trace, rank: int) -> ClassProgram:
        """Return the kernel nodes of ``trace``, which ``rank`` is the first to run.

        Raises:
            SimulationError: If a node cannot run; names rank, file and node.
        """
        try:
            return self._lower(trace)
        except (SimulationError, TraceError) as error:
            raise SimulationError(f"rank {rank}: {error}") from None

    def _lower(self, trace: Trace) -> ClassProgram:
        if trace.num_nodes == 0:
            raise SimulationError(f"{trace.source}: holds no nodes; nothing can run.")
        nodes = KernelColumns(trace)
        id_N, type_N = nodes.id_N, nodes.type_N
        if (id_N[1:] == id_N[:-1]).any():
            bad = int(id_N[1:][np.argmax(id_N[1:] == id_N[:-1])])
            raise SimulationError(f"{trace.source}: node id {bad} occurs twice; make ids unique.")
        child_ptr, child_E, indegree_N = children(trace, nodes.order, id_N)
        metadata = type_N == NodeType.METADATA
        if metadata.any():
            raise nodes.error(metadata, "is a METADATA node, which cannot run; convert the trace")
        comm = communicates(type_N) & nodes.on_cpu_N
        if comm.any():
            raise nodes.error(comm, "is a communication node with is_cpu_op; set is_cpu_op to 0")
        if self._system.replay_only:
            nodes.cost_N[:] = recorded_ns(trace, nodes.order)
        else:
            self._lower_compute(nodes)
            self._lower_memory(nodes)
            self._lower_storage(nodes)
            lower_messages(nodes, self._num_ranks, self._slowest)
            self._lower_collectives(nodes)
        used = nodes.tag_N[type_N == NodeType.COMM_COLL]
        messages = (nodes.kind_N == NodeKind.SEND) | (nodes.kind_N == NodeKind.RECV)
        return ClassProgram(
            id_N=id_N,
            type_N=type_N,
            kind_N=nodes.kind_N,
            slot_N=nodes.slot_N,
            cost_N=nodes.cost_N,
            peer_N=nodes.peer_N,
            tag_N=nodes.tag_N,
            child_ptr=child_ptr,
            child_E=child_E,
            indegree_N=indegree_N,
            groups=tuple(sorted(set(used[used >= 0].tolist()))),
            peers=tuple(sorted(set(nodes.peer_N[messages].tolist()))),
            stated=declared_ranks(trace) if messages.any() else frozenset(),
        )

    def _lower_compute(self, nodes: KernelColumns) -> None:
        rows = np.flatnonzero(nodes.type_N == NodeType.COMP)
        time_ns = self._compute.durations_ns(nodes.trace, nodes.order[rows], nodes.on_cpu_N[rows])
        if (time_ns > MAX_TIME_NS).any():
            bad = rows[time_ns > MAX_TIME_NS]
            raise nodes.error_at(bad, f"takes {int(time_ns.max())} ns; at most 1e15 ns can be run")
        nodes.cost_N[rows] = np.maximum(time_ns, 0)
        nodes.kind_N[rows[time_ns == SKIPPED]] = NodeKind.SKIP
        nodes.kind_N[nodes.type_N == NodeType.INVALID] = NodeKind.SKIP

    def _lower_storage(self, nodes: KernelColumns) -> None:
        """Give operations on storage their bytes over its bandwidth, or their recorded time.

        Batches and checkpoints span other nodes and take no time of their own.
        """
        nodes.kind_N[np.isin(nodes.type_N, (NodeType.BATCH, NodeType.CHECKPOINT))] = NodeKind.SPAN
        rows = np.flatnonzero(nodes.type_N == NodeType.STORAGE)
        if not rows.size:
            return
        order = nodes.order[rows]
        time_ns = self._compute.replayed_ns(nodes.trace, order)
        if self._system.storage_bw_gb is not None:
            size_M = storage_bytes(nodes.trace)[0][order]
            nodes.check_time(rows, size_M, self._system.storage_bw_gb)
            moved = np.maximum(size_M / self._system.storage_bw_gb // 1, 1).astype(np.int64)
            time_ns = np.where(size_M > 0, moved, time_ns)
        nodes.cost_N[rows] = time_ns

    def _lower_memory(self, nodes: KernelColumns) -> None:
        wanted = (nodes.type_N == NodeType.MEM_LOAD) | (nodes.type_N == NodeType.MEM_STORE)
        if not wanted.any():
            return
        if self._memory.kind is MemoryKind.NONE:
            raise nodes.error(wanted, "needs remote memory, but memory-type is NO_MEMORY_EXPANSION")
        size = nodes.attribute("tensor_size", wanted)
        nodes.check_time(np.flatnonzero(wanted), size, self._memory.bandwidth_bytes_per_ns)
        runtime = self._memory.latency_ns + size / self._memory.bandwidth_bytes_per_ns // 1
        nodes.cost_N[wanted] = runtime.astype(np.int64)
        nodes.kind_N[wanted] = NodeKind.MEMORY

    def _lower_collectives(self, nodes: KernelColumns) -> None:
        wanted = nodes.type_N == NodeType.COMM_COLL
        row_C = np.flatnonzero(wanted)
        if not row_C.size:
            return
        type_C = nodes.attribute("comm_type", wanted)
        try:
            names = nodes.trace.texts("pg_name")[0]
        except TraceError as error:
            nodes.trace.texts("pg_name", numbers=True)
            raise TraceError(
                f"{str(error).removesuffix('.')}; 'layerdag convert' writes numbers of groups so."
            ) from None
        position_C = nodes.order[row_C].tolist()
        group_C = np.array(
            [
                self._group(nodes, row, names[position])
                for row, position in zip(row_C.tolist(), position_C, strict=True)
            ]
        )
        nodes.tag_N[row_C] = group_C  # of replayed ones too, whose ranks must be in the group
        replayed = self._replayed(nodes, row_C, type_C, group_C)
        nodes.cost_N[row_C[replayed]] = self._compute.replayed_ns(
            nodes.trace, nodes.order[row_C[replayed]]
        )
        if self._system.fitted_collectives:
            size_C = nodes.attribute("comm_size", wanted)
            fitted_ns = self._fitted_ns(self._system.fitted_collectives, type_C, size_C, group_C)
            fitted = (fitted_ns > 0) & ~replayed
            nodes.cost_N[row_C[fitted]] = fitted_ns[fitted]
            replayed |= fitted
        row_C, type_C, group_C = row_C[~replayed], type_C[~replayed], group_C[~replayed]
        wanted[:] = False
        wanted[row_C] = True
        size_C = nodes.attribute("comm_size", wanted)
        # An all-gather grows by the number of ranks, and no rate is lower than the slowest.
        nodes.check_time(row_C, size_C, self._slowest / self._num_ranks)
        involved = nodes.involved()
        for at, row in enumerate(row_C.tolist()):
            dims = involved.get(int(nodes.order[row]))
            what = (int(type_C[at]), int(size_C[at]), int(group_C[at]), dims)
            nodes.peer_N[row] = self._plan(nodes, row, what)
        nodes.kind_N[row_C] = NodeKind.COLLECTIVE

    def _fitted_ns(
        self, device: str, type_C: np.ndarray, size_C: np.ndarray, group_C: np.ndarray
    ) -> np.ndarray:
        """Return the time of collectives as measured on a device, -1 of others, int64 (C,).

        Nodes are connected by the last dimension of the network.
        """
        found = np.full(len(type_C), -1, dtype=np.int64)
        dimensions = self._network.dimensions
        outer = [each for each in dimensions if each.npus > 1] or dimensions
        link = NetworkLink(outer[-1].bytes_per_ns * 1000, outer[-1].latency_ns / 1000)
        for kind, group in {*zip(type_C.tolist(), group_C.tolist(), strict=True)}:
            ranks = np.arange(self._num_ranks) if group < 0 else self._groups.members(group)
            if kind not in OPERATIONS or len(ranks) < 2:
                continue
            rows = np.flatnonzero((type_C == kind) & (group_C == group))
            times = collective_ns(device, kind, size_C[rows], ranks, link)
            found[rows] = np.minimum(times, MAX_TIME_NS)
        return found

    def _replayed(
        self, nodes: KernelColumns, row_C: np.ndarray, type_C: np.ndarray, group_C: np.ndarray
    ) -> np.ndarray:
        supported = np.isin(type_C, [int(kind) for kind in SUPPORTED])
        broadcast = type_C == CollectiveType.BROADCAST
        if self._system.broadcast:
            supported, broadcast = supported | broadcast, np.zeros_like(broadcast)
        replay = self._system.unsupported_collectives is UnsupportedCollectives.REPLAY
        exists = np.isin(type_C, [int(kind) for kind in CollectiveType])
        exists &= type_C != CollectiveType.INVALID
        if replay and exists.all():
            members = np.array(
                [self._groups.size(g) if g >= 0 else self._num_ranks for g in group_C.tolist()]
            )
            return ~supported | (members < 2)
        unknown = ~exists if replay else ~supported & ~broadcast
        if unknown.any():
            found = int(type_C[np.argmax(unknown)])
            name = f" ({CollectiveType(found).name})" if found in list(CollectiveType) else ""
            raise nodes.error_at(
                row_C[unknown],
                f"is a collective of comm_type {found}{name}, which the model does not know; known "
                f"are {_KNOWN_TYPES}",
            )
        return broadcast

    def _group(self, nodes: KernelColumns, row: int, name: str) -> int:
        """Return the index of the node's group, -1 for all ranks."""
        if name in ("", "0"):
            return -1
        index = self._groups.index_of.get(str(int(name)) if is_group_name(name) else "")
        if index is None:
            raise nodes.error_at(
                np.array([row]),
                f"is in communicator group '{name}', which the group file does not hold; add it "
                "under an integer name above 0",
            )
        return index

    def _plan(
        self, nodes: KernelColumns, row: int, what: tuple[int, int, int, tuple[bool, ...] | None]
    ) -> int:
        kind, size, group, involved = what
        members = self._groups.size(group) if group >= 0 else self._num_ranks
        part = members if members < self._num_ranks else None
        # A group that spans the cluster runs as all ranks do; involved_dim is ignored there.
        count = len(self._network.dimensions)
        if group >= 0:
            involved = (True,) * count
        elif involved is None:
            involved = (True,) * DEFAULT_INVOLVED
        lines = None
        by_phases = self._system.group_collectives is GroupCollectives.HIERARCHICAL
        if part and by_phases and count > 1:
            if group not in self._lines:
                sizes = tuple(dimension.npus for dimension in self._network.dimensions)
                self._lines[group] = self._groups.lines(group, sizes)
            lines = self._lines[group]
        key = (kind, size, part, involved, lines)
        if key not in self._plan_of:
            try:
                plan = plan_collective(
                    CollectiveType(kind), size, involved, part, lines, self._system, self._network
                )
            except SimulationError as error:
                raise nodes.error_at(np.array([row]), f"cannot run: {error}") from None
            except ConfigError as error:
                raise ConfigError(f"system: {error}") from None
            self._plan_of[key] = len(self.plans)
            self.plans.append(plan)
        return self._plan_of[key]

    def check_rank(self, program: ClassProgram, trace: Trace, rank: int) -> None:
        """Raise SimulationError if ``rank`` cannot run ``trace``: foreign groups, wrong ends."""
        for type_, _, _, own in _ENDS if program.stated - {rank} else ():
            value_N, present_N = trace.integers(own)
            wrong_N = (trace.type_N == type_) & present_N & (value_N != rank)
            if wrong_N.any():
                row, sends = int(np.argmax(wrong_N)), type_ == NodeType.COMM_SEND
                what, who = ("send", "sender") if sends else ("receive", "receiver")
                raise SimulationError(
                    f"rank {rank}: {trace.source}: node {int(trace.id_N[row])} is a {what} with "
                    f"{own} {int(value_N[row])}, but stands in the trace of rank {rank}; a {what} "
                    f"belongs to its {who}, so write {rank} or leave {own} out."
                )
        index = self._groups
        mine = index.of_rank[index.rank_ptr[rank] : index.rank_ptr[rank + 1]]
        for group in program.groups:
            if group not in mine:
                grouped_N = (program.tag_N == group) & (program.type_N == NodeType.COMM_COLL)
                row = int(np.argmax(grouped_N))
                raise SimulationError(
                    f"rank {rank}: node {int(program.id_N[row])} is a collective of communicator "
                    f"group {int(index.names[group])}, which does not hold this rank; "
                    "correct the group file or the trace."
                )
        if rank in program.peers:
            message = (program.kind_N == NodeKind.SEND) | (program.kind_N == NodeKind.RECV)
            row = int(np.argmax(message & (program.peer_N == rank)))
            raise SimulationError(
                f"rank {rank}: node {int(program.id_N[row])} is a message to itself; "
                "give another rank."
            )
