"""The matrix products of a trace: sizes that its nodes state, or that follow from their costs.

Chakra's own converter writes the shapes of inputs and outputs of an operator; traces of this
package state operations and bytes only.
"""

import json
from dataclasses import dataclass
from math import prod

import numpy as np

from layerdag.simulator.compute._roofline import item_bytes
from layerdag.simulator.compute._systolic import Gemm
from layerdag.traces import Trace

Shapes = list[tuple[int, ...]]

# Positions of the two factors among the inputs.
_FACTORS = {
    "mm": (0, 1), "bmm": (0, 1), "matmul": (0, 1), "_int_mm": (0, 1), "_scaled_mm": (0, 1),
    "addmm": (1, 2), "addmm_": (1, 2), "_addmm_activation": (1, 2), "baddbmm": (1, 2),
    "baddbmm_": (1, 2),
}  # fmt: skip
_CONVOLUTIONS = frozenset(
    {
        "convolution", "convolution_overrideable", "cudnn_convolution", "miopen_convolution",
        "mkldnn_convolution",
    }
)  # fmt: skip
# Matrix products whose sizes do not follow from the shapes of two arguments.
_OTHER = frozenset({"mv", "addmv", "dot", "convolution_backward"})
_ATTENTION = ("_scaled_dot_product_", "_flash_attention_", "_efficient_attention_")
_LONGEST_SHAPES = 10_000


@dataclass(frozen=True)
class Product:
    """A batch of equal matrix products.

    Attributes:
        gemm: Sizes of one.
        batch: How many there are.
        item_bytes: Bytes of an element.
    """

    gemm: Gemm
    batch: int = 1
    item_bytes: int = 4


def is_matrix_operator(name: str) -> bool:
    """Return whether an operator of PyTorch (``aten::mm``) is a matrix product or a convolution."""
    operator = name.removeprefix("aten::").partition(".")[0]
    known = operator in _FACTORS or operator in _CONVOLUTIONS or operator in _OTHER
    return known or operator == "linear" or operator.startswith(_ATTENTION)


def products_of(trace: Trace, rows: np.ndarray) -> tuple[list[Product], np.ndarray]:
    """Return the distinct matrix products of some nodes, and which of them each node is.

    Args:
        trace: The trace.
        rows: int64 (M,), positions of the nodes.

    Returns:
        The products, and int64 (M,): the index of each node's product, -1 where it is none.
    """
    num_ops = trace.integers("num_ops")[0][rows]
    tensor_size = trace.integers("tensor_size")[0][rows]
    dtypes = trace.dtypes()
    size_M = np.array([item_bytes(dtypes[row]) for row in rows.tolist()], dtype=np.int64)
    io_M6 = trace.io_N6[rows]
    keys = (trace.name_N[rows], io_M6[:, 1], io_M6[:, 4], num_ops, tensor_size, size_M)
    columns_M = np.stack([np.asarray(key, dtype=np.int64) for key in keys], axis=1)
    distinct_U, which_M = np.unique(columns_M, axis=0, return_inverse=True)
    found = [_product(trace, *row) for row in distinct_U.tolist()]
    index_U = np.cumsum([product is not None for product in found]) - 1
    index_U[[product is None for product in found]] = -1
    return [product for product in found if product], index_U[which_M.reshape(-1)]


def first_shape(trace: Trace, row: int) -> tuple[int, ...]:
    """Return the shape of the node's first input, () if it is not stated."""
    shapes = _shapes(_text(trace, int(trace.io_N6[row, 1])))
    return shapes[0] if shapes else ()


def _product(
    trace: Trace, name: int, inputs: int, outputs: int, num_ops: int, tensor_size: int, size: int
) -> Product | None:
    """Return the product of a node, None if it is none or costs nothing."""
    text = _text(trace, name)
    if not is_matrix_operator(text):
        return None
    operator = text.removeprefix("aten::").partition(".")[0]
    stated = _stated(operator, _shapes(_text(trace, inputs)), _shapes(_text(trace, outputs)))
    if stated is not None:
        return Product(*stated, size)
    if num_ops <= 0:
        return None
    return Product(sizes_from_costs(num_ops / 2, tensor_size / size), 1, size)


def _stated(operator: str, inputs: Shapes, outputs: Shapes) -> tuple[Gemm, int] | None:
    """Return sizes and batch of an operator whose shapes are stated; None if they do not fit."""
    if operator in _CONVOLUTIONS and len(inputs) > 1 and outputs:
        weight, image = inputs[1], outputs[0]
        if len(weight) < 3 or len(image) != len(weight) or image[1] != weight[0]:
            return None
        return _sound(image[0] * prod(image[2:]), weight[0], prod(weight[1:]), 1)
    first, second = _FACTORS.get(operator, (0, 1))
    if (operator not in _FACTORS and operator != "linear") or len(inputs) <= second:
        return None
    left, right = inputs[first], inputs[second]
    if operator == "linear":
        right = right[::-1]
    if len(left) < 2 or len(right) < 2 or left[-1] != right[-2]:
        return None
    if len(right) == 2:
        return _sound(prod(left[:-1]), right[-1], left[-1], 1)
    return _sound(left[-2], right[-1], left[-1], prod(right[:-2]))


def _sound(m: int, n: int, k: int, batch: int) -> tuple[Gemm, int] | None:
    return (Gemm(m, n, k), batch) if min(m, n, k, batch) > 0 else None


def sizes_from_costs(macs: float, elements: float) -> Gemm:
    """Return a product M x K by K x N with M = K that has these costs.

    With x = M = K and N = macs / x^2, elements = x^2 + 2 macs / x has two solutions, of which
    the larger one is taken; a cube if there is none, because no product moves fewer elements.

    Args:
        macs: Multiply-adds, M N K.
        elements: Read and written, M K + K N + M N.
    """
    side = macs ** (1 / 3)
    if elements > 3 * side * side:
        side = float(np.roots([1.0, 0.0, -elements, 2.0 * macs]).real.max())
    square = max(round(side), 1)
    return Gemm(square, max(round(macs / square**2), 1), square)


def _text(trace: Trace, index: int) -> str:
    return trace.strings[index] if index >= 0 else ""


def _shapes(text: str) -> Shapes:
    """Return the shapes in a list such as "[[2, 3], [3, 4], []]", [] if it is none."""
    if not text.startswith("[") or len(text) > _LONGEST_SHAPES:
        return []
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return [tuple(item) for item in value if _is_shape(item)] if all(map(_is_shape, value)) else []


def _is_shape(item: object) -> bool:
    return isinstance(item, list) and all(type(size) is int and size >= 0 for size in item)
