"""All classes of ranks with another number of layers, which pipeline stages share."""

from typing import Any

import numpy as np

from layerdag.errors import UsageError
from layerdag.workloads.scaling._blocks import Layers
from layerdag.workloads.scaling._layers import Deepening
from layerdag.workloads.scaling._program import Program
from layerdag.workloads.scaling._roles import Job, Kind


def with_layers(
    job: Job, kinds: tuple[Kind, ...], count: int, now: int | None
) -> tuple[Job, dict[str, Any]]:
    """Return a job with ``count`` layers, and what was found; it has ``now``, if that is stated.

    Stages of a pipeline get equally many, the first ones one more where that does not divide.

    Raises:
        UsageError: If nothing repeats, or there are fewer layers than stages.
        TraceError: If an operator works on all layers, and the share of one is not known.
    """
    stages = _stages(job, kinds)
    each = None if now is None else now // (max(stages) + 1)
    found = [Layers.of(program, each) for program in job.programs]
    before = _of_stages([layers.blocks.count for layers in found], stages)
    if before != _shared(sum(before), len(before)):
        raise UsageError(
            f"{job.source}: blocks repeat {', '.join(map(str, before))} times in the stages of the "
            "pipeline, which are not all layers; say with --layers-now how many the trace has."
        )
    if count < len(before):
        raise UsageError(
            f"{job.source}: {count} layers do not fill {len(before)} pipeline stages; ask for more."
        )
    after = _shared(count, len(before))
    programs = []
    for number, (layers, stage) in enumerate(zip(found, stages, strict=True)):
        shift = sum(after[:stage]) - sum(before[:stage])
        members = _members(job, number, layers.program)
        programs.append(Deepening(layers, after[stage], members, shift).done())
    grown = Job(tuple(programs), job.groups, job.mesh, job.source)
    return grown, {
        "before": sum(before),
        "after": count,
        "blocks": [
            {"class": number, "nodes": run.period, "count": run.count, "backward": back}
            for number, layers in enumerate(found)
            for run, back in zip(layers.blocks.runs, layers.blocks.backward, strict=True)
        ],
    }


def _shared(count: int, stages: int) -> list[int]:
    """Return the layers of each stage, one more in the first ones where that does not divide."""
    each, more = divmod(count, stages)
    return [each + (stage < more) for stage in range(stages)]


def _stages(job: Job, kinds: tuple[Kind, ...]) -> list[int]:
    """Return the pipeline stage of each class."""
    if "pipeline" not in kinds:
        return [0] * len(job.programs)
    axis = kinds.index("pipeline")
    firsts = np.array([program.ranks[0] for program in job.programs])
    stages: list[int] = job.mesh.coordinates(firsts)[:, axis].tolist()
    return stages


def _of_stages(counts: list[int], stages: list[int]) -> list[int]:
    """Return the layers of each stage, from those of its first class."""
    return [counts[stages.index(stage)] for stage in range(max(stages) + 1)]


def _members(job: Job, number: int, program: Program) -> np.ndarray:
    """Return the ranks of the group of each collective, int64 (N,)."""
    sizes = [
        len(job.groups[group]) if role is not None else 1
        for group, role in zip(program.group_N, job.role_CN[number], strict=True)
    ]
    return np.array(sizes, dtype=np.int64)
