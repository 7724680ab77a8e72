import math

import numpy as np
import pytest

from layerdag.datasets.schema.costs import PRODUCTS, fits_shapes
from layerdag.traces.pytorch.operators import TensorView, operation_count


def tensor(*shape: int) -> TensorView:
    size = 4 * math.prod(shape)
    return TensorView(0, 0, size, size, shape, "float32", "cpu")


@pytest.mark.parametrize(
    ("operator", "reads", "writes"),
    [
        ("aten::mm", [(4, 8), (8, 2)], (4, 2)),
        ("aten::addmm", [(2,), (4, 8), (8, 2)], (4, 2)),
        ("aten::bmm", [(3, 4, 8), (3, 8, 2)], (3, 4, 2)),
        ("aten::baddbmm", [(3, 4, 2), (3, 4, 8), (3, 8, 2)], (3, 4, 2)),
    ],
)
def test_rules_give_what_the_importer_counts(
    operator: str, reads: list[tuple[int, ...]], writes: tuple[int, ...]
) -> None:
    batch = 3 if len(writes) == 3 else 1
    cost = PRODUCTS[operator].cost(*(np.array([size]) for size in (batch, 4, 8, 2)))
    shapes = [*reads, writes]
    counted = operation_count(operator, [tensor(*shape) for shape in reads], [tensor(*writes)])
    assert int(cost[0][0]) == counted
    assert int(cost[1][0]) == sum(int(np.prod(shape)) for shape in shapes)


def test_every_shape_fits_the_laws_and_odd_or_starved_products_do_not() -> None:
    b, m, k, n = np.array([[1, 1, 1, 1], [1, 4, 8, 2], [7, 3, 5, 9], [1, 64, 64, 64]]).T
    for form in PRODUCTS.values():
        flops, elements = form.cost(b, m, k, n)
        for element in (1, 4, 8):
            assert fits_shapes(flops.astype(float), (elements * element).astype(float)).all()
    assert not fits_shapes(np.array([2.0**20 + 1, 2.0**20, 2.0]), np.array([1e5, 100, 1e6])).any()
