"""Kernels: sizes, operations and bytes of each kind, and how long devices take for them.

``KERNEL_AXES`` has a row for each kind of kernel. Times are fitted rooflines: those that the
package ships (``fitted_kernels.json``, written by ``python benchmarks/fit_kernels.py``), and tables
of the package aiconfigurator-core, interpolated in log space. These tables (Apache-2.0) are read
from the installed package (``pip install "layerdag[kernels]"``); nothing of them is copied. A table
is that of one kernel: device, framework, kernel, precision.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from layerdag.errors import ConfigError
from layerdag.hardware.devices import DEVICES, KERNEL_TABLES
from layerdag.hardware.dtypes import WEIGHT_FORMATS
from layerdag.runtime.settings import did_you_mean

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
        """Fit to at least ``MIN_KERNELS`` kernels, by the robust error of the logarithm.

        Their operations and bytes are given over the data sheet's rates, in microseconds.
        """
        from scipy.optimize import least_squares

        step = -(-len(measured_us_S) // MAX_KERNELS)
        rows = (compute_us_S[::step], memory_us_S[::step])
        log_us = np.log(measured_us_S[::step])

        # Long kernels make up a step, so that they count more, though not by their whole time.
        weight = np.exp((log_us - log_us.mean()) / 4).clip(0.3, 3)

        def roofline(logs: np.ndarray) -> KernelRoofline:
            return cls(*np.exp(logs).tolist())

        def residual(logs: np.ndarray) -> np.ndarray:
            return (np.log(roofline(logs).microseconds(*rows)) - log_us) * weight

        bounds = ([-1.0, -7.0, -6.0], [6.0, 3.0, 3.0])
        starts = ([0.9, -0.5, -0.3], [1.0, -3.0, -1.0])
        found = [
            least_squares(residual, start, bounds=bounds, loss="soft_l1", f_scale=0.3)
            for start in starts
        ]
        best = roofline(min(found, key=lambda fit: fit.cost).x)
        error = np.abs(best.microseconds(compute_us_S, memory_us_S) / measured_us_S - 1)
        return cls(best.launch_us, best.compute_share, best.memory_share, float(np.median(error)))


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


def kernel_work(kind: str, sizes_SA: np.ndarray, precision: str) -> Work:
    """Return operations and bytes of kernels with sizes in the order of ``KERNEL_AXES[kind]``.

    ``precision`` is a name of ``WEIGHT_FORMATS``, also of cached keys and values.
    """
    columns = sizes_SA.astype(np.float64).T
    weight = WEIGHT_FORMATS[precision].item_bytes
    activation = WEIGHT_FORMATS[precision].activation_bytes
    if kind == "gemm":
        m, n, k = columns
        return 2 * m * n * k, 2 * m * n + activation * m * k + weight * n * k
    if kind == "moe":
        tokens, hidden, ffn, experts, chosen, tensor, expert = columns
        inner, pairs = ffn / tensor, tokens * chosen / expert
        active = experts / expert * (1 - (1 - np.minimum(chosen / experts, 1)) ** tokens)
        moved = active * 3 * hidden * inner * weight + 4 * tokens * hidden
        return 6 * hidden * inner * pairs, moved + 2 * pairs * (2 * inner + hidden)
    batch, length, heads, kv_heads, head_dim, window = columns
    window = np.where(window > 0, window, np.inf)
    if kind == "attention_decode":
        context = np.minimum(np.maximum(length, 1), window)
        cached = 2 * batch * context * kv_heads * head_dim
        moved = weight * cached + 4 * batch * heads * head_dim
        return 4 * batch * heads * head_dim * context, moved
    inside = np.minimum(length, window)
    pairs = inside * (inside + 1) / 2 + (length - inside) * inside
    rows = batch * length * head_dim
    return 4 * batch * heads * head_dim * pairs, 4 * rows * (heads + kv_heads)


OTHER = "pointwise"
PRODUCT = "product"


@dataclass(frozen=True)
class FittedKernels:
    """Fitted rooflines of families of operators on a device, by keys such as "product/bf16"."""

    device: str
    rooflines: Mapping[str, KernelRoofline]

    def of(self, key: str) -> KernelRoofline:
        """Return the fit of a family, or of its nearest relative."""
        family, _, number = key.partition("/")
        kin = [key, family, f"{family}/half"]
        if number:
            kin += [f"{family}/{other}" for other in ("bf16", "tf32", "f32")]
            kin.append(f"{PRODUCT}/{number}")
        for name in (*kin, OTHER):
            if name in self.rooflines:
                return self.rooflines[name]
        raise ConfigError(
            f"the fitted kernels of {self.device} lack '{OTHER}', which stands for all operators "
            "without a fit of their own; fit them again."
        )


_COMPLETE = "h100"
"""The device of which every family of operators was measured."""
_ALIASES = {"a100-40": "a100-80"}


@cache
def fitted_kernels() -> Mapping[str, FittedKernels]:
    """Return the fits that the package ships, by device."""
    text = resources.files("layerdag.hardware").joinpath("fitted_kernels.json").read_text("utf-8")
    return {
        device: FittedKernels(
            device, {key: KernelRoofline(*numbers) for key, numbers in rooflines.items()}
        )
        for device, rooflines in json.loads(text)["devices"].items()
    }


def fits_of(device: str) -> FittedKernels:
    """Return the fits of a device: its own, completed by those of its nearest kin."""
    fitted = fitted_kernels()

    def distance(name: str) -> float:
        ratios = [
            DEVICES[each].flops["bf16"] / DEVICES[each].bytes_per_s for each in (device, name)
        ]
        return abs(float(np.log(ratios[0] / ratios[1])))

    kin = fitted.get(_ALIASES.get(device, device))
    kin = kin or fitted[min((name for name in fitted if name in DEVICES), key=distance)]
    return FittedKernels(device, {**fitted[_COMPLETE].rooflines, **kin.rooflines})


_NAMES = {
    "gemm_dtype": "precision",
    "attn_dtype": "precision",
    "moe_dtype": "precision",
    "kv_cache_dtype": "kv_precision",
    "kernel_source": "kernel",
    "batch_size": "batch",
    "isl": "seq",
    "step": "past",
    "num_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "window_size": "window",
    "num_tokens": "tokens",
    "hidden_size": "hidden",
    "inter_size": "ffn",
    "topk": "experts_per_token",
    "num_experts": "experts",
    "moe_tp_size": "tensor",
    "moe_ep_size": "expert",
}
_FILES = {
    "gemm": "gemm/{}/gemm_perf.parquet",
    "attention_prefill": "attention/{}/context_attention_perf.parquet",
    "attention_decode": "attention/{}/generation_attention_perf.parquet",
    "moe": "moe/{}/moe_perf.parquet",
}

_NEIGHBORS = 8
_RIDGE = 0.05
_NEAR = 1e-3


@dataclass(frozen=True, eq=False)
class KernelTable:
    """Measured times of one kernel over its sizes.

    Between measured sizes the ratio to the fitted roofline is interpolated: a plane through the
    eight nearest sizes, weighted by their distance in doublings. Outside of the grid the roofline
    alone is used.

    Attributes:
        kind: A key of ``KERNEL_AXES``.
        roofline: Fitted to all rows, at the rates of 1 operation and 1 byte per microsecond.
        logs_SA: log2(1 + size) of the rows, shape (S, A).
        residual_S: log of measured time over the roofline, shape (S,).
        precision: Of products, and of cached keys and values.
        spread: Nine tenths of left-out rows lie within this factor of their prediction.
    """

    kind: str
    roofline: KernelRoofline
    logs_SA: np.ndarray
    residual_S: np.ndarray
    precision: str
    spread: float
    _tree: Any

    @classmethod
    def fit(
        cls, kind: str, sizes_SA: np.ndarray, us_S: np.ndarray, precision: str
    ) -> "KernelTable":
        """Make a table of measured kernels, with sizes and precision as in ``kernel_work``.

        Raises:
            ConfigError: If there are fewer than eight kernels, or a time is not positive.
        """
        from scipy.spatial import cKDTree

        if len(us_S) < MIN_KERNELS or not (np.isfinite(us_S) & (us_S > 0)).all():
            raise ConfigError(
                f"a table of {len(us_S)} kernels ({kind}, {precision}) cannot be interpolated; "
                f"give at least {MIN_KERNELS}, each with a positive time."
            )
        compute, memory = _scaled(kernel_work(kind, sizes_SA, precision))
        roofline = KernelRoofline.fit(compute, memory, us_S)
        logs_SA = np.log2(1.0 + sizes_SA.astype(np.float64))
        residual_S = np.log(us_S / roofline.microseconds(compute, memory))
        left_out = np.arange(len(us_S)) % 10 == 9
        spread = 1.0
        if left_out.sum() >= MIN_KERNELS:
            tree = cKDTree(logs_SA[~left_out])
            found = interpolated(tree, residual_S[~left_out], logs_SA[left_out])
            spread = float(np.exp(np.quantile(np.abs(found - residual_S[left_out]), 0.9)))
        tree = cKDTree(logs_SA)
        return cls(kind, roofline, logs_SA, residual_S, precision, spread, tree)

    def microseconds(self, sizes_SA: np.ndarray) -> np.ndarray:
        """Return the time of kernels of these sizes, shape (S,)."""
        work = kernel_work(self.kind, sizes_SA, self.precision)
        logs_SA = np.log2(1.0 + sizes_SA.astype(np.float64))
        residual_S = interpolated(self._tree, self.residual_S, logs_SA)
        residual_S = np.where(self.covers(sizes_SA), residual_S, 0.0)
        return self.roofline.microseconds(*_scaled(work)) * np.exp(residual_S)

    def covers(self, sizes_SA: np.ndarray) -> np.ndarray:
        """Return which sizes lie inside of the measured ones, bool (S,).

        The last two sizes of an axis differ by a doubling; farther out nothing was measured.
        """
        logs_SA = np.log2(1.0 + sizes_SA.astype(np.float64))
        low, high = self.logs_SA.min(axis=0) - 1, self.logs_SA.max(axis=0) + 1
        inside: np.ndarray = ((logs_SA >= low) & (logs_SA <= high)).all(axis=1)
        return inside


def _scaled(work: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the times of work on a device of 1 PFLOP/s and 1 TB/s, in microseconds."""
    return work[0] / 1e9, work[1] / 1e6


def interpolated(tree: Any, value_S: np.ndarray, query_QA: np.ndarray) -> np.ndarray:
    """Return values at other places, shape (Q,): planes through the nearest places of a tree."""
    near = min(_NEIGHBORS, len(value_S))
    distance_QK, index_QK = tree.query(query_QA, k=near)
    weight_QK = 1.0 / (distance_QK + _NEAR) ** 2
    offsets = tree.data[index_QK] - query_QA[:, None]
    plane = np.concatenate([np.ones((*index_QK.shape, 1)), offsets], axis=2)
    weighted = plane * weight_QK[..., None]
    ridge = np.diag([0.0] + [_RIDGE] * query_QA.shape[1])
    matrix = np.einsum("qka,qkb->qab", weighted, plane)
    matrix += ridge * weight_QK.sum(axis=1)[:, None, None]
    right = np.einsum("qka,qk->qa", weighted, value_S[index_QK])
    found = np.linalg.solve(matrix, right[..., None])[:, 0, 0]
    # A plane may leave the values that it goes through; a kernel does not.
    values = value_S[index_QK]
    return np.clip(found, values.min(axis=1), values.max(axis=1))


def read_kernels(device: str, kind: str) -> Any:
    """Return the newest table of a device as a pandas frame, with the names of ``KERNEL_AXES``.

    Further columns: kernel, precision, kv_precision, distribution, us.

    Raises:
        ConfigError: If the package is not installed or has no such table.
    """
    found = find_spec("aiconfigurator_core")
    if found is None or not found.submodule_search_locations:
        raise ConfigError(
            'measured kernels need the package aiconfigurator-core: pip install "layerdag[kernels]"'
        )
    root = Path(next(iter(found.submodule_search_locations))) / "systems" / "data"
    name = KERNEL_TABLES.get(device, device)
    if not (root / name).is_dir():
        known = sorted({*KERNEL_TABLES, *(path.name for path in root.iterdir() if path.is_dir())})
        raise ConfigError(
            f"no measured kernels of '{device}'.{did_you_mean(device, known)} Known are "
            f"{', '.join(known)}."
        )
    import pandas

    def version(path: Path) -> list[int]:
        return [int(digits) for digits in re.findall(r"\d+", path.parent.name)]

    files = sorted((root / name).glob(_FILES[kind].format("vllm/*")), key=version)
    if not files:
        raise ConfigError(f"{root / name}: no measured kernels of kind {kind} by vLLM.")
    frame = pandas.read_parquet(files[-1]).rename(columns=_NAMES)
    for column in ("window", "seq", "past"):
        if column not in frame:
            frame[column] = 0
    frame["us"] = frame["latency"] * 1e3
    for column in frame.columns.intersection(["precision", "kv_precision"]):
        frame[column] = frame[column].replace({"bfloat16": "bf16"})
    return frame[frame["precision"].isin(list(WEIGHT_FORMATS)) & (frame["us"] > 0)]


@cache
def installed_table(device: str, kind: str, precision: str) -> KernelTable | None:
    """Return the installed table of a device's most measured kernel; None where it has none."""
    try:
        frame = read_kernels(device, kind)
    except ConfigError:
        return None
    exact = frame["precision"] == precision
    frame = frame[exact if exact.any() else frame["precision"] == f"{precision}_block"]
    if "kv_precision" in frame:
        frame = frame[frame["kv_precision"] == precision]
    if "distribution" in frame:
        # Words sort from even loads to skewed ones; a device may have been measured with skew only.
        frame = frame[frame["distribution"] == frame["distribution"].min()]
    if len(frame) < MIN_KERNELS:
        return None
    frame = frame[frame["kernel"] == frame["kernel"].mode().iloc[0]]
    sizes_SA = frame[list(KERNEL_AXES[kind])].to_numpy(np.float64)
    us_S = frame["us"].to_numpy()
    return KernelTable.fit(kind, sizes_SA, us_S, str(frame["precision"].iloc[0]))
