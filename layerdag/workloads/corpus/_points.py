"""Points of a space: a model, a plan and a batch, drawn at random, each once."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from layerdag._runtime import numpy_generator
from layerdag.errors import ConfigError, UsageError
from layerdag.graph import Condition
from layerdag.workloads.corpus._space import CorpusSpace
from layerdag.workloads.symbolic import ModelShape, Plan, Step, SymbolicJob, model
from layerdag.workloads.symbolic.costs import rank_memory

_ATTEMPTS = 10_000
"""Draws in a row without a new point after which a space counts as exhausted."""


@final
@dataclass(frozen=True)
class CorpusPoint:
    """A model under a plan with a batch.

    Attributes:
        family: Word of its model.
        job: Model, plan and step.
    """

    family: str
    job: SymbolicJob

    @property
    def conditions(self) -> dict[str, Condition]:
        """What a user would ask for: degrees as words, sizes as numbers."""
        shape, plan, step = self.job.shape, self.job.plan, self.job.step
        return {
            "family": self.family,
            "tensor": str(plan.tensor),
            "pipeline": str(plan.pipeline),
            "data": str(plan.data),
            "micro_batches": str(step.micro_batches),
            "zero": str(plan.zero),
            "sequence_parallel": "yes" if plan.sequence_parallel else "no",
            "recompute": plan.recompute,
            "layers": float(shape.layers),
            "hidden": float(shape.hidden),
            "sequence": float(step.sequence),
            "micro_batch_size": step.batch / plan.data / step.micro_batches,
            "batch": float(step.batch),
        }


def draw_points(
    space: CorpusSpace, seed: int, stream: str = "points of a corpus"
) -> Iterator[CorpusPoint]:
    """Yield different points that are possible and fit into the memory of the space's machine.

    Args:
        space: What is drawn from.
        seed: The same seed and stream give the same points.
        stream: Name of the random generator.

    Raises:
        UsageError: If no further point is found.
        ConfigError: If a model of the space is unknown.
    """
    rng = numpy_generator(seed, stream)
    shapes = {family: model(name) for family, name in sorted(space.models.items())}
    seen: set[CorpusPoint] = set()
    failed = 0
    while failed < _ATTEMPTS:
        point = _possible(space, shapes, rng)
        if point is None or point in seen:
            failed += 1
            continue
        failed = 0
        seen.add(point)
        yield point
    raise UsageError(
        f"Only {len(seen)} different points were found that are possible and fit into "
        f"{space.machine.memory_gib:g} GiB; ask for fewer, or widen the space."
    )


def _possible(
    space: CorpusSpace, shapes: dict[str, ModelShape], rng: np.random.Generator
) -> CorpusPoint | None:
    """Draw a point; None where no job can be like that."""

    def one(name: str) -> int:
        values = getattr(space, name)
        return int(values[rng.integers(len(values))])

    family = list(shapes)[rng.integers(len(shapes))]
    layers, hidden, sequence, size = map(one, ("layers", "hidden", "sequence", "micro_batch_size"))
    tensor, pipeline, rounds, ranks = map(one, ("tensor", "pipeline", "rounds", "world_size"))
    zero, split = one("zero"), bool(one("sequence_parallel"))
    recompute = space.recompute[rng.integers(len(space.recompute))]
    data, rest = divmod(ranks, tensor * pipeline)
    if rest or data < 1 or layers % pipeline:
        return None
    micro_batches = pipeline * rounds
    if pipeline * micro_batches > space.most_passes:
        return None
    try:
        job = SymbolicJob(
            scaled(shapes[family], layers, hidden, sequence),
            Plan(
                data=data, tensor=tensor, pipeline=pipeline, zero=zero if data > 1 else 0,
                sequence_parallel=split and tensor > 1, recompute=recompute,
            ),
            Step(batch=size * data * micro_batches, sequence=sequence, micro_batches=micro_batches),
        )  # fmt: skip
    except ConfigError:
        return None
    used = max(rank_memory(job.costs, stage).total for stage in range(pipeline))
    return CorpusPoint(family, job) if used <= space.machine.memory_gib * 2**30 else None


def scaled(shape: ModelShape, layers: int, hidden: int, sequence: int) -> ModelShape:
    """Return a model of the same proportions with other numbers of layers and width.

    Raises:
        ConfigError: If heads would be in parts, or sequences longer than its positions.
    """
    head = shape.head_size or shape.hidden // shape.heads
    heads, rest = divmod(hidden, head)
    keys, part = divmod((shape.kv_heads or shape.heads) * heads, shape.heads)
    if rest or part or not heads or not keys:
        raise ConfigError(f"{shape.name}: a width of {hidden} has no whole number of heads.")
    if 0 < shape.positions < sequence:
        raise ConfigError(f"{shape.name}: has {shape.positions} positions, not {sequence}.")
    return replace(
        shape, layers=layers, hidden=hidden, heads=heads, kv_heads=keys if shape.kv_heads else 0,
        feed_forward=round(shape.feed_forward * hidden / shape.hidden),
    )  # fmt: skip
