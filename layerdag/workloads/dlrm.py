"""One step of a recommendation model (DLRM).

Tables are sharded by table (Naumov et al. 2019): a rank looks up the rows of its tables for the
samples of all ranks; an all-to-all brings each rank the rows of its own samples, another their
gradients back. Dense gradients are summed by an all-reduce.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, final

import numpy as np

from layerdag.codec.placement import RankTraces
from layerdag.errors import ConfigError, UsageError
from layerdag.hardware.collectives import CollectiveType
from layerdag.plan import FORMULAS, Plan, Step, StepSettings
from layerdag.runtime.notes import Note
from layerdag.runtime.settings import did_you_mean
from layerdag.traces.trace import Trace, Workload
from layerdag.workloads.transformer.costs import ADAM, ELEMENTWISE, RankMemory
from layerdag.workloads.transformer.fit import MAX_LAYER_RUNS
from layerdag.workloads.transformer.job import job_figures
from layerdag.workloads.transformer.layers import Nodes, TraceBuilder


@dataclass(frozen=True)
class RecommenderShape:
    """A recommendation model: embedding tables, two dense networks, low-rank cross layers.

    Attributes:
        rows: Rows of each embedding table.
        look_ups: Rows of each table that a sample looks up and sums.
        width: Numbers of a row.
        bottom: Widths of the network over dense features; the last is ``width``.
        top: Widths of the network over the crossed features; the last is 1.
        cross_layers: Cross layers (Wang et al. 2021), each of two matrices and a bias.
        rank: Inner width of a cross layer.

    Raises:
        ConfigError: If numbers are not possible or do not fit together.
    """

    name: str
    rows: tuple[int, ...]
    look_ups: tuple[int, ...]
    width: int
    dense_inputs: int
    bottom: tuple[int, ...]
    top: tuple[int, ...]
    cross_layers: int
    rank: int

    def __post_init__(self) -> None:
        numbers = (*self.rows, *self.look_ups, self.width, self.dense_inputs, *self.bottom,
            *self.top, self.cross_layers, self.rank)  # fmt: skip
        if any(type(number) is not int or number < 1 for number in numbers):
            raise ConfigError(f"model {self.name}: all numbers must be whole and at least 1.")
        if not self.rows or len(self.rows) != len(self.look_ups):
            raise ConfigError(
                f"model {self.name}: {len(self.look_ups)} numbers of look-ups for "
                f"{len(self.rows)} tables; give one for each table."
            )
        if not self.bottom or self.bottom[-1] != self.width:
            raise ConfigError(
                f"model {self.name}: the bottom network ends with width "
                f"{self.bottom[-1] if self.bottom else 0}, rows have {self.width}; give the same."
            )
        if self.top[-1:] != (1,):
            raise ConfigError(
                f"model {self.name}: the top network ends with width "
                f"{self.top[-1] if self.top else 0}, a prediction has 1; end it with 1."
            )

    @property
    def crossed(self) -> int:
        """Numbers of a sample that the cross layers mix."""
        return (len(self.rows) + 1) * self.width

    @property
    def bottom_layers(self) -> tuple[tuple[int, int], ...]:
        """Inputs and outputs of the linear layers over dense features."""
        return tuple(pairwise((self.dense_inputs, *self.bottom)))

    @property
    def cross_matrices(self) -> tuple[tuple[int, int], ...]:
        """Inputs and outputs of the matrices of all cross layers."""
        return ((self.crossed, self.rank), (self.rank, self.crossed)) * self.cross_layers

    @property
    def top_layers(self) -> tuple[tuple[int, int], ...]:
        """Inputs and outputs of the linear layers behind the cross layers."""
        return tuple(pairwise((self.crossed, *self.top)))

    @property
    def table_parameters(self) -> int:
        """Parameters of all tables."""
        return sum(self.rows) * self.width

    @property
    def dense_parameters(self) -> int:
        """Parameters of all that is on every rank."""
        networks = sum((n + 1) * m for n, m in (*self.bottom_layers, *self.top_layers))
        crosses = sum(n * m for n, m in self.cross_matrices)
        return networks + crosses + self.cross_layers * self.crossed

    @property
    def parameters(self) -> int:
        """Parameters of the model."""
        return self.table_parameters + self.dense_parameters


RECOMMENDERS = {
    shape.name: shape
    for shape in (
        # MLPerf's recommendation benchmark on multi-hot Criteo; flags of its reference (TorchRec).
        RecommenderShape(
            "dlrm-v2",
            rows=(40000000, 39060, 17295, 7424, 20265, 3, 7122, 1543, 63, 40000000, 3067956,
                  405282, 10, 2209, 11938, 155, 4, 976, 14, 40000000, 40000000, 40000000, 590152,
                  12973, 108, 36),
            look_ups=(3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3,
                      1, 1),
            width=128, dense_inputs=13, bottom=(512, 256, 128), top=(1024, 1024, 512, 256, 1),
            cross_layers=3, rank=512,
        ),
    )
}  # fmt: skip
"""Shapes by name."""


_INDEX_BYTES = 8


@final
class RankTraceBuilder:
    """Writes the trace of one of the ranks that share the samples, with tables of its own."""

    def __init__(
        self, shape: RecommenderShape, step: Step, ranks: int, tables: Sequence[int]
    ) -> None:
        self._shape, self._step, self._ranks = shape, step, ranks
        self._samples = step.batch // (ranks * step.micro_batches)
        self._number = step.numbers.weights
        self._looked_up = sum(shape.look_ups[table] for table in tables)
        self._tables = len(tables)
        self._builder = TraceBuilder(step.numbers.dtype, shape.name)

    def written(self) -> Trace:
        """Return the trace."""
        ready: Nodes = ()
        for part in range(self._step.micro_batches):
            self._builder.begin_task()
            result = self._forward(f"F{part}")
            if self._step.training:
                ready = self._backward(f"B{part}", result)
        if self._step.training:
            size = self._shape.dense_parameters * self._step.numbers.gradients
            ready = self._collective("gradients", CollectiveType.ALL_REDUCE, size, ready)
            moved = self._step.numbers.gradients + 2 * self._step.numbers.optimizer
            count = self._shape.dense_parameters
            cost = (ADAM * count, (moved + self._step.numbers.weights) * count)
            self._builder.compute("adam", cost, ready)
        return self._builder.trace()

    def _forward(self, where: str) -> Nodes:
        shape, exchange = self._shape, CollectiveType.ALL_TO_ALL
        size = self._samples * sum(shape.look_ups) * _INDEX_BYTES
        rows = self._collective(f"indices.{where}", exchange, size, ())
        if self._tables:
            rows = self._builder.compute(f"look_up.{where}", self._look_up(), rows)
        rows = self._collective(f"rows.{where}", exchange, self._rows, rows)
        dense = self._chain("bottom", where, shape.bottom_layers, ())
        both = tuple(dict.fromkeys((*dense, *rows)))
        h = self._chain("cross", where, shape.cross_matrices, both)
        return self._chain("top", where, shape.top_layers, h)

    def _backward(self, where: str, result: Nodes) -> Nodes:
        shape = self._shape
        dy = self._builder.compute(f"loss.{where}", self._elementwise(1), result)
        dy, top = self._chain_back("top", where, shape.top_layers, dy)
        dy, cross = self._chain_back("cross", where, shape.cross_matrices, dy)
        rows = self._collective(f"rows.{where}", CollectiveType.ALL_TO_ALL, self._rows, dy)
        _, bottom = self._chain_back("bottom", where, shape.bottom_layers, dy)
        if self._tables:
            operations, moved = self._look_up()
            self._builder.compute(f"update_rows.{where}", (2 * operations, 2 * moved), rows)
        return (*top, *cross, *bottom)

    # ---- dense layers ----

    def _chain(self, name: str, where: str, layers: Sequence[tuple[int, int]], h: Nodes) -> Nodes:
        for number, layer in enumerate(layers):
            h = self._builder.compute(f"mm.{name}{number}.{where}", self._product(layer), h)
            h = self._builder.compute(f"act.{name}{number}.{where}", self._elementwise(layer[1]), h)
        return h

    def _chain_back(
        self, name: str, where: str, layers: Sequence[tuple[int, int]], dy: Nodes
    ) -> tuple[Nodes, Nodes]:
        made: list[int] = []
        for number, layer in reversed(list(enumerate(layers))):
            dy = self._builder.compute(
                f"act.{name}{number}.{where}", self._elementwise(layer[1]), dy
            )
            made += self._builder.compute(f"mm.{name}{number}.{where}.dw", self._product(layer), dy)
            if name != "bottom" or number:  # nobody needs the gradient of the features
                dx = self._product(layer)
                dy = self._builder.compute(f"mm.{name}{number}.{where}.dx", dx, dy)
        return dy, tuple(made)

    # ---- costs ----

    @property
    def _rows(self) -> int:
        return self._samples * len(self._shape.rows) * self._shape.width * self._number

    def _look_up(self) -> tuple[int, int]:
        """One addition for each number; rows read, sums written, of the samples of all ranks."""
        count = self._samples * self._ranks * self._shape.width
        moved = count * (self._looked_up + self._tables) * self._number
        return count * self._looked_up, moved

    def _product(self, layer: tuple[int, int]) -> tuple[int, int]:
        inputs, outputs = layer
        moved = self._samples * (inputs + outputs) + inputs * outputs
        return 2 * self._samples * inputs * outputs, moved * self._number

    def _elementwise(self, width: int) -> tuple[int, int]:
        count = self._samples * width
        return ELEMENTWISE * count, 2 * count * self._number

    def _collective(self, name: str, kind: CollectiveType, size: int, after: Nodes) -> Nodes:
        if self._ranks == 1:
            return after
        return self._builder.collective(name, kind, "data", size, after)


@final
@dataclass(frozen=True)
class RecommenderJob:
    """One step of a recommendation model on a batch of samples.

    The ``data`` ranks share samples and tables; nothing else is split.

    Raises:
        ConfigError: If the plan cannot split the model.
    """

    shape: RecommenderShape
    plan: Plan = field(default_factory=Plan)
    step: Step = field(default_factory=Step)

    def __post_init__(self) -> None:
        FORMULAS.check(StepSettings(self.plan, self.step))
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
        if self.step.micro_batches > MAX_LAYER_RUNS:
            raise ConfigError(
                f"{name}: {self.step.micro_batches:,} micro-batches are more than the "
                f"{MAX_LAYER_RUNS:,} that are taken; choose fewer."
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
    def traces(self) -> tuple[Trace, ...]:
        """The trace of each rank; groups by role."""
        ranks = self.plan.data
        return tuple(
            RankTraceBuilder(self.shape, self.step, ranks, held).written() for held in self.tables
        )

    def workload(self) -> Workload:
        """Return the traces of all ranks with their group."""
        every_R = np.arange(self.plan.data)
        groups = {"data": every_R[None]} if self.plan.data > 1 else {}
        traces = RankTraces(self.traces, every_R, groups, [])
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

    notes: ClassVar[tuple[Note, ...]] = ()

    def summary(self) -> dict[str, Any]:
        """Return the figures that ``layerdag workload --json`` prints; memory is by rank."""
        memory = [self.memory(rank) for rank in range(self.plan.data)]
        return {
            "model": self.shape.name,
            "parameters": self.shape.parameters,
            "active_parameters": self.shape.dense_parameters
            + sum(self.shape.look_ups) * self.shape.width,
            **FORMULAS.facts(StepSettings(self.plan, self.step)),
            "ranks": self.plan.data,
            **job_figures(self.traces, 1),
            "samples": self.step.batch,
            "memory": [held.row(rank=rank) for rank, held in enumerate(memory)],
            "peak_memory": max(held.total for held in memory),
        }


def recommender_job(name: str | RecommenderShape, **settings: Any) -> RecommenderJob:
    """Return a step of a recommendation model, by name or shape, with fields of `Plan` and `Step`.

    Raises:
        UsageError: If there is no such model or setting, or numbers do not fit together.
    """
    known = sorted({"data", *FORMULAS.step} - {"sequence", "tokens", "causal"})
    for key in settings:
        if key not in known and key not in FORMULAS.plan:
            raise UsageError(
                f"a recommendation model has no setting '{key}'.{did_you_mean(key, known)} Known: "
                f"{', '.join(known)}."
            )
    if isinstance(name, str) and name not in RECOMMENDERS:
        raise UsageError(f"There is no recommendation model '{name}'. Known: dlrm-v2.")
    found = FORMULAS.read(settings)
    step = found.step
    if "batch" not in settings:
        step = replace(step, batch=found.plan.data * step.micro_batches)
    shape = RECOMMENDERS[name] if isinstance(name, str) else name
    return RecommenderJob(shape, found.plan, step)
