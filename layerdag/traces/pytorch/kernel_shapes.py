"""Sizes of an operator that decide how fast its kernel runs, from the shapes of its tensors.

A matrix product has ``batch`` products of m x k by k x n; a convolution is the product of its
positions (m) by its filters (n), with k weights each, once for each group (batch). Attention has
``batch, heads, kv_heads, sequence, kv_sequence, head_dim``. Normalizations, softmax, embeddings and
reductions have m rows of n numbers.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from layerdag.traces.pytorch.operators import TensorView

Tensors = Sequence[TensorView]
Sizes = dict[str, int]


def kernel_sizes(name: str, reads: Tensors, writes: Tensors) -> Sizes:
    """Return the sizes of one call by name; empty where they are not known.

    Args:
        name: Operator, such as "aten::addmm".
        reads: Its tensor arguments in order.
        writes: Its tensor results in order (arguments written in place, if there are none).
    """
    rule = _RULES.get(name.removeprefix("aten::"))
    found = rule(reads, writes) if rule and reads else None
    if found is None or not all(0 < size < 2**31 for size in found.values()):
        return {}
    return found


def _product(first: int) -> Callable[[Tensors, Tensors], Sizes | None]:
    def rule(reads: Tensors, writes: Tensors) -> Sizes | None:
        del writes
        if len(reads) < first + 2:
            return None
        left, right = reads[first].shape, reads[first + 1].shape
        if len(left) < 2 or len(right) < 2:
            return None
        batch = math.prod(left[:-2])
        return {"batch": batch, "m": left[-2], "n": right[-1], "k": left[-1]}

    return rule


def _grouped_product(reads: Tensors, writes: Tensors) -> Sizes | None:
    """One product for each expert, of an equal share of the rows; or of the sum, backward."""
    if len(reads) < 2 or not writes:
        return None
    left, right, result = reads[0].shape, reads[1].shape, writes[0].shape
    if len(left) == 2 and len(right) == 3:
        groups = max(right[0], 1)
        return {"batch": groups, "m": -(-left[0] // groups), "n": right[2], "k": left[1]}
    if len(left) == 2 and len(right) == 2 and len(result) == 3:
        groups = max(result[0], 1)
        return {"batch": groups, "m": left[0], "n": right[1], "k": -(-left[1] // groups)}
    return _product(0)(reads, writes)


def _convolution(reads: Tensors, writes: Tensors) -> Sizes | None:
    if len(reads) < 2 or not writes:
        return None
    return _filters(reads[0].shape, reads[1].shape, writes[0].shape)


def _convolution_backward(reads: Tensors, writes: Tensors) -> Sizes | None:
    del writes
    if len(reads) < 3:
        return None
    return _filters(reads[1].shape, reads[2].shape, reads[0].shape)


def _filters(
    image: tuple[int, ...], weight: tuple[int, ...], result: tuple[int, ...]
) -> Sizes | None:
    if len(image) < 3 or len(weight) < 3 or len(result) < 3 or not weight[0] or not weight[1]:
        return None
    groups = max(image[1] // weight[1], 1)
    positions = result[0] * math.prod(result[2:])
    per_filter = math.prod(weight[1:])
    return {"batch": groups, "m": positions, "n": weight[0] // groups, "k": per_filter}


def _attention(first: int) -> Callable[[Tensors, Tensors], Sizes | None]:
    def rule(reads: Tensors, writes: Tensors) -> Sizes | None:
        del writes
        if len(reads) < first + 2:
            return None
        query, key = reads[first].shape, reads[first + 1].shape
        if len(query) != 4 or len(key) != 4:
            return None
        return {
            "batch": query[0],
            "heads": query[1],
            "kv_heads": key[1],
            "sequence": query[2],
            "kv_sequence": key[2],
            "head_dim": query[3],
        }

    return rule


def _encoder_layer(reads: Tensors, writes: Tensors) -> Sizes | None:
    del writes
    if len(reads[0].shape) != 3:
        return None
    batch, sequence, width = reads[0].shape
    return {"batch": 1, "m": batch * sequence, "n": 4 * width, "k": width}


def _channels(first: int) -> Callable[[Tensors, Tensors], Sizes | None]:
    def rule(reads: Tensors, writes: Tensors) -> Sizes | None:
        del writes
        if len(reads) <= first or len(reads[first].shape) < 2:
            return None
        shape = reads[first].shape
        return {"m": shape[0] * math.prod(shape[2:]), "n": shape[1]}

    return rule


def _last(reads: Tensors, writes: Tensors) -> Sizes | None:
    del writes
    return _rows_of(reads[0].shape)


def _rows_of(shape: tuple[int, ...]) -> Sizes | None:
    return {"m": math.prod(shape[:-1]), "n": shape[-1]} if shape else None


def _gathered(reads: Tensors, writes: Tensors) -> Sizes | None:
    del writes
    if len(reads) < 2 or not reads[0].shape:
        return None
    return {"m": reads[1].num_elements, "n": reads[0].shape[-1]}


def _reduced(reads: Tensors, writes: Tensors) -> Sizes | None:
    if not writes or not writes[0].num_elements:
        return None
    rows = writes[0].num_elements
    return {"m": rows, "n": max(reads[0].num_elements // rows, 1)}


_RULES: dict[str, Callable[[Tensors, Tensors], Sizes | None]] = {
    **dict.fromkeys(("mm", "bmm", "_scaled_mm", "_int_mm", "matmul", "linear"), _product(0)),
    **dict.fromkeys(("addmm", "baddbmm", "_addmm_activation"), _product(1)),
    **dict.fromkeys(("_grouped_mm", "_scaled_grouped_mm"), _grouped_product),
    **dict.fromkeys(("convolution", "cudnn_convolution", "_convolution"), _convolution),
    "convolution_backward": _convolution_backward,
    **dict.fromkeys(
        (
            "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_efficient_attention",
            "_scaled_dot_product_cudnn_attention",
            "_scaled_dot_product_fused_attention_overrideable",
            "_scaled_dot_product_attention_math",
            "_scaled_dot_product_flash_attention_for_cpu",
        ),
        _attention(0),
    ),
    **dict.fromkeys(
        (
            "_scaled_dot_product_flash_attention_backward",
            "_scaled_dot_product_efficient_attention_backward",
            "_scaled_dot_product_cudnn_attention_backward",
            "_scaled_dot_product_fused_attention_overrideable_backward",
            "_scaled_dot_product_flash_attention_for_cpu_backward",
        ),
        _attention(1),
    ),
    "_native_multi_head_attention": _encoder_layer,
    **dict.fromkeys(("native_batch_norm", "cudnn_batch_norm", "native_group_norm"), _channels(0)),
    **dict.fromkeys(
        ("native_batch_norm_backward", "cudnn_batch_norm_backward", "native_group_norm_backward"),
        _channels(1),
    ),
    **dict.fromkeys(
        (
            "native_layer_norm",
            "native_layer_norm_backward",
            "_fused_rms_norm",
            "_fused_rms_norm_backward",
            "_softmax",
            "_softmax_backward_data",
            "_log_softmax",
            "_log_softmax_backward_data",
            "_safe_softmax",
            "sort",
            "topk",
            "embedding_dense_backward",
        ),
        _last,
    ),
    **dict.fromkeys(("embedding", "_embedding_bag"), _gathered),
    "_embedding_bag_backward": _gathered,
    **dict.fromkeys(("sum", "mean", "amax", "norm", "linalg_vector_norm"), _reduced),
}


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
    """Return the results that follow from what a profile shows of arguments; empty for others.

    Args:
        name: Of the operator, such as "aten::convolution".
        args: Details of its event.
        reads: Its tensor arguments, not empty.
    """
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
