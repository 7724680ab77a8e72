"""The shapes that a matrix product may have, from its operations and bytes.

(M, K) times (K, N) are 2 MKN operations on MK + KN + MN elements. One of the three sizes is at most
the cube root of MKN; for each divisor up to it the others solve a quadratic equation.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt

import numpy as np

from layerdag.graph.topology import expand_ranges, pointers
from layerdag.traces.chakra.files import START_BYTES
from layerdag.validation.operators import Operators, RuleOutcomes

_MAX_DIVISIONS = 200_000_000
"""Trial divisions for the shapes of a rank's products; those beyond them are not looked at."""

Shape = tuple[int, int, int]
"""Rows, inner size and columns of a matrix product: (M, K) times (K, N)."""


def shapes_of(name: str, operations: int, elements: int) -> set[Shape]:
    """Return the shapes of ``mm`` or ``addmm`` with so many operations and elements in all.

    ``addmm`` adds a vector of N elements or a matrix of (M, N).
    """
    if operations <= 0 or operations % 2:
        return set()
    product = operations // 2
    # One of the three sizes is at most the cube root of their product.
    root = round(product ** (1 / 3))
    least = np.arange(1, root + (root**3 <= product))
    found: set[Shape] = set()
    for one in least[product % least == 0].tolist():
        found.update(_shapes_with(name, one, product // one, elements))
    return found


def _shapes_with(name: str, one: int, rest: int, elements: int) -> Iterator[Shape]:
    """Yield the shapes that have a size ``one``, where ``rest`` is the product of the others."""
    left, part = elements - rest, one * rest

    def divisors(square: int, linear: int, constant: int) -> Iterator[int]:
        return (x for x in roots(square, linear, constant) if rest % x == 0)

    if name == "mm":
        for x in divisors(one, left, part):
            yield one, x, rest // x
            yield x, one, rest // x
            yield x, rest // x, one
        return
    for x in divisors(one, left - one, part):
        yield x, rest // x, one
        yield rest // x, x, one
    for x in divisors(one + 1, left, part):
        yield one, rest // x, x
        yield rest // x, one, x
    for x in divisors(2 * one, left, part):
        yield x, rest // x, one
        yield one, rest // x, x
    for x in divisors(one, left - rest, part):
        yield x, one, rest // x
        yield rest // x, one, x


def roots(square: int, linear: int, constant: int) -> Iterator[int]:
    """Yield whole x > 0 with ``square x^2 - linear x + constant = 0``."""
    below = linear * linear - 4 * square * constant
    if linear <= 0 or below < 0:
        return
    root = isqrt(below)
    if root * root != below:
        return
    for twice in {linear - root, linear + root}:
        if twice > 0 and twice % (2 * square) == 0:
            yield twice // (2 * square)


@dataclass(frozen=True, eq=False)
class Products:
    """The matrix products of a rank whose costs are known, and their possible shapes.

    Attributes:
        first_P1: Possible shapes of product p are rows ``first_P1[p]:first_P1[p + 1]``.
        shape_S3: (M, K, N) of each possible shape.
    """

    row_P: np.ndarray
    first_P1: np.ndarray
    shape_S3: np.ndarray


def products_of(ops: Operators) -> Products:
    """Return the products with two matrices; those that a trace had to enlarge are left out."""
    size_N = np.maximum(ops.element_N, 1)
    whole_N = ops.known_N & ops.is_widest_float_N & (ops.bytes_N % size_N == 0)
    # What opens a rank of a sampled job is made large enough to take some time.
    enlarged_N = (ops.bytes_N == START_BYTES) & (
        np.bincount(ops.target_E, minlength=ops.num_nodes) == 0
    )
    rows = np.flatnonzero(ops.is_any_of(("mm", "addmm")) & whole_N & ~enlarged_N)
    costs_P3 = np.stack(
        [ops.kind_N(("mm", "addmm"))[rows], ops.flops_N[rows], (ops.bytes_N // size_N)[rows]],
        axis=1,
    )
    costs_U3, unique_P = np.unique(costs_P3, axis=0, return_inverse=True)
    divisions_U = np.cumsum(np.cbrt(costs_U3[:, 1] / 2))
    rows = rows[divisions_U[unique_P.ravel()] <= _MAX_DIVISIONS]
    unique_P = unique_P[divisions_U[unique_P.ravel()] <= _MAX_DIVISIONS]
    costs_U3 = costs_U3[divisions_U <= _MAX_DIVISIONS]
    shapes = [
        sorted(shapes_of(("mm", "addmm")[kind], operations, elements))
        for kind, operations, elements in costs_U3.tolist()
    ]
    each = [shapes[at] for at in unique_P.ravel().tolist()]
    flat = [shape for found in each for shape in found]
    return Products(
        rows,
        pointers(np.array([len(found) for found in each], dtype=np.int64)),
        np.array(flat, dtype=np.int64).reshape(-1, 3),
    )


def product_sizes(ops: Operators) -> RuleOutcomes | None:
    """Every product has shapes, of which one fits the sizes of all that goes into it."""
    products = products_of(ops)
    place_N = np.full(ops.num_nodes, -1)
    place_N[products.row_P] = np.arange(products.row_P.size)
    made_E = ops.output_elements_N[ops.source_E]
    used = np.flatnonzero((place_N[ops.target_E] >= 0) & (made_E > 0))
    into_E, made_E = place_N[ops.target_E[used]], made_E[used]
    count_P = np.diff(products.first_P1)
    # Each input beside each possible shape of its product.
    pair = np.repeat(np.arange(used.size), count_P[into_E])
    shape = expand_ranges(products.first_P1[:-1][into_E], products.first_P1[1:][into_E])
    height, inner, columns = products.shape_S3[shape].T
    size = made_E[pair]
    adds = ops.kind_N(("mm", "addmm"))[products.row_P][into_E[pair]] == 1
    maker = ops.source_E[used][pair]
    fits = ops.fits(maker, size, height * inner) | ops.fits(maker, size, inner * columns)
    fits |= adds & ((size == columns) | ops.fits(maker, size, height * columns))
    misfits_S = np.bincount(shape[~fits], minlength=len(products.shape_S3))
    holds_P = np.zeros(products.row_P.size, dtype=bool)
    owner_S = np.repeat(np.arange(products.row_P.size), count_P)
    holds_P[owner_S[misfits_S == 0]] = True
    batched, batched_holds = _batched_products(ops)
    rows = np.concatenate([products.row_P, batched])

    def found(case: int) -> str:
        row = rows[case]
        has = f"{ops.name(row)} has {ops.flops_N[row]:,} operations and {ops.bytes_N[row]:,} bytes"
        shapeless = case < count_P.size and not count_P[case]
        return (
            f"{has}, which no shapes have" if shapeless else f"{has}, which its inputs do not fit"
        )

    return ops.cases(rows, np.concatenate([holds_P, batched_holds]), found)


def _batched_products(ops: Operators) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of batched products whose two inputs are known, and whether sizes fit these.

    With (B, M, K) and (B, K, N) the three sizes BMK, BKN and BMN multiply to B (BMKN)^2.
    """
    size_N = np.maximum(ops.element_N, 1)
    batched_N = (
        ops.is_any_of(("bmm",)) & ops.known_N & ops.is_widest_float_N & (ops.flops_N % 2 == 0)
    )
    made_E = ops.output_elements_N[ops.source_E]
    # Of inputs that are seen in parts, and of others than activations, the size is not known.
    whole_E = ops.has_gradient_N[ops.source_E] & ~np.isin(made_E, ops.part_sizes)
    into_E = batched_N[ops.target_E] & (made_E > 0) & whole_E
    size = ops.num_nodes
    inputs_N = np.bincount(ops.target_E[into_E], minlength=size)
    every_N = np.bincount(ops.target_E, minlength=size)
    rows = np.flatnonzero(batched_N & (inputs_N == 2) & (every_N == 2))
    holds = []
    first = np.searchsorted(ops.target_E, rows)
    for row, at in zip(rows.tolist(), first.tolist(), strict=True):
        one, other = made_E[at : at + 2].tolist()
        third = int(ops.bytes_N[row] // size_N[row]) - one - other
        half = int(ops.flops_N[row]) // 2
        holds.append(third > 0 and one * other * third % (half * half) == 0)
    return rows, np.array(holds, dtype=bool)
