"""Random workloads on random clusters, with times that often coincide."""

import math
from dataclasses import replace

import numpy as np
from simulator_traces import coll, comp, recv, send, workload

from layerdag.codec.placement import RankTraces
from layerdag.errors import SimulationError
from layerdag.hardware.collectives import CollectiveType
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.compute import MeasuredCompute
from layerdag.simulator.config import (
    Congestion,
    Dimension,
    MemoryConfig,
    NetworkConfig,
    RunOptions,
    SystemConfig,
    Topology,
)
from layerdag.simulator.program import LoweredProgram, lower
from layerdag.simulator.run import Variation, with_variation
from layerdag.traces.builder import NodeSpec, build_trace
from layerdag.traces.trace import Trace, Workload

ALGORITHMS = ("ring", "direct", "direct2", "halvingDoubling", "doubleBinaryTree")
TYPES = (
    CollectiveType.ALL_REDUCE,
    CollectiveType.ALL_GATHER,
    CollectiveType.REDUCE_SCATTER,
    CollectiveType.ALL_TO_ALL,
    CollectiveType.BROADCAST,
)
SCOPES = ("", "pair", "half")
"""Who takes part: everyone, or one of two groups (ranks by parity, or the lower and upper half)."""


def pick(rng: np.random.Generator, *choices):
    """Return one of the choices."""
    return choices[int(rng.integers(len(choices)))]


def random_cluster(rng: np.random.Generator) -> Cluster:
    """Return one or two small dimensions with round figures, so that ticks coincide often."""
    dimensions = tuple(
        Dimension(
            pick(rng, *Topology),
            pick(rng, 2, 3, 4),
            pick(rng, 1e9 / 2**30, 10e9 / 2**30),
            pick(rng, 0.0, 10.0, 37.5),
        )
        for _ in range(pick(rng, 1, 1, 2))
    )
    usable = ALGORITHMS if all(d.npus != 3 for d in dimensions) else ALGORITHMS[:3]
    # The double binary tree can only all-reduce.
    names = [
        tuple(algorithm(rng, d, known) for d in dimensions) for known in (usable, *[usable[:4]] * 2)
    ]
    switches = all(d.topology is Topology.SWITCH for d in dimensions)
    system = SystemConfig(
        preferred_dataset_splits=pick(rng, 1, 2, 5),
        collective_optimization=pick(rng, "localBWAware", "baseline"),
        all_reduce=names[0],
        all_gather=names[1],
        reduce_scatter=names[2],
        all_to_all=tuple(pick(rng, *ALGORITHMS[:3]) for _ in dimensions),
        broadcast=("inNetwork",) * len(dimensions) if switches else (),
        endpoint_delay_ns=pick(rng, 1, 10),
        active_chunks_per_dimension=pick(rng, 1, 2, 4),
        local_mem_bw_gb=pick(rng, None, 1.0, 100.0),
    )
    options = RunOptions(
        queues_per_dimension=pick(rng, 1, 1, 2), comm_streams=pick(rng, 1, 1, 2, 3)
    )
    return Cluster(NetworkConfig(dimensions), system, MemoryConfig(), options)


def algorithm(rng: np.random.Generator, dimension: Dimension, usable: tuple[str, ...]) -> str:
    """Return one of the algorithms; for a switch half the time that it reduces itself."""
    in_network = dimension.topology is Topology.SWITCH and bool(rng.integers(2))
    return "inNetwork" if in_network else pick(rng, *usable)


def random_groups(ranks: int) -> dict[str, tuple[int, ...]]:
    """Return two partitions of the ranks, by parity ("1", "2") and into halves ("3", "4")."""
    everyone = tuple(range(ranks))
    return {
        "1": everyone[::2],
        "2": everyone[1::2],
        "3": everyone[: ranks // 2],
        "4": everyone[ranks // 2 :],
    }


def group_of(scope: str, rank: int, ranks: int) -> str:
    """Return the group in which ``rank`` takes part, "" for everyone."""
    if scope == "pair":
        return str(1 + rank % 2)
    return str(3 + (rank >= ranks // 2)) if scope == "half" else ""


def random_workload(rng: np.random.Generator, ranks: int, scopes: tuple[str, ...]) -> Workload:
    """Return the same sequence of collectives and shifts for all ranks, with compute in between.

    Collectives of one scope follow each other; those of different scopes may overlap.
    """
    nodes: list[list[NodeSpec]] = [[] for _ in range(ranks)]
    last: list[dict[str, int]] = [{} for _ in range(ranks)]
    for step in range(int(rng.integers(1, 9))):
        kind = pick(rng, "compute", "compute", "collective", "shift")
        size, collective = pick(rng, 8, 1000, 4096), pick(rng, *TYPES)
        shift, scope = int(rng.integers(1, ranks)), pick(rng, *scopes)
        for rank, own in enumerate(nodes):
            known = rng.permutation(len(own))[: int(rng.integers(3))].tolist()
            deps, id = tuple(sorted(known)), len(own)
            if kind == "compute":
                time, cpu = pick(rng, 1, 10, 20, 100), bool(rng.integers(2))
                own.append(comp(id, 1, deps, duration_ns=time, is_cpu_op=cpu))
            elif kind == "collective":
                before = {last[rank][scope]} if scope in last[rank] else set()
                group = group_of(scope, rank, ranks)
                own.append(coll(id, collective, size, tuple({*deps, *before}), pg_name=group))
                last[rank][scope] = id
            else:
                own.append(send(id, (rank + shift) % ranks, size, deps, tag=step))
                own.append(recv(id + 1, (rank - shift) % ranks, size, deps, tag=step))
    return workload(*nodes, groups=random_groups(ranks))


def random_program(seed: int) -> LoweredProgram:
    """Return a workload on a cluster of its size."""
    rng = np.random.default_rng(seed)
    cluster = random_cluster(rng)
    ranks = cluster.network.num_npus
    grouped = ranks % 4 == 0 and _serves_groups(cluster)
    load = random_workload(rng, ranks, SCOPES if grouped else ("",))
    return lower(load, cluster, MeasuredCompute())


def _serves_groups(cluster: Cluster) -> bool:
    """Return whether groups can communicate: by a tree never, by switches in one dimension."""
    system = cluster.system
    trees = {"doubleBinaryTree"} & {*system.all_reduce, *system.all_gather, *system.reduce_scatter}
    return not (trees if len(cluster.network.dimensions) == 1 else system.broadcast)


def random_collective(seed: int) -> LoweredProgram | None:
    """Return one collective of a random group whose members enter it at different times.

    Groups may be any ranks of a larger network, so that their links differ in length.
    """
    rng = np.random.default_rng(seed)
    cluster = random_cluster(rng)
    ranks = cluster.network.num_npus
    members = rng.permutation(ranks)[: int(rng.integers(2, ranks + 1))].tolist()
    everyone = len(members) == ranks
    group = {} if everyone else {"pg_name": "1"}
    kind, size = pick(rng, *TYPES[:4]), pick(rng, 7, 1000, 4096)
    nodes = [
        [comp(0, 1, duration_ns=1000 * int(rng.integers(1, 5))), coll(1, kind, size, (0,), **group)]
        if rank in members
        else [comp(0, 1)]
        for rank in range(ranks)
    ]
    load = workload(*nodes, groups={} if everyone else {"1": tuple(members)})
    try:
        return lower(load, cluster, MeasuredCompute())
    except SimulationError:
        return None  # some algorithms serve no group


def alike_program(seed: int) -> LoweredProgram:
    """Return a workload of few programs, whose ranks differ in groups, peers and, at times, speed.

    Most ranks run the same nodes, as replicas and shards of a job do.
    """
    rng = np.random.default_rng(seed)
    cluster = random_cluster(rng)
    links = tuple(replace(d, npus=pick(rng, 4, 8)) for d in cluster.network.dimensions)
    cluster = replace(cluster, network=NetworkConfig(links))
    ranks, kinds = cluster.network.num_npus, pick(rng, 1, 1, 2)
    number_R = np.arange(ranks)
    members = {"even": number_R.reshape(-1, 2).T, "half": number_R.reshape(2, -1)}
    shifts = [pick(rng, 1, 2, ranks // 2) for _ in range(2)]
    peers = [(number_R + way * shift) % ranks for shift in shifts for way in (1, -1)]
    if rng.integers(3) == 0:
        peers[2] = peers[3] = number_R ^ 3  # pairs of neighbors, and pairs with a pair between
    scopes = ("", "even", "half") if _serves_groups(cluster) else ("",)
    programs = [_shared_program(seed, kind, scopes) for kind in range(kinds)]
    kind_R = number_R * kinds // ranks if rng.integers(2) else number_R % kinds
    traces = RankTraces(programs, kind_R, members, peers)
    program = lower(Workload(traces, traces.groups), cluster, MeasuredCompute())
    if rng.integers(4):
        return program
    return with_variation(program, Variation({int(rng.integers(ranks)): 2.0}))


def _shared_program(seed: int, kind: int, scopes: tuple[str, ...]) -> Trace:
    """Return nodes whose order all kinds share, with times and dependencies of their own."""
    steps, own = np.random.default_rng((seed, 0)), np.random.default_rng((seed, 1, kind))
    nodes: list[NodeSpec] = [comp(0, 1, duration_ns=pick(own, 10, 20))]
    last: dict[str, int] = {}
    for step in range(int(steps.integers(1, 9))):
        what, scope = pick(steps, "compute", "collective", "shift"), pick(steps, *scopes)
        size, collective = pick(steps, 8, 1000, 4096), pick(steps, *TYPES)
        shift, id = 2 * int(steps.integers(2)), len(nodes)
        deps = tuple(sorted(own.permutation(id)[: int(own.integers(3))].tolist()))
        if what == "compute":
            time, cpu = pick(own, 1, 10, 20, 100), bool(own.integers(2))
            nodes.append(comp(id, 1, deps, duration_ns=time, is_cpu_op=cpu))
        elif what == "collective":
            before = {last[scope]} if scope in last else set()
            group = {"pg_name": scope} if scope else {}
            nodes.append(coll(id, collective, size, tuple({*deps, *before}), **group))
            last[scope] = id
        else:
            nodes.append(send(id, shift, size, deps, tag=step))
            nodes.append(recv(id + 1, shift + 1, size, deps, tag=step))
    return build_trace(nodes)


def random_rings(seed: int) -> LoweredProgram:
    """Return collectives of all ranks on rings of neighbors whose links are shared."""
    rng = np.random.default_rng(seed)
    cluster, kinds = random_cluster(rng), (Topology.RING, Topology.FULLY_CONNECTED)
    links = tuple(
        replace(d, topology=pick(rng, *kinds), latency_ns=pick(rng, 0.0, 37.5, 2000.0))
        for d in cluster.network.dimensions
    )
    rings = ("ring",) * len(links)
    system = replace(
        cluster.system, all_reduce=rings, all_gather=rings, reduce_scatter=rings, broadcast=()
    )
    streams = pick(rng, 1, 1, 2)
    options = replace(cluster.options, congestion=Congestion.AWARE_MULTI, comm_streams=streams)
    wanted = [(pick(rng, *TYPES[:3]), pick(rng, 8, 1000, 4096)) for _ in range(pick(rng, 1, 2, 3))]
    late = pick(rng, 0, 1, 30, 3000)
    nodes = []
    for _ in range(math.prod(d.npus for d in links)):
        own = [comp(0, 1, duration_ns=10 + late * int(rng.integers(4)))]
        for kind, size in wanted:
            own.append(coll(len(own), kind, size, (len(own) - 1,)))
            own.append(comp(len(own), 1, (len(own) - 1,), duration_ns=pick(rng, 10, 10, 50)))
        nodes.append(own)
    cluster = replace(cluster, network=NetworkConfig(links), system=system, options=options)
    return lower(workload(*nodes), cluster, MeasuredCompute())
