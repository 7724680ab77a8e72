"""The program of one rank of a recommendation model: tables of its own, dense layers of all.

Tables are sharded by table (Naumov et al. 2019): a rank looks up the rows of its tables for the
samples of all ranks; an all-to-all brings each rank the rows of its own samples, another their
gradients back. Dense gradients are summed by an all-reduce.
"""

from collections.abc import Sequence
from typing import final

from layerdag.traces import CollectiveType, Trace
from layerdag.workloads.recommendation._shape import RecommenderShape
from layerdag.workloads.symbolic import ADAM, ELEMENTWISE, Nodes, Step, Tape

_INDEX_BYTES = 8


@final
class RankProgram:
    """Writes the program of one rank.

    Args:
        shape: The model.
        step: What is done.
        ranks: Ranks that share the samples.
        tables: Tables that lie on this rank.
    """

    def __init__(
        self, shape: RecommenderShape, step: Step, ranks: int, tables: Sequence[int]
    ) -> None:
        self._shape, self._step, self._ranks = shape, step, ranks
        self._samples = step.batch // (ranks * step.micro_batches)
        self._looked_up = sum(shape.look_ups[table] for table in tables)
        self._tables = len(tables)
        self._tape = Tape(step.numbers.dtype, shape.name)

    def written(self) -> Trace:
        """Return the program."""
        ready: Nodes = ()
        for part in range(self._step.micro_batches):
            self._tape.begin_task()
            result = self._forward(f"F{part}")
            if self._step.training:
                ready = self._backward(f"B{part}", result)
        if self._step.training:
            size = self._shape.dense_parameters * self._step.numbers.gradients
            ready = self._collective("gradients", CollectiveType.ALL_REDUCE, size, ready)
            moved = self._step.numbers.gradients + 2 * self._step.numbers.optimizer
            count = self._shape.dense_parameters
            cost = (ADAM * count, (moved + self._step.numbers.weights) * count)
            self._tape.compute("adam", cost, ready)
        return self._tape.trace()

    def _forward(self, where: str) -> Nodes:
        shape, exchange = self._shape, CollectiveType.ALL_TO_ALL
        size = self._samples * sum(shape.look_ups) * _INDEX_BYTES
        rows = self._collective(f"indices.{where}", exchange, size, ())
        if self._tables:
            rows = self._tape.compute(f"look_up.{where}", self._look_up(), rows)
        rows = self._collective(f"rows.{where}", exchange, self._rows, rows)
        dense = self._chain("bottom", where, shape.bottom_layers, ())
        both = tuple(dict.fromkeys((*dense, *rows)))
        h = self._chain("cross", where, shape.cross_matrices, both)
        return self._chain("top", where, shape.top_layers, h)

    def _backward(self, where: str, result: Nodes) -> Nodes:
        shape = self._shape
        dy = self._tape.compute(f"loss.{where}", self._elementwise(1), result)
        dy, top = self._chain_back("top", where, shape.top_layers, dy)
        dy, cross = self._chain_back("cross", where, shape.cross_matrices, dy)
        rows = self._collective(f"rows.{where}", CollectiveType.ALL_TO_ALL, self._rows, dy)
        _, bottom = self._chain_back("bottom", where, shape.bottom_layers, dy)
        if self._tables:
            operations, moved = self._look_up()
            self._tape.compute(f"update_rows.{where}", (2 * operations, 2 * moved), rows)
        return (*top, *cross, *bottom)

    # ---- dense layers ----

    def _chain(self, name: str, where: str, layers: Sequence[tuple[int, int]], h: Nodes) -> Nodes:
        for number, layer in enumerate(layers):
            h = self._tape.compute(f"mm.{name}{number}.{where}", self._product(layer), h)
            h = self._tape.compute(f"act.{name}{number}.{where}", self._elementwise(layer[1]), h)
        return h

    def _chain_back(
        self, name: str, where: str, layers: Sequence[tuple[int, int]], dy: Nodes
    ) -> tuple[Nodes, Nodes]:
        """Return what makes the gradient of the input, and those of all weights."""
        made: list[int] = []
        for number, layer in reversed(list(enumerate(layers))):
            dy = self._tape.compute(f"act.{name}{number}.{where}", self._elementwise(layer[1]), dy)
            made += self._tape.compute(f"mm.{name}{number}.{where}.dw", self._product(layer), dy)
            if name != "bottom" or number:  # nobody needs the gradient of the features
                dx = self._product(layer)
                dy = self._tape.compute(f"mm.{name}{number}.{where}.dx", dx, dy)
        return dy, tuple(made)

    # ---- costs ----

    @property
    def _rows(self) -> int:
        """Bytes of the summed rows of this rank's samples, of all tables."""
        return self._samples * len(self._shape.rows) * self._shape.width * self._number

    @property
    def _number(self) -> int:
        return self._step.numbers.weights

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
        return self._tape.collective(name, kind, "data", size, after)
