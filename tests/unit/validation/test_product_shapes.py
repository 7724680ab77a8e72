"""Shapes of matrix products from their operations and elements."""

from itertools import product

import numpy as np
from hypothesis import given, strategies as st

from layerdag.validation.product_shapes import roots, shapes_of

SIZE = st.integers(1, 5_000)


@given(SIZE, SIZE, SIZE)
def test_a_product_may_have_its_own_shape(rows, inner, columns):
    operations = 2 * rows * inner * columns
    elements = rows * inner + inner * columns + rows * columns
    assert (rows, inner, columns) in shapes_of("mm", operations, elements)
    assert (rows, inner, columns) in shapes_of("addmm", operations, elements + columns)
    assert (rows, inner, columns) in shapes_of("addmm", operations, elements + rows * columns)


@given(st.integers(1, 2_000), st.integers(1, 500))
def test_all_shapes_and_no_others_are_found(half, elements):
    sizes = [one for one in range(1, half + 1) if half % one == 0]
    shapes = {(m, k, half // (m * k)) for m, k in product(sizes, sizes) if half % (m * k) == 0}
    plain = {(m, k, n) for m, k, n in shapes if m * k + k * n + m * n == elements}
    added = {(m, k, n) for m, k, n in shapes if elements - (m * k + k * n + m * n) in (n, m * n)}
    assert shapes_of("mm", 2 * half, elements) == plain
    assert shapes_of("addmm", 2 * half, elements) == added


def test_odd_or_no_operations_have_no_shape():
    assert shapes_of("mm", 0, 3) == set()
    assert shapes_of("mm", 7, 3) == set()


def test_roots_are_positive_whole_numbers():
    assert set(roots(1, 5, 6)) == {2, 3}
    assert set(roots(2, 8, 8)) == {2}
    assert set(roots(1, 5, 7)) == set()
    assert set(roots(1, -5, 6)) == set()
    assert set(roots(2, 7, 5)) == {1}
    assert all(isinstance(one, int) for one in roots(1, 5, 6))
    assert np.isfinite(list(roots(1, 10**9, 10**9 - 1))).all()
