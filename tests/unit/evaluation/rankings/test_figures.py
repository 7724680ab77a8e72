"""Step time, exposed communication and memory of jobs on clusters."""

import math
from dataclasses import replace

import numpy as np
from random_jobs import random_job

from layerdag.evaluation.rankings import CLUSTERS, TARGETS, RankedCluster, ranked_job, simulate_jobs


def _jobs(count: int) -> list:
    return [ranked_job(random_job(seed, 2, layers=4)) for seed in range(count)]


def test_there_is_a_figure_for_each_job_cluster_and_target() -> None:
    found = simulate_jobs(_jobs(3))
    assert found.log_JCT.shape == (3, len(CLUSTERS), len(TARGETS))
    assert np.isfinite(found.log_JCT).all()
    assert (found.log_work_JC < found.log_JCT[:, :, 0] + 1e-9).all()
    assert ((found.exposed_JC >= 0) & (found.exposed_JC <= 1)).all()
    assert found.failed == ()


def test_slower_compute_takes_longer_where_networks_do_not_matter() -> None:
    common, slow = RankedCluster(1.0, 4.0, 1.0), RankedCluster(1.0, 4.0, 3.0)
    found = simulate_jobs(_jobs(2), (common, slow), speedup=1e-4)
    gain_J = np.diff(found.log_JCT[:, :, 0], axis=1)[:, 0]
    np.testing.assert_allclose(gain_J, math.log(3), atol=0.02)


def test_faster_compute_exposes_more_communication() -> None:
    jobs = _jobs(4)
    slow, fast = (simulate_jobs(jobs, CLUSTERS[4:5], speedup=s).exposed_JC for s in (0.01, 100.0))
    assert (fast > slow).all()


def test_a_job_that_cannot_run_is_told_and_left_out() -> None:
    (job,) = _jobs(1)
    bad = replace(job, workload=replace(job.workload, traces=job.workload.traces[:1]))
    found = simulate_jobs([bad, job])
    assert found.jobs == (job,)
    assert len(found.failed) == 1
    assert found.failed[0].startswith("job-0")
