"""Fit, time and cost of one plan, against the simulator called by hand."""

import dataclasses

import pytest
from small_studies import cluster, study

import layerdag as ld
from layerdag.simulator.compute import Device, RooflineCompute
from layerdag.workloads.exploration import Outcome, Study, read_study
from layerdag.workloads.exploration._outcome import try_point
from layerdag.workloads.exploration._points import Point, points_of


def tried(plans: dict, **changes: object) -> tuple[Point, Outcome]:
    """Return the only point of a study of the near cluster, and what became of it."""
    made: Study = read_study(study(plans=plans, clusters={"near": cluster(**changes)}))
    [point] = points_of(made).possible
    return point, try_point(point, made.clusters["near"])


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
