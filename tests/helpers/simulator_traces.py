"""Small workloads written by hand, for the tests of the simulator."""

import dataclasses

from layerdag.hardware.collectives import CollectiveType
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.config import Dimension, NetworkConfig, SystemConfig, Topology
from layerdag.simulator.run import SimulationResult
from layerdag.traces.builder import NodeSpec, build_trace
from layerdag.traces.trace import Attribute, NodeType, Trace, Wire, Workload


def node(
    id: int, kind: NodeType, deps: tuple[int, ...] = (), duration_us: int = 0, **values: object
) -> NodeSpec:
    """Return a node whose attributes are ``values``, with plain wire types."""
    wires = {bool: Wire.BOOL, int: Wire.INT64, str: Wire.STRING, tuple: Wire.BOOL + 1}
    attributes = tuple(Attribute(name, wires[type(v)], v) for name, v in values.items())
    return NodeSpec(
        id, f"n{id}", kind, data_deps=deps, duration_us=duration_us, attributes=attributes
    )


def comp(id: int, duration_us: int, deps: tuple[int, ...] = (), **values: object) -> NodeSpec:
    """Return a GPU compute node with a recorded duration."""
    return node(id, NodeType.COMP, deps, duration_us, **values)


def coll(
    id: int, kind: CollectiveType, size: int, deps: tuple[int, ...] = (), **values: object
) -> NodeSpec:
    """Return a collective."""
    return node(id, NodeType.COMM_COLL, deps, comm_type=int(kind), comm_size=size, **values)


def all_reduce(id: int, size: int, deps: tuple[int, ...] = (), **values: object) -> NodeSpec:
    """Return an all-reduce."""
    return coll(id, CollectiveType.ALL_REDUCE, size, deps, **values)


def send(id: int, to: int, size: int, deps: tuple[int, ...] = (), tag: int = 0) -> NodeSpec:
    """Return a send."""
    return node(id, NodeType.COMM_SEND, deps, comm_dst=to, comm_size=size, comm_tag=tag)


def recv(id: int, source: int, size: int, deps: tuple[int, ...] = (), tag: int = 0) -> NodeSpec:
    """Return a receive."""
    return node(id, NodeType.COMM_RECV, deps, comm_src=source, comm_size=size, comm_tag=tag)


def workload(*ranks: list[NodeSpec], groups: dict[str, tuple[int, ...]] | None = None) -> Workload:
    """Return a workload with one list of nodes per rank; equal lists share one trace."""
    made: list[tuple[list[NodeSpec], Trace]] = []
    traces = []
    for rank, nodes in enumerate(ranks):
        found = next((trace for known, trace in made if known == nodes), None)
        if found is None:
            found = build_trace(nodes, source=f"w.{rank}.et")
            made.append((nodes, found))
        traces.append(found)
    return Workload(tuple(traces), groups or {})


def ring(npus: int, bytes_per_ns: float = 1.0, latency_ns: float = 100.0) -> NetworkConfig:
    """Return a ring whose links carry ``bytes_per_ns``."""
    return one_dimension(Topology.RING, npus, bytes_per_ns, latency_ns)


def one_dimension(
    topology: Topology, npus: int, bytes_per_ns: float = 1.0, latency_ns: float = 100.0
) -> NetworkConfig:
    """Return a network of one dimension whose links carry ``bytes_per_ns``."""
    return NetworkConfig((Dimension(topology, npus, bytes_per_ns * 1e9 / 2**30, latency_ns),))


def system(algorithm: str = "ring", dimensions: int = 1, **changes: object) -> SystemConfig:
    """Return a system with one algorithm for everything, 10 ns endpoint delay, one chunk."""
    return dataclasses.replace(SystemConfig.uniform(algorithm, dimensions), **changes)


def finish(result: SimulationResult) -> list[int]:
    """Return the tick at which each rank finishes."""
    return result.rank_finish_ns.tolist()


def ticks(result: SimulationResult, rank: int = 0) -> list[tuple[int, int]]:
    """Return issue and finish of each node of a rank."""
    rows = result.program.rows(rank)
    pairs = zip(result.issue_ns[rows].tolist(), result.finish_ns[rows].tolist(), strict=True)
    return list(pairs)


def small_cluster(num_ranks: int) -> tuple[SystemConfig, NetworkConfig]:
    """Return system and network of ``Cluster("small")``."""
    cluster = Cluster("small", num_ranks=num_ranks)
    return cluster.system, cluster.network
