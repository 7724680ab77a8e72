"""The order in which a pipeline stage runs its micro-batches."""

from dataclasses import dataclass

from layerdag.workloads.symbolic._plan import Schedule


@dataclass(frozen=True)
class Task:
    """The forward or backward pass of one micro-batch through the layers of one stage."""

    micro_batch: int
    backward: bool


def stage_tasks(schedule: Schedule, stage: int, stages: int, micro_batches: int) -> list[Task]:
    """Return the tasks of a stage in program order.

    GPipe (Huang et al. 2019) runs all forward passes, then all backward passes. 1F1B (PipeDream,
    Megatron-LM) begins with as many forward passes as there are stages after this one, then takes
    turns, so that no more than ``stages - stage`` micro-batches are in flight.

    Both orders are free of deadlock: with the dependencies between stages all tasks together form
    a DAG, since task k of a stage waits for tasks of neighbors only that can run without it
    (tests/unit/workloads/symbolic/test_schedule.py runs them).
    """
    count = micro_batches
    if schedule == "gpipe":
        passes = [Task(m, False) for m in range(count)]
        return passes + [Task(m, True) for m in range(count)]
    warm_up = min(stages - stage - 1, count)
    tasks = [Task(m, False) for m in range(warm_up)]
    for m in range(count - warm_up):
        tasks += [Task(warm_up + m, False), Task(m, True)]
    return tasks + [Task(m, True) for m in range(count - warm_up, count)]


def layers_of_stage(layers: int, stage: int, stages: int) -> range:
    """Return the layers of a stage: contiguous, the remainder to the early stages."""
    each, more = divmod(layers, stages)
    first = stage * each + min(stage, more)
    return range(first, first + each + (stage < more))
