"""Operations and bytes of a kernel from its sizes, and how long a roofline takes for them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from layerdag.hardware.dtypes import WEIGHT_FORMATS

MIN_KERNELS = 8
MAX_KERNELS = 2000


@dataclass(frozen=True)
class KernelRoofline:
    """Time = launch + sqrt(compute^2 + memory^2), which rounds the corner of the roofline.

    Attributes:
        launch_us: Time of a kernel without work, in microseconds.
        compute_share: Share of the data sheet's peak that long kernels reach; above 1 where the
            operations of a kernel are counted too high.
        memory_share: Share of the bandwidth.
        error: Median relative error of the kernels that it was fitted to.
    """

    launch_us: float
    compute_share: float
    memory_share: float
    error: float = 0.0

    def microseconds(self, compute_us_S: np.ndarray, memory_us_S: np.ndarray) -> np.ndarray:
        """Return the time of kernels from their times at the data sheet's rates, shape (S,)."""
        return self.launch_us + np.hypot(
            compute_us_S / self.compute_share, memory_us_S / self.memory_share
        )

    @classmethod
    def fit(
        cls, compute_us_S: np.ndarray, memory_us_S: np.ndarray, measured_us_S: np.ndarray
    ) -> "KernelRoofline":
        """Fit to measured kernels, by the robust error of the logarithm.

        Args:
            compute_us_S: Operations over the data sheet's peak, in microseconds.
            memory_us_S: Bytes over its bandwidth.
            measured_us_S: Measured times, all positive; at least ``MIN_KERNELS``.
        """
        from scipy.optimize import least_squares

        step = -(-len(measured_us_S) // MAX_KERNELS)
        rows = (compute_us_S[::step], memory_us_S[::step])
        log_us = np.log(measured_us_S[::step])

        # Long kernels make up a step, so that they count more, though not by their whole time.
        weight = np.exp((log_us - log_us.mean()) / 4).clip(0.3, 3)

        def residual(logs: np.ndarray) -> np.ndarray:
            return (np.log(_of(logs).microseconds(*rows)) - log_us) * weight

        bounds = ([-1.0, -7.0, -6.0], [6.0, 3.0, 3.0])
        starts = ([0.9, -0.5, -0.3], [1.0, -3.0, -1.0])
        found = [
            least_squares(residual, start, bounds=bounds, loss="soft_l1", f_scale=0.3)
            for start in starts
        ]
        best = _of(min(found, key=lambda fit: fit.cost).x)
        error = np.abs(best.microseconds(compute_us_S, memory_us_S) / measured_us_S - 1)
        return cls(best.launch_us, best.compute_share, best.memory_share, float(np.median(error)))


def _of(logs: np.ndarray) -> KernelRoofline:
    launch, compute, memory = np.exp(logs).tolist()
    return KernelRoofline(launch, compute, memory)


KERNEL_AXES: Mapping[str, tuple[str, ...]] = {
    "gemm": ("m", "n", "k"),
    "attention_prefill": ("batch", "seq", "heads", "kv_heads", "head_dim", "window"),
    "attention_decode": ("batch", "past", "heads", "kv_heads", "head_dim", "window"),
    "moe": ("tokens", "hidden", "ffn", "experts", "experts_per_token", "tensor", "expert"),
}
"""Sizes of each kind of kernel: m tokens; ``window`` 0 is full attention, ``past`` are the cached
tokens that one new token sees; ``ffn`` is the whole inner width of an expert, of which a rank of
``tensor`` ranks has its share, and of ``experts`` its share of ``expert`` ranks."""

Work = tuple[np.ndarray, np.ndarray]
"""Floating-point operations and bytes of each kernel, float64 (S,)."""


def kernel_work(kind: str, sizes_SA: np.ndarray, precision: str, kv_precision: str = "") -> Work:
    """Return operations and bytes.

    Args:
        kind: A key of ``KERNEL_AXES``.
        sizes_SA: Sizes in the order of ``KERNEL_AXES[kind]``, shape (S, A).
        precision: Of the products; a name of ``WEIGHT_FORMATS``.
        kv_precision: Of cached keys and values; that of the products by default.
    """
    columns = sizes_SA.astype(np.float64).T
    weight = WEIGHT_FORMATS[precision].item_bytes
    activation = WEIGHT_FORMATS[precision].activation_bytes
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
        kv_bytes = WEIGHT_FORMATS[kv_precision or precision].item_bytes
        return 4 * batch * heads * head_dim * context, kv_bytes * cached + 4 * batch * heads * (
            head_dim
        )
    inside = np.minimum(length, window)
    pairs = inside * (inside + 1) / 2 + (length - inside) * inside
    rows = batch * length * head_dim
    return 4 * batch * heads * head_dim * pairs, 4 * rows * (heads + kv_heads)


def _moe(columns: np.ndarray, weight: float) -> Work:
    tokens, hidden, ffn, experts, chosen, tensor, expert = columns
    inner, pairs = ffn / tensor, tokens * chosen / expert
    active = experts / expert * (1 - (1 - np.minimum(chosen / experts, 1)) ** tokens)
    moved = active * 3 * hidden * inner * weight + 4 * tokens * hidden
    return 6 * hidden * inner * pairs, moved + 2 * pairs * (2 * inner + hidden)
