"""The job of a plan on all its ranks, and disaggregated serving."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np

from layerdag.errors import UsageError
from layerdag.hardware.collectives import CollectiveType
from layerdag.hardware.operators import MATRIX
from layerdag.plan import FORMULAS, Plan, Step, StepSettings
from layerdag.runtime.notes import Note
from layerdag.traces.operator_kinds import of_kinds
from layerdag.traces.trace import NodeType, Trace, Workload
from layerdag.workloads.transformer.costs import Costs, rank_memory
from layerdag.workloads.transformer.fit import check_fit
from layerdag.workloads.transformer.hugging_face import model
from layerdag.workloads.transformer.mesh import stage_traces
from layerdag.workloads.transformer.pipeline_stage import stage_trace
from layerdag.workloads.transformer.shapes import ModelShape


@final
@dataclass(frozen=True)
class SymbolicJob:
    """One step of a model under a plan.

    Raises:
        ConfigError: If the plan cannot split the model; names the numbers.
    """

    shape: ModelShape
    plan: Plan = field(default_factory=Plan)
    step: Step = field(default_factory=Step)

    def __post_init__(self) -> None:
        FORMULAS.check(StepSettings(self.plan, self.step))
        check_fit(self.shape, self.plan, self.step)

    @property
    def notes(self) -> tuple[Note, ...]:
        """Parts of the model that were not understood, and requests beyond its positions."""
        made = self.step.tokens if self.step.phase == "decode" else 0
        return (*self.shape.notes, *self.shape.beyond_positions(self.step.sequence + made))

    @cached_property
    def costs(self) -> Costs:
        """Costs of a rank."""
        return Costs(self.shape, self.plan, self.step)

    @cached_property
    def stages(self) -> tuple[Trace, ...]:
        """The trace of each pipeline stage; groups and peers are roles, see ``TraceBuilder``."""
        return tuple(stage_trace(self.costs, stage) for stage in range(self.plan.pipeline))

    def workload(self) -> Workload:
        """Return the traces of all ranks with their groups; each is made when it is asked for."""
        traces = stage_traces(self.plan, self.stages)
        return Workload(traces, traces.groups, self.shape.name, self.notes)

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
            **FORMULAS.facts(StepSettings(self.plan, self.step)),
            "ranks": self.plan.ranks,
            **job_figures(self.stages, ranks),
            "tokens": self.tokens,
            "memory": [held.row(stage=stage) for stage, held in enumerate(memory)],
            "peak_memory": max(held.total for held in memory),
        }

    @property
    def tokens(self) -> int:
        """Tokens of all sequences of the step."""
        step = self.step
        return step.batch * (step.tokens if step.phase == "decode" else step.sequence)


def job_figures(traces: tuple[Trace, ...], ranks: int | Sequence[int]) -> dict[str, Any]:
    """Return nodes, operations, bytes and communication of a job.

    So many ``ranks`` have each of the distinct traces: one number for all, or one for each.
    """
    counts = [ranks] * len(traces) if isinstance(ranks, int) else list(ranks)
    figures = dict.fromkeys(("nodes", "flops", "matrix_flops", "bytes"), 0)
    messages: dict[str, dict[str, int]] = {}
    for trace, count in zip(traces, counts, strict=True):
        operations_N, _ = trace.integers("num_ops")
        figures["nodes"] += count * trace.num_nodes
        figures["flops"] += count * _exact_sum(operations_N)
        figures["matrix_flops"] += count * _exact_sum(operations_N[of_kinds(trace, MATRIX)])
        figures["bytes"] += count * _exact_sum(trace.integers("tensor_size")[0])
        for name, sizes in sorted(_message_sizes(trace).items()):
            held = messages.setdefault(name, {"count": 0, "bytes": 0})
            held["count"] += count * len(sizes)
            held["bytes"] += count * sum(sizes)
    return {**figures, "communication": messages}


def _exact_sum(count_N: np.ndarray) -> int:
    """Return a sum that may be larger than 64 bits hold: a trillion parameters reach that."""
    return sum(count_N.tolist())


def _message_sizes(trace: Trace) -> dict[str, list[int]]:
    """Return the bytes of the collectives of each kind and group, of all sends and receives."""
    size_N, _ = trace.integers("comm_size")
    kind_N, collective_N = trace.integers("comm_type")
    role_N, _ = trace.texts("pg_name")
    found: dict[str, list[int]] = defaultdict(list)
    for row in np.flatnonzero(trace.type_N >= NodeType.COMM_SEND).tolist():
        if collective_N[row]:
            name = f"{CollectiveType(kind_N[row]).name.lower()}:{role_N[row]}"
        else:
            name = NodeType(trace.type_N[row]).name.removeprefix("COMM_").lower()
        found[name].append(int(size_N[row]))
    return found


def transformer_job(name: str | Path | ModelShape, **settings: Any) -> SymbolicJob:
    """Return a step as ``workload`` does, with its figures."""
    if settings.get("phase") == "disaggregated":
        raise UsageError(
            "A disaggregated step has two plans; layerdag.workload makes it and "
            "layerdag.workloads.transformer.job.disaggregated_job, other functions do not."
        )
    sided = [key for key in settings if key.startswith(("prefill_", "decode_"))]
    if sided:
        raise UsageError(
            f"{sided[0]} is for steps with ranks of their own for prefill and decode; give "
            "phase disaggregated, too, or leave it out."
        )
    shape = name if isinstance(name, ModelShape) else model(name)
    if shape.image:
        settings.setdefault("sequence", shape.image.tokens)
    elif shape.positions:
        made = settings.get("tokens", 1) if settings.get("phase") == "decode" else 0
        if type(made) is int:
            settings.setdefault("sequence", max(min(Step.sequence, shape.positions - made), 1))
    found = FORMULAS.read(settings)
    step = found.step
    if "batch" not in settings:
        step = replace(step, batch=found.plan.data * step.micro_batches)
    return SymbolicJob(shape, found.plan, step)
