"""Clusters that do not dominate each other, figures by hand, and generators that are bad."""

import math
from itertools import permutations

import numpy as np
import pytest
from benchmark_ranking import CLUSTERS, bad_generators, figures, jobs_of, times
from random_jobs import random_job


def _jobs(count: int) -> list:
    return [jobs_of(random_job(seed, 2, layers=3), 2) for seed in range(count)]


def test_no_cluster_is_at_least_as_good_as_another_in_everything() -> None:
    assert len(CLUSTERS) == 16
    merits = [
        (-cluster.network.dimensions[0].latency_ns, cluster.network.dimensions[0].bandwidth_gib, -c)
        for cluster, c in CLUSTERS
    ]
    for one, other in permutations(merits, 2):
        assert any(a < b for a, b in zip(one, other, strict=True)), (one, other)


def test_figures_are_those_computed_by_hand() -> None:
    real = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
    assert figures(real, real + 5) == (1.0, 0.0, 0.0)  # a constant factor of all times is no change
    other = np.array([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]])
    tau, profile, best = figures(real, other + np.array([0, 1, 3]))
    # Means 2, 3, 5 against 1, 2, 3: the same order; profiles -4/3, -1/3, 5/3 against -1, 0, 1.
    assert tau == 1.0
    assert profile == pytest.approx((1 / 3 + 1 / 3 + 2 / 3) / 3)
    assert best == 0.0
    assert figures(real, -real)[0] == -1.0
    assert figures(real, -real)[2] == 1.0


def test_bad_generators_change_what_they_say() -> None:
    jobs = _jobs(4)
    bad = bad_generators(jobs, np.random.default_rng(0))
    for name in ("sizes exchanged", "sizes at random"):
        for job, spoiled in zip(jobs, bad[name], strict=True):
            before, after = (one.graph.numbers["comm_bytes"] for one in (job, spoiled))
            np.testing.assert_array_equal(before > 0, after > 0)
            np.testing.assert_array_equal(
                job.graph.numbers["duration"], spoiled.graph.numbers["duration"]
            )
    known = {size for job in jobs for size in job.graph.numbers["comm_bytes"].tolist()}
    for job in bad["sizes exchanged"]:
        sizes = job.graph.numbers["comm_bytes"]
        assert set(sizes[sizes > 0].tolist()) <= known
    longer = bad["durations too long"][0].graph.numbers["duration"]
    np.testing.assert_allclose(longer, 100 * jobs[0].graph.numbers["duration"])
    assert all(job is jobs[0] for job in bad["one job"])


def test_a_slower_computer_takes_longer_where_nothing_is_sent() -> None:
    (job,) = _jobs(1)
    (row,) = times([job], 1e-3, "job")  # compute so slow that links do not matter
    slow, fast = row[0::2], row[1::2]
    np.testing.assert_allclose(slow - fast, math.log(1 / 0.7), atol=0.02)
