"""Operations and bytes of GEMM, attention and mixture-of-experts kernels from their sizes."""

from collections.abc import Mapping

import numpy as np

KERNEL_AXES: Mapping[str, tuple[str, ...]] = {
    "gemm": ("m", "n", "k"),
    "attention_prefill": ("batch", "seq", "heads", "kv_heads", "head_dim", "window"),
    "attention_decode": ("batch", "past", "heads", "kv_heads", "head_dim", "window"),
    "moe": ("tokens", "hidden", "ffn", "experts", "experts_per_token", "tensor", "expert"),
}
"""Sizes of each kind of kernel: m tokens; ``window`` 0 is full attention, ``past`` are the cached
tokens that one new token sees; ``ffn`` is the whole inner width of an expert, of which a rank of
``tensor`` ranks has its share, and of ``experts`` its share of ``expert`` ranks."""

_WEIGHT_BYTES = {
    "bf16": 2.0,
    "fp8": 1.0,
    "fp8_block": 1.0,
    "int8": 1.0,
    "int8_wo": 1.0,
    "sq": 1.0,
    "nvfp4": 0.5625,
    "int4_wo": 0.53,
    "w4a16_mxfp4": 0.53,
    "w4a8_mxfp4_mxfp8": 0.53,
}
"""Bytes of a weight with its share of scales."""
_WEIGHT_ONLY = ("bf16", "int4_wo", "int8_wo", "w4a16_mxfp4")

Work = tuple[np.ndarray, np.ndarray]
"""Floating-point operations and bytes of each kernel, float64 (S,)."""


def precision_class(precision: str) -> str:
    """Return the class of number that the products of a precision run in."""
    if precision in _WEIGHT_ONLY:
        return "bf16"
    return {"nvfp4": "f4", "int8": "i8", "sq": "i8"}.get(precision, "f8")


def weight_bytes(precision: str) -> float:
    """Return the bytes of a weight with its share of scales."""
    return _WEIGHT_BYTES[precision]


def precisions() -> tuple[str, ...]:
    """Return the precisions whose bytes are known."""
    return tuple(_WEIGHT_BYTES)


def kernel_work(kind: str, sizes_SA: np.ndarray, precision: str, kv_precision: str = "") -> Work:
    """Return operations and bytes.

    Args:
        kind: A key of ``KERNEL_AXES``.
        sizes_SA: Sizes in the order of ``KERNEL_AXES[kind]``, shape (S, A).
        precision: Of the products; one of ``precisions()``.
        kv_precision: Of cached keys and values; that of the products by default.
    """
    columns = sizes_SA.astype(np.float64).T
    weight = _WEIGHT_BYTES[precision]
    activation = 2.0 if precision in _WEIGHT_ONLY else min(weight, 1.0)
    if kind == "gemm":
        m, n, k = columns
        return 2 * m * n * k, 2 * m * n + activation * m * k + weight * n * k
    if kind == "moe":
        return _moe(columns, weight)
    batch, length, heads, kv_heads, head_dim, window = columns
    window = np.where(window > 0, window, np.inf)
    if kind == "attention_decode":
        context = np.minimum(np.maximum(length, 1), window)
        cached = 2 * batch * context * kv_heads * head_dim
        kv_bytes = _WEIGHT_BYTES[kv_precision or precision]
        return 4 * batch * heads * head_dim * context, kv_bytes * cached + 4 * batch * heads * (
            head_dim
        )
    inside = np.minimum(length, window)
    pairs = inside * (inside + 1) / 2 + (length - inside) * inside
    rows = batch * length * head_dim
    return 4 * batch * heads * head_dim * pairs, 4 * rows * (heads + kv_heads)


def _moe(columns: np.ndarray, weight: float) -> Work:
    """Return the work of one of tensor x expert ranks, tokens spread evenly over experts."""
    tokens, hidden, ffn, experts, chosen, tensor, expert = columns
    inner, pairs = ffn / tensor, tokens * chosen / expert
    active = experts / expert * (1 - (1 - np.minimum(chosen / experts, 1)) ** tokens)
    moved = active * 3 * hidden * inner * weight + 4 * tokens * hidden
    return 6 * hidden * inner * pairs, moved + 2 * pairs * (2 * inner + hidden)
