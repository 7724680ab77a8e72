"""Clusters that do not dominate each other."""

from itertools import permutations

from random_jobs import random_job

from layerdag.codec import unfold_sampled
from layerdag.evaluation.rankings import CLUSTERS, RankedCluster
from layerdag.simulator import simulate
from layerdag.simulator.compute import MeasuredCompute


def test_no_cluster_is_at_least_as_good_as_another_in_everything() -> None:
    assert len(CLUSTERS) == 16
    merits = [(-one.latency_us, one.gib_per_s, -one.compute_time) for one in CLUSTERS]
    for one, other in permutations(merits, 2):
        assert any(a < b for a, b in zip(one, other, strict=True)), (one, other)


def test_names_tell_clusters_apart() -> None:
    assert len({cluster.name for cluster in CLUSTERS}) == 16
    assert RankedCluster(0.5, 2.0, 1.0).name == "2 GiB/s, 0.5 us"


def test_a_slower_network_is_faster_compute_but_for_the_unit_of_time() -> None:
    workload = unfold_sampled(random_job(3, 2), 2).workload
    cluster = RankedCluster(1.0, 2.0, 1.0)
    slowed = simulate(workload, cluster.sized(2, 8.0), compute=MeasuredCompute())
    fast = simulate(workload, cluster.sized(2, 1.0), compute=MeasuredCompute(1 / 8))
    assert abs(slowed.makespan_ns / fast.makespan_ns / 8 - 1) < 0.01
