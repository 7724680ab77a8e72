"""Matrix products whose numbers fit no shapes.

A product of an (M, K) with a (K, N) matrix takes 2 M N K operations and moves at least
MK + KN + MN elements. So whatever the shapes,

* "bytes": the bytes are a multiple of the size of an element, which is the largest of 8, 4, 2 and 1
  that fits all products of the training graphs;
* "flops": the operations are even, those of convolutions, too;
* "bounds": with F operations, at least 3 (F/2)^(2/3) elements are moved, for that is the least that
  MK + KN + MN can be (inequality of means), and at most 5 F/2 elements of 8 bytes.

Numbers are decoded from bins and positions. Those whose whole number a float32 position does
not determine, and those that were moved to the end of the nearest bin, are left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import final

import numpy as np

from layerdag.dag.graph_set import GraphSet
from layerdag.evaluation.metrics.base import (
    AttributeMetrics,
    AttributeView,
    Comparison,
    Goal,
    Metric,
    SimilarityRow,
    fraction_by_graph,
)
from layerdag.hardware.operators import OPERATORS, base_name
from layerdag.schema.attributes import CategoryAttribute, NumericAttribute

PRODUCTS = frozenset(
    name for name, row in OPERATORS.items() if row.family == "product" and row.count is not None
)
CONVOLUTIONS = frozenset({"convolution", "convolution_backward"})
MAX_ELEMENT = 8
_BELOW, _ABOVE = np.float32(-1), np.float32(2)
_LAST_POSITION = np.nextafter(np.float32(1), np.float32(0))
_SLACK = 1e-3


class ShapeConstraint(Enum):
    """What numbers of products obey, whatever the shapes."""

    BYTES = "bytes"
    FLOPS = "flops"
    BOUNDS = "bounds"


@dataclass(frozen=True)
class NumericColumn:
    """A numeric attribute and its place among the columns."""

    index: int
    attribute: NumericAttribute

    def whole_numbers(self, graphs: GraphSet) -> np.ndarray:
        """Return the decoded numbers, whole; NaN where it is not certain which."""
        code_N, u_N = graphs.x_NA[:, self.index], graphs.u_NA[:, self.index].astype(np.float32)
        first_N, low_N, value_N, high_N, last_N = (
            self.attribute.decode(code_N, np.broadcast_to(at, u_N.shape))
            for at in (0.0, np.nextafter(u_N, _BELOW), u_N, np.nextafter(u_N, _ABOVE), 1.0)
        )
        inside_N = (first_N == last_N) | ((u_N > 0) & (u_N < _LAST_POSITION))
        return np.where(inside_N & (high_N - low_N < 0.5), np.rint(value_N), np.nan)

    def numbers(self, graphs: GraphSet) -> np.ndarray:
        """Return the decoded numbers, NaN for absent."""
        return self.attribute.decode(graphs.x_NA[:, self.index], graphs.u_NA[:, self.index])


@final
@dataclass(frozen=True)
class ShapeViolation(Metric):
    """Fraction of the products of a graph that break a law of shapes, mean over graphs.

    Graphs without products of which the numbers are known are left out.

    Attributes:
        products: Codes of the operators that must obey it.
        matrix_products: Codes of those that multiply two matrices.
    """

    law: ShapeConstraint = field(kw_only=True)
    products: tuple[int, ...] = field(kw_only=True)
    matrix_products: tuple[int, ...] = field(kw_only=True)
    flops: NumericColumn = field(kw_only=True)
    bytes: NumericColumn = field(kw_only=True)

    def compute(self, comparison: Comparison) -> SimilarityRow:
        """Return the mean fraction of generated and of real test graphs."""
        element = self._element_size(comparison.train)
        return SimilarityRow.of_graph_means(
            self,
            comparison,
            self._fractions(comparison.generated, element),
            self._fractions(comparison.test, element),
        )

    def _element_size(self, train: GraphSet) -> int:
        operator_N = train.x_NA[:, 0]
        moved = self.bytes.whole_numbers(train)[np.isin(operator_N, self.products)]
        moved = moved[np.isfinite(moved)]
        bytes_N, flops_N = self.bytes.numbers(train), self.flops.numbers(train)
        known_N = np.isin(operator_N, self.matrix_products) & np.isfinite(bytes_N + flops_N)
        for size in (8, 4, 2):
            too_few_N = bytes_N < least_bytes(flops_N, size)
            if moved.size and not (moved % size).any() and not too_few_N[known_N].any():
                return size
        return 1

    def _fractions(self, graphs: GraphSet, element: int) -> np.ndarray:
        """Return the fraction of each graph, NaN without products."""
        broken_N, known_N = self._broken(graphs, element)
        known_N &= np.isin(graphs.x_NA[:, 0], self.products)
        return fraction_by_graph(broken_N, graphs.graph_N, graphs, known_N)

    def _broken(self, graphs: GraphSet, element: int) -> tuple[np.ndarray, np.ndarray]:
        if self.law is ShapeConstraint.BYTES:
            bytes_N = self.bytes.whole_numbers(graphs)
            return bytes_N % element != 0, np.isfinite(bytes_N)
        if self.law is ShapeConstraint.FLOPS:
            flops_N = self.flops.whole_numbers(graphs)
            return flops_N % 2 != 0, np.isfinite(flops_N)
        bytes_N, flops_N = self.bytes.numbers(graphs), self.flops.numbers(graphs)
        most_N = 5 * (flops_N / 2) * MAX_ELEMENT * (1 + _SLACK)
        broken_N = (bytes_N < least_bytes(flops_N, element)) | (bytes_N > most_N)
        return broken_N, np.isfinite(bytes_N) & np.isfinite(flops_N)


def least_bytes(flops_N: np.ndarray, element: int) -> np.ndarray:
    """Return what a matrix product moves at least, whatever the shapes; NaN for unknown FLOPs."""
    least_N: np.ndarray = 3 * (flops_N / 2) ** (2 / 3) * element * (1 - _SLACK)
    return least_N


@final
@dataclass(frozen=True)
class ShapeViolations(AttributeMetrics):
    """The laws of shapes, for graphs with matrix products, FLOPs and bytes."""

    name: str = "shape_violation"
    description: str = "operators whose FLOPs and bytes no shapes could have"
    goal: Goal = Goal.MINIMIZE
    upper: float = 1.0

    def of(self, attributes: Sequence[AttributeView]) -> tuple[Metric, ...]:
        """Return one metric for each law; none where words or numbers are missing."""
        numbers = {
            view.name: NumericColumn(index, view.attribute)
            for index, view in enumerate(attributes)
            if isinstance(view.attribute, NumericAttribute)
        }
        first = attributes[0].attribute if attributes else None
        if not isinstance(first, CategoryAttribute) or not {"flops", "bytes"} <= set(numbers):
            return ()
        matrix = _codes(first, PRODUCTS)
        checked = {law: _codes(first, PRODUCTS | CONVOLUTIONS) for law in ShapeConstraint}
        checked[ShapeConstraint.BOUNDS] = matrix
        return tuple(
            ShapeViolation(
                f"{self.name}:{law.value}",
                what,
                Goal.MINIMIZE,
                upper=1.0,
                law=law,
                products=checked[law],
                matrix_products=matrix,
                flops=numbers["flops"],
                bytes=numbers["bytes"],
            )
            for law, what in _LAWS.items()
            if checked[law]
        )


def _codes(operators: CategoryAttribute, stems: frozenset[str]) -> tuple[int, ...]:
    return tuple(code for code, word in enumerate(operators.values) if base_name(word) in stems)


_LAWS = {
    ShapeConstraint.BYTES: "products and convolutions that move no whole number of elements",
    ShapeConstraint.FLOPS: "products and convolutions with an odd number of operations",
    ShapeConstraint.BOUNDS: (
        "products that move fewer or more bytes than any shapes with these operations"
    ),
}
