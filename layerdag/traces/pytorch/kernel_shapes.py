"""Results of operators whose shapes follow from what a profile shows of their arguments."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from layerdag.hardware.operators import kernel_sizes
from layerdag.traces.pytorch.operators import TensorView

_WINDOWS = {
    **dict.fromkeys(("aten::convolution", "aten::_convolution"), (3, 4, 5)),
    "aten::cudnn_convolution": (3, 2, 4),
}
"""Where strides, paddings and dilations stand among the arguments."""
_TRANSPOSED = 6
_WHOLE = re.compile(r"\[(\d{1,6}(?:, ?\d{1,6})*)\]", re.ASCII)


def shown_results(
    name: str, args: Mapping[str, Any], reads: Sequence[TensorView]
) -> list[TensorView]:
    """Return the results that follow from what a profile shows of arguments; empty for others."""
    if name in _WINDOWS:
        shape = _convolved(name, args, reads)
    else:
        sizes = kernel_sizes(name, reads, ())
        is_product = {"m", "n", "k", "batch"} == sizes.keys() and "convolution" not in name
        shape = (sizes["batch"], sizes["m"], sizes["n"]) if is_product else None
    if shape is None:
        return []
    item = reads[0].num_bytes // max(reads[0].num_elements, 1)
    size = math.prod(shape) * item
    return [TensorView(0, 0, size, size, shape, reads[0].dtype, "")]


def _convolved(
    name: str, args: Mapping[str, Any], reads: Sequence[TensorView]
) -> tuple[int, ...] | None:
    """Return the shape of a convolution's result, None where its windows are not shown."""
    if len(reads) < 2 or len(reads[0].shape) != len(reads[1].shape) or len(reads[0].shape) < 3:
        return None
    texts = args.get("Concrete Inputs")
    if not isinstance(texts, list) or len(texts) <= _TRANSPOSED:
        return None
    if "cudnn" not in name and texts[_TRANSPOSED] != "False":
        return None
    image, weight = reads[0].shape, reads[1].shape
    windows = [_whole_numbers(texts[place], len(image) - 2) for place in _WINDOWS[name]]
    if not all(windows):
        return None
    sides = [
        (side + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
        for side, kernel, stride, padding, dilation in zip(
            image[2:], weight[2:], *windows, strict=True
        )
        if stride
    ]
    is_shape = len(sides) == len(image) - 2 and min(sides) > 0
    return (image[0], weight[0], *sides) if is_shape else None


def _whole_numbers(text: object, count: int) -> list[int]:
    """Return so many numbers of a text such as "[2, 2]"; empty if it holds others."""
    found = _WHOLE.fullmatch(text) if isinstance(text, str) else None
    numbers = [int(number) for number in found[1].split(",")] if found else []
    return numbers if len(numbers) == count else []
