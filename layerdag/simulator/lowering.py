"""Traces lowered to kernel nodes: kind, slot, cost, children; collectives to plans."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from layerdag.errors import ConfigError, SimulationError, TraceError
from layerdag.simulator.cluster import MemoryConfig, MemoryKind, NetworkConfig, SystemConfig
from layerdag.simulator.collectives import SUPPORTED, CollectivePlan, plan_collective
from layerdag.simulator.compute import SKIPPED, ComputeModel, recorded_ns
from layerdag.traces.attributes import value_of
from layerdag.traces.trace import CollectiveType, NodeType, Trace, Workload

TAG_MODULUS = 500_000_000
GROUP_TAGS = 1_000_000


class NodeKind(IntEnum):
    """Values of enum NodeKind in native/sim.h."""

    TIMER = 0
    MEMORY = 1
    SEND = 2
    RECV = 3
    COLLECTIVE = 4
    SKIP = 5


class Slot(IntEnum):
    """Values of enum Slot in native/sim.h."""

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
        amount_N: int64, ns of timers and memory nodes, bytes of messages.
        peer_N: int32, other rank of messages, plan of collectives, else 0.
        tag_N: int64, tag of messages, group index of collectives (-1 for all ranks).
        child_ptr: int64 (N+1,).
        child_E: int32 rows.
        indegree_N: int32.
        groups: Distinct group indexes of its collectives.
    """

    id_N: np.ndarray
    type_N: np.ndarray
    kind_N: np.ndarray
    slot_N: np.ndarray
    amount_N: np.ndarray
    peer_N: np.ndarray
    tag_N: np.ndarray
    child_ptr: np.ndarray
    child_E: np.ndarray
    indegree_N: np.ndarray
    groups: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class GroupIndex:
    """Communicator groups as arrays.

    Attributes:
        names: Integer name of each group.
        index_of: Name -> position.
        ptr: int64 (G+1,); members of group g are ``rank[ptr[g]:ptr[g+1]]`` in the file's order.
        rank: int32 members.
        rank_ptr: int64 (R+1,); the groups of rank r are ``of_rank[rank_ptr[r]:rank_ptr[r+1]]``.
        of_rank: int32 group positions.
        place: int32 position of the rank inside that group.
    """

    names: np.ndarray
    index_of: dict[str, int]
    ptr: np.ndarray
    rank: np.ndarray
    rank_ptr: np.ndarray
    of_rank: np.ndarray
    place: np.ndarray

    @classmethod
    def build(cls, workload: Workload) -> "GroupIndex":
        """Index the groups of ``workload``; names that are no positive integers are unusable."""
        usable = {name: members for name, members in workload.groups.items() if _is_group(name)}
        sizes = np.array([len(members) for members in usable.values()], dtype=np.int64)
        rank = np.array([r for members in usable.values() for r in members], dtype=np.int32)
        group = np.repeat(np.arange(len(usable), dtype=np.int32), sizes)
        ptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        place = (np.arange(len(rank)) - np.repeat(ptr[:-1], sizes)).astype(np.int32)
        order = np.argsort(rank, kind="stable")
        counts = np.bincount(rank, minlength=workload.num_ranks)
        return cls(
            names=np.array([int(name) for name in usable], dtype=np.int64),
            index_of={str(int(name)): i for i, name in enumerate(usable)},
            ptr=ptr,
            rank=rank,
            rank_ptr=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            of_rank=group[order],
            place=place[order],
        )

    def size(self, group: int) -> int:
        """Return the number of ranks of ``group``."""
        return int(self.ptr[group + 1] - self.ptr[group])


def _is_group(name: str) -> bool:
    return name.isascii() and name.isdigit() and 0 < int(name) < 2**31


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
        self._plan_of: dict[tuple[object, ...], int] = {}
        self._plans: list[CollectivePlan] = []

    def plans(self) -> tuple[CollectivePlan, ...]:
        """Return the distinct plans met so far."""
        return tuple(self._plans)

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
        count = trace.num_nodes
        if count == 0:
            raise SimulationError(f"{trace.source}: holds no nodes; nothing can run.")
        order = np.argsort(trace.id_N, kind="stable")
        id_N, type_N = trace.id_N[order], trace.type_N[order]
        if (id_N[1:] == id_N[:-1]).any():
            bad = int(id_N[1:][np.argmax(id_N[1:] == id_N[:-1])])
            raise SimulationError(f"{trace.source}: node id {bad} occurs twice; make ids unique.")
        child_ptr, child_E, indegree_N = _children(trace, order, id_N)
        on_cpu_N = trace.integers("is_cpu_op")[0][order] != 0
        nodes = _Nodes(trace, order, id_N, type_N, on_cpu_N)
        self._check_types(nodes)
        nodes.slot_N[:] = _slots(type_N, on_cpu_N)
        if self._system.replay_only:
            nodes.amount_N[:] = recorded_ns(trace, order)
        else:
            self._lower_compute(nodes)
            self._lower_memory(nodes)
            self._lower_messages(nodes)
            self._lower_collectives(nodes)
        used = nodes.tag_N[nodes.kind_N == NodeKind.COLLECTIVE]
        return ClassProgram(
            id_N=id_N,
            type_N=type_N,
            kind_N=nodes.kind_N,
            slot_N=nodes.slot_N,
            amount_N=nodes.amount_N,
            peer_N=nodes.peer_N,
            tag_N=nodes.tag_N,
            child_ptr=child_ptr,
            child_E=child_E,
            indegree_N=indegree_N,
            groups=tuple(int(group) for group in np.unique(used) if group >= 0),
        )

    def _check_types(self, nodes: "_Nodes") -> None:
        type_N = nodes.type_N
        metadata = type_N == NodeType.METADATA
        if metadata.any():
            raise nodes.error(metadata, "is a METADATA node, which cannot run; convert the trace")
        comm = (type_N >= NodeType.COMM_SEND) & nodes.on_cpu_N
        if comm.any():
            raise nodes.error(comm, "is a communication node with is_cpu_op; set is_cpu_op to 0")

    def _lower_compute(self, nodes: "_Nodes") -> None:
        rows = np.flatnonzero(nodes.type_N == NodeType.COMP)
        time_ns = self._compute.durations_ns(nodes.trace, nodes.order[rows], nodes.on_cpu_N[rows])
        nodes.amount_N[rows] = np.maximum(time_ns, 0)
        nodes.kind_N[rows[time_ns == SKIPPED]] = NodeKind.SKIP
        nodes.kind_N[nodes.type_N == NodeType.INVALID] = NodeKind.SKIP

    def _lower_memory(self, nodes: "_Nodes") -> None:
        wanted = (nodes.type_N == NodeType.MEM_LOAD) | (nodes.type_N == NodeType.MEM_STORE)
        if not wanted.any():
            return
        if self._memory.kind is MemoryKind.NONE:
            raise nodes.error(wanted, "needs remote memory, but memory-type is NO_MEMORY_EXPANSION")
        size = nodes.attribute("tensor_size", wanted)
        runtime = self._memory.latency_ns + size / self._memory.bandwidth_bytes_per_ns // 1
        nodes.amount_N[wanted] = runtime.astype(np.int64)
        nodes.kind_N[wanted] = NodeKind.MEMORY

    def _lower_messages(self, nodes: "_Nodes") -> None:
        for type_, kind, peer in (
            (NodeType.COMM_SEND, NodeKind.SEND, "comm_dst"),
            (NodeType.COMM_RECV, NodeKind.RECV, "comm_src"),
        ):
            wanted = nodes.type_N == type_
            if not wanted.any():
                continue
            rank = nodes.attribute(peer, wanted)
            outside = (rank < 0) | (rank >= self._num_ranks)
            if outside.any():
                found = int(rank[np.argmax(outside)])
                bad = np.flatnonzero(wanted)[outside]
                raise nodes.error_at(
                    bad, f"has {peer} {found}, but ranks are 0 to {self._num_ranks - 1}"
                )
            size = nodes.attribute("comm_size", wanted)
            if (size <= 0).any():
                bad = np.flatnonzero(wanted)[size <= 0]
                raise nodes.error_at(bad, "has no positive comm_size; give its bytes")
            nodes.kind_N[wanted] = kind
            nodes.peer_N[wanted] = rank
            nodes.amount_N[wanted] = size
            nodes.tag_N[wanted] = np.fmod(nodes.attribute("comm_tag", wanted), TAG_MODULUS)

    def _lower_collectives(self, nodes: "_Nodes") -> None:
        row_C = np.flatnonzero(nodes.type_N == NodeType.COMM_COLL)
        if not row_C.size:
            return
        wanted = nodes.type_N == NodeType.COMM_COLL
        type_C = nodes.attribute("comm_type", wanted)
        broadcast = type_C == CollectiveType.BROADCAST
        nodes.amount_N[row_C[broadcast]] = recorded_ns(nodes.trace, nodes.order[row_C[broadcast]])
        row_C, type_C = row_C[~broadcast], type_C[~broadcast]
        supported = np.isin(type_C, [int(kind) for kind in SUPPORTED])
        if not supported.all():
            found = int(type_C[np.argmin(supported)])
            name = CollectiveType(found).name if found in list(CollectiveType) else str(found)
            raise nodes.error_at(
                row_C[~supported], f"is a collective of type {name}, which the model does not know"
            )
        sent = np.zeros(len(nodes.type_N), dtype=bool)
        sent[row_C] = True
        size_C = nodes.attribute("comm_size", sent)
        names = nodes.trace.texts("pg_name")[0]
        involved = nodes.involved()
        for row, kind, size in zip(row_C.tolist(), type_C.tolist(), size_C.tolist(), strict=True):
            position = int(nodes.order[row])
            group = self._group(nodes, row, names[position])
            dims = involved.get(position)
            nodes.peer_N[row] = self._plan(nodes, row, (kind, size, group, dims))
            nodes.tag_N[row] = group
        nodes.kind_N[row_C] = NodeKind.COLLECTIVE

    def _group(self, nodes: "_Nodes", row: int, name: str) -> int:
        """Return the index of the node's group, -1 for all ranks."""
        if name in ("", "0"):
            return -1
        index = self._groups.index_of.get(str(int(name)) if _is_group(name) else "")
        if index is None:
            raise nodes.error_at(
                np.array([row]),
                f"is in communicator group '{name}', which the group file does not hold; add it "
                "under an integer name above 0",
            )
        return index

    def _plan(
        self, nodes: "_Nodes", row: int, what: tuple[int, int, int, tuple[bool, ...] | None]
    ) -> int:
        """Return the index of the plan of a collective (type, bytes, group, involved dims)."""
        kind, size, group, involved = what
        members = self._groups.size(group) if group >= 0 else self._num_ranks
        part = members if members < self._num_ranks else None
        # A group that spans the cluster runs as all ranks do; involved_dim is ignored there.
        count = len(self._network.dimensions)
        everyone = (True,) * count
        if group >= 0 or involved is None:
            involved = everyone if group >= 0 or count <= 4 else None
        if involved is None:
            raise nodes.error_at(
                np.array([row]), f"has no involved_dim, which {count} dimensions need; add it"
            )
        key = (kind, size, part, involved)
        if key not in self._plan_of:
            try:
                plan = plan_collective(
                    CollectiveType(kind), size, involved, part, self._system, self._network
                )
            except SimulationError as error:
                raise nodes.error_at(np.array([row]), f"cannot run: {error}") from None
            except ConfigError as error:
                raise ConfigError(f"system: {error}") from None
            self._plan_of[key] = len(self._plans)
            self._plans.append(plan)
        return self._plan_of[key]

    def check_member(self, program: ClassProgram, rank: int) -> None:
        """Raise SimulationError if ``rank`` issues a collective of a group without being in it."""
        own = self._groups.of_rank[self._groups.rank_ptr[rank] : self._groups.rank_ptr[rank + 1]]
        for group in program.groups:
            if group not in own:
                row = int(np.argmax((program.tag_N == group) & (program.type_N == 7)))
                raise SimulationError(
                    f"rank {rank}: node {int(program.id_N[row])} is a collective of communicator "
                    f"group {int(self._groups.names[group])}, which does not hold this rank."
                )
        sent = np.isin(program.kind_N, (NodeKind.SEND, NodeKind.RECV)) & (program.peer_N == rank)
        if sent.any():
            raise SimulationError(
                f"rank {rank}: node {int(program.id_N[np.argmax(sent)])} is a message to itself; "
                "give another rank."
            )


class _Nodes:
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
        self.amount_N = np.zeros(count, dtype=np.int64)
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

    def involved(self) -> dict[int, tuple[bool, ...]]:
        """Return ``involved_dim`` by position in the trace, where it is given."""
        trace, table = self.trace, self.trace.attributes
        if "involved_dim" not in trace.strings:
            return {}
        name = trace.strings.index("involved_dim")
        row_A = np.flatnonzero(table.name_A == name)
        node_A = np.searchsorted(table.ptr_N1, row_A, side="right") - 1
        found = {}
        for row, node in zip(row_A.tolist(), node_A.tolist(), strict=True):
            value = value_of(table, row, trace.strings)
            found[node] = tuple(map(bool, value)) if isinstance(value, tuple) else (bool(value),)
        return found


def _slots(type_N: np.ndarray, on_cpu_N: np.ndarray) -> np.ndarray:
    """Return which one-slot resource each node takes while it runs."""
    by_type = np.full(256, Slot.COMM, dtype=np.uint8)
    by_type[[NodeType.INVALID, NodeType.COMM_RECV]] = Slot.NONE
    by_type[NodeType.COMP] = Slot.COMPUTE
    slot_N = by_type[type_N]
    slot_N[on_cpu_N & (type_N != NodeType.INVALID)] = Slot.CPU
    return slot_N


def _children(
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
    key_E = np.unique(parent_E * count + child_E)
    parent_E, child_E = key_E // count, key_E % count
    child_ptr = np.concatenate([[0], np.cumsum(np.bincount(parent_E, minlength=count))])
    indegree_N = np.bincount(child_E, minlength=count).astype(np.int32)
    return child_ptr.astype(np.int64), child_E.astype(np.int32), indegree_N
