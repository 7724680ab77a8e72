"""A workload and a cluster as the flat arrays that the event kernel runs on.

Ranks whose traces differ only in groups and peers run one program, lowered once. In a job of many
ranks nearly all are like another one: the same nodes, in groups of their own, with neighbors of
their own. Such a rank is a class's program and a short list: its groups and peers in place of those
of the first rank of the class, so that it costs no more than its outcome. Inside a trace nodes are
in ascending id, which is the reference's priority.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import final

import numpy as np

from layerdag.errors import ConfigError
from layerdag.graph.topology import pointers
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.collectives import CollectivePlan, GroupIndex, RankStride
from layerdag.simulator.compute import ComputeModel
from layerdag.simulator.config import Congestion, MemoryConfig, MemoryKind, Topology
from layerdag.simulator.lowering import ClassProgram, Lowering, NodeKind, for_rank, positions_in
from layerdag.traces.analysis import is_group_name
from layerdag.traces.trace import LazyTraces, NodeType, RankClass, Trace, Wire, Workload

_MAX_TRIED = 256  # classes with equal columns that a trace is compared with


@final
class ProgramCache:
    """The classes found so far; ``sizes`` are the ranks of each dimension of the network."""

    def __init__(self, groups: GroupIndex, sizes: tuple[int, ...]) -> None:
        self._groups, self._sizes = groups, sizes
        self._known: dict[Hashable, list[_Class]] = {}
        self._extents: dict[int, tuple[int, tuple[RankStride, ...] | None]] = {}
        self._places: dict[str, int | None] = {"": -1, "0": -1}

    def add(self, index: int, trace: Trace, program: ClassProgram) -> None:
        """Note a class by the trace of its first rank."""
        known = self._known.setdefault(_columns(trace), [])
        if len(known) < _MAX_TRIED:
            found = _Class.from_program(index, trace, program)
            if found is not None:
                known.append(found)

    def find(self, trace: Trace, rank: int) -> tuple[int, tuple[int, ...]] | None:
        """Return the class of a rank with its groups and peers, None if it is like no other.

        A rank that could not run its trace is like no other, so that lowering it raises the error.
        """
        similar = self._known.get(_columns(trace), [])
        for place, known in enumerate(similar):
            if not known.differs_in_ends_only(trace):
                continue
            groups = self._groups_of(known, trace, rank)
            peers = known.peers_of(trace, rank, len(self._groups.rank_ptr) - 1)
            if groups is not None and peers is not None:
                similar.insert(0, similar.pop(place))  # the next rank is mostly of the same class
                return known.index, (*groups, *peers)
        return None

    def find_alike(self, program: ClassProgram, alike: RankClass) -> tuple[np.ndarray, np.ndarray]:
        """Return which ranks of a class can run the program of its first one, and their roles.

        Returns:
            bool (K,), and int64 (K, roles) with the groups and peers of each rank.
        """
        group_KT, ranks = self._group_places(alike.group_KT), len(self._groups.rank_ptr) - 1
        usable_K = np.full(len(alike.rank_K), not program.stated)
        usable_K &= ((group_KT < 0) == (group_KT[0] < 0)).all(axis=1)
        usable_K &= (group_KT >= -1).all(axis=1)
        usable_K &= ((alike.peer_KP >= 0) & (alike.peer_KP < ranks)).all(axis=1)
        usable_K &= (alike.peer_KP != alike.rank_K[:, None]).all(axis=1)
        roles = []
        for values_KX, known in ((group_KT, program.groups), (alike.peer_KP, program.peers)):
            for value in known:
                at = np.flatnonzero(values_KX[0] == value)
                usable_K &= len(at) > 0
                roles.append(values_KX[:, at[0]] if len(at) else np.zeros(len(usable_K), int))
                usable_K &= (values_KX[:, at] == roles[-1][:, None]).all(axis=1)
        for role_K, group in zip(roles, program.groups, strict=False):
            usable_K &= self._fits(role_K, alike.rank_K, group)
        empty = np.zeros((len(usable_K), 0), dtype=np.int64)
        return usable_K, np.stack(roles, axis=1) if roles else empty

    def _group_places(self, name: np.ndarray) -> np.ndarray:
        """Return the places of groups by their names, -1 for all ranks, -2 if there is none."""
        names = self._groups.names
        order_G = np.argsort(names)
        at = np.searchsorted(names, name, sorter=order_G)
        place = order_G[np.minimum(at, len(names) - 1)] if len(names) else np.full(name.shape, -2)
        known = names[place] == name if len(names) else np.zeros(name.shape, dtype=bool)
        return np.where(name == 0, -1, np.where(known, place, -2))

    def _fits(self, group_K: np.ndarray, rank_K: np.ndarray, like: int) -> np.ndarray:
        """Return whether each rank is in its group, which is shaped like another one."""
        index = self._groups
        owner = np.repeat(np.arange(len(index.rank_ptr) - 1), np.diff(index.rank_ptr))
        count = len(index.names)
        inside_K = np.isin(rank_K * count + group_K, owner * count + index.of_rank)
        group_U, at_K = np.unique(group_K, return_inverse=True)
        shaped_U = [g >= 0 and self._extent(g) == self._extent(like) for g in group_U.tolist()]
        return inside_K & np.array(shaped_U)[at_K]

    def _groups_of(self, known: "_Class", trace: Trace, rank: int) -> tuple[int, ...] | None:
        """Return the groups in place of those of the class, None if they are not alike."""
        index = self._groups
        own = index.of_rank[index.rank_ptr[rank] : index.rank_ptr[rank + 1]].tolist()
        stands_for: dict[int, int] = {}
        for position in known.text_P:
            theirs = self._group(known.trace.strings[position])
            mine = self._group(trace.strings[position])
            if mine is None or theirs is None or (mine < 0) != (theirs < 0):
                return None
            if stands_for.setdefault(theirs, mine) != mine:
                return None
            if mine >= 0 and (mine not in own or self._extent(mine) != self._extent(theirs)):
                return None
        return tuple(stands_for[group] for group in known.program.groups)

    def _group(self, name: str) -> int | None:
        """Return the place of a group, -1 for all ranks, None if it is not described."""
        if name not in self._places:
            known = str(int(name)) if is_group_name(name) else ""
            self._places[name] = self._groups.index_of.get(known)
        return self._places[name]

    def _extent(self, group: int) -> tuple[int, tuple[RankStride, ...] | None]:
        if group not in self._extents:
            lines = self._groups.lines(group, self._sizes)
            self._extents[group] = (self._groups.size(group), lines)
        return self._extents[group]


def _columns(trace: Trace) -> Hashable:
    table = trace.attributes
    return tuple(
        map(
            id,
            (
                *(trace.id_N, trace.name_N, trace.type_N, trace.start_us_N, trace.duration_us_N),
                *(trace.data_deps.ptr_N1, trace.data_deps.values),
                *(trace.ctrl_deps.ptr_N1, trace.ctrl_deps.values, trace.io_N6),
                *(table.ptr_N1, table.name_A, table.wire_A, table.doc_A, table.blobs),
            ),
        )
    )


@dataclass(frozen=True, eq=False)
class _Class:
    """A class and where its ranks differ.

    Attributes:
        trace: Of its first rank; also keeps the columns alive whose identity counts.
        program: What it was lowered to.
        text_P: Positions of names of groups in the pool of strings.
        row_E: Attribute rows with a rank: the other end of a message, or its own.
        other_E: Which of them name the other end.
        peer_M: Of these, the place in ``program.peers``.
    """

    index: int
    trace: Trace
    program: ClassProgram
    text_P: tuple[int, ...]
    row_E: np.ndarray
    other_E: np.ndarray
    peer_M: np.ndarray

    @classmethod
    def from_program(cls, index: int, trace: Trace, program: ClassProgram) -> "_Class | None":
        """Return the class of a trace, None where a group's name is also another text."""
        table, strings = trace.attributes, trace.strings
        names = {name: strings.index(name) for name in _ENDS if name in strings}
        group_A = table.name_A == names.get("pg_name", -1)
        text_P = np.unique(table.word_A[group_A]).astype(np.int64)
        other = (table.wire_A == Wire.STRING) & ~group_A
        used = (trace.name_N, trace.io_N6.reshape(-1), table.name_A, table.doc_A)
        if any(np.isin(text_P, column).any() for column in (*used, table.word_A[other])):
            return None
        type_A = np.repeat(trace.type_N, np.diff(table.ptr_N1))
        send_A, recv_A = type_A == NodeType.COMM_SEND, type_A == NodeType.COMM_RECV
        dst_A = table.name_A == names.get("comm_dst", -1)
        src_A = table.name_A == names.get("comm_src", -1)
        row_E = np.flatnonzero((dst_A | src_A) & (send_A | recv_A))
        other_E = ((dst_A & send_A) | (src_A & recv_A))[row_E]
        peer = table.word_A[row_E[other_E]].view(np.int64)
        if not np.isin(peer, program.peers).all():
            return None
        peer_M = positions_in(program.peers, peer)
        return cls(index, trace, program, tuple(text_P.tolist()), row_E, other_E, peer_M)

    def differs_in_ends_only(self, trace: Trace) -> bool:
        """Return whether a trace with equal columns differs in groups and ends of messages only."""
        mine, theirs = trace.strings, self.trace.strings
        if len(mine) != len(theirs):
            return False
        if mine is not theirs:
            common = list(mine)
            for position in self.text_P:
                common[position] = theirs[position]
            if tuple(common) != theirs:
                return False
        if trace.attributes.word_A is self.trace.attributes.word_A:
            return True
        differs_A = trace.attributes.word_A != self.trace.attributes.word_A
        differs_A[self.row_E] = False
        return not differs_A.any()

    def peers_of(self, trace: Trace, rank: int, num_ranks: int) -> tuple[int, ...] | None:
        """Return the ranks in place of the peers of the class, None if they are not alike."""
        if not self.row_E.size:
            return ()
        value_E = trace.attributes.word_A[self.row_E].view(np.int64)
        peer = value_E[self.other_E]
        if (value_E[~self.other_E] != rank).any():
            return None
        if (peer < 0).any() or (peer >= num_ranks).any() or (peer == rank).any():
            return None
        stands = np.zeros(len(self.program.peers), dtype=np.int64)
        stands[self.peer_M] = peer
        return tuple(stands.tolist()) if (stands[self.peer_M] == peer).all() else None


_ENDS = ("pg_name", "comm_dst", "comm_src")


DEFAULT_DELAY_NS = 10
"""Endpoint delay of a system that states none."""


@dataclass(frozen=True, eq=False)
class LoweredProgram:
    """Arrays of one simulation; names and types follow struct Input of native/sim/sim.h.

    Attributes:
        classes: One entry for ranks that differ in groups and peers only.
        class_of_rank: int32 (R,).
        role_ptr: int64 (R+1,); rank r has in place of groups and peers of its class
            ``role[role_ptr[r]:role_ptr[r+1]]``, see ``for_rank``.
        role: int32.
        out_ptr: int64 (R+1,); outcomes of rank r are rows ``out_ptr[r]:out_ptr[r+1]``.
        plans: Distinct collectives.
    """

    workload: Workload
    cluster: Cluster
    classes: tuple[ClassProgram, ...]
    class_of_rank: np.ndarray
    role_ptr: np.ndarray
    role: np.ndarray
    out_ptr: np.ndarray
    groups: GroupIndex
    plans: tuple[CollectivePlan, ...]

    @property
    def num_ranks(self) -> int:
        """Number of ranks (R)."""
        return len(self.class_of_rank)

    def of_rank(self, rank: int) -> ClassProgram:
        """Return the nodes of ``rank``."""
        roles = self.role[self.role_ptr[rank] : self.role_ptr[rank + 1]]
        return for_rank(self.classes[self.class_of_rank[rank]], tuple(roles.tolist()))

    def rows(self, rank: int) -> slice:
        """Return the rows of ``rank`` among the outcomes of all ranks."""
        return slice(int(self.out_ptr[rank]), int(self.out_ptr[rank + 1]))

    def represented(self) -> Iterator[tuple[Trace, ClassProgram, int]]:
        """Yield the trace of the first rank of each class, the class, and its number of ranks."""
        which, first, ranks = np.unique(self.class_of_rank, return_index=True, return_counts=True)
        for index, rank, count in zip(which.tolist(), first.tolist(), ranks.tolist(), strict=True):
            yield self.workload.traces[rank], self.classes[index], count


def lower(workload: Workload, cluster: Cluster, compute: ComputeModel) -> LoweredProgram:
    """Return the program of ``workload`` on ``cluster``.

    Raises:
        SimulationError: If a node cannot run there; names rank and node.
        ConfigError: If workload and cluster do not fit together.
    """
    _check_fit(workload, cluster)
    groups = GroupIndex.build(workload)
    lowering = Lowering(cluster.system, cluster.network, cluster.memory, compute, groups)
    sharing = ProgramCache(groups, tuple(d.npus for d in cluster.network.dimensions))
    index_of: dict[int, int] = {}
    classes: list[ClassProgram] = []
    class_of_rank = np.full(workload.num_ranks, -1, dtype=np.int32)
    roles: list[Sequence[int]] = [()] * workload.num_ranks
    if isinstance(workload.traces, LazyTraces):
        for alike in workload.traces.classes():
            first = int(alike.rank_K[0])
            nodes = lowering.lower(workload.traces[first], first)
            usable_K, role_KW = sharing.find_alike(nodes, alike)
            for rank, role_W in zip(alike.rank_K[usable_K], role_KW[usable_K], strict=True):
                class_of_rank[rank], roles[rank] = len(classes), role_W
            classes += [nodes] if usable_K.any() else []
    for rank in np.flatnonzero(class_of_rank < 0).tolist():
        trace = workload.traces[rank]
        found = None if id(trace) in index_of else sharing.find(trace, rank)
        if found is not None:
            class_of_rank[rank], roles[rank] = found
            continue
        if id(trace) not in index_of:
            index_of[id(trace)] = len(classes)
            classes.append(lowering.lower(trace, rank))
            sharing.add(len(classes) - 1, trace, classes[-1])
        nodes = classes[index_of[id(trace)]]
        class_of_rank[rank] = index_of[id(trace)]
        lowering.check_rank(nodes, trace, rank)
        roles[rank] = (*nodes.groups, *nodes.peers)
    counts = np.array([len(c.id_N) for c in classes], dtype=np.int64)
    out_ptr = pointers(counts[class_of_rank])
    memory = cluster.memory
    if memory.kind is MemoryKind.PER_NODE and memory.num_nodes is not None:
        needed = -(-workload.num_ranks // memory.npus_per_node)
        used = any((c.kind_N == NodeKind.MEMORY).any() for c in classes)
        if used and memory.num_nodes < needed:
            raise ConfigError(
                f"num-nodes is {memory.num_nodes}, but {workload.num_ranks} ranks with "
                f"num-npus-per-node {memory.npus_per_node} are {needed} nodes; enlarge one of them."
            )
    role_ptr = pointers([len(each) for each in roles])
    role = np.array([value for each in roles for value in each], dtype=np.int32)
    return LoweredProgram(
        workload,
        cluster,
        tuple(classes),
        class_of_rank,
        role_ptr,
        role,
        out_ptr,
        groups,
        tuple(lowering.plans),
    )


def _check_fit(workload: Workload, cluster: Cluster) -> None:
    ranks, npus = workload.num_ranks, cluster.network.num_npus
    if ranks != npus:
        raise ConfigError(
            f"the network has {npus} NPUs but {workload.source} has traces of {ranks} ranks; "
            "change npus_count or give one trace per rank."
        )
    if cluster.options.congestion is not Congestion.AWARE:
        return
    dimensions = cluster.network.dimensions
    if len(dimensions) > 1:
        raise ConfigError(
            f"congestion 'aware' supports one dimension, the network has {len(dimensions)}; "
            "use --congestion unaware, or aware-multi, which the reference does not have."
        )
    if dimensions[0].topology is Topology.RING and dimensions[0].npus <= 2:
        raise ConfigError(
            "congestion 'aware' needs a Ring of at least 3 NPUs; use FullyConnected for 2."
        )


class TopologyCode(IntEnum):
    """Values of enum Topology in native/sim/sim.h."""

    RING = 0
    FULLY_CONNECTED = 1
    SWITCH = 2


def memory_ranks(memory: MemoryConfig, num_ranks: int) -> int:
    """Return how many neighboring ranks share one remote memory; 0 if each has its own."""
    if memory.kind is MemoryKind.POOL:
        return num_ranks
    return memory.npus_per_node if memory.kind is MemoryKind.PER_NODE else 0


def endpoint_delay(cluster: Cluster) -> int:
    """Return the endpoint delay in ns; like the reference, scale it only where it is given."""
    given = cluster.system.endpoint_delay_ns
    return DEFAULT_DELAY_NS if given is None else int(given * cluster.options.injection_scale)
