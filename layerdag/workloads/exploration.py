"""Simulate one step under every plan of a study on every cluster, and find the best plans."""

import hashlib
import itertools
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from layerdag.errors import ConfigError, LayerdagError, UsageError
from layerdag.hardware.devices import find_data_sheet
from layerdag.plan import ALL_DEGREES, Plan, Step, usual_setting
from layerdag.runtime.notes import Note, merge_notes
from layerdag.runtime.processes import in_any_order
from layerdag.runtime.terminal import track
from layerdag.simulator.run import NOT_MODELED, simulate
from layerdag.simulator.sweep import Journal
from layerdag.version import __version__
from layerdag.workloads.step_efficiency import shipped_efficiency
from layerdag.workloads.study import STUDIED, StudiedCluster, Study, read_study
from layerdag.workloads.transformer.job import SymbolicJob
from layerdag.workloads.transformer.memory import peak_memory
from layerdag.workloads.transformer.shapes import ModelShape
from layerdag.workloads.transformer.step_time import step_demand, step_time

MAX_NODES = 100_000_000
"""Most nodes of all ranks that are simulated: some 7 GB."""
MAX_PLANS = 100_000
"""Most plans of a study."""
USUALLY_MEASURED, HIGHEST_MEASURED = 0.45, 0.65
"""Utilization of the peak in 16 bits that most and that the best of the public steps in that format
reached, attention counted in full (docs/reference/accuracy.md)."""


@dataclass(frozen=True)
class Point:
    """A model under a plan on a cluster, by its name."""

    cluster: str
    job: SymbolicJob


@dataclass(frozen=True)
class StudyPoints:
    """The plans that split a model over a cluster, and how many do not, by the reason."""

    possible: tuple[Point, ...]
    left_out: dict[str, int]


def points_of(study: Study) -> StudyPoints:
    """Return every plan of the study on every cluster, each once.

    Raises:
        ConfigError: If these are more than are tried.
    """
    lists = [dict.fromkeys(getattr(study.plans, name)) for name in STUDIED]
    count = len(study.clusters) * len(study.models) * math.prod(map(len, lists))
    if count > MAX_PLANS:
        raise ConfigError(
            f"The study asks for {count:,} plans, the product of its lists, models and clusters; "
            f"at most {MAX_PLANS:,} are tried, so shorten them."
        )
    possible: list[Point] = []
    left_out: Counter[str] = Counter()
    for (name, cluster), shape in itertools.product(study.clusters.items(), study.models):
        for values in itertools.product(*lists):
            choice = dict(zip(STUDIED, values, strict=True))
            try:
                possible.append(Point(name, _job(study, shape, cluster, choice)))
            except ConfigError as error:
                left_out[str(error)] += 1
    return StudyPoints(tuple(possible), dict(left_out.most_common()))


def _job(
    study: Study, shape: ModelShape, cluster: StudiedCluster, choice: dict[str, Any]
) -> SymbolicJob:
    """Return the job; its replicas take the ranks that the other degrees leave."""
    degrees = [name for name in STUDIED if name in ALL_DEGREES and name != "expert"]
    sharing = math.prod(choice[name] for name in degrees)
    if sharing < 1 or cluster.ranks % sharing:
        raise ConfigError(f"{' x '.join(degrees)} = {sharing} do not divide {cluster.ranks} ranks.")
    step = {**asdict(study.step), "micro_batches": choice.pop("micro_batches")}
    if shape.image:
        step["sequence"] = shape.image.tokens
    return SymbolicJob(shape, Plan(data=cluster.ranks // sharing, **choice), Step(**step))


@dataclass(frozen=True)
class PlanOutcome:
    """The figures of one plan on one cluster.

    Attributes:
        settings: The plan and the number of micro-batches, in the words of ``layerdag.plan``.
        memory_gib: Memory of the fullest rank: what PyTorch allocates at the peak of a training
            step of text; of images and inference what published formulas count.
        fits: Whether that is at most what the cluster has.
        step_s: Time of a step in seconds, None if it was not simulated.
        compute_s: Compute time in it, mean over ranks.
        exposed_s: The rest, mean over ranks: communication that nothing hides, and idle time.
        tokens_per_s: Tokens of all ranks per second.
        utilization: Model FLOPs utilization: operations of the model's matrix products per second
            over the cluster's peak, without those of recomputation.
        cost: Price of a step, 0 if the cluster has no price.
        error: Why it could not be simulated, "" if it was.
        forecast_s: Time of a step by the shares that measured steps of the device reached, in
            closed form; None of inference, images, and devices without a data sheet.
        forecast_utilization: Utilization by that time.
        reserved_gib: What PyTorch's allocator reserves of the fullest rank's memory.
        margin_gib: What ``memory_gib`` leaves of the accelerator's memory; below 0 what is missing.
        key: Hash of everything that went in.
    """

    model: str
    cluster: str
    ranks: int
    settings: Mapping[str, bool | int | str] = field(hash=False)
    memory_gib: float
    fits: bool
    step_s: float | None = None
    compute_s: float | None = None
    exposed_s: float | None = None
    tokens_per_s: float | None = None
    utilization: float | None = None
    cost: float = 0.0
    error: str = ""
    forecast_s: float | None = None
    forecast_utilization: float | None = None
    reserved_gib: float = 0.0
    margin_gib: float = 0.0
    key: str = ""

    @property
    def plan(self) -> str:
        """The plan in short, without the parts that split nothing."""
        chosen = {name: n for name, n in self.settings.items() if n != usual_setting(name)}
        names = [name for name in (*ALL_DEGREES, "micro_batches") if name in chosen]
        phrases = [f"{name.replace('_', '-')} {chosen[name]}" for name in names]
        phrases += [f"ZeRO {chosen['zero']}"] if "zero" in chosen else []
        phrases += [f"recompute {chosen['recompute']}"] if "recompute" in chosen else []
        phrases += ["sequence parallel"] if "sequence_parallel" in chosen else []
        several = chosen.get("virtual_stages")
        phrases += [f"{several} virtual stages"] if several else []
        if "schedule" in chosen and "pipeline" in chosen and not several:
            phrases.append(str(chosen["schedule"]))
        return ", ".join(phrases) or "one rank"

    def second_figure(self, priced: bool) -> float:
        """Return what a plan is judged by besides its time: its price, or its memory."""
        return self.cost if priced else self.memory_gib

    def row(self) -> dict[str, Any]:
        """Return all figures by name, those of the plan among them."""
        found = asdict(self)
        head = {name: found.pop(name) for name in ("model", "cluster", "ranks")}
        del found["key"]
        return {**head, **found.pop("settings"), **found}


def evaluate_plan(point: Point, cluster: StudiedCluster, key: str = "") -> PlanOutcome:
    """Simulate a step if it fits into memory; what cannot run has an ``error``."""
    job = point.job
    figures = job.summary()
    used, reserved = needed_memory(job, cluster)
    every = {**vars(job.plan), "micro_batches": job.step.micro_batches}
    head: dict[str, Any] = {
        "model": job.shape.name, "cluster": point.cluster, "ranks": job.plan.ranks,
        "settings": {name: every[name] for name in ("data", *STUDIED) if name != "expert_tensor"},
        "memory_gib": used / 2**30, "fits": used <= cluster.capacity, "key": key,
        "reserved_gib": reserved / 2**30, "margin_gib": (cluster.capacity - used) / 2**30,
    }  # fmt: skip
    if used > cluster.capacity:
        return PlanOutcome(**head)
    if figures["nodes"] > MAX_NODES:
        return PlanOutcome(
            **head,
            error=f"all ranks have {figures['nodes']:,} nodes; at most {MAX_NODES:,} are simulated",
        )
    try:
        result = simulate(job.workload(), cluster.simulated, compute=cluster.compute(used))
    except LayerdagError as error:
        return PlanOutcome(**head, error=str(error))
    seconds = result.makespan_ns / 1e9
    forecast = forecast_seconds(job, cluster)
    return PlanOutcome(
        **head,
        forecast_s=forecast,
        forecast_utilization=_utilization(job, cluster, forecast) if forecast else None,
        step_s=seconds,
        compute_s=float(result.compute_ns.mean()) / 1e9,
        exposed_s=float(result.exposed_comm_ns.mean()) / 1e9,
        tokens_per_s=figures["tokens"] / seconds,
        utilization=_utilization(job, cluster, seconds),
        cost=cluster.cost_per_hour * job.plan.ranks * seconds / 3600,
    )


def needed_memory(job: SymbolicJob, cluster: StudiedCluster) -> tuple[int, int]:
    """Return the bytes that the fullest rank allocates, and those that it reserves."""
    if not job.step.training or job.shape.image:
        counted = int(job.summary()["peak_memory"])
        return counted, counted
    peak = peak_memory(job)
    return peak.allocated, peak.reserved(cluster.memory_gib + cluster.expanded_gib)


def forecast_seconds(job: SymbolicJob, cluster: StudiedCluster) -> float | None:
    """Return the time of a training step by the shares of measured steps, None without a sheet."""
    if cluster.device is None:
        return None
    known = find_data_sheet(cluster.device)
    if known is None or not job.step.training or job.shape.image:
        return None
    links = [link.gb_per_s * 1e9 for link in cluster.network]
    sheet = replace(known, link_bytes_per_s=links[0], network_bytes_per_s=min(links[1:] or links))
    shares = shipped_efficiency().of(sheet)
    demand = step_demand(job, cluster.network[0].ranks)
    return float(step_time(demand, sheet, shares).total)


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
        from_journal: How many outcomes an earlier run kept in the journal.
    """

    study: Study
    outcomes: tuple[PlanOutcome, ...]
    left_out: Mapping[str, int]
    from_journal: int = 0

    def __repr__(self) -> str:
        """Return how many plans there are; ``summary`` has more."""
        return f"Exploration({len(self.outcomes):,} plans, {len(self.simulated):,} simulated)"

    @property
    def simulated(self) -> tuple[PlanOutcome, ...]:
        """Outcomes that have a time."""
        return tuple(outcome for outcome in self.outcomes if outcome.step_s is not None)

    def best(self) -> tuple[PlanOutcome, ...]:
        """Return the fastest plan of each model on each cluster, the fastest cluster first."""
        fastest = _first_of_each(self.simulated)  # they are ordered by time
        return tuple(sorted(fastest, key=lambda o: (o.model, o.step_s or 0.0)))

    def least_memory(self) -> tuple[PlanOutcome, ...]:
        """Return the plan of least memory of each model on each cluster where none fits."""
        smallest = _first_of_each(sorted(self.outcomes, key=lambda o: o.memory_gib))
        return tuple(outcome for outcome in smallest if not outcome.fits)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Assumptions and omissions behind the figures, one sentence each."""
        clusters = self.study.clusters.items()
        sentences = [
            f"{name}: {cluster.compute(0).assumption}; collectives {cluster.collectives_in_words}, "
            "all-to-all direct; messages share links only at ranks' ports"
            for name, cluster in clusters
        ]
        sentences.append(f"not modeled: {'; '.join(NOT_MODELED)}")
        reached = [o.utilization for o in self.simulated if o.utilization is not None]
        high = max(reached, default=0.0)
        if high > HIGHEST_MEASURED:
            sentences.append(
                f"up to {high:.0%} MFU is more than any of the public training steps reached "
                f"({HIGHEST_MEASURED:.0%}): a bound; 'forecast' has what steps of the device reach"
            )
        elif high > USUALLY_MEASURED:
            sentences.append(
                f"up to {high:.0%} MFU is more than most public training steps reached "
                f"({USUALLY_MEASURED:.0%}): 'forecast' has what steps of the device reach"
            )
        return tuple(sentences)

    @property
    def notes(self) -> tuple[Note, ...]:
        """Parts of the models' files that were not understood."""
        shapes, length = self.study.models, self.study.step.sequence
        beyond = [note for shape in shapes for note in shape.beyond_positions(length)]
        return merge_notes([*(note for shape in shapes for note in shape.notes), *beyond])

    def pareto_front(self) -> tuple[PlanOutcome, ...]:
        """Return what no other plan of the model beats in time, and in cost or memory.

        The second figure is the cost of a step where every cluster has a price, otherwise the
        memory of the fullest rank.
        """
        priced = all(cluster.cost_per_hour for cluster in self.study.clusters.values())
        front: list[PlanOutcome] = []
        for name in dict.fromkeys(outcome.model for outcome in self.simulated):
            least = math.inf
            mine = [(o.step_s, o.second_figure(priced), o) for o in self.simulated]
            for _, second, outcome in sorted(mine, key=lambda each: each[:2]):
                if outcome.model == name and second < least:
                    least = second
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
            "least_memory": [outcome.row() for outcome in self.least_memory()],
            "notes": [note.to_json() for note in self.notes],
            "assumptions": list(self.assumptions),
            "best": [outcome.row() for outcome in self.best()],
            "pareto_front": [outcome.row() for outcome in self.pareto_front()],
            "outcomes": [outcome.row() for outcome in self.outcomes],
        }


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
        raise UsageError(f"No plan of the study can be used; of {count:,} the reason is: {reason}")
    record = Journal(journal, PlanOutcome) if journal is not None else None
    kept = record.read() if record else {}
    placed = ((point, study.clusters[point.cluster]) for point in points.possible)
    work = [(point, cluster, _key(point, cluster)) for point, cluster in placed]
    known = [kept[key] for _, _, key in work if key in kept]
    todo = [one for one in work if one[2] not in kept]
    outcomes = itertools.chain(known, _simulated(todo, processes, record))
    ordered = sorted(track(outcomes, "simulating", total=len(work)), key=_order)
    return Exploration(study, tuple(ordered), points.left_out, len(known))


def _first_of_each(outcomes: Iterable[PlanOutcome]) -> Iterable[PlanOutcome]:
    """Return the first outcome of each model on each cluster."""
    found: dict[tuple[str, str], PlanOutcome] = {}
    for outcome in outcomes:
        found.setdefault((outcome.model, outcome.cluster), outcome)
    return found.values()


def _order(outcome: PlanOutcome) -> tuple[Any, ...]:
    late = outcome.step_s is None
    return outcome.model, outcome.cluster, late, outcome.step_s or outcome.memory_gib, outcome.plan


def _simulated(
    work: list[tuple[Point, StudiedCluster, str]],
    processes: int,
    record: Journal[PlanOutcome] | None,
) -> Iterator[PlanOutcome]:
    for outcome in in_any_order(evaluate_plan, work, processes):
        if record:
            record.append(outcome)
        yield outcome


def _key(point: Point, cluster: StudiedCluster) -> str:
    job = point.job
    parts = [point.cluster, asdict(job.shape), asdict(job.plan), asdict(job.step), asdict(cluster)]
    return hashlib.sha256(json.dumps([__version__, *parts], sort_keys=True).encode()).hexdigest()
