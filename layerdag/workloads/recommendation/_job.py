"""A job of a recommendation model: its traces, its figures."""

from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any, final

import numpy as np

from layerdag._runtime import did_you_mean
from layerdag.errors import ConfigError, UsageError
from layerdag.traces import Trace, Workload
from layerdag.workloads.ranks import RankTraces
from layerdag.workloads.recommendation._program import RankProgram
from layerdag.workloads.recommendation._shape import RECOMMENDERS, RecommenderShape
from layerdag.workloads.symbolic import Plan, RankMemory, Step, figures_of


@final
@dataclass(frozen=True)
class RecommenderJob:
    """One step of a recommendation model.

    Attributes:
        shape: The model.
        plan: Its ``data`` ranks share samples and tables; nothing else is split.
        step: What is done; ``batch`` counts samples.

    Raises:
        ConfigError: If the plan cannot split the model.
    """

    shape: RecommenderShape
    plan: Plan = field(default_factory=Plan)
    step: Step = field(default_factory=Step)

    def __post_init__(self) -> None:
        name, ranks = self.shape.name, self.plan.data
        if self.plan != Plan(data=ranks):
            raise ConfigError(
                f"{name}: a recommendation model is split over data ranks only, which share "
                "samples and tables; leave the rest of the plan out."
            )
        if self.step.phase not in ("training", "inference"):
            raise ConfigError(
                f"{name}: has no KV cache for {self.step.phase}; the phases are training and "
                "inference."
            )
        if ranks > len(self.shape.rows):
            raise ConfigError(
                f"{name}: {len(self.shape.rows)} tables, each whole on one rank, do not fill "
                f"{ranks} data ranks; use fewer."
            )
        if self.step.batch % (ranks * self.step.micro_batches):
            raise ConfigError(
                f"{name}: {self.step.batch} samples cannot be split evenly over "
                f"{ranks * self.step.micro_batches} data ranks x micro-batches; choose numbers "
                "that divide."
            )

    @cached_property
    def tables(self) -> tuple[tuple[int, ...], ...]:
        """Tables of each rank: the largest first, each to the rank with the fewest rows."""
        found: list[list[int]] = [[] for _ in range(self.plan.data)]
        rows = [0] * self.plan.data
        for table in sorted(range(len(self.shape.rows)), key=lambda t: -self.shape.rows[t]):
            rank = min(range(self.plan.data), key=lambda r: (rows[r], len(found[r]), r))
            found[rank].append(table)
            rows[rank] += self.shape.rows[table]
        return tuple(tuple(sorted(held)) for held in found)

    @cached_property
    def programs(self) -> tuple[Trace, ...]:
        """The program of each rank; groups by role."""
        ranks = self.plan.data
        return tuple(
            RankProgram(self.shape, self.step, ranks, held).written() for held in self.tables
        )

    def workload(self) -> Workload:
        """Return the traces of all ranks with their group."""
        every_R = np.arange(self.plan.data)
        groups = {"data": every_R[None]} if self.plan.data > 1 else {}
        traces = RankTraces(self.programs, every_R, groups, [])
        return Workload(traces, traces.groups, self.shape.name)

    def memory(self, rank: int) -> RankMemory:
        """Return the memory of a rank; the optimizer keeps one number for each row of a table."""
        shape, numbers, training = self.shape, self.step.numbers, self.step.training
        rows = sum(shape.rows[table] for table in self.tables[rank])
        dense = shape.dense_parameters
        layers = (*shape.bottom_layers, *shape.cross_matrices, *shape.top_layers)
        kept = sum(n for n, _ in layers) if training else max(n + m for n, m in layers)
        samples = self.step.batch // (self.plan.data * self.step.micro_batches)
        return RankMemory(
            weights=(rows * shape.width + dense) * numbers.weights,
            gathered=0,
            gradients=dense * numbers.gradients * training,
            optimizer=(dense * numbers.optimizer + rows * 4) * training,
            activations=samples * kept * numbers.weights,
            kv_cache=0,
        )

    def summary(self) -> dict[str, Any]:
        """Return the figures that ``layerdag workload --json`` prints; memory is by rank."""
        memory = [self.memory(rank) for rank in range(self.plan.data)]
        return {
            "model": self.shape.name,
            "parameters": self.shape.parameters,
            "active_parameters": self.shape.dense_parameters
            + sum(self.shape.look_ups) * self.shape.width,
            "plan": asdict(self.plan),
            "step": asdict(self.step),
            "ranks": self.plan.data,
            **figures_of(self.programs, 1),
            "samples": self.step.batch,
            "memory": [
                {"rank": rank, "total": held.total, **asdict(held)}
                for rank, held in enumerate(memory)
            ],
            "peak_memory": max(held.total for held in memory),
        }


def recommender_job(name: str | RecommenderShape, **settings: Any) -> RecommenderJob:
    """Return a step of a recommendation model, by name or shape, with fields of `Plan` and `Step`.

    Raises:
        UsageError: If there is no such model or setting, or numbers do not fit together.
    """
    plan, step = ({f.name for f in fields(kind)} for kind in (Plan, Step))
    known = sorted({"data"} | step - {"sequence", "tokens", "causal"})
    for key in settings:
        if key not in known and key not in plan:
            raise UsageError(
                f"a recommendation model has no setting '{key}'.{did_you_mean(key, known)} Known: "
                f"{', '.join(known)}."
            )
    if isinstance(name, str) and name not in RECOMMENDERS:
        raise UsageError(f"There is no recommendation model '{name}'. Known: dlrm-v2.")
    settings.setdefault("batch", settings.get("data", 1) * settings.get("micro_batches", 1))
    return RecommenderJob(
        RECOMMENDERS[name] if isinstance(name, str) else name,
        Plan(**{key: value for key, value in settings.items() if key in plan}),
        Step(**{key: value for key, value in settings.items() if key in step}),
    )
