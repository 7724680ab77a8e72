"""Times of compute nodes on a real device, from kernels that were measured on it.

Products, experts and attention of serving engines whose sizes a node states (``kernel_calls``) take
the time of the installed table of measured kernels, outside of its sizes or without it that of the
kernel's roofline; all others that of their family of operators, whose kernels cost alike. A device
without fits of its own takes the shares of its nearest kin at its own data sheet.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from layerdag.errors import ConfigError
from layerdag.hardware.devices import Device, require_device
from layerdag.hardware.dtypes import USUAL_WEIGHTS, item_bytes, nearest_class, number_class
from layerdag.hardware.kernels import (
    KERNEL_AXES,
    FittedKernels,
    fits_of,
    installed_table,
    kernel_work,
)
from layerdag.hardware.operators import operator_family
from layerdag.simulator.compute import ComputeModel, MeasuredCompute, refuse_negative, whole_ns
from layerdag.traces.trace import OPERATOR, Trace

_WITH_KNOWN_STATISTICS = "batch_norm_inference"
"""Batch normalization of a step without backward pass: element by element, not by channels."""

_OF_JOBS = frozenset(("mm", "attention"))
"""Operators (``op_type``) of ``layerdag workload`` whose names do not say their families."""
_BACKWARD = re.compile(r"\.B\d+$")
"""End of the names of those of a backward pass; "again" follows where they are forward ones."""
_INTENSE = 30.0
"""Operations for each byte above which an unknown operator is a matrix product."""
_CHANNEL_ROWS_PER_US = 1e3
"""Rows of one channel, which batch normalization reads by one block of threads alone."""
_THIN = 64
_UNITS = 132
"""Blocks of threads that run at once, of an H100; the last wave of a product is rarely full."""
_TILE = 64
"""Rows and columns of such a block."""

WITH_PRODUCTS = ("product", "grouped_product", "encoder_attention", "convolution")


@dataclass(frozen=True)
class KernelWork:
    """What the times of compute nodes follow from, each of shape (M,).

    Keys are the family, and the class of number where it matters, such as "product/bf16"; times are
    operations and bytes over the rates of the data sheet.
    """

    keys: list[str]
    compute_us: np.ndarray
    memory_us: np.ndarray


def node_work(trace: Trace, rows: np.ndarray, device: Device, tf32: bool) -> KernelWork:
    """Return the work of compute nodes (M,) on a device.

    With ``tf32`` products of single precision run as TF32, at half the rate of bf16.
    """
    dtypes = trace.dtypes()
    sizes, present = sizes_of(trace, rows)
    # Operations of fused attention from its sizes, 0 where they are not stated.
    names = ("batch", "heads", "sequence", "kv_sequence", "head_dim")
    columns = [trace.integers(name)[0][rows].astype(np.float64) for name in names]
    attended = 4 * np.prod(columns, axis=0)
    num_ops = trace.integers("num_ops")[0][rows].astype(np.float64)
    num_bytes = trace.integers("tensor_size")[0][rows].astype(np.float64)
    keys, peaks = [], np.empty(len(rows))
    families = _families(trace, rows)
    for at, row in enumerate(rows.tolist()):
        family, dtype = families[at], dtypes[row]
        m, n, k, batch = sizes[at].tolist()
        item = item_bytes(dtype) or 4
        if family == "pointwise" and num_ops[at] > _INTENSE * max(num_bytes[at], 1):
            family = "product"
        number = number_class(dtype) or "f32"
        if number == "f8" and "f8" not in device.flops:
            number = "bf16"
        peaks[at] = device.flops.get(number, device.flops["f32"])
        if number == "f32" and tf32 and family.startswith((*WITH_PRODUCTS, "attention")):
            number, peaks[at] = "tf32", device.flops["bf16"] / 2
        if present[at] and family.startswith(WITH_PRODUCTS):
            twice = 2 if family == "convolution_backward" else 1
            num_ops[at] = 2 * batch * m * n * k * twice
            if family.startswith("convolution") and batch == 1:
                num_ops[at] *= _waste(m, n)
            if family.startswith("convolution") and batch > 1:
                family += "_thin" if k <= _THIN else "_grouped"
                if k <= _THIN:
                    # Too few numbers for the units of matrix products, whatever their format.
                    number, peaks[at] = "f32", device.flops["f32"]
        elif attended[at] and family.startswith("attention"):
            # Fits count whole squares, as PyTorch does, and five products of a backward pass.
            num_ops[at] = attended[at] * (2.5 if family == "attention_backward" else 1)
        elif present[at] and "embedding" in family:
            num_ops[at], num_bytes[at] = m * n, 2 * m * n * item
        elif present[at] and "batch_norm" in family and family != _WITH_KNOWN_STATISTICS:
            num_ops[at] = peaks[at] / 1e6 * m / _CHANNEL_ROWS_PER_US
        keys.append(family_key(family, number, item))
    return KernelWork(keys, num_ops / peaks * 1e6, num_bytes / device.bytes_per_s * 1e6)


def _families(trace: Trace, rows: np.ndarray) -> list[str]:
    names, (operators, _) = trace.names(), trace.texts(OPERATOR, numbers=True)
    experts_N, _ = trace.integers("experts")
    found = []
    for row in rows.tolist():
        name, operator = names[row], operators[row]
        if operator not in _OF_JOBS or "::" in name:
            found.append(operator_family(name))
        elif operator == "attention":
            found.append("attention_backward" if _BACKWARD.search(name) else operator)
        else:
            found.append(operator_family(operator))
    if not any("batch_norm_backward" in name for name in names):
        found = [_WITH_KNOWN_STATISTICS if "batch_norm" in each else each for each in found]
    of_experts = (experts_N[rows] > 0).tolist()
    return [
        "grouped_product" if family == "product" and grouped else family
        for family, grouped in zip(found, of_experts, strict=True)
    ]


def _waste(m: float, n: float) -> float:
    """Return by what factor unfilled blocks and waves lengthen a convolution.

    Kernels choose smaller blocks where few are full, so that half of the logarithm is felt.
    """
    waves = math.ceil(math.ceil(m / _TILE) * math.ceil(n / _TILE) / _UNITS)
    return math.sqrt(waves * _UNITS * _TILE**2 / (m * n))


def family_key(family: str, number: str, item: int) -> str:
    """Return the key of a family's fit: products differ by number, others by width."""
    if family.startswith((*WITH_PRODUCTS, "attention")):
        return f"{family}/{number}"
    return f"{family}/half" if item == 2 else family


def sizes_of(trace: Trace, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return m, n, k, batch (1 where not stated), shape (M, 4), and whether m and n are stated."""
    columns, stated = [], []
    for name in ("m", "n", "k", "batch"):
        value_N, present_N = trace.integers(name, 1)
        columns.append(value_N[rows])
        stated.append(present_N[rows])
    return np.stack(columns, axis=1).astype(np.float64), stated[0] & stated[1]


TABLE, ROOFLINE, FAMILY = "table", "roofline", "family"
"""How a time was found: interpolated among measured sizes, by the roofline of that kernel (sizes
outside of the measured ones, or tables not installed), by the roofline of its family."""
_HOW = {
    TABLE: "tables of measured kernels",
    ROOFLINE: "the roofline of their kernel",
    FAMILY: "a roofline of their family",
}
_NINE_TENTHS = 4.0
"""By what factor a fit may be off, in its median errors: the busy times of nine tenths of 73 steps
of an H100, their families left out of the fit, are inside. A normal
law would have 2.4; fits are better on what they were made of, and steps have operators of no fit.
"""


def kernel_calls(
    trace: Trace, rows: np.ndarray, keys: list[str]
) -> Iterator[tuple[str, str, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the calls of nodes that state all sizes of a kernel, by kind and class of number.

    Products are "gemm", of whole experts (``experts``) "moe". Attention is one of the two kernels
    of serving engines where a node states the ``past`` tokens of its cache; without, it is
    PyTorch's, whose time is that of its family. ``keys`` are those of ``node_work``.

    Yields:
        Kind, number, places among ``rows`` (C,), sizes (C, A) in the order of
        ``KERNEL_AXES[kind]``, and the share of the kernel that each node is (C,): a block of
        experts is one kernel, and several nodes.
    """
    stated = _Columns(trace, rows)
    family = np.array([key.partition("/")[0] for key in keys], dtype=object)
    number = np.array([key.partition("/")[2] for key in keys], dtype=object)
    attends = family == "attention"
    wanted = {
        "gemm": (_gemm_sizes, (family == "product") & (stated.of("batch", 1)[0] == 1)),
        "moe": (_expert_sizes, family == "grouped_product"),
        "attention_prefill": (_attention_sizes, attends & (stated.of("past")[0] == 0)),
        "attention_decode": (_attention_sizes, attends & (stated.of("sequence")[0] == 1)),
    }
    for kind, (rule, chosen) in wanted.items():
        sizes, share, known = rule(stated)
        for name in USUAL_WEIGHTS:
            at = np.flatnonzero(chosen & known & (number == name))
            if len(at):
                table = np.stack([sizes[axis][at] for axis in KERNEL_AXES[kind]], axis=1)
                yield kind, name, at, table, share[at]


_Sizes = tuple[Mapping[str, np.ndarray], np.ndarray, np.ndarray]
"""Sizes by axis, share of the kernel, and whether all sizes are known, each (M,)."""


class _Columns:
    def __init__(self, trace: Trace, rows: np.ndarray) -> None:
        self._trace, self._rows = trace, rows

    def of(self, name: str, default: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return values (M,), and which nodes state a possible one."""
        value_N, present_N = self._trace.integers(name, default)
        value, present = value_N[self._rows].astype(np.float64), present_N[self._rows]
        return value, present & (value >= (name not in ("past", "window")))

    def several(self, *names: str) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return values by name, and which nodes state all of them."""
        columns = {name: self.of(name) for name in names}
        every = np.logical_and.reduce([present for _, present in columns.values()])
        return {name: value for name, (value, _) in columns.items()}, every


def _gemm_sizes(stated: _Columns) -> _Sizes:
    sizes, known = stated.several("m", "n", "k")
    return sizes, np.ones(len(known)), known


def _attention_sizes(stated: _Columns) -> _Sizes:
    names = ("batch", "sequence", "kv_sequence", "heads", "kv_heads", "head_dim", "past", "window")
    sizes, known = stated.several(*names)
    sizes["seq"] = sizes["sequence"]
    # Kernels of the tables are causal: without a cache a token sees those before it.
    known &= sizes["kv_sequence"] == np.where(
        sizes["past"] == 0, sizes["sequence"], sizes["past"] + sizes["sequence"]
    )
    return sizes, np.ones(len(known)), known


def _expert_sizes(stated: _Columns) -> _Sizes:
    names = ("m", "n", "k", "batch", "experts", "experts_per_token", "hidden", "ffn")
    sizes, known = stated.several(*names)
    here = np.maximum(sizes["batch"], 1)
    chosen, width = (np.maximum(sizes[name], 1) for name in ("experts_per_token", "ffn"))
    sizes["expert"] = np.maximum(sizes["experts"] / here, 1)
    sizes["tensor"] = np.ones(len(here))
    sizes["tokens"] = sizes["m"] * here * sizes["expert"] / chosen
    whole = 3 * np.maximum(sizes["hidden"], 1) * width
    return sizes, sizes["n"] * sizes["k"] / whole, known


@dataclass(frozen=True)
class KernelTimes:
    """Times of compute nodes, each of shape (M,).

    Attributes:
        us_M: Microseconds.
        source_M: ``TABLE``, ``ROOFLINE`` or ``FAMILY``.
        spread_M: Nine in ten kernels of the fit are within this of its time, as a logarithm.
        key_M: Fit or table of each; nodes of one share its error.
    """

    us_M: np.ndarray
    source_M: np.ndarray
    spread_M: np.ndarray
    key_M: np.ndarray

    @property
    def busy_us(self) -> tuple[float, float, float]:
        """The sum, and bounds that hold it nine times in ten.

        The nodes of one fit are off together, different fits by themselves: the spreads of fits
        add up in squares, each weighted by its time.
        """
        busy = float(self.us_M.sum())
        if not busy:
            return 0.0, 0.0, 0.0
        weighted = self.us_M * self.spread_M
        squares = [weighted[self.key_M == key].sum() ** 2 for key in set(self.key_M.tolist())]
        factor = float(np.exp(np.sqrt(sum(squares)) / busy))
        return busy, busy / factor, busy * factor

    @property
    def counts(self) -> dict[str, int]:
        """Number of nodes by how they were timed."""
        return {each: int((self.source_M == each).sum()) for each in (TABLE, ROOFLINE, FAMILY)}


@final
class MeasuredKernels(ComputeModel):
    """Times of compute nodes on a device, from measured kernels.

    With ``tf32`` matrix products of single precision run as TF32
    (``torch.backends.cuda.matmul.allow_tf32``). ``tables`` are the installed tables of measured
    kernels, ``fits`` replace the fits that the package ships; ``note`` is a sentence on them.

    Raises:
        ConfigError: If the device is not known.
    """

    def __init__(
        self,
        device: str,
        tf32: bool = False,
        tables: bool = True,
        fits: FittedKernels | None = None,
        note: str = "",
    ) -> None:
        try:
            self.device = require_device(device)
        except ConfigError as error:
            raise ConfigError(f"compute model 'measured': {error}") from None
        self._fits = fits or fits_of(device)
        self._tf32 = tf32
        self._tables = tables
        self.note = note

    def durations_ns(self, trace: Trace, rows: np.ndarray, on_cpu: np.ndarray) -> np.ndarray:
        """See ``ComputeModel.durations_ns``; CPU nodes keep their recorded time.

        A kernel's time depends on its operator (the node's name, or ``op_type`` in a job of
        ``layerdag workload``), ``num_ops``, ``tensor_size``, ``dtype`` and, where stated, its sizes
        (docs/reference/simulator.md).
        """
        time_ns = whole_ns(self.kernel_times(trace, rows).us_M * 1000)
        return np.where(on_cpu, MeasuredCompute().replayed_ns(trace, rows), time_ns)

    def explain(self, trace: Trace, rows: np.ndarray) -> tuple[dict[str, Any], str, list[str]]:
        """See ``ComputeModel.explain``."""
        times = self.kernel_times(trace, rows)
        busy_s, low_s, high_s = (us / 1e6 for us in times.busy_us)
        document = {"nodes": times.counts, "busy_s": busy_s, "low_s": low_s, "high_s": high_s}
        ways = ", ".join(f"{count} by {_HOW[way]}" for way, count in times.counts.items() if count)
        line = (
            f"{ways or 'none'}; busy {busy_s * 1e3:,.3f} ms, between {low_s * 1e3:,.3f} and "
            f"{high_s * 1e3:,.3f} ms nine times in ten"
        )
        if not self.note:
            return document, line, []
        return {**document, "note": self.note}, line, [self.note]

    def kernel_times(self, trace: Trace, rows: np.ndarray) -> KernelTimes:
        """Return the times of compute nodes (M,), how each was found and how far it may be off.

        Raises:
            SimulationError: If a node has negative operations or bytes.
        """
        num_ops, tensor_size = (trace.integers(n)[0][rows] for n in ("num_ops", "tensor_size"))
        refuse_negative(trace, rows, num_ops, tensor_size)
        work = node_work(trace, rows, self.device, self._tf32)
        us_M, spread_M = np.empty(len(rows)), np.empty(len(rows))
        keys = np.array(work.keys, dtype=object)
        for key in set(work.keys):
            at = np.flatnonzero(keys == key)
            fit = self._fits.of(key)
            us_M[at] = fit.microseconds(work.compute_us[at], work.memory_us[at])
            spread_M[at] = _NINE_TENTHS * fit.error
        # Recorded kernels whose operator's time belongs to another one: fits are of whole
        # operators; a profile shows each of their kernels, the work at the longest one.
        stated_N, recorded_N = (trace.integers(name)[1] for name in ("num_ops", "start_ns"))
        us_M[(recorded_N & stated_N)[rows] & (num_ops == 0)] = 0.0
        source_M, device = np.full(len(rows), FAMILY, dtype=object), self.device
        for kind, number, at, sizes_CA, share_C in kernel_calls(trace, rows, work.keys):
            key, precision = f"{kind}/{number}", USUAL_WEIGHTS[number]
            table = installed_table(device.name, kind, precision) if self._tables else None
            if table is not None:
                us_C, inside_C = table.microseconds(sizes_CA), table.covers(sizes_CA)
                outside = _NINE_TENTHS * table.roofline.error
                spread_M[at] = np.where(inside_C, np.log(table.spread), outside)
            elif key in self._fits.rooflines:
                fit = self._fits.rooflines[key]
                ops_C, moved_C = kernel_work(kind, sizes_CA, precision)
                peak = device.flops[nearest_class(number, device.flops)]
                us_C = fit.microseconds(ops_C / peak * 1e6, moved_C / device.bytes_per_s * 1e6)
                inside_C = np.zeros(len(us_C), dtype=bool)
                spread_M[at] = _NINE_TENTHS * fit.error
            else:
                continue
            us_M[at] = us_C * share_C
            source_M[at] = np.where(inside_C, TABLE, ROOFLINE)
            keys[at] = np.where(inside_C, f"{key} {TABLE}", f"{key} {ROOFLINE}")
        return KernelTimes(us_M, source_M, spread_M, keys)
