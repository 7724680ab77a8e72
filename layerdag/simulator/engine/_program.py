"""A workload and a cluster as the flat arrays that the event kernel runs on.

Nodes are lowered once for each class of ranks (``_sharing``), so ranks that run the same program
cost no more than their outcome. Inside a trace nodes stand in ascending id, which is the
reference's priority.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from layerdag.errors import ConfigError
from layerdag.graph import pointers
from layerdag.simulator import (
    Cluster,
    Congestion,
    MemoryConfig,
    MemoryKind,
    Topology,
)
from layerdag.simulator.compute import ComputeModel
from layerdag.simulator.engine._groups import GroupIndex
from layerdag.simulator.engine._lowering import Lowering
from layerdag.simulator.engine._nodes import ClassProgram, NodeKind, for_rank
from layerdag.simulator.engine._phases import CollectivePlan
from layerdag.simulator.engine._sharing import Sharing
from layerdag.traces import Workload

DEFAULT_DELAY_NS = 10
"""Endpoint delay of a system that states none."""


@dataclass(frozen=True, eq=False)
class Program:
    """Arrays of one simulation; names and types follow struct Input of native/sim/sim.h.

    Attributes:
        workload: What was lowered, for messages and reports.
        cluster: The machine.
        classes: One entry for ranks that differ in groups and peers only.
        class_of_rank: int32 (R,).
        role_ptr: int64 (R+1,); what stands for groups and peers of its class on rank r is
            ``role[role_ptr[r]:role_ptr[r+1]]``, see ``for_rank``.
        role: int32.
        out_ptr: int64 (R+1,); outcomes of rank r are rows ``out_ptr[r]:out_ptr[r+1]``.
        groups: Communicator groups as arrays.
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


def lower(workload: Workload, cluster: Cluster, compute: ComputeModel) -> Program:
    """Return the program of ``workload`` on ``cluster``.

    Raises:
        SimulationError: If a node cannot run there; names rank and node.
        ConfigError: If workload and cluster do not fit together.
    """
    _check_fit(workload, cluster)
    groups = GroupIndex.build(workload)
    lowering = Lowering(cluster.system, cluster.network, cluster.memory, compute, groups)
    sharing = Sharing(groups, tuple(d.npus for d in cluster.network.dimensions))
    index_of: dict[int, int] = {}
    classes: list[ClassProgram] = []
    class_of_rank = np.zeros(workload.num_ranks, dtype=np.int32)
    roles: list[tuple[int, ...]] = []
    for rank, trace in enumerate(workload.traces):
        found = None if id(trace) in index_of else sharing.find(trace, rank)
        if found is not None:
            class_of_rank[rank] = found[0]
            roles.append(found[1])
            continue
        if id(trace) not in index_of:
            index_of[id(trace)] = len(classes)
            classes.append(lowering.lower(trace, rank))
            sharing.add(len(classes) - 1, trace, classes[-1])
        nodes = classes[index_of[id(trace)]]
        class_of_rank[rank] = index_of[id(trace)]
        lowering.check_rank(nodes, trace, rank)
        roles.append((*nodes.groups, *nodes.peers))
    counts = np.array([len(c.id_N) for c in classes], dtype=np.int64)
    out_ptr = pointers(counts[class_of_rank])
    plans = lowering.plans()
    if any((c.kind_N == NodeKind.MEMORY).any() for c in classes):
        _check_memory(cluster.memory, workload.num_ranks)
    role_ptr = pointers([len(each) for each in roles])
    role = np.array([value for each in roles for value in each], dtype=np.int32)
    return Program(
        workload, cluster, tuple(classes), class_of_rank, role_ptr, role, out_ptr, groups, plans
    )


def _check_fit(workload: Workload, cluster: Cluster) -> None:
    """Refuse a cluster whose size or wiring the workload or the reference cannot use."""
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


def _check_memory(memory: MemoryConfig, ranks: int) -> None:
    """Refuse fewer memories than the ranks need: the reference reads past their end."""
    if memory.kind is not MemoryKind.PER_NODE or memory.num_nodes is None:
        return
    needed = -(-ranks // memory.npus_per_node)
    if memory.num_nodes < needed:
        raise ConfigError(
            f"num-nodes is {memory.num_nodes}, but {ranks} ranks with num-npus-per-node "
            f"{memory.npus_per_node} are {needed} nodes; enlarge one of them."
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
