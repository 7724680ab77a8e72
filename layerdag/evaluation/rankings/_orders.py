"""Orders of clusters, plans and jobs under two sets of jobs, and how far they agree.

Letters of shapes: J real jobs, K other jobs, C clusters, P plans, R rows of weights, whose first is
all ones and whose others are bootstrap resamples of the jobs.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from layerdag.evaluation.rankings._figures import SimulatedJobs
from layerdag.evaluation.rankings._jobs import RankedJob

LEAST = 3
"""Jobs that a plan needs on both sides to be ranked."""
NEAREST = 3
"""Other jobs that stand for a real one where jobs are ranked, by default."""


@dataclass(frozen=True, eq=False)
class Beside:
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


def of_clusters(beside: Beside, target: int) -> np.ndarray:
    """Return tau of the order of clusters by the mean logarithm of a target over jobs, (R,)."""
    return kendall(*_cluster_means(beside, target))


def difference_of_clusters(beside: Beside, target: int) -> np.ndarray:
    """Return how far the clusters' mean logarithms differ, but for a common factor, (R,)."""
    real_RC, other_RC = (
        mean_RC - mean_RC.mean(axis=1, keepdims=True) for mean_RC in _cluster_means(beside, target)
    )
    difference_R: np.ndarray = np.abs(real_RC - other_RC).mean(axis=1)
    return difference_R


def _cluster_means(beside: Beside, target: int) -> tuple[np.ndarray, np.ndarray]:
    return (
        _means(beside.real.log_JCT[:, :, target], beside.real_RJ),
        _means(beside.other.log_JCT[:, :, target], beside.other_RK),
    )


def of_plans(beside: Beside, target: int) -> np.ndarray:
    """Return tau of the order of plans on a cluster, mean over clusters, (R,).

    Plans are ordered by the mean logarithm over their jobs; jobs of one plan may be larger than
    those of another, which is a part of the order.
    """
    sides = (beside.real.log_JCT[:, :, target], beside.other.log_JCT[:, :, target])
    return _plans(beside, *sides)


def of_plans_relative(beside: Beside, target: int) -> np.ndarray:
    """Return the same by what a plan costs beyond computing: relative to compute time, (R,).

    The sizes of the models that run under a plan then hardly count.
    """
    sides = (side.log_JCT[:, :, target] - side.log_work_JC for side in (beside.real, beside.other))
    return _plans(beside, *sides)


def _plans(beside: Beside, real_JC: np.ndarray, other_KC: np.ndarray) -> np.ndarray:
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


def of_jobs(beside: Beside, target: int) -> np.ndarray:
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


OrderOf = Callable[[Beside, int], np.ndarray]

ORDERS: dict[str, OrderOf] = {
    "clusters": of_clusters,
    "plans": of_plans,
    "plans, relative": of_plans_relative,
    "jobs": of_jobs,
}
"""What is put in order."""

WITHOUT_MEMORY = ("clusters", "plans, relative")
"""Memory hardly depends on the cluster, and is no multiple of compute time."""
