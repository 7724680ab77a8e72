"""Pipeline schedules: complete, free of deadlock, bounded in flight, idle as published."""

import itertools

import pytest

from layerdag.workloads.symbolic import Plan
from layerdag.workloads.symbolic.plans import (
    Task,
    layers_of_chunks,
    layers_of_stage,
    stage_tasks,
)

SINGLE = [
    (Plan(pipeline=stages, schedule=schedule), count)
    for schedule in ("1f1b", "gpipe", "zb-h1")
    for stages, count in itertools.product((1, 2, 3, 5, 8), (1, 2, 3, 7, 8, 16))
]
INTERLEAVED = [
    (Plan(pipeline=stages, virtual_stages=virtual), stages * groups)
    for stages, virtual, groups in itertools.product((2, 3, 4, 8), (2, 3, 5), (1, 2, 3))
]
Key = tuple[str, int, int]


def _waits_for(task: Task, place: int, places: int) -> list[Key]:
    """Return the passes that a pass needs, as (kind, virtual stage, micro-batch)."""
    if task.kind == "forward":
        return [("forward", place - 1, task.micro_batch)] if place else []
    if task.kind == "weights":
        return [("backward", place, task.micro_batch)]
    needed = [("forward", place, task.micro_batch)]
    if place + 1 < places:
        needed.append(("backward", place + 1, task.micro_batch))
    return needed


def _run(plan: Plan, count: int, times: dict[str, int]) -> list[int]:
    """Run all stages, each in its own order; return when each is done."""
    left = [stage_tasks(plan, stage, count) for stage in range(plan.pipeline)]
    done: dict[Key, int] = {}
    clock = [0] * plan.pipeline
    while any(left):
        before = len(done)
        for stage, tasks in enumerate(left):
            while tasks:
                task = tasks[0]
                place = task.chunk * plan.pipeline + stage
                needed = _waits_for(task, place, plan.pipeline * plan.virtual_stages)
                if any(key not in done for key in needed):
                    break
                clock[stage] = max([clock[stage], *(done[key] for key in needed)])
                clock[stage] += times[task.kind]
                done[(task.kind, place, task.micro_batch)] = clock[stage]
                tasks.pop(0)
        assert len(done) > before, "no stage can go on"
    return clock


def _in_flight(tasks: list[Task], last: str) -> int:
    """Return the most passes whose activations a stage holds at once."""
    return max(itertools.accumulate((t.kind == "forward") - (t.kind == last) for t in tasks))


@pytest.mark.parametrize(("plan", "count"), SINGLE + INTERLEAVED)
def test_all_stages_run_every_pass_to_the_end_each_in_its_own_order(plan: Plan, count: int) -> None:
    kinds = ("forward", "backward", "weights")[: 3 if plan.schedule == "zb-h1" else 2]
    for stage in range(plan.pipeline):
        tasks = stage_tasks(plan, stage, count)
        every = itertools.product(range(count), kinds, range(plan.virtual_stages))
        assert sorted(tasks, key=str) == sorted((Task(*each) for each in every), key=str)
    _run(plan, count, {"forward": 1, "backward": 2, "weights": 1})


@pytest.mark.parametrize(("stages", "virtual", "count"), [(4, 1, 8), (4, 2, 8), (8, 3, 16)])
def test_interleaving_divides_the_idle_share_by_the_virtual_stages(
    stages: int, virtual: int, count: int
) -> None:
    """(p - 1) / (m v): Narayanan et al. 2021, section 2.2.2."""
    plan = Plan(pipeline=stages, virtual_stages=virtual)
    ideal = count * virtual * (1 + 2)
    idle = max(_run(plan, count, {"forward": 1, "backward": 2})) - ideal
    assert idle / ideal == pytest.approx((stages - 1) / (count * virtual))


@pytest.mark.parametrize("times", [(1, 1, 1), (3, 4, 3), (5, 6, 4)])
@pytest.mark.parametrize(("stages", "count"), [(2, 2), (4, 8), (8, 8), (4, 13)])
def test_zb_h1_is_idle_for_f_plus_b_minus_w(
    stages: int, count: int, times: tuple[int, int, int]
) -> None:
    """(p - 1)(F + B - W): Qi et al. 2024, table 2; 1F1B has (p - 1)(F + B + W)."""
    f, b, w = times
    split = Plan(pipeline=stages, schedule="zb-h1")
    ends = _run(split, count, {"forward": f, "backward": b, "weights": w})
    assert max(ends) - count * (f + b + w) == (stages - 1) * (f + b - w)
    whole = _run(Plan(pipeline=stages), count, {"forward": f, "backward": b + w})
    assert max(whole) - count * (f + b + w) == (stages - 1) * (f + b + w)


@pytest.mark.parametrize(("stages", "count"), [(4, 8), (4, 2), (1, 4), (8, 8)])
def test_in_flight_are_the_stages_left_and_under_zb_h1_as_many_as_the_first_stage_has(
    stages: int, count: int
) -> None:
    for stage in range(stages):
        tasks = stage_tasks(Plan(pipeline=stages), stage, count)
        assert _in_flight(tasks, "backward") == min(stages - stage, count)
        tasks = stage_tasks(Plan(pipeline=stages, schedule="zb-h1"), stage, count)
        assert _in_flight(tasks, "weights") == min(stages, count)


@pytest.mark.parametrize(("stages", "virtual", "count"), [(4, 2, 8), (2, 4, 4), (8, 3, 16)])
def test_interleaved_passes_in_flight_are_those_of_megatron(
    stages: int, virtual: int, count: int
) -> None:
    """Of the first stage (1 + (p - 1) / (p v)) times those of 1F1B: Korthikanti et al. 2022."""
    plan = Plan(pipeline=stages, virtual_stages=virtual)
    for stage in range(stages):
        found = _in_flight(stage_tasks(plan, stage, count), "backward")
        assert found == min((virtual - 1) * stages + 2 * (stages - stage - 1) + 1, count * virtual)
    first = _in_flight(stage_tasks(plan, 0, count), "backward") / virtual
    assert first == pytest.approx(stages * (1 + (stages - 1) / (stages * virtual)))


def test_layers_are_spread_evenly_the_remainder_over_early_stages() -> None:
    assert [list(layers_of_stage(6, s, 4)) for s in range(4)] == [[0, 1], [2, 3], [4], [5]]
    chunks = layers_of_chunks(8, Plan(pipeline=2, virtual_stages=2), 1)
    assert [list(layers) for layers in chunks] == [[2, 3], [6, 7]]
