import numpy as np
import pytest

from layerdag.datasets.schema.costs import PRODUCTS
from layerdag.sampling.numbers._products import element_bytes, product_costs


def factored(form, flops: int, elements: int, most: int = 4096) -> bool:
    """Whether some whole B, M, K, N have these FLOPs and elements."""
    pairs = flops // 2
    of = [size for size in range(1, min(pairs, most) + 1) if pairs % size == 0]
    for batch in of if form.batched else [1]:
        for rows in (m for m in of if pairs // batch % m == 0):
            left = pairs // batch // rows
            inner = np.array([k for k in of if left % k == 0])
            cost = form.cost(*(np.full_like(inner, x) for x in (batch, rows)), inner, left // inner)
            if (cost[1] == elements).any():
                return True
    return False


@pytest.mark.parametrize("operator", PRODUCTS)
def test_numbers_within_bounds_have_shapes(operator: str) -> None:
    form = PRODUCTS[operator]
    found = product_costs(form, 4, (1e5, 3e5), (3e4, 6e4), np.random.default_rng(0))
    assert found
    for flops, moved in found:
        assert 1e5 <= flops <= 3e5
        assert 3e4 <= moved <= 6e4
        assert moved % 4 == 0
        assert factored(form, flops, moved // 4)


def test_without_a_shape_within_bounds_the_nearest_is_taken() -> None:
    form = PRODUCTS["aten::mm"]
    found = product_costs(form, 4, (2e9, 2e9), (16, 16), np.random.default_rng(0))
    assert len(found) == 1
    assert factored(form, found[0][0], found[0][1] // 4, most=8192)


def test_plain_shapes_come_more_often() -> None:
    drawn = [
        product_costs(PRODUCTS["aten::mm"], 4, (1e6, 9e6), (1e5, 9e5), np.random.default_rng(seed))[
            0
        ][0]
        for seed in range(40)
    ]
    assert sum(flops & (flops - 1) == 0 for flops in drawn) > 20


def test_elements_have_the_size_of_their_type() -> None:
    assert [element_bytes(word) for word in ("float64", "bfloat16", "bool", "<other>")] == [
        8, 2, 1, 4,
    ]  # fmt: skip
