"""Pipeline schedules: complete, free of deadlock, bounded in flight."""

import itertools

import pytest

from layerdag.workloads.symbolic._schedule import Task, layers_of_stage, stage_tasks

CASES = list(itertools.product(("1f1b", "gpipe"), (1, 2, 3, 5, 8), (1, 2, 3, 7, 8, 16)))


@pytest.mark.parametrize(("schedule", "stages", "count"), CASES)
def test_all_stages_run_to_the_end_each_in_its_own_order(
    schedule: str, stages: int, count: int
) -> None:
    left = [stage_tasks(schedule, s, stages, count) for s in range(stages)]  # type: ignore[arg-type]
    for tasks in left:
        every = {Task(m, back) for m in range(count) for back in (False, True)}
        assert len(tasks) == 2 * count
        assert set(tasks) == every
    done: set[tuple[int, Task]] = set()

    def can_run(stage: int, task: Task) -> bool:
        if task.backward and stage == stages - 1:
            return (stage, Task(task.micro_batch, False)) in done
        neighbor = stage + 1 if task.backward else stage - 1
        return neighbor < 0 or (neighbor, task) in done

    while any(left):
        ready = [s for s in range(stages) if left[s] and can_run(s, left[s][0])]
        assert ready, "no stage can go on"
        done |= {(s, left[s].pop(0)) for s in ready}


@pytest.mark.parametrize(("stages", "count"), [(4, 8), (4, 2), (1, 4), (8, 8)])
def test_1f1b_keeps_at_most_as_many_micro_batches_as_stages_are_left(
    stages: int, count: int
) -> None:
    for stage in range(stages):
        tasks = stage_tasks("1f1b", stage, stages, count)
        flying = itertools.accumulate(-1 if task.backward else 1 for task in tasks)
        assert max(flying) == min(stages - stage, count)


def test_layers_are_spread_evenly_the_remainder_over_early_stages() -> None:
    assert [list(layers_of_stage(6, s, 4)) for s in range(4)] == [[0, 1], [2, 3], [4], [5]]
