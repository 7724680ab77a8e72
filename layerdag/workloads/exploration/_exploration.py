"""A whole study: every point once, from a journal where it is known, and what came of it."""

import hashlib
import json
import multiprocessing
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from layerdag._runtime import track
from layerdag._version import __version__
from layerdag.errors import UsageError
from layerdag.simulator.sweep import Journal
from layerdag.workloads.exploration._outcome import Outcome, try_point
from layerdag.workloads.exploration._points import Point, points_of
from layerdag.workloads.exploration._study import StudiedCluster, Study, read_study


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
    outcomes: tuple[Outcome, ...]
    left_out: Mapping[str, int]

    @property
    def simulated(self) -> tuple[Outcome, ...]:
        """Outcomes that have a time."""
        return tuple(outcome for outcome in self.outcomes if outcome.step_s is not None)

    def best(self) -> tuple[Outcome, ...]:
        """Return the fastest plan of each model on each cluster, the fastest cluster first."""
        found: dict[tuple[str, str], Outcome] = {}
        for outcome in self.simulated:  # ordered by time
            found.setdefault((outcome.model, outcome.cluster), outcome)
        return tuple(sorted(found.values(), key=lambda o: (o.model, o.step_s or 0.0)))

    def pareto_front(self) -> tuple[Outcome, ...]:
        """Return what no other plan of the model beats in time, and in cost or memory.

        The second figure is the cost of a step where every cluster has a price, otherwise the
        memory of the fullest rank.
        """
        priced = all(cluster.cost_per_hour for cluster in self.study.clusters.values())
        front: list[Outcome] = []
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


def _second(outcome: Outcome, priced: bool) -> float:
    return outcome.cost if priced else outcome.memory_gib


def _row(outcome: Outcome) -> dict[str, Any]:
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


def _order(outcome: Outcome) -> tuple[Any, ...]:
    late = outcome.step_s is None
    return outcome.model, outcome.cluster, late, outcome.step_s or outcome.memory_gib, outcome.plan


def _outcomes(
    study: Study, points: tuple[Point, ...], processes: int, journal: str | Path | None
) -> Iterator[Outcome]:
    """Yield the outcome of every point, known ones first."""
    record = Journal(journal, Outcome) if journal is not None else None
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


def _tried(work: list[tuple[Point, StudiedCluster, str]], processes: int) -> Iterator[Outcome]:
    if processes == 1 or len(work) < 2:
        yield from (try_point(*one) for one in work)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        begun = [pool.submit(try_point, point, cluster, key) for point, cluster, key in work]
        yield from (future.result() for future in as_completed(begun))


def _key(point: Point, cluster: StudiedCluster) -> str:
    """Return a hash of everything that determines an outcome."""
    job = point.job
    parts = [point.cluster, asdict(job.shape), asdict(job.plan), asdict(job.step), asdict(cluster)]
    return hashlib.sha256(json.dumps([__version__, *parts], sort_keys=True).encode()).hexdigest()
