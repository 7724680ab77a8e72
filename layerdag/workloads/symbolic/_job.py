"""A job: model, plan and step; its traces, its figures."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np

from layerdag._runtime import did_you_mean
from layerdag.errors import UsageError
from layerdag.traces import CollectiveType, NodeType, Trace, Workload
from layerdag.workloads.symbolic.costs import Costs, rank_memory
from layerdag.workloads.symbolic.passes import stage_trace
from layerdag.workloads.symbolic.plans import Plan, Step, check_fit, stage_traces
from layerdag.workloads.symbolic.shapes import ModelShape, model


@final
@dataclass(frozen=True)
class SymbolicJob:
    """One step of a model under a plan.

    Attributes:
        shape: The model.
        plan: How it is split over ranks.
        step: What is done.

    Raises:
        ConfigError: If the plan cannot split the model; names the numbers.
    """

    shape: ModelShape
    plan: Plan = field(default_factory=Plan)
    step: Step = field(default_factory=Step)

    def __post_init__(self) -> None:
        check_fit(self.shape, self.plan, self.step)

    @cached_property
    def costs(self) -> Costs:
        """Costs of a rank."""
        return Costs(self.shape, self.plan, self.step)

    @cached_property
    def stages(self) -> tuple[Trace, ...]:
        """The program of each pipeline stage; groups and peers are roles, see ``Tape``."""
        return tuple(stage_trace(self.costs, stage) for stage in range(self.plan.pipeline))

    def workload(self) -> Workload:
        """Return the traces of all ranks with their groups; each is made when it is asked for."""
        traces = stage_traces(self.plan, self.stages)
        return Workload(traces, traces.groups, self.shape.name)

    def summary(self) -> dict[str, Any]:
        """Return the figures that ``layerdag workload --json`` prints.

        Operations and bytes are those of all ranks in one step, bytes of communication the
        ``comm_size`` of every node.
        """
        ranks = self.plan.ranks // self.plan.pipeline
        memory = [rank_memory(self.costs, stage) for stage in range(self.plan.pipeline)]
        return {
            "model": self.shape.name,
            "parameters": self.shape.parameters,
            "active_parameters": self.shape.active_parameters,
            "plan": asdict(self.plan),
            "step": asdict(self.step),
            "ranks": self.plan.ranks,
            **figures_of(self.stages, ranks),
            "tokens": self.tokens,
            "memory": [
                {"stage": stage, "total": held.total, **asdict(held)}
                for stage, held in enumerate(memory)
            ],
            "peak_memory": max(held.total for held in memory),
        }

    @property
    def tokens(self) -> int:
        """Tokens of all sequences of the step."""
        step = self.step
        return step.batch * (step.tokens if step.phase == "decode" else step.sequence)


def figures_of(programs: tuple[Trace, ...], ranks: int | Sequence[int]) -> dict[str, Any]:
    """Return nodes, operations, bytes and communication of programs.

    Args:
        programs: The programs.
        ranks: How many ranks run each of them; one number for all, or one for each.
    """
    counts = [ranks] * len(programs) if isinstance(ranks, int) else list(ranks)
    found = [(_StageFigures.of(trace), n) for trace, n in zip(programs, counts, strict=True)]
    return {
        "nodes": sum(n * figures.nodes for figures, n in found),
        "flops": sum(n * figures.flops for figures, n in found),
        "matrix_flops": sum(n * figures.matrix_flops for figures, n in found),
        "bytes": sum(n * figures.moved for figures, n in found),
        "communication": _added([(figures.communication, n) for figures, n in found]),
    }


@dataclass(frozen=True)
class _StageFigures:
    """What one rank of a stage does."""

    nodes: int
    flops: int
    matrix_flops: int
    moved: int
    communication: dict[str, tuple[int, int]]

    @classmethod
    def of(cls, trace: Trace) -> "_StageFigures":
        num_ops, _ = trace.integers("num_ops")
        size, _ = trace.integers("comm_size")
        matrix_N = _of_matrices(trace)
        kind_N, coll_N = trace.integers("comm_type")
        role_N, _ = trace.texts("pg_name")
        found: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        for row in np.flatnonzero(trace.type_N >= NodeType.COMM_SEND).tolist():
            if coll_N[row]:
                name = f"{CollectiveType(kind_N[row]).name.lower()}:{role_N[row]}"
            else:
                name = NodeType(trace.type_N[row]).name.removeprefix("COMM_").lower()
            count, moved = found[name]
            found[name] = (count + 1, moved + int(size[row]))
        moved_N, _ = trace.integers("tensor_size")
        operations, of_matrices = _exact_sum(num_ops), _exact_sum(num_ops[matrix_N])
        return cls(trace.num_nodes, operations, of_matrices, _exact_sum(moved_N), dict(found))


def _exact_sum(count_N: np.ndarray) -> int:
    """Return a sum that may be larger than 64 bits hold: a trillion parameters reach that."""
    return sum(count_N.tolist())


def _of_matrices(trace: Trace) -> np.ndarray:
    """Return which nodes are matrix products, bool (N,)."""
    of_text = np.array([text.startswith(("mm.", "attention.")) for text in trace.strings])
    return of_text[trace.name_N]


def _added(parts: list[tuple[dict[str, tuple[int, int]], int]]) -> dict[str, dict[str, int]]:
    """Return count and bytes of each kind of communication of all ranks."""
    total: dict[str, dict[str, int]] = {}
    for part, ranks in parts:
        for name, (count, moved) in sorted(part.items()):
            held = total.setdefault(name, {"count": 0, "bytes": 0})
            held["count"] += ranks * count
            held["bytes"] += ranks * moved
    return total


def job(name: str | Path | ModelShape, **settings: Any) -> SymbolicJob:
    """Return a step as ``workload`` does, with its figures."""
    plan, step = ({f.name for f in fields(kind)} for kind in (Plan, Step))
    if settings.get("phase") == "disaggregated":
        raise UsageError(
            "A disaggregated step has two plans; layerdag.workload makes it and "
            "layerdag.workloads.symbolic.disaggregated_job, other functions do not."
        )
    sided = [key for key in settings if key.startswith(("prefill_", "decode_"))]
    if sided:
        raise UsageError(
            f"{sided[0]} is for steps with ranks of their own for prefill and decode; give "
            "phase disaggregated, too, or leave it out."
        )
    strange = [key for key in settings if key not in plan | step]
    if strange:
        raise UsageError(
            f"workload() has no setting '{strange[0]}'."
            f"{did_you_mean(strange[0], sorted(plan | step))} Known: "
            f"{', '.join(sorted(plan | step))}."
        )
    shape = name if isinstance(name, ModelShape) else model(name)
    if "batch" not in settings:
        settings["batch"] = settings.get("data", 1) * settings.get("micro_batches", 1)
    if shape.image:
        settings.setdefault("sequence", shape.image.tokens)
    return SymbolicJob(
        shape,
        Plan(**{key: value for key, value in settings.items() if key in plan}),
        Step(**{key: value for key, value in settings.items() if key in step}),
    )
