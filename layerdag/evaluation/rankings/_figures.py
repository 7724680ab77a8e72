"""What is ranked by: step time, exposed communication and memory of each job on each cluster."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from layerdag._runtime import track
from layerdag.errors import LayerdagError
from layerdag.evaluation.rankings._clusters import CLUSTERS, RankedCluster
from layerdag.evaluation.rankings._jobs import RankedJob
from layerdag.evaluation.rankings._live_bytes import live_bytes
from layerdag.simulator import simulate
from layerdag.simulator.compute import ComputeModel, MeasuredCompute

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
    machine = cluster.sized(job.workload.num_ranks, speedup)
    result = simulate(job.workload, machine, compute=compute(cluster.compute_time))
    exposed_ns = float(np.maximum(result.exposed_comm_ns, 0).mean())
    work_ns = float(result.compute_ns.mean())
    return float(result.makespan_ns), exposed_ns, float(live_bytes(result)), work_ns
