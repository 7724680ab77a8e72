"""Rankings under several sets of jobs, against those under real test jobs, with intervals."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from layerdag._runtime import numpy_generator
from layerdag.errors import UsageError
from layerdag.evaluation.metrics import Interval
from layerdag.evaluation.rankings._figures import TARGETS, SimulatedJobs
from layerdag.evaluation.rankings._orders import (
    NEAREST,
    ORDERS,
    WITHOUT_MEMORY,
    Beside,
    difference_of_clusters,
)

REPLICATES = 300
DIFFERENCE = "clusters, difference"


@dataclass(frozen=True)
class RankingRow:
    """How far the order under one set of jobs agrees with that under real test jobs.

    Attributes:
        jobs: Name of the set.
        order: "clusters", "plans", "plans, relative" (to compute time), "jobs": Kendall's tau-b, 1
            is the same order. "clusters, difference": mean absolute difference of the clusters'
            mean logarithms; 0 is the same.
        target: One of ``TARGETS``.
        value: The figure.
        interval: 95 % bootstrap interval over jobs.
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
        tested_on: Number of real test jobs.
        counts: Number of jobs of each set.
        failed: Number of jobs of each set that could not be simulated.
        silent: Number of jobs of each set that have several ranks but no communication.
        baseline: Name of the set that the others are compared with.
        rows: Every figure of every set.
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
    neighbors: int = NEAREST,
) -> RankingReport:
    """Return how far orders under other jobs agree with those under real test jobs.

    Args:
        real: Test jobs.
        others: Training jobs, samples, bad generators, by name; on the same clusters.
        baseline: Which of them the others are compared with: what a perfect generator reaches.
        seed: Of the bootstrap.
        replicates: Resamples of the jobs of both sides, inside each plan.
        neighbors: Jobs that stand for a real one where jobs are ranked; 1 for sets whose jobs each
            belong to a real one (say which in ``RankedJob.kind``).

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
        draws[name] = _draws(Beside(real, found, real_RJ, other_RK, neighbors))
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


def _draws(beside: Beside) -> dict[tuple[str, str], np.ndarray]:
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
