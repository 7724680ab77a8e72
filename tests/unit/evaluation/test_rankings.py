"""A report of rankings: bad sets lose, equal ones do not."""

import json
from itertools import count

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import kendalltau

from layerdag.errors import UsageError
from layerdag.evaluation.ranked_jobs import RankedJob, SimulatedJobs
from layerdag.evaluation.rankings import (
    DIFFERENCE,
    PairedJobs,
    compare_rankings,
    difference_of_clusters,
    kendall,
    nearest,
    of_plans_relative,
    rank_clusters,
    rank_jobs,
    rank_plans,
)
from layerdag.traces.trace import Workload


def jobs(seed: int, *, reverse: bool = False, count: int = 30) -> SimulatedJobs:
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
    sets = {"training jobs": jobs(1), "samples": jobs(2), "bad": jobs(3, reverse=True)}
    return compare_rankings(jobs(0), sets, replicates=100)


@pytest.mark.parametrize("order", ["clusters", "plans", "plans, relative", "jobs"])
def test_a_bad_set_loses_and_training_jobs_do_not(report, order: str) -> None:
    good, bad = report.row("samples", order), report.row("bad", order)
    assert good.value > 0.7
    assert bad.value < -0.7
    assert bad.loses
    assert not good.loses
    assert report.row("training jobs", order).lead is None
    assert good.interval.low <= good.value <= good.interval.high
    training = report.row("training jobs", order)
    assert bad.lead == pytest.approx(training.value - bad.value)


def test_a_larger_difference_of_the_clusters_loses(report) -> None:
    assert report.row("bad", DIFFERENCE).value > 1
    assert report.row("bad", DIFFERENCE).loses
    assert report.row("samples", DIFFERENCE).value < 0.2


def test_memory_orders_no_clusters_and_no_plans_by_compute_time(report) -> None:
    with pytest.raises(KeyError):
        report.row("samples", "clusters", "memory")
    with pytest.raises(KeyError):
        report.row("samples", "plans, relative", "memory")
    assert report.row("samples", "jobs", "memory").value > 0.5


def test_counts_exposed_communication_and_spread(report) -> None:
    assert (report.tested_on, report.counts["samples"], report.failed["bad"]) == (30, 30, 0)
    assert report.silent == dict.fromkeys(report.counts, 30)  # these have no trace at all
    assert report.exposed == (0.25, 0.25)
    assert report.slowest == pytest.approx(np.exp(3), rel=0.2)
    told = json.loads(json.dumps(report.summary()))
    assert told["rows"][0].keys() >= {"jobs", "order", "target", "value", "loses"}


def test_the_same_seed_gives_the_same_intervals() -> None:
    found = [
        compare_rankings(jobs(0), {"samples": jobs(2)}, baseline="samples", seed=s)
        for s in (3, 3, 4)
    ]
    assert found[0] == found[1]
    assert found[0] != found[2]


def test_sets_without_jobs_are_refused() -> None:
    empty = SimulatedJobs((), np.zeros((0, 4, 3)), *[np.zeros((0, 4))] * 2, ("a: has a cycle",))
    with pytest.raises(UsageError, match=r"samples: no job of several ranks.*a: has a cycle"):
        compare_rankings(jobs(0), {"samples": empty}, baseline="samples")
    with pytest.raises(UsageError, match="no set of jobs 'training jobs'"):
        compare_rankings(jobs(0), {"others": jobs(1)})


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


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=3, max_size=9))
def test_kendall_is_that_of_scipy(pairs: list[tuple[int, int]]) -> None:
    x_I, y_I = np.array(pairs, dtype=float).T
    expected = kendalltau(x_I, y_I).statistic if np.ptp(x_I) and np.ptp(y_I) else 0.0
    assert kendall(x_I[None], y_I[None])[0] == pytest.approx(expected)


def test_rounding_orders_nothing() -> None:
    assert kendall(np.array([[1.0, 1.0 + 1e-12, 2.0]]), np.array([[2.0, 1.0, 3.0]]))[0] == (
        pytest.approx(kendalltau([1, 1, 2], [2, 1, 3]).statistic)
    )


def test_clusters_are_ordered_by_the_mean_over_jobs() -> None:
    real = jobs_with([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
    other = jobs_with([[3.0, 3.0, 6.0], [1.0, 2.0, 3.0]])  # means 2, 2.5, 4.5
    assert rank_clusters(beside(real, other), 0)[0] == 1.0
    # Without their means: -1, 0, 1 against -1, -.5, 1.5.
    assert difference_of_clusters(beside(real, other), 0)[0] == pytest.approx(1 / 3)
    assert difference_of_clusters(beside(real, real), 0)[0] == 0.0


def test_weights_count_jobs_several_times() -> None:
    real = jobs_with([[1.0, 2.0], [9.0, 2.0]])
    weights_RJ = np.array([[1.0, 1.0], [2.0, 0.0]])
    found = rank_clusters(PairedJobs(real, jobs_with([[0.0, 1.0]]), weights_RJ, np.ones((2, 1))), 0)
    assert found.tolist() == [-1.0, 1.0]  # the second job alone is slower on the first cluster


def test_plans_are_ordered_on_each_cluster() -> None:
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


def test_relative_to_compute_time_the_sizes_of_models_order_no_plans() -> None:
    plans = [job(plan) for plan in ("a", "b", "c") for _ in range(3)]
    sizes = [5.0] * 3 + [1.0] * 3 + [3.0] * 3
    cost = [1.0] * 3 + [2.0] * 3 + [3.0] * 3
    larger = jobs_with([[c + s] for c, s in zip(cost, sizes, strict=True)], plans, sizes)
    equal = jobs_with([[c] for c in cost], plans)
    assert of_plans_relative(beside(equal, larger), 0)[0] == 1.0
    assert rank_plans(beside(equal, larger), 0)[0] < 1.0


def test_the_nearest_jobs_have_the_same_plan_then_kind_then_size() -> None:
    others = (
        job("pp x 2", "gpt", 10), job("ddp x 2", "mlp", 10), job("ddp x 2", "gpt", 90),
        job("ddp x 2", "gpt", 11), job("ddp x 2", "gpt", 20),
    )  # fmt: skip
    assert nearest((job(nodes=10),), others).tolist() == [[3, 4, 2]]
    assert nearest((job("pp x 2", nodes=10),), others)[0, 0] == 0


def test_jobs_are_ordered_by_those_that_stand_for_them() -> None:
    sizes, steps = (10, 100, 1000), count()
    mine = [job(nodes=size) for size in sizes]
    real = jobs_with([[float(next(steps))] for _ in sizes], mine)
    three = [job(nodes=size + extra) for size in sizes for extra in range(3)]
    good = jobs_with([[float(i // 3)] for i in range(9)], three)
    assert rank_jobs(beside(real, good), 0)[0] == 1.0
    bad = jobs_with([[float(-(i // 3))] for i in range(9)], three)
    assert rank_jobs(beside(real, bad), 0)[0] == -1.0
    constant = jobs_with([[1.0]] * 9, three)
    assert rank_jobs(beside(real, constant), 0)[0] == 0.0
