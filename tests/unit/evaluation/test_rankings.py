"""A report of rankings: bad sets lose, equal ones do not."""

import json
import math
from dataclasses import replace
from itertools import count, permutations

import numpy as np
import pytest
from random_jobs import random_job
from simulator_traces import comp, ring, system, workload

from layerdag.codec.unfolding import unfold_sampled
from layerdag.errors import UsageError
from layerdag.evaluation.rankings import (
    CLUSTERS,
    DIFFERENCE,
    TARGETS,
    PairedJobs,
    RankedCluster,
    RankedJob,
    SimulatedJobs,
    compare_rankings,
    difference_of_clusters,
    live_bytes,
    nearest,
    negative_controls,
    rank_clusters,
    rank_jobs,
    rank_plans,
    rank_plans_relative,
    ranked_job,
    simulate_jobs,
)
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.compute import MeasuredCompute
from layerdag.simulator.run import simulate
from layerdag.traces.builder import NodeSpec
from layerdag.traces.trace import Attribute, Wire, Workload


def simulated(seed: int, *, reverse: bool = False, count: int = 30) -> SimulatedJobs:
    """Return jobs of three plans on four clusters, each slower than the one before, with noise."""
    rng = np.random.default_rng(seed)
    plans, nodes = rng.integers(0, 3, count), rng.integers(10, 1000, count)
    slower_C = np.arange(4.0)[:: -1 if reverse else 1]
    base_J = plans + np.log(nodes) + rng.normal(0, 0.2, count)
    log_JC = (-base_J if reverse else base_J)[:, None] + slower_C + rng.normal(0, 0.2, (count, 4))
    work_JC = np.repeat(np.log(nodes)[:, None], 4, axis=1) * (-1 if reverse else 1)
    mine = tuple(
        RankedJob(Workload((), {}, "none"), f"plan {plan}", ("gpt",), int(size))
        for plan, size in zip(plans, nodes, strict=True)
    )
    return SimulatedJobs(mine, np.stack([log_JC] * 3, axis=2), work_JC, np.full((count, 4), 0.25))


@pytest.fixture
def report():
    sets = {
        "training jobs": simulated(1),
        "samples": simulated(2),
        "bad": simulated(3, reverse=True),
    }
    return compare_rankings(simulated(0), sets, replicates=100)


@pytest.mark.parametrize("order", ["clusters", "plans", "plans, relative", "jobs"])
def test_a_bad_set_loses_and_training_jobs_do_not(report, order):
    good, bad = report.row("samples", order), report.row("bad", order)
    assert good.value > 0.7
    assert bad.value < -0.7
    assert bad.loses
    assert not good.loses
    assert report.row("training jobs", order).lead is None
    assert good.interval.low <= good.value <= good.interval.high
    training = report.row("training jobs", order)
    assert bad.lead == pytest.approx(training.value - bad.value)


def test_a_larger_difference_of_the_clusters_loses(report):
    assert report.row("bad", DIFFERENCE).value > 1
    assert report.row("bad", DIFFERENCE).loses
    assert report.row("samples", DIFFERENCE).value < 0.2


def test_memory_orders_no_clusters_and_no_plans_by_compute_time(report):
    with pytest.raises(KeyError):
        report.row("samples", "clusters", "memory")
    with pytest.raises(KeyError):
        report.row("samples", "plans, relative", "memory")
    assert report.row("samples", "jobs", "memory").value > 0.5


def test_counts_exposed_communication_and_spread(report):
    assert (report.tested_on, report.counts["samples"], report.failed["bad"]) == (30, 30, 0)
    assert report.silent == dict.fromkeys(report.counts, 30)  # these have no trace at all
    assert report.exposed == (0.25, 0.25)
    assert report.slowest == pytest.approx(np.exp(3), rel=0.2)
    told = json.loads(json.dumps(report.summary()))
    assert told["rows"][0].keys() >= {"jobs", "order", "target", "value", "loses"}


def test_the_same_seed_gives_the_same_intervals():
    found = [
        compare_rankings(simulated(0), {"samples": simulated(2)}, baseline="samples", seed=s)
        for s in (3, 3, 4)
    ]
    assert found[0] == found[1]
    assert found[0] != found[2]


def test_sets_without_jobs_are_refused():
    empty = SimulatedJobs((), np.zeros((0, 4, 3)), *[np.zeros((0, 4))] * 2, ("a: has a cycle",))
    with pytest.raises(UsageError, match=r"samples: no job of several ranks.*a: has a cycle"):
        compare_rankings(simulated(0), {"samples": empty}, baseline="samples")
    with pytest.raises(UsageError, match="no set of jobs 'training jobs'"):
        compare_rankings(simulated(0), {"others": simulated(1)})


def job(plan: str = "ddp x 2", family: str = "gpt", nodes: int = 10) -> RankedJob:
    return RankedJob(Workload((), {}, "none"), plan, (family, "training"), nodes)


def jobs_with(
    log_JC: list[list[float]], jobs: list[RankedJob] | None = None, work: float | list[float] = 0.0
) -> SimulatedJobs:
    """Return jobs with one target, and the logarithm of the compute time of each."""
    value_JC = np.array(log_JC)
    mine = jobs or [job(nodes=10 + i) for i in range(len(value_JC))]
    work_JC = np.zeros_like(value_JC) + np.reshape(work, (-1, 1))
    return SimulatedJobs(tuple(mine), value_JC[:, :, None], work_JC, np.zeros_like(value_JC))


def beside(real: SimulatedJobs, other: SimulatedJobs) -> PairedJobs:
    return PairedJobs(real, other, np.ones((1, len(real.jobs))), np.ones((1, len(other.jobs))))


def test_clusters_are_ordered_by_the_mean_over_jobs():
    real = jobs_with([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
    other = jobs_with([[3.0, 3.0, 6.0], [1.0, 2.0, 3.0]])  # means 2, 2.5, 4.5
    assert rank_clusters(beside(real, other), 0)[0] == 1.0
    # Without their means: -1, 0, 1 against -1, -.5, 1.5.
    assert difference_of_clusters(beside(real, other), 0)[0] == pytest.approx(1 / 3)
    assert difference_of_clusters(beside(real, real), 0)[0] == 0.0


def test_weights_count_jobs_several_times():
    real = jobs_with([[1.0, 2.0], [9.0, 2.0]])
    weights_RJ = np.array([[1.0, 1.0], [2.0, 0.0]])
    found = rank_clusters(PairedJobs(real, jobs_with([[0.0, 1.0]]), weights_RJ, np.ones((2, 1))), 0)
    assert found.tolist() == [-1.0, 1.0]  # the second job alone is slower on the first cluster


def test_plans_are_ordered_on_each_cluster():
    plans = [job(plan) for plan in ("a", "b", "c") for _ in range(3)]
    times = [[1.0, 3.0]] * 3 + [[2.0, 2.0]] * 3 + [[3.0, 1.0]] * 3
    real = jobs_with(times, plans)
    assert rank_plans(beside(real, real), 0)[0] == 1.0
    same = jobs_with([[row[0], row[0]] for row in times], plans)
    assert (
        rank_plans(beside(real, same), 0)[0] == 0.0
    )  # right on one cluster, reversed on the other
    lone = jobs_with(times[:3], plans[:3])
    assert np.isnan(rank_plans(beside(real, lone), 0)[0])


def test_relative_to_compute_time_the_sizes_of_models_order_no_plans():
    plans = [job(plan) for plan in ("a", "b", "c") for _ in range(3)]
    sizes = [5.0] * 3 + [1.0] * 3 + [3.0] * 3
    cost = [1.0] * 3 + [2.0] * 3 + [3.0] * 3
    larger = jobs_with([[c + s] for c, s in zip(cost, sizes, strict=True)], plans, sizes)
    equal = jobs_with([[c] for c in cost], plans)
    assert rank_plans_relative(beside(equal, larger), 0)[0] == 1.0
    assert rank_plans(beside(equal, larger), 0)[0] < 1.0


def test_the_nearest_jobs_have_the_same_plan_then_kind_then_size():
    others = (
        job("pp x 2", "gpt", 10), job("ddp x 2", "mlp", 10), job("ddp x 2", "gpt", 90),
        job("ddp x 2", "gpt", 11), job("ddp x 2", "gpt", 20),
    )  # fmt: skip
    assert nearest((job(nodes=10),), others).tolist() == [[3, 4, 2]]
    assert nearest((job("pp x 2", nodes=10),), others)[0, 0] == 0


def test_jobs_are_ordered_by_those_that_stand_for_them():
    sizes, steps = (10, 100, 1000), count()
    mine = [job(nodes=size) for size in sizes]
    real = jobs_with([[float(next(steps))] for _ in sizes], mine)
    three = [job(nodes=size + extra) for size in sizes for extra in range(3)]
    good = jobs_with([[float(i // 3)] for i in range(9)], three)
    assert rank_jobs(beside(real, good), 0)[0] == 1.0
    bad = jobs_with([[float(-(i // 3))] for i in range(9)], three)
    assert rank_jobs(beside(real, bad), 0)[0] == -1.0
    constant = jobs_with([[1.0]] * 9, three)
    assert np.isnan(rank_jobs(beside(real, constant), 0)[0])


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


@pytest.mark.parametrize("name", ["messages exchanged", "messages at random"])
def test_other_messages_leave_durations_alone(jobs, bad, name):
    changed = 0
    for job, spoiled in zip(jobs, bad[name], strict=True):
        before, after = column(job, "comm_bytes"), column(spoiled, "comm_bytes")
        np.testing.assert_array_equal(before > 0, after > 0)
        np.testing.assert_array_equal(column(job, "duration"), column(spoiled, "duration"))
        changed += int((before != after).sum())
    assert changed


def test_exchanged_numbers_are_those_of_some_job(jobs, bad):
    for name in ("duration", "bytes", "comm_bytes"):
        known = set(np.concatenate([column(job, name) for job in jobs]).tolist())
        for spoiled in bad["numbers exchanged"]:
            assert set(column(spoiled, name).tolist()) <= known
    pairs = zip(jobs, bad["numbers exchanged"], strict=True)
    assert any((column(a, "duration") != column(b, "duration")).any() for a, b in pairs)


def test_rewired_jobs_have_as_many_other_edges(jobs, bad):
    for job, spoiled in zip(jobs, bad["edges rewired"], strict=True):
        before, after = job.graph.edge_index_2E, spoiled.graph.edge_index_2E
        assert before.shape == after.shape
        assert set(map(tuple, before.T.tolist())) != set(map(tuple, after.T.tolist()))
        assert spoiled.graph.checked().layer_N.min() == 0  # no cycle
        np.testing.assert_array_equal(column(job, "duration"), column(spoiled, "duration"))


def test_longer_durations_and_one_job(jobs, bad):
    longer = column(bad["durations too long"][1], "duration")
    np.testing.assert_allclose(longer, 100 * column(jobs[1], "duration"))
    assert {job.graph.name for job in bad["one job"]} == {jobs[0].graph.name}


def test_jobs_without_graphs_cannot_be_spoiled(jobs):
    lone = RankedJob(jobs[0].workload, "ddp x 2", (), 3)
    assert negative_controls([lone], np.random.default_rng(0)) == {}


def test_no_cluster_is_at_least_as_good_as_another_in_everything():
    assert len(CLUSTERS) == 16
    merits = [(-one.latency_us, one.gib_per_s, -one.compute_time) for one in CLUSTERS]
    for one, other in permutations(merits, 2):
        assert any(a < b for a, b in zip(one, other, strict=True)), (one, other)


def test_a_slower_network_is_faster_compute_but_for_the_unit_of_time():
    workload = unfold_sampled(random_job(3, 2), 2).workload
    cluster = RankedCluster(1.0, 2.0, 1.0)
    slowed = simulate(workload, cluster.with_ranks(2, 8.0), compute=MeasuredCompute())
    fast = simulate(workload, cluster.with_ranks(2, 1.0), compute=MeasuredCompute(1 / 8))
    assert abs(slowed.makespan_ns / fast.makespan_ns / 8 - 1) < 0.01


def _jobs(count: int) -> list:
    return [ranked_job(random_job(seed, 2, layers=4)) for seed in range(count)]


def test_there_is_a_figure_for_each_job_cluster_and_target():
    found = simulate_jobs(_jobs(3))
    assert found.log_JCT.shape == (3, len(CLUSTERS), len(TARGETS))
    assert np.isfinite(found.log_JCT).all()
    assert (found.log_work_JC < found.log_JCT[:, :, 0] + 1e-9).all()
    assert ((found.exposed_JC >= 0) & (found.exposed_JC <= 1)).all()
    assert found.failed == ()


def test_faster_compute_is_shorter_and_exposes_more_communication():
    common, slow = RankedCluster(1.0, 4.0, 1.0), RankedCluster(1.0, 4.0, 3.0)
    found = simulate_jobs(_jobs(2), (common, slow), speedup=1e-4)
    gain_J = np.diff(found.log_JCT[:, :, 0], axis=1)[:, 0]
    np.testing.assert_allclose(gain_J, math.log(3), atol=0.02)
    jobs = _jobs(4)
    slow, fast = (simulate_jobs(jobs, CLUSTERS[4:5], speedup=s).exposed_JC for s in (0.01, 100.0))
    assert (fast > slow).all()


def test_a_job_that_cannot_run_is_told_and_left_out():
    (job,) = _jobs(1)
    bad = replace(job, workload=replace(job.workload, traces=job.workload.traces[:1]))
    found = simulate_jobs([bad, job])
    assert found.jobs == (job,)
    assert len(found.failed) == 1
    assert found.failed[0].startswith("job-0")


def test_plan_and_kind_are_what_the_conditions_say():
    said = {"world_size": "4", "strategy": "pp", "family": "gpt", "phase": "training"}
    graph = random_job(0, 2)
    job = ranked_job(graph, said)
    assert job is not None
    assert (job.plan, job.kind, job.nodes) == ("pp x 4", ("gpt", "training"), graph.num_nodes)
    assert job.workload.num_ranks == 4


def test_the_conditions_of_the_graph_count_where_none_are_given():
    job = ranked_job(replace(random_job(0, 2), conditions={"world_size": "2"}))
    assert job is not None
    assert job.plan == "any plan x 2"


def test_a_job_gets_as_many_ranks_as_its_stages_need():
    job = ranked_job(random_job(0, 3), {"world_size": "2"})
    assert job is not None
    assert job.workload.num_ranks == 3


def test_a_job_of_one_rank_has_no_place_in_a_ranking():
    assert ranked_job(random_job(0, 1), {"world_size": "1"}) is None


def test_a_job_without_messages_and_collectives_does_not_communicate():
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


def test_results_are_held_from_their_node_to_their_last_user():
    chain = [sized(0, (), 100), sized(1, (0,), 30), sized(2, (1,), 5)]
    assert held(chain, chain) == 130
    kept = [*chain[:2], sized(2, (0, 1), 5)]
    assert held(kept, kept) == 135
    alone = [sized(0, (), 100), sized(1, (), 70)]
    assert held(alone, alone) == 100


@pytest.mark.parametrize("size", [0])
def test_nothing_is_held_where_no_node_states_bytes(size):
    assert held([sized(0, (), size)], [comp(0, 1, ())]) == 0
