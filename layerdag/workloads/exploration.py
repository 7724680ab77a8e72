"""Run a study of plans on clusters; the best plans."""

import hashlib
import json
import multiprocessing
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from layerdag.errors import LayerdagError, UsageError
from layerdag.runtime.progress import track
from layerdag.simulator.run import simulate
from layerdag.simulator.sweep import Journal
from layerdag.version import __version__
from layerdag.workloads.study import Point, StudiedCluster, Study, points_of, read_study
from layerdag.workloads.transformer.job import SymbolicJob
from layerdag.workloads.transformer.plan import Plan


@dataclass(frozen=True)
class PlanOutcome:
    """What became of one plan on one cluster.

    Attributes:
        model: Name of the model.
        cluster: Name of the cluster.
        ranks: Number of accelerators.
        data: Replicas.
        tensor: Ranks that share matrices.
        pipeline: Stages.
        context: Ranks that share each sequence.
        expert: Ranks that share the experts.
        micro_batches: Parts of a replica's batch.
        zero: ZeRO stage.
        recompute: What the backward pass computes again.
        sequence_parallel: Whether norms are split over tensor ranks, too.
        schedule: Order of micro-batches.
        memory_gib: Memory of the fullest rank.
        fits: Whether that is at most what the cluster has.
        step_s: Time of a step in seconds, None if it was not simulated.
        compute_s: Compute time in it, mean over ranks.
        exposed_s: The rest, mean over ranks: communication that nothing hides, and idle time.
        tokens_per_s: Tokens of all ranks per second.
        utilization: Model FLOPs utilization: operations of the model's matrix products per second
            over the cluster's peak, without those of recomputation.
        cost: Price of a step, 0 if the cluster has no price.
        error: Why it could not be simulated, "" if it was.
        virtual_stages: Groups of layers that each stage holds.
        key: Hash of everything that went in.
    """

    model: str
    cluster: str
    ranks: int
    data: int
    tensor: int
    pipeline: int
    context: int
    expert: int
    micro_batches: int
    zero: int
    recompute: str
    sequence_parallel: bool
    schedule: str
    memory_gib: float
    fits: bool
    step_s: float | None = None
    compute_s: float | None = None
    exposed_s: float | None = None
    tokens_per_s: float | None = None
    utilization: float | None = None
    cost: float = 0.0
    error: str = ""
    virtual_stages: int = 1
    key: str = ""

    @property
    def plan(self) -> str:
        """The plan in short, without the parts that split nothing."""
        degrees = {
            "data": self.data, "tensor": self.tensor, "pipeline": self.pipeline,
            "context": self.context, "expert": self.expert, "micro-batches": self.micro_batches,
        }  # fmt: skip
        phrases = [f"{name} {value}" for name, value in degrees.items() if value > 1]
        phrases += [f"ZeRO {self.zero}"] if self.zero else []
        phrases += [f"recompute {self.recompute}"] if self.recompute != "none" else []
        phrases += ["sequence parallel"] if self.sequence_parallel else []
        phrases += [f"{self.virtual_stages} virtual stages"] if self.virtual_stages > 1 else []
        phrases += (
            [self.schedule] if self.schedule in ("gpipe", "zb-h1") and self.pipeline > 1 else []
        )
        return ", ".join(phrases) or "one rank"


def evaluate_plan(point: Point, cluster: StudiedCluster, key: str = "") -> PlanOutcome:
    """Simulate a step if it fits into memory; what cannot run has an ``error``."""
    job = point.job
    figures = job.summary()
    used = figures["peak_memory"]
    head = {
        "model": job.shape.name, "cluster": point.cluster, "ranks": job.plan.ranks,
        "micro_batches": job.step.micro_batches, **_shown(job.plan),
        "memory_gib": used / 2**30, "fits": used <= cluster.capacity, "key": key,
    }  # fmt: skip
    if used > cluster.capacity:
        return PlanOutcome(**head)
    try:
        result = simulate(job.workload(), cluster.simulated, compute=cluster.compute(used))
    except LayerdagError as error:
        return PlanOutcome(**head, error=str(error))
    seconds = result.makespan_ns / 1e9
    return PlanOutcome(
        **head,
        step_s=seconds,
        compute_s=float(result.compute_ns.mean()) / 1e9,
        exposed_s=float(result.exposed_comm_ns.mean()) / 1e9,
        tokens_per_s=figures["tokens"] / seconds,
        utilization=_utilization(job, cluster, seconds),
        cost=cluster.cost_per_hour * job.plan.ranks * seconds / 3600,
    )


def _shown(plan: Plan) -> dict[str, object]:
    """Return the parts of a plan that an outcome names."""
    names = ("data", "tensor", "pipeline", "context", "expert", "zero", "recompute",
        "sequence_parallel", "schedule", "virtual_stages")  # fmt: skip
    return {name: getattr(plan, name) for name in names}


def _utilization(job: SymbolicJob, cluster: StudiedCluster, seconds: float) -> float:
    """Return model FLOPs utilization: what is computed twice counts once (PaLM, appendix B)."""
    once = SymbolicJob(job.shape, replace(job.plan, recompute="none"), job.step)
    number = "f32" if job.step.precision == "fp32" else "bf16"
    peak = cluster.rates.flops[number] * job.plan.ranks
    return float(once.summary()["matrix_flops"]) / (seconds * peak)


@dataclass(frozen=True)
class Exploration:
    """Outcomes of a study.

    Attributes:
        study: What was tried.
        outcomes: One for each possible plan on each cluster, by model, cluster and time; plans
            that do not fit into memory, or failed, come last.
        left_out: How many plans cannot split the model or the cluster, by the reason.
    """

    study: Study
    outcomes: tuple[PlanOutcome, ...]
    left_out: Mapping[str, int]

    @property
    def simulated(self) -> tuple[PlanOutcome, ...]:
        """Outcomes that have a time."""
        return tuple(outcome for outcome in self.outcomes if outcome.step_s is not None)

    def best(self) -> tuple[PlanOutcome, ...]:
        """Return the fastest plan of each model on each cluster, the fastest cluster first."""
        found: dict[tuple[str, str], PlanOutcome] = {}
        for outcome in self.simulated:  # ordered by time
            found.setdefault((outcome.model, outcome.cluster), outcome)
        return tuple(sorted(found.values(), key=lambda o: (o.model, o.step_s or 0.0)))

    def pareto_front(self) -> tuple[PlanOutcome, ...]:
        """Return what no other plan of the model beats in time, and in cost or memory.

        The second figure is the cost of a step where every cluster has a price, otherwise the
        memory of the fullest rank.
        """
        priced = all(cluster.cost_per_hour for cluster in self.study.clusters.values())
        front: list[PlanOutcome] = []
        for model in dict.fromkeys(outcome.model for outcome in self.simulated):
            least = float("inf")
            mine = [outcome for outcome in self.simulated if outcome.model == model]
            for outcome in sorted(mine, key=lambda o: (o.step_s or 0.0, _second(o, priced))):
                if _second(outcome, priced) < least:
                    least = _second(outcome, priced)
                    front.append(outcome)
        return tuple(front)

    def summary(self) -> dict[str, Any]:
        """Return what ``layerdag explore --json`` prints."""
        return {
            "layerdag": __version__,
            "points": len(self.outcomes),
            "simulated": len(self.simulated),
            "too_large": sum(not outcome.fits for outcome in self.outcomes),
            "left_out": dict(self.left_out),
            "best": [_row(outcome) for outcome in self.best()],
            "pareto_front": [_row(outcome) for outcome in self.pareto_front()],
            "outcomes": [_row(outcome) for outcome in self.outcomes],
        }


def _second(outcome: PlanOutcome, priced: bool) -> float:
    return outcome.cost if priced else outcome.memory_gib


def _row(outcome: PlanOutcome) -> dict[str, Any]:
    return {name: value for name, value in asdict(outcome).items() if name != "key"}


def explore(
    study: Study | str | Path | Mapping[str, Any],
    *,
    processes: int = 1,
    journal: str | Path | None = None,
) -> Exploration:
    """Simulate one step of every model under every plan on every cluster of a study.

    Plans whose fullest rank needs more memory than an accelerator has are not simulated.

    Args:
        study: A ``Study``, a YAML file (see ``read_study``), or what it holds.
        processes: Worker processes.
        journal: A file of JSON lines for finished points. Points whose inputs are unchanged are
            taken from it, so that an interrupted exploration goes on where it stopped.

    Raises:
        ConfigError: If the study is not possible; says where.
        UsageError: If no plan splits a model over a cluster, or the journal is something else.
    """
    if not isinstance(study, Study):
        study = read_study(study)
    if processes < 1:
        raise UsageError(f"processes is {processes}; it must be at least 1.")
    points = points_of(study)
    if not points.possible:
        reason, count = next(iter(points.left_out.items()))
        raise UsageError(f"No plan of the study can be used. {count} times: {reason}")
    simulated = track(_outcomes(study, points.possible, processes, journal), "simulating",
        total=len(points.possible))  # fmt: skip
    ordered = sorted(simulated, key=_order)
    return Exploration(study, tuple(ordered), points.left_out)


def _order(outcome: PlanOutcome) -> tuple[Any, ...]:
    late = outcome.step_s is None
    return outcome.model, outcome.cluster, late, outcome.step_s or outcome.memory_gib, outcome.plan


def _outcomes(
    study: Study, points: tuple[Point, ...], processes: int, journal: str | Path | None
) -> Iterator[PlanOutcome]:
    """Yield the outcome of every point, known ones first."""
    record = Journal(journal, PlanOutcome) if journal is not None else None
    known = record.read() if record else {}
    work = []
    for point in points:
        cluster = study.clusters[point.cluster]
        key = _key(point, cluster)
        if key in known:
            yield known[key]
        else:
            work.append((point, cluster, key))
    for outcome in _tried(work, processes):
        if record:
            record.append(outcome)
        yield outcome


def _tried(work: list[tuple[Point, StudiedCluster, str]], processes: int) -> Iterator[PlanOutcome]:
    if processes == 1 or len(work) < 2:
        yield from (evaluate_plan(*one) for one in work)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        begun = [pool.submit(evaluate_plan, point, cluster, key) for point, cluster, key in work]
        yield from (future.result() for future in as_completed(begun))


def _key(point: Point, cluster: StudiedCluster) -> str:
    """Return a hash of everything that determines an outcome."""
    job = point.job
    parts = [point.cluster, asdict(job.shape), asdict(job.plan), asdict(job.step), asdict(cluster)]
    return hashlib.sha256(json.dumps([__version__, *parts], sort_keys=True).encode()).hexdigest()
