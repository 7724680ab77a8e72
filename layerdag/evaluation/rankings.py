"""Orders of clusters, plans and jobs under two sets of jobs, and how far they agree.

The peak memory of a rank is that of results until nobody needs them any more. Unlike
``layerdag.simulator.analysis.local_memory``, which needs the tensors' names, it takes the
``tensor_size`` of a node as its result, and dependencies as uses. It compares jobs with each other;
bytes that an accelerator needs it does not say.

Letters of shapes: J real jobs, K other jobs, C clusters, P plans, R rows of weights, whose first is
all ones and whose others are bootstrap resamples of the jobs.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from layerdag.codec.placement import fitting_ranks
from layerdag.codec.unfolding import unfold_sampled
from layerdag.errors import LayerdagError, UsageError
from layerdag.graph.attributed_graph import AttributedGraph, Condition
from layerdag.runtime.rng import numpy_generator
from layerdag.runtime.terminal import track
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.compute import ComputeModel, MeasuredCompute
from layerdag.simulator.config import NetworkConfig, SystemConfig, Topology, UnsupportedCollectives
from layerdag.simulator.run import SimulationResult, simulate
from layerdag.statistics import Interval, kendall
from layerdag.traces.trace import Workload, communicates


@dataclass(frozen=True, eq=False)
class RankedJob:
    """A job that is simulated.

    Attributes:
        plan: How it is split over ranks, such as "fsdp2 x 4".
        kind: What else is known of it, such as family and phase.
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
        return any(communicates(trace.type_N).any() for trace in self.workload.traces)


def ranked_job(
    graph: AttributedGraph, conditions: Mapping[str, Condition] | None = None
) -> RankedJob | None:
    """Return a job with its traces; None if it has one rank.

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
    columns = {
        name: np.concatenate([graph.numbers[name] for graph in graphs])
        for name in graphs[0].numbers
    }
    pools = {name: column[_positive(column)] for name, column in columns.items()}
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


def _exchanged(
    graph: AttributedGraph, pools: Mapping[str, np.ndarray], rng: np.random.Generator
) -> AttributedGraph:
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
            SystemConfig.uniform("ring"),
            all_to_all=("direct",),  # as NCCL's
            unsupported_collectives=UnsupportedCollectives.REPLAY,
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
        issue_N, finish_N = result.ticks(rank)
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
    """Run every job, of at least two ranks each, on every cluster.

    Compute is ``speedup`` times as fast as where the durations of the traces come from: on one CPU
    thread operators take so long that networks would not matter.
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


MIN_JOBS = 3
"""Jobs that a plan needs on both sides to be ranked."""
NEAREST = 3
"""Other jobs whose mean is compared with a real one where jobs are ranked."""


@dataclass(frozen=True, eq=False)
class PairedJobs:
    """Other jobs beside real ones, with weights of both."""

    real: SimulatedJobs
    other: SimulatedJobs
    real_RJ: np.ndarray
    other_RK: np.ndarray


TIED = 1e-9
"""Difference of logarithms that rounding may make."""


def _tau(x_RI: np.ndarray, y_RI: np.ndarray) -> np.ndarray:
    return kendall(x_RI, y_RI, np.ones_like(x_RI), TIED)


def _means(log_JC: np.ndarray, weights_RJ: np.ndarray) -> np.ndarray:
    """Return weighted means over jobs, (R, C)."""
    mean_RC: np.ndarray = weights_RJ @ log_JC / weights_RJ.sum(axis=1, keepdims=True)
    return mean_RC


def rank_clusters(beside: PairedJobs, target: int) -> np.ndarray:
    """Return tau of the order of clusters by the mean logarithm of a target over jobs, (R,)."""
    return _tau(*_cluster_means(beside, target))


def difference_of_clusters(beside: PairedJobs, target: int) -> np.ndarray:
    """Return how far the clusters' mean logarithms differ, but for a common factor, (R,)."""
    real_RC, other_RC = (
        mean_RC - mean_RC.mean(axis=1, keepdims=True) for mean_RC in _cluster_means(beside, target)
    )
    difference_R: np.ndarray = np.abs(real_RC - other_RC).mean(axis=1)
    return difference_R


def _cluster_means(beside: PairedJobs, target: int) -> tuple[np.ndarray, np.ndarray]:
    return (
        _means(beside.real.log_JCT[:, :, target], beside.real_RJ),
        _means(beside.other.log_JCT[:, :, target], beside.other_RK),
    )


def rank_plans(beside: PairedJobs, target: int) -> np.ndarray:
    """Return tau of the order of plans on a cluster, mean over clusters, (R,).

    Plans are ordered by the mean logarithm over their jobs; jobs of one plan may be larger than
    those of another, which is a part of the order.
    """
    sides = (beside.real.log_JCT[:, :, target], beside.other.log_JCT[:, :, target])
    return _plans(beside, *sides)


def rank_plans_relative(beside: PairedJobs, target: int) -> np.ndarray:
    """Return the same by what a plan costs beyond computing: relative to compute time, (R,).

    Then the sizes of the models that run under a plan matter little.
    """
    sides = (side.log_JCT[:, :, target] - side.log_work_JC for side in (beside.real, beside.other))
    return _plans(beside, *sides)


def _plans(beside: PairedJobs, real_JC: np.ndarray, other_KC: np.ndarray) -> np.ndarray:
    plans = ranked_plans(beside.real.jobs, beside.other.jobs)
    if len(plans) < 2:
        return np.full(len(beside.real_RJ), np.nan)
    real_CRP = _means_by_plan(beside.real.jobs, real_JC, beside.real_RJ, plans)
    other_CRP = _means_by_plan(beside.other.jobs, other_KC, beside.other_RK, plans)
    taus = [_tau(*pair) for pair in zip(real_CRP, other_CRP, strict=True)]
    tau_R: np.ndarray = np.mean(taus, axis=0)
    return tau_R


def _means_by_plan(
    jobs: tuple[RankedJob, ...], value_JC: np.ndarray, weights_RJ: np.ndarray, plans: list[str]
) -> np.ndarray:
    """Return weighted means over the jobs of each plan, (C, R, P)."""
    held_PJ = [np.array([job.plan == plan for job in jobs]) for plan in plans]
    means = [_means(value_JC[held_J], weights_RJ[:, held_J]) for held_J in held_PJ]
    return np.moveaxis(np.stack(means, axis=2), 1, 0)


def ranked_plans(real: tuple[RankedJob, ...], other: tuple[RankedJob, ...]) -> list[str]:
    """Return the plans of which both sides have enough jobs."""
    counts = [[job.plan for job in side] for side in (real, other)]
    return sorted(
        plan for plan in set(counts[0]) if all(held.count(plan) >= MIN_JOBS for held in counts)
    )


def rank_jobs(beside: PairedJobs, target: int) -> np.ndarray:
    """Return tau of the order of jobs on a cluster, mean over clusters, (R,).

    Beside each real job stand the others that are most like it by what is known before
    a job runs: plan, then family and phase, then number of nodes.
    """
    chosen_JK = nearest(beside.real.jobs, beside.other.jobs)
    other_JC = beside.other.log_JCT[:, :, target][chosen_JK].mean(axis=1)
    real_JC = beside.real.log_JCT[:, :, target]
    taus = [
        kendall(real_JC[None, :, c], other_JC[None, :, c], beside.real_RJ, TIED)
        for c in range(real_JC.shape[1])
    ]
    tau_R: np.ndarray = np.mean(taus, axis=0)
    return tau_R


def nearest(real: tuple[RankedJob, ...], other: tuple[RankedJob, ...]) -> np.ndarray:
    """Return the rows of the others that are most like each real job, (J, up to ``NEAREST``)."""
    rows = []
    for job in real:
        distance = [
            (
                candidate.plan != job.plan,
                sum(a != b for a, b in zip(candidate.kind, job.kind, strict=True)),
                abs(np.log(candidate.nodes / job.nodes)),
                row,
            )
            for row, candidate in enumerate(other)
        ]
        rows.append([entry[-1] for entry in sorted(distance)[:NEAREST]])
    return np.array(rows, dtype=np.int64)


OrderOf = Callable[[PairedJobs, int], np.ndarray]

ORDERS: dict[str, OrderOf] = {
    "clusters": rank_clusters,
    "plans": rank_plans,
    "plans, relative": rank_plans_relative,
    "jobs": rank_jobs,
}
"""What is put in order."""

WITHOUT_MEMORY = ("clusters", "plans, relative")
"""Memory depends little on the cluster, and is not a multiple of compute time."""


REPLICATES = 300
DIFFERENCE = "clusters, difference"


@dataclass(frozen=True)
class RankingRow:
    """How far the order under one set of jobs agrees with that under real test jobs.

    Attributes:
        order: "clusters", "plans", "plans, relative" (to compute time), "jobs": Kendall's tau-b, 1
            is the same order. "clusters, difference": mean absolute difference of the clusters'
            mean logarithms; 0 is the same.
        lead: How far the baseline is better than this set, from the same resamples of the real
            jobs; None for the baseline itself.
        lead_interval: Its interval; above 0, this set loses.
    """

    jobs: str
    order: str
    target: str
    value: float
    interval: Interval | None
    lead: float | None = None
    lead_interval: Interval | None = None

    @property
    def loses(self) -> bool:
        """Whether the baseline is better, the interval included."""
        return self.lead_interval is not None and self.lead_interval.low > 0


@dataclass(frozen=True)
class RankingReport:
    """Rankings under several sets of jobs.

    Attributes:
        failed: Number of jobs of each set that could not be simulated.
        silent: Number of jobs of each set that have several ranks but no communication.
        exposed: Least and greatest share, over clusters, of the step in which the mean rank of the
            mean real test job does not compute. Where both are near 0, compute decides all.
        slowest: Mean step time of real test jobs on the slowest cluster over that on the fastest.
    """

    tested_on: int
    counts: Mapping[str, int]
    failed: Mapping[str, int]
    silent: Mapping[str, int]
    baseline: str
    rows: tuple[RankingRow, ...]
    exposed: tuple[float, float]
    slowest: float

    def row(self, jobs: str, order: str, target: str = TARGETS[0]) -> RankingRow:
        """Return one row.

        Raises:
            KeyError: If there is none.
        """
        for row in self.rows:
            if (row.jobs, row.order, row.target) == (jobs, order, target):
                return row
        raise KeyError((jobs, order, target))

    def summary(self) -> dict[str, Any]:
        """Return all of it as plain data; ``loses`` says which sets the baseline beats."""
        rows = [asdict(row) | {"loses": row.loses} for row in self.rows]
        return {**asdict(self), "rows": rows}


def compare_rankings(
    real: SimulatedJobs,
    others: Mapping[str, SimulatedJobs],
    *,
    baseline: str = "training jobs",
    seed: int = 0,
    replicates: int = REPLICATES,
) -> RankingReport:
    """Return how far orders under other jobs agree with those under real test jobs.

    Args:
        real: Test jobs.
        others: Training jobs, samples, bad generators, by name; on the same clusters.
        baseline: Which of them the others are compared with: what a perfect generator reaches.
        seed: Of the bootstrap.
        replicates: Resamples of the jobs of both sides, inside each plan.

    Raises:
        UsageError: If a set has no job, or the baseline is not there.
    """
    if baseline not in others:
        raise UsageError(f"There is no set of jobs '{baseline}'; there are {', '.join(others)}.")
    for name, found in {"real test jobs": real, **others}.items():
        if not found.jobs:
            why = f" The first reason: {found.failed[0]}" if found.failed else ""
            raise UsageError(f"{name}: no job of several ranks that can be simulated.{why}")
    real_RJ = _weights([job.plan for job in real.jobs], numpy_generator(seed, "real"), replicates)
    draws = {}
    for name, found in others.items():
        plans = [job.plan for job in found.jobs]
        other_RK = _weights(plans, numpy_generator(seed, name), replicates)
        draws[name] = _draws(PairedJobs(real, found, real_RJ, other_RK))
    rows = tuple(
        _row(name, key, draws[name][key], draws[baseline][key] if name != baseline else None)
        for name in others
        for key in draws[name]
    )
    mean_C = real.log_JCT[:, :, 0].mean(axis=0)
    exposed_C = real.exposed_JC.mean(axis=0)
    return RankingReport(
        len(real.jobs),
        {name: len(found.jobs) for name, found in others.items()},
        {name: len(found.failed) for name, found in others.items()},
        {name: sum(not job.communicates for job in found.jobs) for name, found in others.items()},
        baseline,
        rows,
        (float(exposed_C.min()), float(exposed_C.max())),
        math.exp(float(np.ptp(mean_C))),
    )


def _draws(beside: PairedJobs) -> dict[tuple[str, str], np.ndarray]:
    """Return each figure under each row of weights; the first is the figure itself."""
    found = {}
    for order, tau_of in ORDERS.items():
        for index, target in enumerate(TARGETS[:2] if order in WITHOUT_MEMORY else TARGETS):
            found[order, target] = tau_of(beside, index)
    for index, target in enumerate(TARGETS[:2]):
        found[DIFFERENCE, target] = difference_of_clusters(beside, index)
    return found


def _weights(plans: Sequence[str], rng: np.random.Generator, replicates: int) -> np.ndarray:
    """Return how often each job is drawn, (1 + replicates, J); resamples stay inside plans."""
    weights_RJ = np.ones((1 + replicates, len(plans)))
    for plan in sorted(set(plans)):
        held = np.flatnonzero([mine == plan for mine in plans])
        chance = np.full(held.size, 1 / held.size)
        weights_RJ[1:, held] = rng.multinomial(held.size, chance, size=replicates)
    return weights_RJ


def _row(
    name: str, key: tuple[str, str], draws_R: np.ndarray, baseline_R: np.ndarray | None
) -> RankingRow:
    order, target = key
    lower, upper = (0.0, math.inf) if order == DIFFERENCE else (-1.0, 1.0)
    value = float(draws_R[0])
    interval = Interval.around(value, draws_R[1:], lower, upper)
    if baseline_R is None:
        return RankingRow(name, order, target, value, interval)
    lead_R = draws_R - baseline_R if order == DIFFERENCE else baseline_R - draws_R
    lead = float(lead_R[0])
    return RankingRow(name, order, target, value, interval, lead, Interval.around(lead, lead_R[1:]))
