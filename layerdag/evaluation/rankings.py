"""Rank agreement with intervals.

Orders of clusters, plans and jobs under two sets of jobs, and how far they agree.

Letters of shapes: J real jobs, K other jobs, C clusters, P plans, R rows of weights, whose first is
all ones and whose others are bootstrap resamples of the jobs.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from layerdag.errors import UsageError
from layerdag.evaluation.metrics.base import Interval
from layerdag.evaluation.ranked_jobs import TARGETS, RankedJob, SimulatedJobs
from layerdag.runtime.rng import numpy_generator

LEAST = 3
"""Jobs that a plan needs on both sides to be ranked."""
NEAREST = 3
"""Other jobs that stand for a real one where jobs are ranked, by default."""


@dataclass(frozen=True, eq=False)
class PairedJobs:
    """Other jobs beside real ones, with weights of both.

    Attributes:
        real: The jobs whose order counts.
        other: The jobs that are judged.
        real_RJ: Weights of the real jobs.
        other_RK: Weights of the others.
        neighbors: Other jobs that stand for a real one where jobs are ranked.
    """

    real: SimulatedJobs
    other: SimulatedJobs
    real_RJ: np.ndarray
    other_RK: np.ndarray
    neighbors: int = NEAREST


def kendall(x_RI: np.ndarray, y_RI: np.ndarray) -> np.ndarray:
    """Return Kendall's tau-b of each row, shape (R,); 0 where one side orders nothing."""
    return _agreement(np.ones_like(x_RI), _signs(x_RI), _signs(y_RI))


def _signs(value_RI: np.ndarray) -> np.ndarray:
    """Return the sign of the difference of each pair, (R, I, I); rounding makes no difference."""
    difference_RII = value_RI[:, :, None] - value_RI[:, None, :]
    return np.where(np.abs(difference_RII) < 1e-9, 0.0, np.sign(difference_RII))


def _agreement(weights_RI: np.ndarray, x_RII: np.ndarray, y_RII: np.ndarray) -> np.ndarray:
    """Return tau-b where item i counts ``weights_RI[:, i]`` times."""

    def pairs(sign_RII: np.ndarray) -> np.ndarray:
        half_RI = np.matmul(weights_RI[:, None, :], sign_RII)[:, 0]
        total_R: np.ndarray = (half_RI * weights_RI).sum(axis=1)
        return total_R

    norm_R = np.sqrt(pairs(np.abs(x_RII)) * pairs(np.abs(y_RII)))
    agreed_R = pairs(x_RII * y_RII)
    return np.divide(agreed_R, norm_R, out=np.zeros_like(norm_R), where=norm_R > 0)


def _means(log_JC: np.ndarray, weights_RJ: np.ndarray) -> np.ndarray:
    """Return weighted means over jobs, (R, C)."""
    mean_RC: np.ndarray = weights_RJ @ log_JC / weights_RJ.sum(axis=1, keepdims=True)
    return mean_RC


def rank_clusters(beside: PairedJobs, target: int) -> np.ndarray:
    """Return tau of the order of clusters by the mean logarithm of a target over jobs, (R,)."""
    return kendall(*_cluster_means(beside, target))


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


def of_plans_relative(beside: PairedJobs, target: int) -> np.ndarray:
    """Return the same by what a plan costs beyond computing: relative to compute time, (R,).

    The sizes of the models that run under a plan then hardly count.
    """
    sides = (side.log_JCT[:, :, target] - side.log_work_JC for side in (beside.real, beside.other))
    return _plans(beside, *sides)


def _plans(beside: PairedJobs, real_JC: np.ndarray, other_KC: np.ndarray) -> np.ndarray:
    plans = ranked_plans(beside.real.jobs, beside.other.jobs)
    if len(plans) < 2:
        return np.full(len(beside.real_RJ), np.nan)
    real_CRP = _means_by_plan(beside.real.jobs, real_JC, beside.real_RJ, plans)
    other_CRP = _means_by_plan(beside.other.jobs, other_KC, beside.other_RK, plans)
    taus = [kendall(*pair) for pair in zip(real_CRP, other_CRP, strict=True)]
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
        plan for plan in set(counts[0]) if all(held.count(plan) >= LEAST for held in counts)
    )


def rank_jobs(beside: PairedJobs, target: int) -> np.ndarray:
    """Return tau of the order of jobs on a cluster, mean over clusters, (R,).

    Beside each real job stand the others that are most like it by what is known before
    a job runs: plan, then family and phase, then number of nodes.
    """
    chosen_JK = nearest(beside.real.jobs, beside.other.jobs, beside.neighbors)
    other_JC = beside.other.log_JCT[:, :, target][chosen_JK].mean(axis=1)
    real_JC = beside.real.log_JCT[:, :, target]
    taus = [
        _agreement(beside.real_RJ, _signs(real_JC[None, :, c]), _signs(other_JC[None, :, c]))
        for c in range(real_JC.shape[1])
    ]
    tau_R: np.ndarray = np.mean(taus, axis=0)
    return tau_R


def nearest(
    real: tuple[RankedJob, ...], other: tuple[RankedJob, ...], neighbors: int = NEAREST
) -> np.ndarray:
    """Return the rows of the others that are most like each real job, (J, up to neighbors)."""
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
        rows.append([entry[-1] for entry in sorted(distance)[:neighbors]])
    return np.array(rows, dtype=np.int64)


OrderOf = Callable[[PairedJobs, int], np.ndarray]

ORDERS: dict[str, OrderOf] = {
    "clusters": rank_clusters,
    "plans": rank_plans,
    "plans, relative": of_plans_relative,
    "jobs": rank_jobs,
}
"""What is put in order."""

WITHOUT_MEMORY = ("clusters", "plans, relative")
"""Memory hardly depends on the cluster, and is no multiple of compute time."""


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
        draws[name] = _draws(PairedJobs(real, found, real_RJ, other_RK, neighbors))
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
