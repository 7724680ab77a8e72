"""A report of rankings: bad sets lose, equal ones do not."""

import json

import numpy as np
import pytest

from layerdag.errors import UsageError
from layerdag.evaluation.rankings import RankedJob, SimulatedJobs, compare_rankings
from layerdag.evaluation.rankings._comparison import DIFFERENCE
from layerdag.traces import Workload


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
