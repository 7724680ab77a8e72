"""Tensor parallelism on another number of ranks (Megatron-LM's split by columns, then by rows).

Between a product that is split by columns and the next one that is split by rows, all tensors are
shards; outside they are whole, and all-reduces of whole activations keep their size. So a product
at such a border has one operand that stays, and it is as large as the all-reduce: what else it
reads, writes and computes divides by the degree. Operators between divide wholly, but for what
they read beside shards, such as a mask.

Borders are found backwards from the all-reduces. Gradients of split weights and what updates them
follow forwards along data dependencies; an optimizer that updates all weights in one operator
follows their sum, for which the width of the model is solved from operations and bytes of a
product with a bias.
"""

from collections.abc import Iterable
from functools import cached_property
from math import isqrt
from typing import final

import numpy as np

from layerdag.errors import TraceError
from layerdag.traces.operator_kinds import OPTIMIZERS, OperatorKind, lists_of
from layerdag.traces.trace import CollectiveType
from layerdag.workloads.scaling.program import EditableProgram
from layerdag.workloads.scaling.sharded import Numbers, ShardCountChange, factors

_WITH_BIAS = ("aten::addmm", "aten::linear")
_OF_ACTIVATIONS = ("aten::bmm", "aten::baddbmm")
"""Products of activations: heads are split, so that no operand is whole. So is attention."""
_REDUCTIONS = ("aten::sum",)


@final
class TensorSplit:
    """A program on another tensor degree.

    Args:
        program: What runs.
        rows_N: Collectives of the tensor groups, bool (N,).
        change: Of the degree.
    """

    def __init__(
        self, program: EditableProgram, rows_N: np.ndarray, change: ShardCountChange
    ) -> None:
        self.program, self.change = program, change
        source_E, target_E = program.data_edges_2E
        self._parents: list[list[int]] = [[] for _ in range(program.num_nodes)]
        self._children: list[list[int]] = [[] for _ in range(program.num_nodes)]
        for source, target in zip(source_E.tolist(), target_E.tolist(), strict=True):
            self._parents[target].append(source)
            self._children[source].append(target)
        self._whole: dict[int, int] = {}  # bytes of the operand that stays, of products at borders
        self._opens: set[int] = set()
        self._closes: set[int] = set()
        self._split: set[int] = set()
        self._partial: set[int] = set()
        for row in np.flatnonzero(rows_N).tolist():
            self._walk_back(row)
        self._activations = {self._whole[row] for row in self._whole}
        self._walk_on()

    # ---- which operators work on shards ----

    def _walk_back(self, row: int) -> None:
        size = int(self.program.comm_N[row])
        if self.program.collective_N[row] != CollectiveType.ALL_REDUCE:
            raise TraceError(self._refusal(row))
        between, closing = self._first_products(self._parents[row])
        closing = {found for found in closing if self._has_operand(found, size)}
        if not closing:
            raise TraceError(self._refusal(row))
        self._partial |= between
        self._closes |= closing
        self._whole |= dict.fromkeys(closing, size)
        self._enter((parent for found in closing for parent in self._parents[found]), size)

    def _refusal(self, row: int) -> str:
        trace = self.program.trace
        return (
            f"{trace.source}: node {trace.id_N[row]} ({self.program.names[row]}) is no sum of what "
            "a product split by rows leaves, so that the operators around it on another tensor "
            f"degree are not determined; leave that degree at {self.change.old}."
        )

    def _first_products(self, starts: Iterable[int]) -> tuple[set[int], set[int]]:
        between: set[int] = set()
        products: set[int] = set()
        todo = list(starts)
        while todo:
            row = todo.pop()
            if row in between or row in products or not self.program.computes_N[row]:
                continue
            if self.program.matrix_N[row]:
                products.add(row)
            else:
                between.add(row)
                todo += self._parents[row]
        return between, products

    def _enter(self, starts: Iterable[int], size: int) -> None:
        todo, seen = list(starts), set[int]()
        while todo:
            row = todo.pop()
            if row in seen or not self.program.computes_N[row]:
                continue
            seen.add(row)
            if self.program.matrix_N[row]:
                whole = next(
                    (s for s in {size, *self._whole.values()} if self._has_operand(row, s)), 0
                )
                if whole:
                    self._opens.add(row)
                    self._whole[row] = whole
                    continue
            todo += self._parents[row]
        reached = self._reached_from(seen & self._opens)
        self._split |= (seen - self._opens) & reached

    def _reached_from(self, rows: set[int]) -> set[int]:
        flags_N = np.zeros(self.program.num_nodes, dtype=bool)
        flags_N[list(rows)] = True
        return set(np.flatnonzero(self.program.descendants(flags_N)).tolist())

    def _walk_on(self) -> None:
        for row in range(self.program.num_nodes):
            if row in self._opens | self._closes | self._partial | self._split:
                continue
            sources = [p for p in self._parents[row] if p in self._split or p in self._opens]
            if not sources or not self.program.computes_N[row] or row in self._joint:
                continue
            self._split.add(row)
            if self.program.matrix_N[row]:
                whole = [size for size in self._activations if self._has_operand(row, size)]
                if whole:
                    self._whole[row] = whole[0]

    # ---- sizes of products ----

    def _has_operand(self, row: int, size: int) -> bool:
        of_activations = self.program.names[row] in _OF_ACTIVATIONS
        if of_activations or self.program.kinds[row] is OperatorKind.ATTENTION:
            return False
        return bool(self._other_sides(row, size))

    def _other_sides(self, row: int, size: int) -> tuple[int, ...]:
        item = int(self.program.item_N[row])
        operand, inner = size // item, 0
        product, total = int(self.program.ops_N[row]) // 2, int(self.program.bytes_N[row]) // item
        if operand <= 0 or product % operand:
            return ()
        inner = product // operand
        for bias in (inner, 0):  # a bias along the side that the product adds
            if (total - operand - bias) % inner == 0:
                sides = factors(operand, (total - operand - bias) // inner)
                if sides:
                    return sides
        width = self._width_by_bias(row, size)
        return (operand // width, width) if width else ()

    def _width_by_bias(self, row: int, size: int) -> int:
        if self.program.names[row] not in _WITH_BIAS:
            return 0
        item = int(self.program.item_N[row])
        result = size // item
        inner = int(self.program.ops_N[row]) // 2 // result
        rest = int(self.program.bytes_N[row]) // item - result
        # inner * rows + (inner + 1) * columns = rest, rows * columns = result
        root = rest * rest - 4 * (inner + 1) * inner * result
        if inner < 1 or root < 0 or isqrt(root) ** 2 != root:
            return 0
        for sign in (1, -1):
            columns, left = divmod(rest + sign * isqrt(root), 2 * (inner + 1))
            if columns > 0 and left == 0 and result % columns == 0:
                return columns
        return 0

    @cached_property
    def width(self) -> int:
        """Columns of the activations that are summed, 0 if the trace does not tell."""
        for row in sorted(self._closes):
            found = self._width_by_bias(row, self._whole[row])
            if found:
                return found
        return 0

    # ---- costs ----

    def done(self) -> EditableProgram:
        """Return the program on the other degree.

        Raises:
            TraceError: If a size does not divide, or an optimizer updates all weights in one and
                the trace does not tell how many are split.
        """
        numbers = Numbers(self.program)
        joint = self._joint
        for row in sorted((self._split | self._opens | self._closes) - joint):
            if row in self._whole:
                self._border(numbers, row)
            else:
                self._inside(numbers, row)
        if joint:
            self._update(numbers, joint)
        return numbers.program()

    def _divided(self, size: int, row: int) -> int:
        whole, rest = divmod(size * self.change.old, self.change.new)
        if rest:
            raise TraceError(
                f"{self.program.trace.source}: node {self.program.trace.id_N[row]} "
                f"({self.program.names[row]}) does not divide evenly over {self.change.new} tensor "
                f"ranks ({size:,} on {self.change.old}); choose another degree."
            )
        return whole

    def _border(self, numbers: Numbers, row: int) -> None:
        item = int(self.program.item_N[row])
        bias = self._width_by_bias(row, self._whole[row]) if row in self._closes else 0
        stays = self._whole[row] + bias * item
        numbers.ops_N[row] = self._divided(int(self.program.ops_N[row]), row)
        moved = int(self.program.bytes_N[row]) - stays
        numbers.bytes_N[row] = stays + self._divided(moved, row)

    def _inside(self, numbers: Numbers, row: int) -> None:
        elements, moved = int(self.program.ops_N[row]), int(self.program.bytes_N[row])
        if elements <= 1:
            return
        fewer = self._divided(elements, row)
        reduces = self.program.names[row] in _REDUCTIONS
        counted = moved >= elements * int(self.program.item_N[row])  # one operation each
        if self.program.matrix_N[row] or reduces or not counted:
            numbers.ops_N[row], numbers.bytes_N[row] = fewer, self._divided(moved, row)
        else:
            numbers.follow(row, elements, fewer)

    # ---- the optimizer ----

    @cached_property
    def _joint(self) -> set[int]:
        last = int(np.flatnonzero(self.program.matrix_N).max(initial=-1))
        return {
            row for row in range(last + 1, self.program.num_nodes)
            if self.program.computes_N[row]
            and self.program.names[row] in OPTIMIZERS
        }  # fmt: skip

    def _update(self, numbers: Numbers, joint: set[int]) -> None:
        split = self._split_weights()
        total = max(
            int(self.program.ops_N[row]) // lists_of(self.program.names[row]) for row in joint
        )
        later = total - split + split * self.change.old // self.change.new
        items = {int(self.program.item_N[row]) for row in joint}
        for row in sorted(joint):
            elements, moved = int(self.program.ops_N[row]), int(self.program.bytes_N[row])
            if elements >= total:
                numbers.follow(row, total, later)
            elif moved >= total * min(items):  # a norm of each gradient reads them all
                numbers.bytes_N[row] = moved - (total - later) * (moved // total)

    def _split_weights(self) -> int:
        found = 0
        for row in sorted(self._split):
            item = int(self.program.item_N[row])
            if row in self._whole:  # the gradient of a weight
                inner = int(self.program.ops_N[row]) // 2 * item // self._whole[row]
                found += inner * self._require_width(row)
            elif self.program.names[row] in _REDUCTIONS:
                found += int(self.program.bytes_N[row]) // item - int(self.program.ops_N[row])
        return found

    def _require_width(self, row: int) -> int:
        if not self.width:
            raise TraceError(
                f"{self.program.trace.source}: an optimizer updates all weights in one operator, "
                "but the trace does not tell how many of them are split over tensor ranks (node "
                f"{self.program.trace.id_N[row]}); leave the tensor degree at {self.change.old}."
            )
        return self.width
