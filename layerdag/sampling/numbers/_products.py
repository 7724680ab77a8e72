"""Shapes of matrix products within bounds of FLOPs and bytes.

Shapes are looked up in a grid of sizes as programs have them: one to seven times a power of two.
"""

from functools import cache

import numpy as np

from layerdag.datasets.schema.costs import ProductForm

_LARGEST = 1 << 13
_BATCHES = 1 << np.arange(11)
_ELEMENT = {
    **{"float64": 8, "complex64": 8, "float16": 2, "bfloat16": 2},
    **{"int8": 1, "uint8": 1, "bool": 1},
}
_USUAL_ELEMENT = 4
_MOST_FOUND = 4
_ODD_WEIGHT = 1 / 16

Bounds = tuple[float, float]


def element_bytes(dtype: str) -> int:
    """Return the bytes of an element; of an unknown type those of a float32."""
    return _ELEMENT.get(dtype, _USUAL_ELEMENT)


def product_costs(
    form: ProductForm, element: int, flops: Bounds, moved: Bounds, rng: np.random.Generator
) -> list[tuple[int, int]]:
    """Return FLOPs and bytes of a few shapes within bounds, or of the nearest one outside.

    Args:
        form: The operator's rule.
        element: Bytes of an element.
        flops: Least and most.
        moved: Least and most bytes.
        rng: Chooses among many shapes; each size that is no power of two makes one rarer.
    """
    flops_S, elements_S, odd_S = _grid(form)
    first, last = np.searchsorted(flops_S, [flops[0], np.nextafter(flops[1], np.inf)])
    bytes_S = elements_S[first:last] * element
    fits = first + np.flatnonzero((bytes_S >= moved[0]) & (bytes_S <= moved[1]))
    if not fits.size:
        fits = _nearest(flops_S, elements_S * element, flops, moved)
    weight = _ODD_WEIGHT ** odd_S[fits].astype(np.float64)
    chosen = rng.choice(
        fits, min(_MOST_FOUND, fits.size), replace=False, p=weight / weight.sum()
    ).tolist()
    return [(int(flops_S[index]), int(elements_S[index]) * element) for index in chosen]


def _nearest(flops_S: np.ndarray, bytes_S: np.ndarray, flops: Bounds, moved: Bounds) -> np.ndarray:
    """Return the shape with the least distance to the bounds, in logarithms."""
    distance_S = sum(
        np.abs(np.log(value_S / np.clip(value_S, max(low, 1), max(high, 1))))
        for value_S, (low, high) in ((flops_S, flops), (bytes_S, moved))
    )
    return np.array([int(np.argmin(distance_S))])


@cache
def _grid(form: ProductForm) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return FLOPs, elements and the number of sizes that are no power of two, by FLOPs."""
    factors = np.array([4, 6] if form.batched else [4, 5, 6, 7])
    sizes = np.unique(np.concatenate([[1, 2, 3], *(factors << k for k in range(12))]))
    sizes = sizes[sizes <= (_LARGEST >> 2 if form.batched else _LARGEST)]
    batches = _BATCHES if form.batched else _BATCHES[:1]
    b_S, m_S, k_S, n_S = (axis.ravel() for axis in np.meshgrid(batches, sizes, sizes, sizes))
    flops_S, elements_S = form.cost(b_S, m_S, k_S, n_S)
    odd_S = sum((size_S & (size_S - 1) > 0).astype(np.int8) for size_S in (m_S, k_S, n_S))
    order_S = np.argsort(flops_S, kind="stable")
    return flops_S[order_S], elements_S[order_S], odd_S[order_S]
