"""Bad generators change what they say, and nothing else."""

import math
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from random_jobs import random_job
from simulator_traces import comp, ring, system, workload

from layerdag.codec.unfolding import unfold_sampled
from layerdag.evaluation.ranked_jobs import (
    CLUSTERS,
    TARGETS,
    RankedCluster,
    RankedJob,
    live_bytes,
    negative_controls,
    ranked_job,
    simulate_jobs,
)
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.compute import MeasuredCompute
from layerdag.simulator.run import simulate
from layerdag.traces.builder import NodeSpec
from layerdag.traces.trace import Attribute, Wire


@pytest.fixture
def jobs() -> list[RankedJob]:
    found = [ranked_job(random_job(seed, 2, layers=4)) for seed in range(5)]
    return [job for job in found if job]


@pytest.fixture
def bad(jobs: list[RankedJob]) -> dict[str, tuple[RankedJob, ...]]:
    return negative_controls(jobs, np.random.default_rng(0))


def column(job: RankedJob, name: str) -> np.ndarray:
    assert job.graph is not None
    return np.nan_to_num(job.graph.numbers[name])


def test_every_generator_makes_as_many_jobs(jobs, bad) -> None:
    assert {name: len(made) for name, made in bad.items()} == dict.fromkeys(bad, len(jobs))
    assert len(bad) == 6


@pytest.mark.parametrize("name", ["messages exchanged", "messages at random"])
def test_other_messages_leave_durations_alone(jobs, bad, name: str) -> None:
    changed = 0
    for job, spoiled in zip(jobs, bad[name], strict=True):
        before, after = column(job, "comm_bytes"), column(spoiled, "comm_bytes")
        np.testing.assert_array_equal(before > 0, after > 0)
        np.testing.assert_array_equal(column(job, "duration"), column(spoiled, "duration"))
        changed += int((before != after).sum())
    assert changed


def test_exchanged_numbers_are_those_of_some_job(jobs, bad) -> None:
    for name in ("duration", "bytes", "comm_bytes"):
        known = set(np.concatenate([column(job, name) for job in jobs]).tolist())
        for spoiled in bad["numbers exchanged"]:
            assert set(column(spoiled, name).tolist()) <= known
    pairs = zip(jobs, bad["numbers exchanged"], strict=True)
    assert any((column(a, "duration") != column(b, "duration")).any() for a, b in pairs)


def test_rewired_jobs_have_as_many_other_edges(jobs, bad) -> None:
    for job, spoiled in zip(jobs, bad["edges rewired"], strict=True):
        before, after = job.graph.edge_index_2E, spoiled.graph.edge_index_2E
        assert before.shape == after.shape
        assert set(map(tuple, before.T.tolist())) != set(map(tuple, after.T.tolist()))
        assert spoiled.graph.checked().layer_N.min() == 0  # no cycle
        np.testing.assert_array_equal(column(job, "duration"), column(spoiled, "duration"))


def test_longer_durations_and_one_job(jobs, bad) -> None:
    longer = column(bad["durations too long"][1], "duration")
    np.testing.assert_allclose(longer, 100 * column(jobs[1], "duration"))
    assert {job.graph.name for job in bad["one job"]} == {jobs[0].graph.name}


def test_jobs_without_graphs_cannot_be_spoiled(jobs) -> None:
    lone = RankedJob(jobs[0].workload, "ddp x 2", (), 3)
    assert negative_controls([lone], np.random.default_rng(0)) == {}


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
    slowed = simulate(workload, cluster.with_ranks(2, 8.0), compute=MeasuredCompute())
    fast = simulate(workload, cluster.with_ranks(2, 1.0), compute=MeasuredCompute(1 / 8))
    assert abs(slowed.makespan_ns / fast.makespan_ns / 8 - 1) < 0.01


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


def test_plan_and_kind_are_what_the_conditions_say() -> None:
    said = {"world_size": "4", "strategy": "pp", "family": "gpt", "phase": "training"}
    graph = random_job(0, 2)
    job = ranked_job(graph, said)
    assert job is not None
    assert (job.plan, job.kind, job.nodes) == ("pp x 4", ("gpt", "training"), graph.num_nodes)
    assert job.workload.num_ranks == 4


def test_the_conditions_of_the_graph_count_where_none_are_given() -> None:
    job = ranked_job(replace(random_job(0, 2), conditions={"world_size": "2"}))
    assert job is not None
    assert job.plan == "any plan x 2"


def test_a_job_gets_as_many_ranks_as_its_stages_need() -> None:
    job = ranked_job(random_job(0, 3), {"world_size": "2"})
    assert job is not None
    assert job.workload.num_ranks == 3


def test_a_job_of_one_rank_has_no_place_in_a_ranking() -> None:
    assert ranked_job(random_job(0, 1), {"world_size": "1"}) is None


def test_a_job_without_messages_and_collectives_does_not_communicate() -> None:
    graph = random_job(0, 2, layers=4)
    job = ranked_job(graph)
    assert job is not None
    assert job.communicates
    kinds = ["COMP"] * graph.num_nodes
    words = {**graph.categories, "type": kinds, "peer": ["none"] * graph.num_nodes}
    silent = ranked_job(replace(graph, categories=words))
    assert silent is not None
    assert not silent.communicates


def sized(id: int, deps: tuple[int, ...], size: int) -> NodeSpec:
    """Return a node of 1 us with a result of so many bytes."""
    attributes = (Attribute("tensor_size", Wire.UINT64, size),)
    return NodeSpec(**{**vars(comp(id, 1, deps)), "attributes": attributes})


def held(*ranks: list[NodeSpec]) -> int:
    return live_bytes(simulate(workload(*ranks), Cluster(ring(len(ranks)), system())))


def test_a_result_is_held_until_its_last_user_ends() -> None:
    chain = [sized(0, (), 100), sized(1, (0,), 30), sized(2, (1,), 5)]
    assert held(chain, chain) == 130
    kept = [*chain[:2], sized(2, (0, 1), 5)]
    assert held(kept, kept) == 135


def test_what_nobody_needs_is_held_while_it_is_made() -> None:
    alone = [sized(0, (), 100), sized(1, (), 70)]
    assert held(alone, alone) == 100


def test_the_fullest_rank_counts() -> None:
    assert held([sized(0, (), 100)], [sized(0, (), 300)]) == 300


@pytest.mark.parametrize("size", [0])
def test_nothing_is_held_where_no_node_states_bytes(size: int) -> None:
    assert held([sized(0, (), size)], [comp(0, 1, ())]) == 0
