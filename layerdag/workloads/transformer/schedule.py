"""Pipeline schedules: the order of micro-batches on each stage, and the layers that it holds."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from layerdag.plan import Plan

Pass = Literal["forward", "backward", "weights"]


@dataclass(frozen=True)
class Task:
    """One pass of a micro-batch through the layers of one chunk (virtual stage) of a stage.

    The pass "weights" makes the gradients of weights where the schedule splits them from the
    backward pass, which is then the gradients of inputs only.
    """

    micro_batch: int
    kind: Pass
    chunk: int = 0


def stage_tasks(plan: Plan, stage: int, micro_batches: int) -> list[Task]:
    """Return the tasks of a stage in program order.

    GPipe (Huang et al. 2019) runs all forward passes, then all backward passes. 1F1B (PipeDream,
    Megatron-LM) begins with as many forward passes as there are stages after this one, then takes
    turns, so that no more than ``stages - stage`` micro-batches are in flight. For interleaved 1F1B
    and ZB-H1 see the functions below.

    All orders are free of deadlock: with the dependencies between stages all tasks together form
    a DAG, since task k of a stage waits for tasks of neighbors only that can run without it
    (tests/unit/workloads/transformer/test_plan.py runs them).
    """
    if plan.virtual_stages > 1:
        return _interleaved(stage, plan.pipeline, plan.virtual_stages, micro_batches)
    if plan.schedule == "zb-h1":
        return _zero_bubble(stage, plan.pipeline, micro_batches)
    warm_up = micro_batches if plan.schedule == "gpipe" else plan.pipeline - stage - 1
    every = range(micro_batches)
    return _in_turns(
        [Task(m, "forward") for m in every], [Task(m, "backward") for m in every], warm_up
    )


def _in_turns(forward: list[Task], backward: list[Task], warm_up: int) -> list[Task]:
    warm_up = min(warm_up, len(forward))
    tasks = forward[:warm_up]
    for ahead, back in zip(forward[warm_up:], backward, strict=False):
        tasks += [ahead, back]
    return tasks + backward[len(forward) - warm_up :]


def _interleaved(stage: int, stages: int, chunks: int, count: int) -> list[Task]:
    """Return interleaved 1F1B (Narayanan et al. 2021, section 2.2, as Megatron-LM runs it).

    A stage holds ``chunks`` virtual stages. Micro-batches come in groups of as many as there are
    stages; a group passes all chunks of a stage, forward from the first to the last chunk, backward
    from the last to the first, before the next group does. The idle share is (p - 1) / (m v)
    instead of (p - 1) / m; up to (v - 1) p + 2 (p - stage - 1) + 1 chunk passes are in flight.
    """
    order = [
        (first + position, chunk)
        for first in range(0, count, stages)
        for chunk in range(chunks)
        for position in range(stages)
    ]
    return _in_turns(
        [Task(m, "forward", chunk) for m, chunk in order],
        [Task(m, "backward", chunks - 1 - chunk) for m, chunk in order],
        2 * (stages - stage - 1) + (chunks - 1) * stages,
    )


def _zero_bubble(stage: int, stages: int, count: int) -> list[Task]:
    """Return ZB-H1 (Qi et al. 2024, section 2.1): 1F1B with gradients of weights put off.

    Stage s puts them off by s micro-batches, so that all stages keep at most ``stages``
    micro-batches, as the first stage of 1F1B does. The idle time is (p - 1)(F + B - W) instead of
    (p - 1)(F + B + W), with the times of forward pass, gradients of inputs, gradients of weights.
    """
    warm_up = min(stages - stage - 1, count)
    tasks = [Task(m, "forward") for m in range(warm_up)]
    for m in range(count):
        if warm_up + m < count:
            tasks.append(Task(warm_up + m, "forward"))
        tasks.append(Task(m, "backward"))
        if m >= stage:
            tasks.append(Task(m - stage, "weights"))
    return tasks + [Task(m, "weights") for m in range(max(count - stage, 0), count)]


def layers_of_stage(layers: int, stage: int, stages: int) -> range:
    """Return the layers of a stage: contiguous, the remainder to the early stages."""
    each, more = divmod(layers, stages)
    first = stage * each + min(stage, more)
    return range(first, first + each + (stage < more))


def layers_of_chunks(layers: int, plan: Plan, stage: int) -> tuple[range, ...]:
    """Return the layers of each virtual stage of a stage: the stages take turns."""
    every = plan.pipeline * plan.virtual_stages
    positions = range(stage, every, plan.pipeline)
    if plan.first_layers or plan.last_layers:
        ends = np.cumsum([0, *_given_counts(layers, plan)]).tolist()
        return tuple(range(ends[position], ends[position + 1]) for position in positions)
    if not plan.ends_as_layers:
        return tuple(layers_of_stage(layers, position, every) for position in positions)
    parts = [layers_of_stage(layers + 2, position, every) for position in positions]
    return tuple(range(max(p.start - 1, 0), min(p.stop - 1, layers)) for p in parts)


def _given_counts(layers: int, plan: Plan) -> list[int]:
    stages, chunks = plan.pipeline, plan.virtual_stages
    given = {0: plan.first_layers, stages - 1: plan.last_layers}
    fixed = {stage: count for stage, count in given.items() if count}
    free = (stages - len(fixed)) * chunks
    rest = iter(len(layers_of_stage(layers - sum(fixed.values()), n, free)) for n in range(free))
    return [
        fixed[position % stages] // chunks if position % stages in fixed else next(rest)
        for position in range(stages * chunks)
    ]


def layers_held(layers: int, plan: Plan, stage: int) -> int:
    """Return how many layers a stage holds in all its chunks."""
    return sum(map(len, layers_of_chunks(layers, plan, stage)))
