"""Jobs, clusters, negative controls.

Peak of what a rank holds while its trace runs: results until nobody needs them any more.

Unlike ``layerdag.simulator.analysis.local_memory``, which needs the tensors' names, it takes the
``tensor_size`` of a node as its result, and dependencies as uses. It compares jobs with each other;
bytes that an accelerator needs it does not say.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from layerdag.codec.placement import fitting_ranks
from layerdag.codec.unfolding import unfold_sampled
from layerdag.errors import LayerdagError
from layerdag.graph.attributed_graph import AttributedGraph, Condition
from layerdag.runtime.progress import track
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.compute import ComputeModel, MeasuredCompute
from layerdag.simulator.config import NetworkConfig, SystemConfig, Topology, UnsupportedCollectives
from layerdag.simulator.run import SimulationResult, simulate
from layerdag.traces.trace import NodeType, Workload


@dataclass(frozen=True, eq=False)
class RankedJob:
    """A job that is simulated.

    Attributes:
        workload: Its traces.
        plan: How it is split over ranks, such as "fsdp2 x 4".
        kind: What else is known of it, such as family and phase.
        nodes: Nodes of its graph.
        graph: Its graph, which bad generators spoil; None of workloads that were never one.
    """

    workload: Workload
    plan: str
    kind: tuple[str, ...]
    nodes: int
    graph: AttributedGraph | None = None

    @property
    def communicates(self) -> bool:
        """Whether any of its ranks sends, receives or takes part in a collective."""
        return any((trace.type_N >= NodeType.COMM_SEND).any() for trace in self.workload.traces)


def ranked_job(
    graph: AttributedGraph, conditions: Mapping[str, Condition] | None = None
) -> RankedJob | None:
    """Return a job with its traces; None if it has one rank.

    Args:
        graph: Of the job.
        conditions: "world_size", "strategy", "family", "phase"; those of the graph by default.

    Raises:
        DataError: If it is not the graph of a job.
    """
    known = graph.conditions if conditions is None else conditions
    ranks = fitting_ranks(graph, int(float(known.get("world_size", 1))))
    if ranks < 2:
        return None
    plan = f"{known.get('strategy', 'any plan')} x {ranks}"
    kind = tuple(str(known.get(name, "")) for name in ("family", "phase"))
    return RankedJob(unfold_sampled(graph, ranks).workload, plan, kind, graph.num_nodes, graph)


_TOO_LONG = 100.0
_LARGEST_MESSAGE = 2.0**30


def negative_controls(
    jobs: Sequence[RankedJob], rng: np.random.Generator
) -> dict[str, tuple[RankedJob, ...]]:
    """Return sets of jobs that each lack one thing.

    "numbers exchanged": every time, size and cost is that of some node of some job;
    "messages exchanged": the sizes of messages are; "edges rewired": dependencies are between nodes
    drawn at random, as many as before; "durations too long": a hundred times;
    "messages at random": from a byte to a gibibyte; "one job": the first one, again and again.
    Jobs that cannot be unfolded any more are left out.
    """
    graphs = [job.graph for job in jobs if job.graph is not None]
    if not graphs:
        return {}
    pools = _pools(graphs)
    sent = {"comm_bytes": pools["comm_bytes"]} if "comm_bytes" in pools else {}
    spoiled = {
        "numbers exchanged": [_exchanged(graph, pools, rng) for graph in graphs],
        "messages exchanged": [_exchanged(graph, sent, rng) for graph in graphs],
        "edges rewired": [_rewired(graph, rng) for graph in graphs],
        "durations too long": [_scaled(graph, "duration", _TOO_LONG) for graph in graphs],
        "messages at random": [_messages_at_random(graph, rng) for graph in graphs],
        "one job": [graphs[0]] * len(graphs),
    }
    made = {name: [_again(graph) for graph in mine] for name, mine in spoiled.items()}
    return {name: tuple(job for job in mine if job) for name, mine in made.items()}


def _again(graph: AttributedGraph) -> RankedJob | None:
    try:
        return ranked_job(graph)
    except LayerdagError:
        return None


def _positive(value_N: np.ndarray) -> np.ndarray:
    """Return which values are there and positive, NaN is absent."""
    found_N: np.ndarray = np.nan_to_num(value_N) > 0
    return found_N


def _pools(graphs: Sequence[AttributedGraph]) -> dict[str, np.ndarray]:
    """Return the positive values of every number of all nodes."""
    columns = {
        name: np.concatenate([graph.numbers[name] for graph in graphs])
        for name in graphs[0].numbers
    }
    return {name: column[_positive(column)] for name, column in columns.items()}


def _exchanged(
    graph: AttributedGraph, pools: Mapping[str, np.ndarray], rng: np.random.Generator
) -> AttributedGraph:
    """Return the graph with positive numbers drawn from pools."""
    numbers = dict(graph.numbers)
    for name, pool in pools.items():
        if pool.size:
            drawn_N = rng.choice(pool, graph.num_nodes)
            numbers[name] = np.where(_positive(numbers[name]), drawn_N, numbers[name])
    return replace(graph, numbers=numbers)


def _scaled(graph: AttributedGraph, name: str, factor: float) -> AttributedGraph:
    if name not in graph.numbers:
        return graph
    return replace(graph, numbers={**graph.numbers, name: factor * graph.numbers[name]})


def _messages_at_random(graph: AttributedGraph, rng: np.random.Generator) -> AttributedGraph:
    sizes_N = np.rint(_LARGEST_MESSAGE ** rng.random(graph.num_nodes))
    sent_N = graph.numbers.get("comm_bytes")
    if sent_N is None:
        return graph
    sizes_N = np.where(_positive(sent_N), sizes_N, sent_N)
    return replace(graph, numbers={**graph.numbers, "comm_bytes": sizes_N})


def _rewired(graph: AttributedGraph, rng: np.random.Generator) -> AttributedGraph:
    """Return the graph with as many edges, each from a node to a later one, drawn at random."""
    place_N = np.argsort(graph.layer_N, kind="stable")  # edges along it close no cycle
    count, size = graph.edge_index_2E.shape[1], graph.num_nodes
    pairs: set[tuple[int, int]] = set()
    while len(pairs) < count:
        drawn_D2 = np.sort(rng.integers(0, size, (2 * count, 2)), axis=1)
        fresh = (tuple(pair) for pair in drawn_D2.tolist() if pair[0] < pair[1])
        for pair in fresh:
            if len(pairs) < count:
                pairs.add(pair)
    found_2E = place_N[np.array(sorted(pairs), dtype=np.int64).T.reshape(2, -1)]
    return replace(graph, edge_index_2E=found_2E)


_LINKS = (
    (0.1, 0.5), (0.3, 1.0), (1.0, 2.0), (3.0, 4.0),
    (10.0, 8.0), (30.0, 16.0), (100.0, 32.0), (300.0, 64.0),
)  # fmt: skip
"""Latency in microseconds and GiB/s, of which none is better in both."""
_SLOWER_LINK, _FASTER_COMPUTE = 2.0, 0.7


@dataclass(frozen=True)
class RankedCluster:
    """One switch, and accelerators of one speed.

    Attributes:
        latency_us: Latency of a hop in microseconds.
        gib_per_s: Bandwidth of a link in 2**30 bytes per second.
        compute_time: Time of an operator, of the common one as 1.
    """

    latency_us: float
    gib_per_s: float
    compute_time: float

    @property
    def name(self) -> str:
        """The numbers in short."""
        speed = "" if self.compute_time == 1 else f", compute time x {self.compute_time:g}"
        return f"{self.gib_per_s:g} GiB/s, {self.latency_us:g} us{speed}"

    def with_ranks(self, ranks: int, speedup: float) -> Cluster:
        """Return it for jobs whose durations were measured on a device ``speedup`` times as slow.

        The network is slowed down instead of making durations shorter, which orders clusters alike
        and rounds no duration to whole nanoseconds.
        """
        system = replace(
            SystemConfig.uniform("ring"), unsupported_collectives=UnsupportedCollectives.REPLAY
        )
        latency_ns = 1e3 * self.latency_us * speedup
        network = NetworkConfig.single(Topology.SWITCH, ranks, self.gib_per_s / speedup, latency_ns)
        return Cluster(network, system)


CLUSTERS = tuple(
    RankedCluster(latency * slower, bandwidth, compute)
    for latency, bandwidth in _LINKS
    for slower, compute in ((1.0, 1.0), (_SLOWER_LINK, _FASTER_COMPUTE))
)
"""Sixteen: the faster a link or the compute, the longer the latency."""


def live_bytes(result: SimulationResult) -> int:
    """Return the peak in bytes of the fullest rank.

    A node's ``tensor_size`` is held from its issue until the last node that depends on it ends, or
    until it ends itself if none does.
    """
    program = result.program
    traces = program.workload.traces
    seen: set[tuple[int, bytes]] = set()
    peaks = [0]
    for rank in range(result.num_ranks):
        rows = result.rows(rank)
        issue_N, finish_N = result.issue_ns[rows], result.finish_ns[rows]
        which = int(program.class_of_rank[rank])
        if (which, finish_N.tobytes()) in seen:  # ranks of one class mostly run alike
            continue
        seen.add((which, finish_N.tobytes()))
        nodes, trace = program.classes[which], traces[rank]
        order_N = np.argsort(trace.id_N, kind="stable")
        size_N = np.maximum(trace.integers("tensor_size")[0][order_N], 0)
        parent_E = np.repeat(np.arange(len(issue_N)), np.diff(nodes.child_ptr))
        until_N = finish_N.copy()
        np.maximum.at(until_N, parent_E, finish_N[nodes.child_E])
        peaks.append(_peak(issue_N, until_N, size_N))
    return max(peaks)


def _peak(start_N: np.ndarray, end_N: np.ndarray, size_N: np.ndarray) -> int:
    """Return the largest sum of what is held at once; what ends is freed before what begins."""
    held_N = (size_N > 0) & (end_N > start_N)
    change = np.concatenate([size_N[held_N], -size_N[held_N]])
    time = np.concatenate([start_N[held_N], end_N[held_N]])
    if not change.size:
        return 0
    return int(np.cumsum(change[np.lexsort((change, time))]).max())


TARGETS = ("makespan", "exposed communication", "memory")

ComputeOf = Callable[[float], ComputeModel]
"""From the time of an operator, of the common one as 1, to a compute model."""


@dataclass(frozen=True, eq=False)
class SimulatedJobs:
    """Figures of a set of jobs.

    Attributes:
        jobs: Those that ran.
        log_JCT: float64 logarithms of ``TARGETS`` of each job on each cluster.
        log_work_JC: float64 logarithms of the compute time of the mean rank, in ns.
        exposed_JC: float64, share of the step in which the mean rank does not compute.
        failed: Sentences on those that did not run.
    """

    jobs: tuple[RankedJob, ...]
    log_JCT: np.ndarray
    log_work_JC: np.ndarray
    exposed_JC: np.ndarray
    failed: tuple[str, ...] = ()


def simulate_jobs(
    jobs: Sequence[RankedJob],
    clusters: Sequence[RankedCluster] = CLUSTERS,
    *,
    speedup: float = 30.0,
    compute: ComputeOf = MeasuredCompute,
    label: str = "simulating",
) -> SimulatedJobs:
    """Run every job on every cluster.

    Args:
        jobs: Of at least two ranks each.
        clusters: Where.
        speedup: How many times as fast compute is as where the durations of the traces come from.
            On one CPU thread operators take so long that networks would not matter.
        compute: Makes times of operators.
        label: Of the progress line.
    """
    ran, rows, failed = [], [], []
    for job in track(jobs, label, len(jobs)):
        try:
            rows.append([_figures(job, cluster, speedup, compute) for cluster in clusters])
            ran.append(job)
        except LayerdagError as error:
            failed.append(f"{job.workload.source}: {error}")
    shape = (len(rows), len(clusters), 1 + len(TARGETS))
    value_JCF = np.array(rows, dtype=np.float64).reshape(shape)
    exposed_JC = value_JCF[:, :, 1] / np.maximum(value_JCF[:, :, 0], 1.0)
    # A nanosecond or byte more: a job may expose nothing, or hold nothing.
    log_JCF = np.log(value_JCF + 1.0)
    return SimulatedJobs(
        tuple(ran), log_JCF[:, :, :-1], log_JCF[:, :, -1], exposed_JC, tuple(failed)
    )


def _figures(
    job: RankedJob, cluster: RankedCluster, speedup: float, compute: ComputeOf
) -> tuple[float, ...]:
    """Return makespan and exposed communication in ns, live bytes, and compute time in ns."""
    machine = cluster.with_ranks(job.workload.num_ranks, speedup)
    result = simulate(job.workload, machine, compute=compute(cluster.compute_time))
    exposed_ns = float(np.maximum(result.exposed_comm_ns, 0).mean())
    work_ns = float(result.compute_ns.mean())
    return float(result.makespan_ns), exposed_ns, float(live_bytes(result)), work_ns
