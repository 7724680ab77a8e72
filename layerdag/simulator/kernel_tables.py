"""Measured kernels of the package aiconfigurator-core, interpolated in log space.

The tables (Apache-2.0) are read from the installed package (``pip install "layerdag[kernels]"``);
nothing of them is copied. A table is that of one kernel: device, framework, kernel, precision.
"""

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from layerdag.errors import ConfigError
from layerdag.hardware.devices import KERNEL_TABLES
from layerdag.hardware.dtypes import WEIGHT_FORMATS
from layerdag.runtime.settings import did_you_mean
from layerdag.simulator.kernel_roofline import (
    KERNEL_AXES,
    MIN_KERNELS,
    KernelRoofline,
    kernel_work,
)

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
        precision: Of products.
        kv_precision: Of cached keys and values.
        spread: Nine tenths of left-out rows lie within this factor of their prediction.
    """

    kind: str
    roofline: KernelRoofline
    logs_SA: np.ndarray
    residual_S: np.ndarray
    precision: str
    kv_precision: str
    spread: float
    _tree: Any

    @classmethod
    def fit(
        cls,
        kind: str,
        sizes_SA: np.ndarray,
        us_S: np.ndarray,
        precision: str,
        kv_precision: str = "",
    ) -> "KernelTable":
        """Make a table of measured kernels.

        Args:
            kind: A key of ``KERNEL_AXES``.
            sizes_SA: Their sizes, in the order of ``KERNEL_AXES[kind]``.
            us_S: Microseconds.
            precision: A name of ``WEIGHT_FORMATS``.
            kv_precision: Of cached keys and values; that of the products by default.

        Raises:
            ConfigError: If there are fewer than eight kernels, or a time is not positive.
        """
        from scipy.spatial import cKDTree

        if len(us_S) < MIN_KERNELS or not (np.isfinite(us_S) & (us_S > 0)).all():
            raise ConfigError(
                f"a table of {len(us_S)} kernels ({kind}, {precision}) cannot be interpolated; "
                f"give at least {MIN_KERNELS}, each with a positive time."
            )
        compute, memory = _scaled(kernel_work(kind, sizes_SA, precision, kv_precision))
        roofline = KernelRoofline.fit(compute, memory, us_S)
        logs_SA = np.log2(1.0 + sizes_SA.astype(np.float64))
        residual_S = np.log(us_S / roofline.microseconds(compute, memory))
        parts = (kind, roofline, logs_SA, residual_S, precision, kv_precision)
        left_out = np.arange(len(us_S)) % 10 == 9
        spread = 1.0
        if left_out.sum() >= MIN_KERNELS:
            tree = cKDTree(logs_SA[~left_out])
            rest = (tree, logs_SA[~left_out], residual_S[~left_out])
            error = np.abs(interpolated(*rest, logs_SA[left_out]) - residual_S[left_out])
            spread = float(np.exp(np.quantile(error, 0.9)))
        return cls(*parts, spread, cKDTree(logs_SA))

    def microseconds(self, sizes_SA: np.ndarray) -> np.ndarray:
        """Return the time of kernels of these sizes, shape (S,)."""
        work = kernel_work(self.kind, sizes_SA, self.precision, self.kv_precision)
        logs_SA = np.log2(1.0 + sizes_SA.astype(np.float64))
        residual_S = interpolated(self._tree, self.logs_SA, self.residual_S, logs_SA)
        residual_S = np.where(self.covers(sizes_SA), residual_S, 0.0)
        return self.roofline.microseconds(*_scaled(work)) * np.exp(residual_S)

    def covers(self, sizes_SA: np.ndarray) -> np.ndarray:
        """Return which sizes lie inside of the measured ones, bool (S,).

        Between the last two sizes of an axis lies one doubling; farther out nothing was measured.
        """
        logs_SA = np.log2(1.0 + sizes_SA.astype(np.float64))
        low, high = self.logs_SA.min(axis=0) - 1, self.logs_SA.max(axis=0) + 1
        inside: np.ndarray = ((logs_SA >= low) & (logs_SA <= high)).all(axis=1)
        return inside

    def interval(self, sizes_SA: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return bounds within which nine tenths of left-out kernels lay, in microseconds."""
        middle = self.microseconds(sizes_SA)
        return middle / self.spread, middle * self.spread


def _scaled(work: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the times of work on a device of 1 PFLOP/s and 1 TB/s, in microseconds."""
    return work[0] / 1e9, work[1] / 1e6


def interpolated(
    tree: Any, logs_SA: np.ndarray, residual_S: np.ndarray, query_QA: np.ndarray
) -> np.ndarray:
    """Return values at other sizes, shape (Q,): planes through the nearest known ones."""
    near = min(_NEIGHBORS, len(residual_S))
    distance_QK, index_QK = tree.query(query_QA, k=near)
    weight_QK = 1.0 / (distance_QK + _NEAR) ** 2
    offsets = logs_SA[index_QK] - query_QA[:, None]
    plane = np.concatenate([np.ones((*index_QK.shape, 1)), offsets], axis=2)
    weighted = plane * weight_QK[..., None]
    ridge = np.diag([0.0] + [_RIDGE] * query_QA.shape[1])
    matrix = np.einsum("qka,qkb->qab", weighted, plane)
    matrix += ridge * weight_QK.sum(axis=1)[:, None, None]
    right = np.einsum("qka,qk->qa", weighted, residual_S[index_QK])
    found = np.linalg.solve(matrix, right[..., None])[:, 0, 0]
    # A plane may leave the values that it goes through; a kernel does not.
    values = residual_S[index_QK]
    return np.clip(found, values.min(axis=1), values.max(axis=1))


def tables_root() -> Path:
    """Return the folder of the package's tables.

    Raises:
        ConfigError: If the package is not installed.
    """
    found = find_spec("aiconfigurator_core")
    if found is None or not found.submodule_search_locations:
        raise ConfigError(
            'measured kernels need the package aiconfigurator-core: pip install "layerdag[kernels]"'
        )
    return Path(next(iter(found.submodule_search_locations))) / "systems" / "data"


def read_kernels(device: str, kind: str, framework: str = "vllm") -> Any:
    """Return the newest table of a device as a pandas frame, with the names of ``KERNEL_AXES``.

    Columns beside the sizes: kernel, precision, kv_precision, distribution, us.

    Raises:
        ConfigError: If the package is not installed or has no such table.
    """
    root = tables_root()
    name = KERNEL_TABLES.get(device, device)
    if not (root / name).is_dir():
        known = sorted({*KERNEL_TABLES, *(path.name for path in root.iterdir() if path.is_dir())})
        raise ConfigError(
            f"no measured kernels of '{device}'.{did_you_mean(device, known)} Known are "
            f"{', '.join(known)}."
        )
    import pandas

    found = sorted((root / name).glob(_FILES[kind].format(f"{framework}/*")), key=_version)
    if not found:
        raise ConfigError(f"{root / name}: no measured kernels of kind {kind} by {framework}.")
    frame = pandas.read_parquet(found[-1]).rename(columns=_NAMES)
    for column in ("window", "seq", "past"):
        if column not in frame:
            frame[column] = 0
    frame["us"] = frame["latency"] * 1e3
    frame["precision"] = frame["precision"].replace({"bfloat16": "bf16"})
    if "kv_precision" in frame:
        frame["kv_precision"] = frame["kv_precision"].replace({"bfloat16": "bf16"})
    return frame[frame["precision"].isin(list(WEIGHT_FORMATS)) & (frame["us"] > 0)]


def _version(path: Path) -> tuple[int, ...]:
    digits = "".join(c if c.isdigit() else " " for c in path.parent.name)
    return tuple(int(part) for part in digits.split())


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
