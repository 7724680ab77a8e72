"""Operators that a user timed on a device, as a calibration of ``measured_kernels``.

A family of operators with at least eight timed sizes has a roofline of its own, all others the
shipped one of the device, longer or shorter by what the timed operators are in the median. The
error that remains is that of operators left out of the fit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from layerdag.errors import ConfigError
from layerdag.hardware.devices import require_device
from layerdag.hardware.kernels import MIN_KERNELS, FittedKernels, KernelRoofline, fits_of
from layerdag.runtime.json_shape import number_in
from layerdag.runtime.settings import did_you_mean
from layerdag.runtime.tables import read_table
from layerdag.simulator.compute import MeasuredCompute
from layerdag.simulator.learned import measured_rows
from layerdag.simulator.measured_kernels import node_work
from layerdag.traces.builder import NodeSpec, build_trace
from layerdag.traces.chakra.workload import read_workload
from layerdag.traces.trace import Attribute, NodeType, Trace, Wire

FOLDS = 5
SIZES = (
    *("m", "n", "k", "batch", "heads", "kv_heads", "sequence", "kv_sequence", "head_dim"),
    *("past", "window", "experts", "experts_per_token", "hidden", "ffn"),
)
"""Columns that need not be there: sizes as nodes state them (docs/reference/simulator.md)."""
_NEEDED = ("operator", "dtype", "num_ops", "tensor_size", "us")
_COUNTS = ("num_ops", "tensor_size", *SIZES)


@dataclass(frozen=True, eq=False)
class TimedOperators:
    """Operators of a trace at ``rows`` that were timed, in microseconds."""

    trace: Trace
    rows: np.ndarray
    us_M: np.ndarray


def read_operators(path: str | Path) -> list[TimedOperators]:
    """Read timed operators.

    Args:
        path: A table (``.csv``) with the columns operator, dtype, num_ops, tensor_size (bytes), us
            and any of ``SIZES``, a row for each; or the prefix or folder of traces whose nodes have
            durations on a device, as ``layerdag collect`` and ``convert --device`` write them.

    Raises:
        ConfigError: If the table cannot be read or has an unknown column or a value that is none,
            naming the row, or no operator was timed on a device.
        TraceError: If traces cannot be read.
    """
    if str(path).endswith(".csv"):
        found = [read_operator_table(Path(path))]
    else:
        traces = {id(trace): trace for trace in read_workload(path).traces}
        found = []
        for trace in traces.values():
            rows = measured_rows(trace)
            rows = rows[trace.integers("is_cpu_op")[0][rows] == 0]
            # Of several kernels of an operator the longest states its work; others look free.
            rows = rows[trace.integers("num_ops")[0][rows] > 0]
            us_M = MeasuredCompute().replayed_ns(trace, rows) / 1000
            found.append(TimedOperators(trace, rows, us_M))
    if not sum(len(timed.rows) for timed in found):
        raise ConfigError(
            f"{path}: no operator has a time on a device; collect on a GPU, or give a table with "
            f"the columns {', '.join(_NEEDED)}."
        )
    return found


def read_operator_table(path: Path) -> TimedOperators:
    """Read a table as ``read_operators`` describes it.

    Raises:
        ConfigError: See ``read_operators``.
    """
    table = read_table(path, _NEEDED, error=ConfigError)
    known = (*_NEEDED, *SIZES)
    for name in table.names:
        if name not in known:
            raise ConfigError(
                f"{path}: column '{name:.60}' is unknown.{did_you_mean(name, known)} Known are "
                f"{', '.join(known)}."
            )
    nodes, times = [], []
    for line, row in table.rows():
        counts = []
        for name in _COUNTS:
            text = row.get(name, "")
            if text and not (text.isascii() and text.isdigit() and len(text) < 19):
                raise ConfigError(
                    f"{path}, line {line}: {name} is '{text:.40}'; it must be a whole number from "
                    "0 up."
                )
            if text:
                counts.append(Attribute(name, Wire.INT64, int(text)))
        time = number_in(row["us"])
        if time is None or not 0 < time < np.inf:
            raise ConfigError(
                f"{path}, line {line}: us is '{row['us']:.40}'; it must be a positive number."
            )
        dtype = Attribute("dtype", Wire.STRING, row["dtype"])
        nodes.append(NodeSpec(line, row["operator"], NodeType.COMP, attributes=(dtype, *counts)))
        times.append(time)
    trace = build_trace(nodes, source=str(path))
    return TimedOperators(trace, np.arange(len(nodes)), np.array(times, dtype=np.float64))


@dataclass(frozen=True)
class OperatorCalibration:
    """Fits to timed operators of a device.

    Attributes:
        fits: Rooflines of families.
        operators: Timed operators, those of equal sizes once.
        own: Families with a fit of their own.
        scale: How much longer than as shipped all other families take.
        error: Median relative error of operators left out of the fit.
        error_90: Nine tenths of them are below.
    """

    fits: FittedKernels
    operators: int
    own: tuple[str, ...]
    scale: float
    error: float
    error_90: float

    @property
    def line(self) -> str:
        """What the calibration is worth, as a sentence."""
        return (
            f"{self.operators} timed operators: {len(self.own)} "
            f"{'family' if len(self.own) == 1 else 'families'} fitted, all others "
            f"{self.scale:.2f} times as long as shipped; operators left out of the fit are off by "
            f"{self.error:.0%} in the median, nine in ten by less than {self.error_90:.0%}"
        )


@dataclass(frozen=True, eq=False)
class _Rows:
    keys: np.ndarray
    compute_us: np.ndarray
    memory_us: np.ndarray
    us: np.ndarray

    def at(self, chosen: np.ndarray) -> "_Rows":
        columns = (self.keys, self.compute_us, self.memory_us, self.us)
        return _Rows(*(column[chosen] for column in columns))


def calibrate_operators(
    found: Sequence[TimedOperators], device: str, tf32: bool = False
) -> OperatorCalibration:
    """Fit the families of operators of a device to those that were timed.

    The device, a name of ``DEVICES``, has the data sheet and what is not fitted; with ``tf32``
    products of single precision ran as TF32.

    Raises:
        ConfigError: If there are fewer than ten operators of different sizes, or the device is not
            known.
    """
    rates = require_device(device)
    measured: dict[tuple[str, float, float], list[float]] = {}
    for each in found:
        work = node_work(each.trace, each.rows, rates, tf32)
        columns = (work.compute_us.tolist(), work.memory_us.tolist(), each.us_M.tolist())
        for key, compute_us, memory_us, us in zip(work.keys, *columns, strict=True):
            measured.setdefault((key, compute_us, memory_us), []).append(us)
    keys, compute, memory = zip(*measured, strict=True) if measured else ((), (), ())
    median_us = np.array([np.median(times) for times in measured.values()], dtype=np.float64)
    rows = _Rows(np.array(keys, dtype=object), np.array(compute), np.array(memory), median_us)
    if len(rows.us) < 2 * FOLDS:
        raise ConfigError(
            f"{len(rows.us)} operators of different sizes were timed; at least {2 * FOLDS} are "
            "needed, so that some can be left out of the fit."
        )
    fold = np.random.default_rng(0).permutation(len(rows.us)) % FOLDS
    errors = []
    for number in range(FOLDS):
        fits, _, _ = _fit(rows.at(fold != number), device)
        left = rows.at(fold == number)
        errors.append(np.abs(_predicted(fits, left) / left.us - 1))
    error, error_90 = np.quantile(np.concatenate(errors), [0.5, 0.9]).tolist()
    fits, own, scale = _fit(rows, device)
    return OperatorCalibration(fits, len(rows.us), own, scale, error, error_90)


def _fit(rows: _Rows, device: str) -> tuple[FittedKernels, tuple[str, ...], float]:
    shipped = fits_of(device)
    scale = float(np.exp(np.median(np.log(rows.us / _predicted(shipped, rows)))))
    rooflines = {
        key: KernelRoofline(
            fit.launch_us * scale, fit.compute_share / scale, fit.memory_share / scale, fit.error
        )
        for key, fit in shipped.rooflines.items()
    }
    own = []
    for key in sorted(set(rows.keys)):
        chosen = rows.at(rows.keys == key)
        if len(chosen.us) >= MIN_KERNELS:
            rooflines[key] = KernelRoofline.fit(chosen.compute_us, chosen.memory_us, chosen.us)
            own.append(key)
    return FittedKernels(device, rooflines), tuple(own), scale


def _predicted(fits: FittedKernels, rows: _Rows) -> np.ndarray:
    us = np.empty(len(rows.us))
    for key in set(rows.keys):
        at = np.flatnonzero(rows.keys == key)
        us[at] = fits.of(key).microseconds(rows.compute_us[at], rows.memory_us[at])
    return us
