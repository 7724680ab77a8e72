"""``simulate``: run a workload on a cluster; its result, notes, stragglers and exports.

Traces are read and lowered, the compiled event loop runs them, and its ticks are the result.
"""

import csv
import dataclasses
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from layerdag.errors import ConfigError, SimulationError, WrongNameError
from layerdag.hardware.collectives import CollectiveType
from layerdag.hardware.dtypes import number_class
from layerdag.runtime.files import atomic_path
from layerdag.runtime.settings import guess_message
from layerdag.simulator.cluster import Cluster, ClusterOfAnySize
from layerdag.simulator.collectives import Algorithm, PhaseType
from layerdag.simulator.compute import (
    ComputeModel,
    MeasuredCompute,
    PredictedCompute,
    ReferenceCompute,
    RooflineCompute,
    ScaledCompute,
)
from layerdag.simulator.compute_choice import compute_model
from layerdag.simulator.config import MAX_TIME_NS, Congestion, NetworkConfig
from layerdag.simulator.event_loop import KernelOutput, describe, explain, run_event_loop
from layerdag.simulator.fitted_collectives import OPERATIONS, device_of, has_nodes
from layerdag.simulator.host_time import with_host
from layerdag.simulator.lowering import ClassProgram, NodeKind, Slot
from layerdag.simulator.program import LoweredProgram, lower
from layerdag.traces.chakra.workload import read_workload
from layerdag.traces.trace import NodeType, Trace, Workload

if TYPE_CHECKING:
    import pandas as pd

_EMPTY = (
    "a collective of 0 bytes runs with a byte for every rank in each chunk, as in the reference; "
    "drop the node if it moves nothing."
)
_FREE = (
    "system.json has no local-mem-bw, so reductions take 0 ns, as in the reference; add it to "
    "charge them."
)
_COSTS_UNUSED = (
    "no compute node states a duration, so each takes 1 ns, as in the reference; to use num_ops "
    "and tensor_size set roofline-enabled to 1, or choose a device with --compute."
)

_CPU_TIMES = (
    "the times of compute nodes are those of the CPU on which the trace was recorded; choose "
    "--compute DEVICE, such as h100, for an accelerator."
)
_ALONE = "the job has one rank, which ASTRA-sim itself refuses: its network needs two or more."


NOT_MODELED = (
    "host time between operators",
    "contention of computation and communication for memory and multiprocessors",
    "limits of power and clock",
    "other jobs on the network",
)
"""What no simulated time has, unless recorded durations hold it."""


def _refuse_untimed(workload: Workload, compute: ComputeModel) -> None:
    """Raise SimulationError where no compute node has a time, so that each would take 1 ns.

    A trace that has costs instead of durations runs under ``ReferenceCompute``, as in the
    reference, with a note.
    """
    if not _untimed(workload, compute):
        return
    costed = any(
        bool((trace.integers(name)[0][row_M] > 0).any())
        for trace, row_M, _ in _computing(workload)
        for name in ("num_ops", "tensor_size")
    )
    if costed and isinstance(compute, ReferenceCompute):
        return
    count = sum(row_M.size * ranks for _, row_M, ranks in _computing(workload))
    remedy = (
        "choose a device with --compute, such as h100, to make times of num_ops and tensor_size"
        if costed
        else "convert the host trace together with its profile, which has durations, or give the "
        "nodes num_ops and tensor_size and choose a device with --compute, such as h100"
    )
    raise SimulationError(
        f"{workload.source}: none of its {count:,} compute nodes states a duration that this "
        f"compute model reads, so each would take 1 ns; {remedy}."
    )


def _computing(workload: Workload) -> Iterator[tuple[Trace, np.ndarray, int]]:
    rows: dict[int, np.ndarray] = {}  # traces from files share their columns
    for trace, ranks in workload.programs():
        if id(trace.type_N) not in rows:
            rows[id(trace.type_N)] = np.flatnonzero(trace.type_N == NodeType.COMP)
        row_M = rows[id(trace.type_N)]
        if row_M.size:
            yield trace, row_M, ranks


def _untimed(workload: Workload, compute: ComputeModel) -> bool:
    """Return whether there are compute nodes, and none has a time; most traces end at the first."""
    computes = False
    for trace, row_M, _ in _computing(workload):
        computes = True
        if compute.is_timed(trace, row_M):
            return False
    return computes


def _notes(program: LoweredProgram, compute: ComputeModel) -> Iterator[str]:
    """Yield what a reader of the figures should know, one sentence each."""
    system = program.cluster.system
    if any(plan.size == 0 for plan in program.plans):
        yield _EMPTY
    if program.workload.num_ranks == 1:
        yield _ALONE
    yield from _flat_groups(program)
    replayed = isinstance(compute, MeasuredCompute | ReferenceCompute)
    if not replayed and not isinstance(compute, PredictedCompute):
        dtypes = {dtype for trace, _, _ in program.represented() for dtype in trace.dtypes()}
        unknown = sorted(dtype for dtype in dtypes if number_class(dtype) is None)
        if unknown:
            yield (
                f"the number formats {', '.join(map(repr, unknown[:5]))} of compute nodes are not "
                "known; they count as float32."
            )
    if isinstance(compute, RooflineCompute):
        yield f"compute times: {compute.assumption}"
    if replayed and _on_cpu(program):
        yield _CPU_TIMES
    if system.fitted_collectives:
        yield from _measured_collectives(program, system.fitted_collectives)
    count_T = np.zeros(256, dtype=np.int64)
    for _, nodes, ranks in program.represented():
        count_T += ranks * np.bincount(nodes.type_N, minlength=256)
    if count_T[NodeType.INVALID]:
        yield (
            "nodes of type INVALID take no time, as in the reference "
            f"({count_T[NodeType.INVALID]:,} of them)."
        )
    if count_T[NodeType.STORAGE] and system.storage_bw_gb is None:
        yield (
            f"operations on storage take their recorded durations ({count_T[NodeType.STORAGE]:,} "
            "of them); state storage-bw (GB/s) in system.json for their bytes over a bandwidth."
        )
    if spans := count_T[NodeType.BATCH] + count_T[NodeType.CHECKPOINT]:
        yield (
            "nodes that span a batch or a checkpoint take no time of their own "
            f"({spans:,} of them)."
        )
    if not isinstance(compute, ReferenceCompute):
        return
    reduces = any(
        phase.type in (PhaseType.ALL_REDUCE, PhaseType.REDUCE_SCATTER)
        and phase.algorithm is not Algorithm.IN_NETWORK
        for plan in program.plans
        for phase in plan.phases
    )
    if reduces and system.local_mem_bw_gb is None:
        yield _FREE
    if _untimed(program.workload, compute):
        yield _COSTS_UNUSED


def _flat_groups(program: LoweredProgram) -> Iterator[str]:
    """Yield a sentence on flat rings that span a slower dimension than they are charged to."""
    network = program.cluster.network
    speeds = [dimension.bytes_per_ns for dimension in network.dimensions]
    if len(speeds) == 1:
        return
    found: Counter[tuple[int, int]] = Counter()
    moved: Counter[tuple[int, int]] = Counter()
    for _, nodes, ranks in program.represented():
        rows = np.flatnonzero((nodes.kind_N == NodeKind.COLLECTIVE) & (nodes.tag_N >= 0))
        asked = Counter(zip(nodes.tag_N[rows].tolist(), nodes.peer_N[rows].tolist(), strict=True))
        for (group, plan), count in asked.items():
            if program.plans[plan].phases[0].stride:
                continue
            charged, spanned = program.groups.dimensions(group, network)
            slowest = min(spanned, key=speeds.__getitem__, default=0)
            if charged and speeds[slowest] < min(speeds[d] for d in charged):
                found[slowest, min(charged)] += count * ranks
                moved[slowest, min(charged)] += count * ranks * program.plans[plan].size
    for (slowest, faster), count in sorted(found.items()):
        yield (
            f"{count:,} collectives of groups that span dimension {slowest} "
            f"({moved[slowest, faster]:,} bytes) run as flat rings, whose messages are charged to "
            f"the faster dimension {faster}: the bandwidth of dimension {slowest} has no effect on "
            "them. Collectives by dimension (--group-collectives hierarchical, the default) charge "
            "it where the group is a grid of ranks and each dimension has an implementation."
        )


def _on_cpu(program: LoweredProgram) -> bool:
    computes = False
    for trace, nodes, _ in program.represented():
        row_M = np.flatnonzero(trace.type_N == NodeType.COMP)
        if not row_M.size:
            continue
        computes = True
        if (nodes.slot_N[nodes.type_N == NodeType.COMP] == Slot.CPU).all():
            continue
        devices = trace.texts("device")[0] if "cpu" in trace.strings else []
        if not devices or any(devices[row] != "cpu" for row in row_M.tolist()):
            return False
    return computes


def _measured_collectives(program: LoweredProgram, device: str) -> Iterator[str]:
    found: Counter[int] = Counter()
    for trace, _, ranks in program.represented():
        kind_N = trace.integers("comm_type")[0][trace.type_N == NodeType.COMM_COLL]
        for kind, count in Counter(kind_N.tolist()).items():
            found[kind] += count * ranks
    if not found:
        return
    named = {True: "", False: ""}
    for kind, count in sorted(found.items()):
        part = f"{count:,} {CollectiveType(kind).name}"
        before = named[kind in OPERATIONS]
        named[kind in OPERATIONS] = f"{before}, {part}" if before else part
    yield (
        f"collectives of groups of several ranks with NCCL's times on {device} in nodes of 8, each "
        f"rank by itself, and the last dimension of the network among nodes: "
        f"{named[True] or 'none'}; not measured, so as without: {named[False] or 'none'}."
    )


@dataclass(frozen=True, eq=False)
class SimulationResult:
    """Outcome of one complete run; all times in ns (1 ns = 1 cycle of ASTRA-sim).

    Nodes of ranks that behave alike are stored once; ``ticks`` has those of a rank. ``issue_ns``
    and ``finish_ns`` have those of all ranks, 16 bytes per node once they are asked for.

    Attributes:
        program: The lowered workload.
        outcome: Ticks of the ranks that were run.
        rank_finish_ns: int64 (R,), tick at which nothing of a rank was ready or running any more.
        exposed_comm_ns: int64 (R,), finish minus the GPU compute time, as ASTRA-sim reports it:
            exposed communication, idle time and CPU time together. Under ``replay_only`` minus the
            time of all nodes that are not on the CPU, as there; it may then be negative, where
            several of these ran at once.
        compute_ns: int64 (R,), total GPU compute time.
        notes: What a reader of the figures should know, one sentence each.
        what_if: Makespans with one part of the cluster better, where they were asked for.
    """

    program: LoweredProgram
    outcome: KernelOutput
    rank_finish_ns: np.ndarray
    exposed_comm_ns: np.ndarray
    compute_ns: np.ndarray
    compute: ComputeModel
    notes: tuple[str, ...] = ()
    what_if: tuple["Sensitivity", ...] = ()

    @cached_property
    def issue_ns(self) -> np.ndarray:
        """Tick at which each node was issued, int64; rank r owns ``program.rows(r)``."""
        return self._of_all_ranks(self.outcome.issue_ns)

    @cached_property
    def finish_ns(self) -> np.ndarray:
        """Tick at which each node ended, int64, rows as in ``issue_ns``."""
        return self._of_all_ranks(self.outcome.finish_ns)

    def _of_all_ranks(self, stored: np.ndarray) -> np.ndarray:
        if len(stored) == self.num_nodes:
            return stored
        return np.concatenate([stored[self.outcome.rows(r)] for r in range(self.num_ranks)])

    def ticks(self, rank: int) -> tuple[np.ndarray, np.ndarray]:
        """Return when each node of a rank was issued and when it ended, in ns, by node id."""
        rows = self.outcome.rows(rank)
        return self.outcome.issue_ns[rows], self.outcome.finish_ns[rows]

    @property
    def makespan_ns(self) -> int:
        """Time at which the last rank ends."""
        return int(self.rank_finish_ns.max())

    @property
    def makespan_s(self) -> float:
        """Time at which the last rank ends, in seconds."""
        return self.makespan_ns / 1e9

    @property
    def makespan(self) -> NoReturn:
        """Say that times have their unit in their name."""
        raise WrongNameError(
            guess_message("SimulationResult.makespan", "makespan_s or makespan_ns")
        )

    @property
    def total_time(self) -> NoReturn:
        """Say what the total time is called."""
        raise WrongNameError(guess_message("SimulationResult.total_time", "makespan_s"))

    def timeline(self, *_: object, **__: object) -> NoReturn:
        """Say what writes the timeline."""
        raise WrongNameError(
            guess_message("SimulationResult.timeline", 'save_timeline("timeline.json")')
        )

    def to_pandas(self) -> "pd.DataFrame":
        """Return a row for each node: rank, id, type, issue and finish in ns, and its name."""
        import pandas as pd

        return pd.DataFrame(
            [row for rank in range(self.num_ranks) for row in _rows(self, rank)],
            columns=["rank", "id", "code", "issue_ns", "finish_ns", "type", "name"],
        ).drop(columns="code")

    def save_timeline(self, path: str | Path) -> Path:
        """Write a timeline for Perfetto or chrome://tracing; return its path."""
        write_timeline(self, path)
        return Path(path)

    def __repr__(self) -> str:
        """Return the sizes and the makespan, not the ticks."""
        sizes = f"{self.num_ranks:,} ranks, {self.num_nodes:,} nodes"
        return f"SimulationResult({sizes}, makespan {self.makespan_s:.3g} s)"

    @property
    def num_ranks(self) -> int:
        """Number of ranks (R)."""
        return len(self.rank_finish_ns)

    @property
    def num_nodes(self) -> int:
        """Nodes of all ranks."""
        return int(self.program.out_ptr[-1])

    def nodes(self, rank: int) -> ClassProgram:
        """Return ids, types and costs of the nodes of ``rank``, in the order of its rows."""
        return self.program.of_rank(rank)

    def summary(self) -> dict[str, object]:
        """Return finish, exposed communication and makespan as ``--json`` writes them."""
        return {
            "makespan": self.makespan_ns,
            "finish": {str(r): int(t) for r, t in enumerate(self.rank_finish_ns)},
            "exposed_comm": {str(r): int(t) for r, t in enumerate(self.exposed_comm_ns)},
            "compute": {str(r): int(t) for r, t in enumerate(self.compute_ns)},
            "ranks": self.num_ranks,
            "nodes": self.num_nodes,
            "events": self.outcome.events,
            "unit": "ns",
            "notes": list(self.notes),
            "not_modeled": list(NOT_MODELED),
        }


@dataclass(frozen=True)
class PowerLawNoise:
    """Each compute node takes t (1 + scale x), where P(X > x) = (1 + x) ** -exponent (Lomax).

    The mean of the noise is scale / (exponent - 1); every rank draws from a stream of its own.
    """

    exponent: float
    scale: float
    seed: int

    def __post_init__(self) -> None:
        if not (1 < self.exponent < math.inf and 0 < self.scale < math.inf):
            raise ConfigError(
                f"noise has exponent {self.exponent} and scale {self.scale}; the exponent must be "
                "above 1 and the scale positive."
            )

    def factors(self, rank: int, count: int) -> np.ndarray:
        """Return the factor of each of ``count`` nodes of ``rank``."""
        from layerdag.runtime.rng import numpy_generator

        uniform = numpy_generator(self.seed, "noise", rank).random(count)
        return 1.0 + self.scale * ((1.0 - uniform) ** (-1.0 / self.exponent) - 1.0)


@dataclass(frozen=True)
class Variation:
    """How ranks differ: factors on the compute time of some, and noise on every compute node.

    A straggler is ``Variation({3: 1.5})``.
    """

    time_factor: Mapping[int, float] = field(default_factory=dict)
    noise: PowerLawNoise | None = None

    def __post_init__(self) -> None:
        for rank, factor in self.time_factor.items():
            if not 0 < factor < math.inf:
                raise ConfigError(f"rank {rank} has time factor {factor}; it must be positive.")


def with_variation(program: LoweredProgram, variation: Variation) -> LoweredProgram:
    """Return the program with the compute nodes of each rank at its own speed.

    Raises:
        ConfigError: If a factor names a rank that does not exist.
    """
    strange = [rank for rank in variation.time_factor if not 0 <= rank < program.num_ranks]
    if strange:
        raise ConfigError(
            f"rank {strange[0]} is given a speed, but ranks are 0 to {program.num_ranks - 1}."
        )
    classes = list(program.classes)
    class_of_rank = program.class_of_rank.copy()
    for rank in range(program.num_ranks):
        if variation.noise is None and rank not in variation.time_factor:
            continue
        nodes = program.of_rank(rank)
        rows = np.flatnonzero((nodes.type_N == NodeType.COMP) & (nodes.kind_N == NodeKind.TIMER))
        factor = np.full(len(rows), variation.time_factor.get(rank, 1.0))
        if variation.noise is not None:
            factor *= variation.noise.factors(rank, len(rows))
        cost_N = nodes.cost_N.copy()
        slowed = np.maximum(np.floor(cost_N[rows] * factor), 1)
        if (slowed > MAX_TIME_NS).any():
            raise ConfigError(
                f"rank {rank}: a compute node would take {slowed.max():.3g} ns with its time "
                "factor or noise; at most 1e15 ns can be run, so give a smaller factor."
            )
        cost_N[rows] = slowed.astype(np.int64)
        class_of_rank[rank] = len(classes)
        classes.append(dataclasses.replace(nodes, cost_N=cost_N))
    return dataclasses.replace(program, classes=tuple(classes), class_of_rank=class_of_rank)


def simulate(
    workload: Workload | str | Path,
    cluster: ClusterOfAnySize | str = "small",
    *,
    compute: ComputeModel | str | None = None,
    host: str = "",
    variation: Variation | None = None,
    reference_semantics: bool = False,
    what_if: bool = False,
) -> SimulationResult:
    """Run ``workload`` on a cluster and return the ticks of every node.

    Args:
        workload: Traces of all ranks with communicator groups, or the prefix of their files.
        cluster: What to run on: a name, such as "small", which gets as many ranks as the workload
            has, ``Cluster(network, system)``, ``Cluster.from_files``, or the machine that
            ``calibrate`` or ``read_machine`` returned.
        compute: Times of compute nodes: a model, or what ``layerdag simulate --compute`` takes,
            such as "measured", "h100" or "systolic:128x128". By default that of the cluster:
            ASTRA-sim's own, "reference" (roofline or recorded durations), on a preset what suits
            it, on a machine what was fitted.
        host: Time of the host, as ``layerdag simulate --host`` takes it: "model" (of eager
            PyTorch), "measured" (of a profile; "measured:0.5" scales it, "measured:step=0.0123"
            until the step lasts so many seconds) or "none". By default what the trace holds.
        variation: Ranks that differ in speed, and noise; none by default.
        reference_semantics: Whether every tick is that of ASTRA-sim, whose groups communicate in
            flat rings whatever the dimensions of the network.
        what_if: Whether to run again with compute, then each dimension's bandwidth and latency,
            10 % better.

    Returns:
        The complete outcome: every node of every rank has run.

    Raises:
        SimulationError: If a node cannot run, ranks wait for each other forever, or a message is
            never received; names rank, node and cause.
        ConfigError: If workload and cluster do not fit together, or there is no such compute model.
        UsageError: If ``host`` is none of these.
    """
    if not isinstance(workload, Workload):
        workload = read_workload(workload)
    cluster = Cluster(cluster) if isinstance(cluster, str) else cluster
    cluster = cluster.with_ranks(workload.num_ranks)
    if reference_semantics:
        cluster = cluster.changed(reference_semantics=True)
    chosen = compute or cluster.compute
    if isinstance(chosen, ComputeModel):
        model = chosen
    else:
        cluster = _with_measured_collectives(cluster, chosen)
        model = compute_model(chosen, cluster.system)

    def makespan_s(changed: Workload) -> float:
        return _run(changed, cluster, model).makespan_s

    workload, scaled = with_host(workload, host, makespan_s)
    result = _run(workload, cluster, model, variation)
    if scaled is not None:
        note = f"the host's time is scaled by {scaled:.3f}"
        result = dataclasses.replace(result, notes=(*result.notes, note))
    if not what_if:
        return result
    base, found = result.makespan_ns, [Sensitivity("as given", result.makespan_ns, 0.0)]
    for change, other, changed_compute in _better(cluster, model):
        makespan = _run(workload, other, changed_compute, variation).makespan_ns
        found.append(Sensitivity(change, makespan, (base - makespan) / base if base else 0.0))
    return dataclasses.replace(result, what_if=tuple(found))


def _run(
    workload: Workload,
    cluster: Cluster,
    compute: ComputeModel,
    variation: Variation | None = None,
) -> SimulationResult:
    _refuse_untimed(workload, compute)
    program = lower(workload, cluster, compute)
    if variation is not None:
        program = with_variation(program, variation)
    outcome = run_event_loop(program)
    if not outcome.is_complete:
        raise SimulationError(explain(program, outcome))
    if isinstance(compute, ReferenceCompute):
        _refuse_instant_start(program, outcome)
    rank_finish_ns = outcome.rank_finish_ns[outcome.ranks.of_rank]
    on_gpu = [(c.type_N == NodeType.COMP) & (c.slot_N == Slot.COMPUTE) for c in program.classes]
    compute_ns = unexposed_ns = _total_ns(program, outcome, on_gpu)
    if cluster.system.replay_only:
        # There the reference counts every node that is not on the CPU, communication too.
        off_cpu = [c.slot_N != Slot.CPU for c in program.classes]
        unexposed_ns = _total_ns(program, outcome, off_cpu)
    return SimulationResult(
        program=program,
        outcome=outcome,
        rank_finish_ns=rank_finish_ns,
        exposed_comm_ns=rank_finish_ns - unexposed_ns,
        compute_ns=compute_ns,
        compute=compute,
        notes=tuple(_notes(program, compute)),
    )


def _total_ns(
    program: LoweredProgram, outcome: KernelOutput, counted: list[np.ndarray]
) -> np.ndarray:
    """Return the total time of each rank's nodes that a mask for each class picks, int64 (R,)."""
    run = outcome.ranks
    mask = np.concatenate([counted[c] for c in program.class_of_rank[run.rank_K]])
    duration_ns = outcome.finish_ns - outcome.issue_ns
    running = np.concatenate([[0], np.cumsum(np.where(mask, duration_ns, 0))])
    return (running[outcome.ptr_K1[1:]] - running[outcome.ptr_K1[:-1]])[run.of_rank]


@dataclass(frozen=True)
class Sensitivity:
    """Makespan with a change of the cluster; ``gain`` is the share that it saves."""

    change: str
    makespan_ns: int
    gain: float


def _better(cluster: Cluster, compute: ComputeModel) -> Iterator[tuple[str, Cluster, ComputeModel]]:
    """Yield cluster and compute model with one part 10 % better, and which."""
    yield "compute +10 %", cluster, ScaledCompute(compute, 1 / 1.1)
    dimensions = cluster.network.dimensions
    for index, old in enumerate(dimensions):
        for label, new in (
            ("bandwidth +10 %", dataclasses.replace(old, bandwidth_gib=old.bandwidth_gib * 1.1)),
            ("latency -10 %", dataclasses.replace(old, latency_ns=old.latency_ns * 0.9)),
        ):
            network = NetworkConfig((*dimensions[:index], new, *dimensions[index + 1 :]))
            yield f"dim {index} {label}", dataclasses.replace(cluster, network=network), compute


def _with_measured_collectives(cluster: Cluster, compute: str) -> Cluster:
    """Return the cluster with the collectives of the device of a compute model, where it has any.

    A system that states where its collectives' times come from keeps them. They are simulated where
    messages share links, and where the network has no nodes like those that were measured, by their
    size and the bandwidth of their links.
    """
    if cluster.system.fitted_collectives is not None:
        return cluster
    device, dimensions = device_of(compute), cluster.network.dimensions
    ranks, rates = zip(*((each.npus, each.bytes_per_ns) for each in dimensions), strict=True)
    shared = cluster.options.congestion is not Congestion.UNAWARE
    if not device or shared or not has_nodes(device, ranks, rates):
        device = ""
    system = dataclasses.replace(cluster.system, fitted_collectives=device)
    return dataclasses.replace(cluster, system=system)


def _refuse_instant_start(program: LoweredProgram, outcome: KernelOutput) -> None:
    """Raise SimulationError where the reference aborts: an event in tick 0, before its clock runs.

    A node of 0 ns causes one, as do a collective without endpoint delay, and with congestion a
    message that takes its link for less than 1 ns.
    """
    at = outcome.instant
    if at < 0 or program.cluster.options.congestion is Congestion.AWARE_MULTI:
        return
    rank = int(np.searchsorted(program.out_ptr, at, side="right") - 1)
    raise SimulationError(
        f"{describe(program, rank, at - int(program.out_ptr[rank]))} takes 0 ns at tick 0, "
        "itself or for its endpoint delay or link, where the reference aborts; give it more work, "
        "let a compute node go before it, or choose another compute model."
    )


NODE_COLUMNS = (
    "sys", "node_id", "node_type", "issue_tick", "finish_tick", "type", "name",
)  # fmt: skip
"""Columns of the CSV file with every node; the first five are those of the reference's log."""


def write_nodes(result: SimulationResult, path: str | Path) -> None:
    """Write a row of ``NODE_COLUMNS`` for every node, by rank and node id."""
    write_node_rows((row for rank in range(result.num_ranks) for row in _rows(result, rank)), path)


def write_node_rows(rows: Iterable[tuple[object, ...]], path: str | Path) -> None:
    """Write rows of ``NODE_COLUMNS``."""
    with atomic_path(path) as draft, draft.open("w", encoding="utf-8", newline="") as file:
        write = csv.writer(file, lineterminator="\n")
        write.writerow(NODE_COLUMNS)
        write.writerows(rows)


def _rows(result: SimulationResult, rank: int) -> Iterator[tuple[object, ...]]:
    trace = result.program.workload.traces[rank]
    name_of = dict(zip(trace.id_N.tolist(), trace.names(), strict=True))
    for node, kind, start, end in _ticks(result, rank):
        yield rank, node, kind, start, end, NodeType(kind).name, name_of[node]


def _ticks(result: SimulationResult, rank: int) -> Iterator[tuple[int, int, int, int]]:
    nodes = result.nodes(rank)
    columns = (nodes.id_N, nodes.type_N, *result.ticks(rank))
    return zip(*(column.tolist() for column in columns), strict=True)


_LANES = {
    Slot.CPU: "CPU",
    Slot.COMPUTE: "compute",
    Slot.COMM: "communication",
    Slot.NONE: "receive",
}


def write_timeline(result: SimulationResult, path: str | Path) -> None:
    """Write a Chrome trace: one process per rank, one lane per slot or communication stream, in us.

    Source: the Trace Event Format ("X" complete events and "M" metadata), which Perfetto and
    chrome://tracing read.
    """
    with atomic_path(path) as draft, draft.open("w", encoding="utf-8") as file:
        file.write('{"displayTimeUnit":"ns","traceEvents":[\n')
        file.write(",\n".join(json.dumps(label) for label in _labels(result)))
        for rank in range(result.num_ranks):
            for event in _spans(result, rank):
                file.write(",\n" + json.dumps(event, separators=(",", ":")))
        file.write("\n]}\n")


def _lane(slot: int, stream: int) -> int:
    """Return the number of a lane; further communication streams follow the slots."""
    return len(_LANES) + stream - 1 if stream else slot


def _labels(result: SimulationResult) -> Iterator[dict[str, object]]:
    lanes = {int(slot): name for slot, name in _LANES.items()}
    for stream in range(1, result.program.cluster.options.comm_streams):
        lanes[_lane(Slot.COMM, stream)] = f"communication {stream + 1}"
    for rank in range(result.num_ranks):
        yield {"ph": "M", "pid": rank, "name": "process_name", "args": {"name": f"rank {rank}"}}
        for lane, name in lanes.items():
            named = {"name": name}
            yield {"ph": "M", "pid": rank, "tid": lane, "name": "thread_name", "args": named}


def _spans(result: SimulationResult, rank: int) -> Iterator[dict[str, object]]:
    trace, nodes = result.program.workload.traces[rank], result.nodes(rank)
    name_of = dict(zip(trace.id_N.tolist(), trace.names(), strict=True))
    stream_N = result.outcome.lane[result.outcome.rows(rank)]
    lanes = zip(nodes.slot_N.tolist(), stream_N.tolist(), strict=True)
    for (node, kind, start, end), lane in zip(_ticks(result, rank), lanes, strict=True):
        yield {
            "ph": "X",
            "pid": rank,
            "tid": _lane(*lane),
            "name": name_of[node] or f"node {node}",
            "cat": NodeType(kind).name,
            "ts": start / 1000,
            "dur": (end - start) / 1000,
            "args": {"id": node, "issue_ns": start, "finish_ns": end},
        }
