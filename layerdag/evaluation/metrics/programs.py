"""Inputs, shapes, tails, repeated blocks.

Blocks that repeat along the depth: the layers of a network, micro-batches, steps.

The color of a layer (of the longest path) is the multiset of the operators of its nodes, which is
row 0 of the Weisfeiler-Lehman colors: wiring does not enter, so that the first and last copy of a
block, which have other neighbors, count as well. A repetition is a run of consecutive layers of
which each has the color of the one p layers further up, at least 2 p layers long and as long as
possible, with p as small as possible (a maximal repetition of strings; Kolpakov and Kucherov, FOCS
1999). Its block is p layers long and has floor(length / p) copies.

Repetitions nest and overlap. The longest is taken first, then the longest of what is left of the
others outside it, and so on. Those of a single layer (p = 1), one operator after another
like it, are no blocks: they occur by chance.

Are the operators with the largest numbers the same ones, as in real graphs?

An operator with many FLOPs moves many bytes and takes long; a generator may get the distribution of
each number right, and what goes together wrong. A number of a node is in the tail if it is larger
than nine tenths of such numbers of its set. The figure is the fraction of nodes with both numbers
in their tails, of those with one of them there: an estimate of what extreme-value statistics calls
tail dependence. It is about order alone; that tails have the right numbers is seen by
``attribute:...``.

Operators whose inputs a program could not have: a backward pass of nothing, a step from nowhere.

By names of operators alone. A backward operator ("aten::silu_backward",
"aten::_softmax_backward_data") is given what its forward operator computed, or the gradient of
what came of it; so the forward operator ("aten::silu", "aten::_softmax") is among its ancestors. An
operator that only optimizers call ("aten::addcdiv_", "aten::_fused_adamw_") is given a gradient, so
some backward operator is. Which words a data set has decides what is looked at: a backward operator
whose forward operator is no word of the data set (a view, such as "aten::select") is left out.

Matrix products whose numbers fit no shapes.

A product of an (M, K) with a (K, N) matrix takes 2 M N K operations and moves at least
MK + KN + MN elements. So whatever the shapes,

* "bytes": the bytes are a multiple of the size of an element, which is the largest of 8, 4, 2 and 1
  that fits all products of the training graphs;
* "flops": the operations are even, those of convolutions, too;
* "bounds": with F operations, at least 3 (F/2)^(2/3) elements are moved, for that is the least that
  MK + KN + MN can be (inequality of means), and at most 5 F/2 elements of 8 bytes.

Numbers are decoded from bins and positions. Those of which a float32 position does not tell the
whole number, and those that were moved to the end of the nearest bin, are left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import combinations
from typing import final

import numpy as np

from layerdag.dag.graph_set import GraphSet
from layerdag.errors import DataError
from layerdag.evaluation.metrics.base import (
    AttributeMetrics,
    AttributeView,
    Comparison,
    Draws,
    Goal,
    GraphMean,
    Metric,
    SimilarityRow,
)
from layerdag.evaluation.metrics.neighborhoods import edges_by_layer, mix_hashes, operator_hashes
from layerdag.hardware.operators import OPERATORS, base_name
from layerdag.schema.attributes import CategoryAttribute, NumericAttribute

LEAST_LENGTH = 2
"""Layers of a block, at least."""


@dataclass(frozen=True)
class RepeatedBlock:
    """Layers that repeat one after the other in a graph.

    Attributes:
        graph: Number of the graph.
        first: Its first layer.
        end: Layer after its last; the last copy may be cut off.
        length: Layers of one copy.
    """

    graph: int
    first: int
    end: int
    length: int

    @property
    def count(self) -> int:
        """Number of whole copies, at least 2."""
        return (self.end - self.first) // self.length


class BlockFigure(Enum):
    """What is told of the repeated blocks of a graph."""

    NUMBER = "number"
    LENGTH = "length"
    COUNT = "count"
    NODES = "nodes"


@final
@dataclass(frozen=True)
class RepeatedBlocks(Metric):
    """A figure of the repeated blocks of a graph, mean over graphs.

    Attributes:
        figure: Their number; mean length or count of copies, which leave out graphs without
            blocks; or the fraction of the nodes inside them.
    """

    figure: BlockFigure = field(kw_only=True)

    def compute(self, comparison: Comparison) -> SimilarityRow:
        """Return the mean of the generated graphs beside that of the test set.

        Raises:
            DataError: If no graph of a set has a value.
            GraphError: If there is a cycle.
        """
        test, generated = comparison.once(_of_test_and_generated)
        return SimilarityRow.of_graph_means(
            self,
            comparison,
            _figures(generated, self.figure, comparison.generated),
            _figures(test, self.figure, comparison.test),
        )


def _of_test_and_generated(
    comparison: Comparison,
) -> tuple[list[RepeatedBlock], list[RepeatedBlock]]:
    return repeated_blocks(comparison.test), repeated_blocks(comparison.generated)


def _figures(blocks: list[RepeatedBlock], figure: BlockFigure, graphs: GraphSet) -> np.ndarray:
    """Return the figure of each graph, NaN where it has none."""
    graph = np.array([block.graph for block in blocks], dtype=np.int64)
    number_B = np.bincount(graph, minlength=graphs.num_graphs)
    if figure is BlockFigure.NUMBER:
        return np.where(graphs.nodes_B > 0, number_B, np.nan)
    amount = [float(_amount(block, figure, graphs)) for block in blocks]
    total_B = np.bincount(graph, weights=amount, minlength=graphs.num_graphs)
    of_B = graphs.nodes_B if figure is BlockFigure.NODES else number_B
    with np.errstate(invalid="ignore"):
        mean_B: np.ndarray = total_B / of_B
    return mean_B


def _amount(block: RepeatedBlock, figure: BlockFigure, graphs: GraphSet) -> int:
    if figure is BlockFigure.LENGTH:
        return block.length
    if figure is BlockFigure.COUNT:
        return block.count
    first = graphs.layer_ptr[block.graph]
    return int(graphs.width_L[first + block.first : first + block.end].sum())


def repeated_blocks(graphs: GraphSet) -> list[RepeatedBlock]:
    """Return the repeated blocks of all graphs, none overlapping another.

    Raises:
        GraphError: If there is a cycle.
    """
    runs = sorted(_repetitions(_layer_colors(graphs), graphs), key=_longest_first)
    taken_L = np.zeros(graphs.width_L.size, dtype=bool)
    found = []
    for run in runs:
        start = int(graphs.layer_ptr[run.graph])
        first, end = _longest_free(taken_L, start + run.first, start + run.end)
        if end - first >= 2 * run.length:
            taken_L[first:end] = True
            found.append(RepeatedBlock(run.graph, first - start, end - start, run.length))
    return [block for block in found if block.length >= LEAST_LENGTH]


def _longest_first(run: RepeatedBlock) -> tuple[int, int, int, int]:
    return run.graph, run.first - run.end, run.length, run.first


def _longest_free(taken_L: np.ndarray, first: int, end: int) -> tuple[int, int]:
    taken = np.flatnonzero(taken_L[first:end]) + first
    if not taken.size:
        return first, end
    starts = np.concatenate(([first], taken + 1))
    ends = np.concatenate((taken, [end]))
    best = int(np.argmax(ends - starts))
    return int(starts[best]), int(ends[best])


def _layer_colors(graphs: GraphSet) -> np.ndarray:
    """Return a hash of the multiset of operators of each layer, uint64 (L,)."""
    color_L = np.zeros(graphs.width_L.size, dtype=np.uint64)
    layer_N = graphs.layer_ptr[graphs.graph_N] + graphs.layer_N
    np.add.at(color_L, layer_N, operator_hashes(graphs))
    return mix_hashes(color_L)


def _repetitions(color_L: np.ndarray, graphs: GraphSet) -> Iterator[RepeatedBlock]:
    graph_L = graphs.graph_L
    for period in range(1, int(graphs.layers_B.max(initial=0)) // 2 + 1):
        same = (color_L[period:] == color_L[:-period]) & (graph_L[period:] == graph_L[:-period])
        edge = np.diff(np.concatenate(([0], same.astype(np.int8), [0])))
        starts, ends = np.flatnonzero(edge == 1), np.flatnonzero(edge == -1)
        long = ends - starts >= period
        for start, end in zip(starts[long].tolist(), ends[long].tolist(), strict=True):
            graph = int(graph_L[start])
            offset = int(graphs.layer_ptr[graph])
            yield RepeatedBlock(graph, start - offset, end + period - offset, period)


NUMBERS = ("flops", "bytes", "duration")
TAIL = 0.9
_ABSENT = 0


@final
@dataclass(frozen=True)
class JointTail(Metric):
    """Fraction of nodes with two large numbers, of those with one; pooled over a set.

    Nodes that lack one of the numbers are left out.

    Attributes:
        columns: Places of the numbers among the attributes, whose codes are ordered bins.
    """

    columns: tuple[int, int] = field(kw_only=True)

    def compute(self, comparison: Comparison) -> SimilarityRow:
        """Return the fraction of generated and of real test graphs.

        Raises:
            DataError: If a set has no node with both numbers, or these are all alike.
        """
        _, test_RB, generated_RB = comparison.weights
        return SimilarityRow.of_draws(
            self,
            self._fractions(comparison.generated, generated_RB, "generated"),
            self._fractions(comparison.test, test_RB, "test"),
        )

    def _fractions(self, graphs: GraphSet, weights_RB: np.ndarray, name: str) -> Draws:
        values = [_values(graphs, column) for column in self.columns]
        known_N = np.isfinite(values[0] + values[1])
        if not known_N.any():
            raise DataError(f"The {name} graphs have no node with both numbers.")
        large = [
            value_N[known_N] > np.quantile(value_N[known_N], TAIL, method="inverted_cdf")
            for value_N in values
        ]
        both_B, either_B = (
            np.bincount(graphs.graph_N[known_N], weights=is_N, minlength=graphs.num_graphs)
            for is_N in (large[0] & large[1], large[0] | large[1])
        )
        if not either_B.any():
            raise DataError(f"No node of the {name} graphs has a larger number than the others.")
        with np.errstate(invalid="ignore", divide="ignore"):
            return (weights_RB @ both_B) / (weights_RB @ either_B), {}


def _values(graphs: GraphSet, column: int) -> np.ndarray:
    """Return bin and position of a number, which are ordered as it is; NaN where it is absent."""
    code_N = graphs.x_NA[:, column]
    return np.where(code_N == _ABSENT, np.nan, code_N + graphs.u_NA[:, column])


@final
@dataclass(frozen=True)
class JointTails(AttributeMetrics):
    """The joint tails of FLOPs, bytes and durations, one for each pair of those that are known."""

    name: str = "joint_tails"
    description: str = "nodes of which two numbers are among the largest tenth, of those with one"
    goal: Goal = Goal.MATCH_REAL
    upper: float = 1.0

    def of(self, attributes: Sequence[AttributeView]) -> tuple[Metric, ...]:
        """Return one metric for each pair."""
        place = {view.name: index for index, view in enumerate(attributes) if view.ordered}
        return tuple(
            JointTail(
                f"{self.name}:{first} x {second}",
                f"nodes with {first} and {second} among the largest tenth, of those with one",
                self.goal,
                upper=1.0,
                columns=(place[first], place[second]),
            )
            for first, second in combinations([name for name in NUMBERS if name in place], 2)
        )


Needs = tuple[tuple[int, tuple[int, ...]], ...]
"""Code of each operator that is looked at, and codes of which one must be among its ancestors."""

# Elementwise kernels that step parameters; a gradient may also be scaled by mul_ or summed by add_.
_STEPS = frozenset(
    f"{start}{kernel}_"
    for start in ("", "_")
    for kernel in (
        *("fused_adam", "fused_adamw", "fused_sgd", "fused_adagrad", "fused_lamb"),
        *("addcdiv", "foreach_addcdiv"),
    )
)
# Backward operators that are not called after their forward operators.
_CALLED = {"threshold": ("relu", "threshold", "clamp_min")}
_MOST_KINDS = 64


@final
@dataclass(frozen=True)
class MissingInputs(GraphMean):
    """Fraction of certain operators of a graph without a needed ancestor, mean over graphs.

    Graphs without such operators are left out.

    Attributes:
        needs: The operators, and what each of them needs.
    """

    needs: Needs = field(kw_only=True)

    def values(self, graphs: GraphSet) -> np.ndarray:
        """Return the fraction of each graph.

        Raises:
            GraphError: If there is a cycle.
        """
        code_N = graphs.x_NA[:, 0]
        checked_N = np.zeros(graphs.num_nodes, dtype=bool)
        missing_N = np.zeros(graphs.num_nodes, dtype=bool)
        for first in range(0, len(self.needs), _MOST_KINDS):
            part = self.needs[first : first + _MOST_KINDS]
            above_N = _kinds_above(graphs, [needed for _, needed in part])
            for kind, (code, _) in enumerate(part):
                has_code_N = code_N == code
                checked_N |= has_code_N
                missing_N |= has_code_N & (above_N >> np.uint64(kind) & np.uint64(1) == 0)
        checked_B, missing_B = (
            np.bincount(graphs.graph_N, weights=flag_N, minlength=graphs.num_graphs)
            for flag_N in (checked_N, missing_N)
        )
        with np.errstate(invalid="ignore"):
            fraction_B: np.ndarray = missing_B / checked_B
        return fraction_B


@final
@dataclass(frozen=True)
class OperatorInputs(AttributeMetrics):
    """Metrics of impossible inputs, as far as the words of the first attribute have such names."""

    name: str = "operator_inputs"
    description: str = "operators whose inputs no program could give them"
    goal: Goal = Goal.MINIMIZE
    upper: float = 1.0

    def of(self, attributes: Sequence[AttributeView]) -> tuple[Metric, ...]:
        """Return those for which there are operators."""
        first = attributes[0].attribute if attributes else None
        if not isinstance(first, CategoryAttribute):
            return ()
        found = []
        if backward := backward_needs(first.values):
            what = "backward operators without their forward operator among their ancestors"
            found.append(_missing("backward_without_forward", what, backward))
        if steps := optimizer_inputs(first.values):
            what = "optimizer steps without a backward operator among their ancestors"
            found.append(_missing("step_without_gradient", what, steps))
        return tuple(found)


def _missing(name: str, what: str, needs: Needs) -> MissingInputs:
    return MissingInputs(name, what, Goal.MINIMIZE, upper=1.0, needs=needs)


def backward_needs(operators: Sequence[str]) -> Needs:
    """Return the backward operators among words whose forward operators are also among them."""
    code_of = _codes_by_stem(operators)
    found = []
    for code, operator in enumerate(operators):
        stem = _stem_of_backward(base_name(operator))
        forward = _forward_codes(stem, code_of) if stem else ()
        if forward:
            found.append((code, forward))
    return tuple(found)


def optimizer_inputs(operators: Sequence[str]) -> Needs:
    """Return the operators that step parameters, each with all backward operators."""
    backward = tuple(
        code for code, operator in enumerate(operators) if _stem_of_backward(base_name(operator))
    )
    if not backward:
        return ()
    steps = [code for code, operator in enumerate(operators) if base_name(operator) in _STEPS]
    return tuple((code, backward) for code in steps)


def _stem_of_backward(name: str) -> str:
    """Return what stands before "_backward", "_backward_data" or "_backward1"; "" if none does."""
    stem, _, rest = name.rpartition("_backward")
    return stem if rest in ("", "_data") or rest.isdecimal() else ""


def _codes_by_stem(operators: Sequence[str]) -> Mapping[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for code, operator in enumerate(operators):
        found[base_name(operator)] = (*found.get(base_name(operator), ()), code)
    return found


def _forward_codes(stem: str, code_of: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Return the codes of the forward operator of a backward operator's stem, in place or not.

    That of "embedding_dense" is "embedding": a stem may go on after the forward operator's name.
    """
    parts = stem.split("_")
    for end in range(len(parts), 0, -1):
        name = "_".join(parts[:end])
        names = _CALLED.get(name, (name,))
        forms = [f"{one}{ending}" for one in names for ending in ("", "_", "_forward")]
        codes = tuple(code for form in forms for code in code_of.get(form, ()))
        if codes:
            return codes
    return ()


def _kinds_above(graphs: GraphSet, kinds: Sequence[Sequence[int]]) -> np.ndarray:
    own_N = np.zeros(graphs.num_nodes, dtype=np.uint64)
    for kind, codes in enumerate(kinds):
        own_N |= np.isin(graphs.x_NA[:, 0], codes).astype(np.uint64) << np.uint64(kind)
    above_N = np.zeros(graphs.num_nodes, dtype=np.uint64)
    for source, target in edges_by_layer(graphs.edge_index_2E, graphs.layer_N):
        np.bitwise_or.at(above_N, target, above_N[source] | own_N[source])
    return above_N


PRODUCTS = frozenset(
    name for name, row in OPERATORS.items() if row.family == "product" and row.count is not None
)
CONVOLUTIONS = frozenset({"convolution", "convolution_backward"})
LARGEST_ELEMENT = 8
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
        law: The law.
        products: Codes of the operators that must obey it.
        matrix_products: Codes of those that multiply two matrices.
        flops: Column of the operations.
        bytes: Column of the bytes.
    """

    law: ShapeConstraint = field(kw_only=True)
    products: tuple[int, ...] = field(kw_only=True)
    matrix_products: tuple[int, ...] = field(kw_only=True)
    flops: NumericColumn = field(kw_only=True)
    bytes: NumericColumn = field(kw_only=True)

    def compute(self, comparison: Comparison) -> SimilarityRow:
        """Return the mean fraction of generated and of real test graphs.

        Raises:
            DataError: If no graph of a set has a product with known numbers.
        """
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
        broken_B, known_B = (
            np.bincount(graphs.graph_N, weights=flag_N, minlength=graphs.num_graphs)
            for flag_N in (broken_N & known_N, known_N)
        )
        with np.errstate(invalid="ignore"):
            fraction_B: np.ndarray = broken_B / known_B
        return fraction_B

    def _broken(self, graphs: GraphSet, element: int) -> tuple[np.ndarray, np.ndarray]:
        if self.law is ShapeConstraint.BYTES:
            bytes_N = self.bytes.whole_numbers(graphs)
            return bytes_N % element != 0, np.isfinite(bytes_N)
        if self.law is ShapeConstraint.FLOPS:
            flops_N = self.flops.whole_numbers(graphs)
            return flops_N % 2 != 0, np.isfinite(flops_N)
        bytes_N, flops_N = self.bytes.numbers(graphs), self.flops.numbers(graphs)
        most_N = 5 * (flops_N / 2) * LARGEST_ELEMENT * (1 + _SLACK)
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
