"""Times of compute nodes on a real device, from kernels that were measured on it.

Products, experts and attention of serving engines whose sizes a node states (``kernel_calls``) take
the time of the installed table of measured kernels (``kernel_tables``), outside of its sizes or
without it that of the kernel's roofline; all others that of their family of operators. The fitted
numbers are those of ``fitted_kernels.json``, which ``python benchmarks/fit_kernels.py`` writes. A
device without fits of its own takes the shares of its nearest kin at its own data sheet.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import final

import numpy as np

from layerdag.errors import ConfigError
from layerdag.hardware.devices import DEVICES, Device, require_device
from layerdag.hardware.dtypes import USUAL_WEIGHTS, nearest_class
from layerdag.simulator.compute import (
    ComputeModel,
    MeasuredCompute,
    refuse_negative,
)
from layerdag.simulator.config import MAX_TIME_NS
from layerdag.simulator.kernel_roofline import KERNEL_AXES, KernelRoofline, kernel_work
from layerdag.simulator.kernel_tables import installed_table
from layerdag.simulator.operator_families import node_work
from layerdag.traces.trace import Trace

OTHER = "pointwise"
PRODUCT = "product"


@dataclass(frozen=True)
class FittedKernels:
    """Fitted rooflines of families of operators on one device.

    Attributes:
        device: Name of the device that they were measured on.
        rooflines: By key of the family, such as "product/bf16".
    """

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


@cache
def fitted_kernels() -> Mapping[str, FittedKernels]:
    """Return the fits that the package ships, by device."""
    text = resources.files("layerdag.simulator").joinpath("fitted_kernels.json").read_text("utf-8")
    devices = json.loads(text)["devices"]
    return {
        device: FittedKernels(
            device, {key: KernelRoofline(*numbers) for key, numbers in rooflines.items()}
        )
        for device, rooflines in devices.items()
    }


def fits_of(device: str) -> FittedKernels:
    """Return the fits of a device: its own, completed by those of its nearest kin."""
    fitted = fitted_kernels()
    own = fitted.get(_ALIASES.get(device, device))
    base = fitted[_COMPLETE]
    kin = own or _nearest(DEVICES[device], fitted)
    return FittedKernels(device, {**base.rooflines, **kin.rooflines})


_COMPLETE = "h100"
"""The device of which every family of operators was measured."""
_ALIASES = {"a100-40": "a100-80"}


def _nearest(device: Device, fitted: Mapping[str, FittedKernels]) -> FittedKernels:
    def distance(name: str) -> float:
        known = DEVICES[name]
        ratios = [each.flops["bf16"] / each.bytes_per_s for each in (device, known)]
        return abs(float(np.log(ratios[0] / ratios[1])))

    return fitted[min((name for name in fitted if name in DEVICES), key=distance)]


TABLE, ROOFLINE, FAMILY = "table", "roofline", "family"
"""How a time was found: interpolated among measured sizes, by the roofline of that kernel (sizes
outside of the measured ones, or tables not installed), by the roofline of its family."""
_NINE_TENTHS = 4.0
"""By what factor a fit may be off, in its median errors: the busy times of nine tenths of 73 steps
of an H100, their families left out of the fit, are inside. A normal
law would have 2.4; fits are better on what they were made of, and steps have operators of no fit.
"""


_COUNTED_FROM_0 = ("past", "window")


@dataclass(frozen=True)
class KernelCalls:
    """Nodes that call one kind of kernel in one precision.

    Attributes:
        kind: A key of ``KERNEL_AXES``.
        number: Class of number, such as "bf16".
        precision: The same as tables name it.
        at: Places among the nodes asked for, int64 (C,).
        sizes_CA: Sizes in the order of ``KERNEL_AXES[kind]``.
        share_C: Share of the kernel that the node is: a block of experts is one kernel, and
            several nodes.
    """

    kind: str
    number: str
    precision: str
    at: np.ndarray
    sizes_CA: np.ndarray
    share_C: np.ndarray


def kernel_calls(trace: Trace, rows: np.ndarray, keys: list[str]) -> list[KernelCalls]:
    """Return the calls of nodes that state all sizes of a kernel.

    Products are "gemm", of whole experts (``experts``) "moe". Attention is one of the two kernels
    of serving engines where a node states the ``past`` tokens of its cache; without, it is
    PyTorch's, whose time is that of its family.

    Args:
        trace: The trace.
        rows: Positions of the nodes, shape (M,).
        keys: Their families, as ``operator_families.node_work`` gives them.
    """
    stated = _Columns(trace, rows)
    family = np.array([key.partition("/")[0] for key in keys], dtype=object)
    number = np.array([key.partition("/")[2] for key in keys], dtype=object)
    wanted = {
        "gemm": (family == "product") & (stated.of("batch", 1)[0] == 1),
        "moe": family == "grouped_product",
        "attention_prefill": (family == "attention") & (stated.of("past")[0] == 0),
        "attention_decode": (family == "attention") & (stated.of("sequence")[0] == 1),
    }
    found = []
    for kind, chosen in wanted.items():
        sizes, share, known = _RULES[kind](stated)
        for name, precision in USUAL_WEIGHTS.items():
            at = np.flatnonzero(chosen & known & (number == name))
            if len(at):
                table = np.stack([sizes[axis][at] for axis in KERNEL_AXES[kind]], axis=1)
                found.append(KernelCalls(kind, name, precision, at, table, share[at]))
    return found


class _Columns:
    def __init__(self, trace: Trace, rows: np.ndarray) -> None:
        self._trace, self._rows = trace, rows

    def of(self, name: str, default: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return values (M,), and which nodes state a possible one."""
        value_N, present_N = self._trace.integers(name, default)
        value, present = value_N[self._rows].astype(np.float64), present_N[self._rows]
        return value, present & (value >= (name not in _COUNTED_FROM_0))

    def several(self, *names: str) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return values by name, and which nodes state all of them."""
        columns = {name: self.of(name) for name in names}
        every = np.logical_and.reduce([present for _, present in columns.values()])
        return {name: value for name, (value, _) in columns.items()}, every


_Found = tuple[Mapping[str, np.ndarray], np.ndarray, np.ndarray]
"""Sizes by axis, share of the kernel, and whether all sizes are known, each (M,)."""


def _gemm(stated: _Columns) -> _Found:
    sizes, known = stated.several("m", "n", "k")
    return sizes, np.ones(len(known)), known


def _attention(stated: _Columns) -> _Found:
    names = ("batch", "sequence", "kv_sequence", "heads", "kv_heads", "head_dim", "past", "window")
    sizes, known = stated.several(*names)
    sizes["seq"] = sizes["sequence"]
    # Kernels of the tables are causal: without a cache a token sees those before it.
    known &= sizes["kv_sequence"] == np.where(
        sizes["past"] == 0, sizes["sequence"], sizes["past"] + sizes["sequence"]
    )
    return sizes, np.ones(len(known)), known


def _experts(stated: _Columns) -> _Found:
    names = ("m", "n", "k", "batch", "experts", "experts_per_token", "hidden", "ffn")
    sizes, known = stated.several(*names)
    here = np.maximum(sizes["batch"], 1)
    chosen, width = (np.maximum(sizes[name], 1) for name in ("experts_per_token", "ffn"))
    sizes["expert"] = np.maximum(sizes["experts"] / here, 1)
    sizes["tensor"] = np.ones(len(here))
    sizes["tokens"] = sizes["m"] * here * sizes["expert"] / chosen
    whole = 3 * np.maximum(sizes["hidden"], 1) * width
    return sizes, sizes["n"] * sizes["k"] / whole, known


_RULES = {
    "gemm": _gemm,
    "moe": _experts,
    "attention_prefill": _attention,
    "attention_decode": _attention,
}


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
        add up in squares, each weighted by the time that it stands for.
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


def _parts(trace: Trace, rows: np.ndarray) -> np.ndarray:
    """Return which nodes are recorded kernels whose operator's time stands at another, bool (M,).

    Fits are of whole operators; a profile shows each of their kernels, the work at the longest one.
    """
    num_ops_N, stated_N = trace.integers("num_ops")
    recorded_N = trace.integers("start_ns")[1]
    return (recorded_N & stated_N & (num_ops_N == 0))[rows]


@final
class MeasuredKernels(ComputeModel):
    """Times of compute nodes on a device, from measured kernels.

    Args:
        device: Name in ``DEVICES``.
        tf32: Whether matrix products of single precision run as TF32
            (``torch.backends.cuda.matmul.allow_tf32``).
        tables: Whether to use the installed tables of measured kernels, where there are any.
        fits: Fitted families of operators, in place of those that the package ships.
        note: What is to be said of the fits.

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
        time_ns = np.floor(self.kernel_times(trace, rows).us_M * 1000)
        time_ns = np.maximum(np.minimum(time_ns, 2.0 * MAX_TIME_NS), 1).astype(np.int64)
        return np.where(on_cpu, MeasuredCompute().replayed_ns(trace, rows), time_ns)

    def kernel_times(self, trace: Trace, rows: np.ndarray) -> KernelTimes:
        """Return the times of compute nodes, how each was found and how far it may be off.

        Args:
            trace: The trace.
            rows: Positions of the nodes, shape (M,).

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
        us_M[_parts(trace, rows)] = 0.0
        times = KernelTimes(us_M, np.full(len(rows), FAMILY, dtype=object), spread_M, keys)
        for calls in kernel_calls(trace, rows, work.keys):
            self._look_up(calls, times)
        return times

    def _look_up(self, calls: KernelCalls, times: KernelTimes) -> None:
        key = f"{calls.kind}/{calls.number}"
        table = None
        if self._tables:
            table = installed_table(self.device.name, calls.kind, calls.precision)
        if table is not None:
            us_C = table.microseconds(calls.sizes_CA)
            inside_C = table.covers(calls.sizes_CA)
            spread_C = np.where(inside_C, np.log(table.spread), _NINE_TENTHS * table.roofline.error)
        elif key in self._fits.rooflines:
            fit, device = self._fits.rooflines[key], self.device
            ops_C, moved_C = kernel_work(calls.kind, calls.sizes_CA, calls.precision)
            peak = device.flops[nearest_class(calls.number, device.flops)]
            us_C = fit.microseconds(ops_C / peak * 1e6, moved_C / device.bytes_per_s * 1e6)
            inside_C = np.zeros(len(us_C), dtype=bool)
            spread_C = np.full(len(us_C), _NINE_TENTHS * fit.error)
        else:
            return
        times.us_M[calls.at] = us_C * calls.share_C
        times.source_M[calls.at] = np.where(inside_C, TABLE, ROOFLINE)
        times.spread_M[calls.at] = spread_C
        times.key_M[calls.at] = np.where(inside_C, f"{key} {TABLE}", f"{key} {ROOFLINE}")
