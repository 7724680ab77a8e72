"""Traces lowered to kernel nodes: kind, slot, cost, children; collectives to plans."""

import numpy as np

from layerdag.errors import ConfigError, SimulationError, TraceError
from layerdag.simulator import (
    GroupCollectives,
    MemoryConfig,
    MemoryKind,
    NetworkConfig,
    SystemConfig,
    UnsupportedCollectives,
)
from layerdag.simulator.compute import SKIPPED, ComputeModel, recorded_ns
from layerdag.simulator.engine._collectives import SUPPORTED, Asked, plan_collective
from layerdag.simulator.engine._groups import GroupIndex, Line, is_group_name
from layerdag.simulator.engine._messages import foreign_end, lower_messages, stated_ranks
from layerdag.simulator.engine._nodes import (
    MAX_TIME_NS,
    ClassProgram,
    NodeColumns,
    NodeKind,
    children,
    slots,
)
from layerdag.simulator.engine._phases import CollectivePlan
from layerdag.traces import CollectiveType, NodeType, Trace

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
        self._plans: list[CollectivePlan] = []
        self._lines: dict[int, tuple[Line, ...] | None] = {}

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
        child_ptr, child_E, indegree_N = children(trace, order, id_N)
        on_cpu_N = trace.integers("is_cpu_op")[0][order] != 0
        nodes = NodeColumns(trace, order, id_N, type_N, on_cpu_N)
        self._check_types(nodes)
        nodes.slot_N[:] = slots(type_N, on_cpu_N)
        if self._system.replay_only:
            nodes.duration_or_bytes_N[:] = recorded_ns(trace, order)
        else:
            self._lower_compute(nodes)
            self._lower_memory(nodes)
            lower_messages(nodes, self._num_ranks, self._slowest)
            self._lower_collectives(nodes)
        used = nodes.tag_N[nodes.kind_N == NodeKind.COLLECTIVE]
        messages = (nodes.kind_N == NodeKind.SEND) | (nodes.kind_N == NodeKind.RECV)
        return ClassProgram(
            id_N=id_N,
            type_N=type_N,
            kind_N=nodes.kind_N,
            slot_N=nodes.slot_N,
            duration_or_bytes_N=nodes.duration_or_bytes_N,
            peer_N=nodes.peer_N,
            tag_N=nodes.tag_N,
            child_ptr=child_ptr,
            child_E=child_E,
            indegree_N=indegree_N,
            groups=tuple(sorted(set(used[used >= 0].tolist()))),
            peers=tuple(sorted(set(nodes.peer_N[messages].tolist()))),
            stated=stated_ranks(trace) if messages.any() else frozenset(),
        )

    def _check_types(self, nodes: NodeColumns) -> None:
        type_N = nodes.type_N
        metadata = type_N == NodeType.METADATA
        if metadata.any():
            raise nodes.error(metadata, "is a METADATA node, which cannot run; convert the trace")
        comm = (type_N >= NodeType.COMM_SEND) & nodes.on_cpu_N
        if comm.any():
            raise nodes.error(comm, "is a communication node with is_cpu_op; set is_cpu_op to 0")

    def _lower_compute(self, nodes: NodeColumns) -> None:
        rows = np.flatnonzero(nodes.type_N == NodeType.COMP)
        time_ns = self._compute.durations_ns(nodes.trace, nodes.order[rows], nodes.on_cpu_N[rows])
        if (time_ns > MAX_TIME_NS).any():
            bad = rows[time_ns > MAX_TIME_NS]
            raise nodes.error_at(bad, f"takes {int(time_ns.max())} ns; at most 1e15 ns can be run")
        nodes.duration_or_bytes_N[rows] = np.maximum(time_ns, 0)
        nodes.kind_N[rows[time_ns == SKIPPED]] = NodeKind.SKIP
        nodes.kind_N[nodes.type_N == NodeType.INVALID] = NodeKind.SKIP

    def _lower_memory(self, nodes: NodeColumns) -> None:
        wanted = (nodes.type_N == NodeType.MEM_LOAD) | (nodes.type_N == NodeType.MEM_STORE)
        if not wanted.any():
            return
        if self._memory.kind is MemoryKind.NONE:
            raise nodes.error(wanted, "needs remote memory, but memory-type is NO_MEMORY_EXPANSION")
        size = nodes.attribute("tensor_size", wanted)
        nodes.check_time(np.flatnonzero(wanted), size, self._memory.bandwidth_bytes_per_ns)
        runtime = self._memory.latency_ns + size / self._memory.bandwidth_bytes_per_ns // 1
        nodes.duration_or_bytes_N[wanted] = runtime.astype(np.int64)
        nodes.kind_N[wanted] = NodeKind.MEMORY

    def _lower_collectives(self, nodes: NodeColumns) -> None:
        row_C = np.flatnonzero(nodes.type_N == NodeType.COMM_COLL)
        if not row_C.size:
            return
        wanted = nodes.type_N == NodeType.COMM_COLL
        type_C = nodes.attribute("comm_type", wanted)
        names = nodes.trace.texts("pg_name")[0]
        position_C = nodes.order[row_C].tolist()
        group_C = np.array(
            [
                self._group(nodes, row, names[position])
                for row, position in zip(row_C.tolist(), position_C, strict=True)
            ]
        )
        replayed = self._replayed(nodes, row_C, type_C, group_C)
        nodes.duration_or_bytes_N[row_C[replayed]] = self._compute.replayed_ns(
            nodes.trace, nodes.order[row_C[replayed]]
        )
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
        nodes.tag_N[row_C] = group_C
        nodes.kind_N[row_C] = NodeKind.COLLECTIVE

    def _replayed(
        self, nodes: NodeColumns, row_C: np.ndarray, type_C: np.ndarray, group_C: np.ndarray
    ) -> np.ndarray:
        """Return which collectives take their recorded duration, bool (C,)."""
        supported = np.isin(type_C, [int(kind) for kind in SUPPORTED])
        broadcast = type_C == CollectiveType.BROADCAST
        if self._system.broadcast:
            supported, broadcast = supported | broadcast, np.zeros_like(broadcast)
        if self._system.unsupported_collectives is UnsupportedCollectives.REPLAY:
            members = np.array(
                [self._groups.size(g) if g >= 0 else self._num_ranks for g in group_C.tolist()]
            )
            return ~supported | (members < 2)
        unknown = ~supported & ~broadcast
        if unknown.any():
            found = int(type_C[np.argmax(unknown)])
            name = f" ({CollectiveType(found).name})" if found in list(CollectiveType) else ""
            raise nodes.error_at(
                row_C[unknown],
                f"is a collective of comm_type {found}{name}, which the model does not know; known "
                f"are {_KNOWN_TYPES}",
            )
        return broadcast

    def _group(self, nodes: NodeColumns, row: int, name: str) -> int:
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
        self, nodes: NodeColumns, row: int, what: tuple[int, int, int, tuple[bool, ...] | None]
    ) -> int:
        """Return the index of the plan of a collective (type, bytes, group, involved dims)."""
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
        if part and self._system.group_collectives is GroupCollectives.HIERARCHICAL:
            lines = self._lines_of(group)
        key = (kind, size, part, involved, lines)
        if key not in self._plan_of:
            try:
                asked = Asked(CollectiveType(kind), size, involved, part, lines)
                plan = plan_collective(asked, self._system, self._network)
            except SimulationError as error:
                raise nodes.error_at(np.array([row]), f"cannot run: {error}") from None
            except ConfigError as error:
                raise ConfigError(f"system: {error}") from None
            self._plan_of[key] = len(self._plans)
            self._plans.append(plan)
        return self._plan_of[key]

    def _lines_of(self, group: int) -> tuple[Line, ...] | None:
        """Return ``GroupIndex.lines`` of a group, worked out once."""
        if group not in self._lines:
            sizes = tuple(dimension.npus for dimension in self._network.dimensions)
            self._lines[group] = self._groups.lines(group, sizes)
        return self._lines[group]

    def check_rank(self, program: ClassProgram, trace: Trace, rank: int) -> None:
        """Raise SimulationError if ``rank`` cannot run ``trace``: foreign groups, wrong ends."""
        if program.stated - {rank}:
            raise foreign_end(trace, rank)
        own = self._groups.of_rank[self._groups.rank_ptr[rank] : self._groups.rank_ptr[rank + 1]]
        for group in program.groups:
            if group not in own:
                row = int(
                    np.argmax((program.tag_N == group) & (program.kind_N == NodeKind.COLLECTIVE))
                )
                raise SimulationError(
                    f"rank {rank}: node {int(program.id_N[row])} is a collective of communicator "
                    f"group {int(self._groups.names[group])}, which does not hold this rank."
                )
        if rank in program.peers:
            message = (program.kind_N == NodeKind.SEND) | (program.kind_N == NodeKind.RECV)
            row = int(np.argmax(message & (program.peer_N == rank)))
            raise SimulationError(
                f"rank {rank}: node {int(program.id_N[row])} is a message to itself; "
                "give another rank."
            )
