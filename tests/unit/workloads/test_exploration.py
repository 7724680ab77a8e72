"""Whole studies: order, best plans, the Pareto front, the journal."""

import dataclasses
import json
from pathlib import Path

import pytest
from small_studies import cluster, study

import layerdag as ld
from layerdag.errors import UsageError
from layerdag.simulator.compute import Device, RooflineCompute
from layerdag.workloads.exploration import Exploration, PlanOutcome, evaluate_plan, explore
from layerdag.workloads.study import Point, Study, points_of, read_study


@pytest.fixture(scope="module")
def found() -> Exploration:
    return explore(study())


def outcome(name: str, seconds: float | None, cost: float, memory: float) -> PlanOutcome:
    """Return an outcome of the tiny model on cluster ``name``."""
    return PlanOutcome(
        model="tiny", cluster=name, ranks=4, data=4, tensor=1, pipeline=1, context=1, expert=1,
        micro_batches=1, zero=0, recompute="none", sequence_parallel=False, schedule="1f1b",
        memory_gib=memory, fits=seconds is not None, step_s=seconds, cost=cost,
    )  # fmt: skip


def explored(*outcomes: PlanOutcome, priced: bool = True) -> Exploration:
    clusters = {"near": cluster(cost_per_hour=3.6 if priced else 0.0)}
    return Exploration(read_study(study(clusters=clusters)), outcomes, {})


def test_outcomes_are_ordered_by_cluster_and_time(found: Exploration) -> None:
    assert len(found.outcomes) == 16
    for name in ("near", "far"):
        times = [o.step_s for o in found.outcomes if o.cluster == name and o.step_s]
        assert times == sorted(times)
    assert [o.cluster for o in found.outcomes] == ["far"] * 8 + ["near"] * 8


def test_the_best_of_each_cluster_comes_with_the_fastest_cluster_first(found: Exploration) -> None:
    best = found.best()
    assert {o.cluster for o in best} == {"near", "far"}
    for one in best:
        assert one.step_s == min(o.step_s for o in found.simulated if o.cluster == one.cluster)
    assert [o.step_s for o in best] == sorted(o.step_s for o in best)


def test_the_front_holds_what_nothing_beats_in_both_figures() -> None:
    one, two, three, worse = (
        outcome("near", 1.0, 9.0, 50.0), outcome("near", 2.0, 4.0, 60.0),
        outcome("near", 3.0, 3.0, 10.0), outcome("near", 2.5, 4.0, 70.0),
    )  # fmt: skip
    unknown = outcome("near", None, 0.0, 1.0)
    assert explored(worse, three, one, unknown, two).pareto_front() == (one, two, three)


def test_without_prices_memory_is_the_second_figure() -> None:
    one, two = outcome("near", 1.0, 0.0, 50.0), outcome("near", 2.0, 0.0, 40.0)
    worse = outcome("near", 3.0, 0.0, 40.0)
    assert explored(worse, two, one, priced=False).pareto_front() == (one, two)


def test_plans_that_are_too_large_or_fail_come_last() -> None:
    small = {"near": cluster(memory_gib=0.002)}
    fits = [o.fits for o in explore(study(clusters=small)).outcomes]
    assert True in fits
    assert False in fits
    assert fits == sorted(fits, reverse=True)


def test_finished_points_are_taken_from_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: Exploration
) -> None:
    journal = tmp_path / "runs" / "journal.jsonl"
    explore(study(), journal=journal)
    lines = journal.read_text().splitlines()
    assert len(lines) == 16
    journal.write_text("\n".join(lines[:10]) + "\n" + lines[10][:40])  # cut off in the 11th
    from layerdag.workloads import exploration as _exploration

    tried = []
    real = _exploration.evaluate_plan
    monkeypatch.setattr(
        _exploration, "evaluate_plan", lambda *point: tried.append(point) or real(*point)
    )
    again = explore(study(), journal=journal)
    assert len(tried) == 6
    assert [dataclasses.replace(o, key="") for o in again.outcomes] == [
        dataclasses.replace(o, key="") for o in found.outcomes
    ]
    assert explore(study(), journal=journal).outcomes == again.outcomes
    assert len(tried) == 6


def test_another_price_or_network_is_another_point(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    for price in (1.0, 2.0):
        clusters = {"near": cluster(cost_per_hour=price)}
        costs = [o.cost for o in explore(study(clusters=clusters), journal=journal).simulated]
        assert all(cost > 0 for cost in costs)
    assert sum(1 for line in journal.read_text().splitlines() if line) == 16


def test_worker_processes_find_the_same(found: Exploration) -> None:
    assert explore(study(), processes=2).outcomes == found.outcomes


def test_a_summary_is_json_and_holds_every_outcome(found: Exploration) -> None:
    summary = json.loads(json.dumps(found.summary(), allow_nan=False))
    assert (summary["points"], summary["simulated"]) == (16, len(found.simulated))
    assert len(summary["outcomes"]) == 16
    assert summary["too_large"] == sum(not o.fits for o in found.outcomes)
    assert "key" not in summary["best"][0]


def test_a_study_without_a_possible_plan_says_why() -> None:
    with pytest.raises(UsageError, match=r"No plan .* 2 times: tensor x pipeline x context = 3"):
        explore(study(plans={"tensor": [3]}))
    with pytest.raises(UsageError, match="processes is 0"):
        explore(study(), processes=0)


def test_it_stands_at_the_front_door() -> None:
    assert ld.explore is explore


def test_each_model_has_its_own_best_and_its_own_front() -> None:
    """A small model is no reason to leave out a large one."""
    small = dataclasses.replace(outcome("near", 1.0, 1.0, 1.0), model="a")
    large = dataclasses.replace(outcome("near", 9.0, 9.0, 9.0), model="b")
    found = explored(small, large)
    assert found.best() == (small, large)
    assert found.pareto_front() == (small, large)


def test_of_equal_times_the_cheaper_one_is_on_the_front() -> None:
    dear, cheap = outcome("near", 1.0, 5.0, 1.0), outcome("near", 1.0, 4.0, 2.0)
    assert explored(dear, cheap).pareto_front() == (cheap,)


def test_nothing_on_the_front_is_beaten_in_both_figures(found: Exploration) -> None:
    front = found.pareto_front()
    assert set(front) <= set(found.simulated)
    for one in found.simulated:
        no_worse = [o for o in front if o.step_s <= one.step_s and o.cost <= one.cost]
        assert no_worse
    times, costs = [o.step_s for o in front], [o.cost for o in front]
    assert (times, costs) == (sorted(times), sorted(costs, reverse=True))


def test_a_study_whose_plans_are_all_too_large_has_no_best() -> None:
    found = explore(study(clusters={"near": cluster(memory_gib=1e-5)}))
    assert len(found.outcomes) == 8
    assert (found.simulated, found.best(), found.pareto_front()) == ((), (), ())
    assert found.summary()["too_large"] == 8


def test_a_faster_network_is_no_slower() -> None:
    def step(gb_per_s: float) -> float:
        ring = [{"topology": "Ring", "ranks": 4, "gb_per_s": gb_per_s}]
        only = {"near": cluster(network=ring)}
        (best,) = ld.explore(study(plans={"tensor": 2}, clusters=only)).best()
        return float(best.step_s or 0)

    times = [step(speed) for speed in (1.0, 10.0, 100.0)]
    assert times == sorted(times, reverse=True)
    assert times[0] > times[-1] > 0


def tried(plans: dict, **changes: object) -> tuple[Point, PlanOutcome]:
    """Return the only point of a study of the near cluster, and what became of it."""
    made: Study = read_study(study(plans=plans, clusters={"near": cluster(**changes)}))
    [point] = points_of(made).possible
    return point, evaluate_plan(point, made.clusters["near"])


def test_times_are_those_of_the_simulated_step() -> None:
    point, found = tried({"tensor": 2, "micro_batches": 2})
    device = Device("own", dict.fromkeys(("f64", "f32", "bf16", "i8"), 1e12), 1e11)
    near = read_study(study()).clusters["near"].simulated
    result = ld.simulate(point.job.workload(), near, compute=RooflineCompute(device))
    assert found.step_s == result.makespan_ns / 1e9
    assert found.compute_s == pytest.approx(result.compute_ns.mean() / 1e9)
    assert found.exposed_s == pytest.approx(found.step_s - found.compute_s)
    assert found.tokens_per_s == pytest.approx(16 * 32 / found.step_s)
    assert found.cost == pytest.approx(3.6 * 4 * found.step_s / 3600)
    assert (found.fits, found.error) == (True, "")


def test_what_is_computed_again_is_no_utilization() -> None:
    point, plain = tried({"tensor": 2})
    _, again = tried({"tensor": 2, "recompute": "full"})
    useful = point.job.summary()["matrix_flops"]
    assert plain.utilization == pytest.approx(useful / (plain.step_s * 4 * 1e12))
    assert again.utilization == pytest.approx(useful / (again.step_s * 4 * 1e12))
    assert again.step_s > plain.step_s
    assert again.memory_gib < plain.memory_gib


def test_a_plan_that_needs_more_memory_than_there_is_has_no_time() -> None:
    point, found = tried({"tensor": 2}, memory_gib=1e-4)
    assert not found.fits
    assert found.step_s is None
    assert found.memory_gib == pytest.approx(point.job.summary()["peak_memory"] / 2**30)


def test_expanded_memory_holds_more_and_takes_longer() -> None:
    _, local = tried({"tensor": 2}, memory_gib=1.0)
    wider = {"memory_gib": 1e-4, "expanded_gib": 1.0, "expanded_gb_per_s": 1.0}
    _, expanded = tried({"tensor": 2}, **wider)
    assert expanded.fits
    assert expanded.step_s > local.step_s
    assert expanded.compute_s > 2 * local.compute_s


def test_memory_that_is_just_enough_is_enough() -> None:
    point, _ = tried({"tensor": 2})
    exact = point.job.summary()["peak_memory"] / 2**30
    assert tried({"tensor": 2}, memory_gib=exact)[1].fits
    assert not tried({"tensor": 2}, memory_gib=exact * (1 - 1e-9))[1].fits


def test_what_the_simulator_refuses_is_an_error_and_no_time() -> None:
    _, found = tried({"tensor": 2}, collectives="inNetwork")
    assert found.step_s is None
    assert found.error


def test_a_plan_is_told_by_what_it_splits() -> None:
    _, found = tried({"tensor": 2, "zero": 3, "micro_batches": 2})
    assert found.plan == "data 2, tensor 2, micro-batches 2, ZeRO 3"
    more = dataclasses.replace(
        found, data=1, tensor=1, pipeline=4, zero=0, recompute="full", sequence_parallel=True,
        schedule="gpipe", context=2, expert=2,
    )  # fmt: skip
    assert more.plan == (
        "pipeline 4, context 2, expert 2, micro-batches 2, recompute full, sequence parallel, gpipe"
    )
    alone = dataclasses.replace(found, data=1, tensor=1, zero=0, micro_batches=1, schedule="gpipe")
    assert alone.plan == "one rank"
    several = dataclasses.replace(alone, pipeline=2, virtual_stages=2, schedule="interleaved")
    assert several.plan == "pipeline 2, 2 virtual stages"
