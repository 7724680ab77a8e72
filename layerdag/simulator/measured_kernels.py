"""Times of compute nodes on a real device, from kernels that were measured on it.

Matrix products whose sizes a node states take the time of the installed table of measured kernels
(``kernel_tables``), all others that of a roofline fitted to their family of operators. The fitted
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
from layerdag.runtime.settings import did_you_mean
from layerdag.simulator.compute import (
    DEVICES,
    ComputeModel,
    Device,
    MeasuredCompute,
    refuse_negative,
)
from layerdag.simulator.config import MAX_TIME_NS
from layerdag.simulator.kernel_roofline import KernelRoofline
from layerdag.simulator.kernel_tables import installed_table
from layerdag.simulator.operator_families import KernelWork, node_work, sizes_of
from layerdag.traces.trace import Trace

OTHER = "pointwise"
PRODUCT = "product"
_TABLE_PRECISION = {"product/bf16": "bf16", "product/f8": "fp8"}
_TENSOR_CORES = ("bf16", "f8", "i8")


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
    """Return the fits of the device with the nearest ratio of peak to bandwidth."""

    def distance(name: str) -> float:
        known = DEVICES[name]
        ratios = [each.flops["bf16"] / each.bytes_per_s for each in (device, known)]
        return abs(float(np.log(ratios[0] / ratios[1])))

    return fitted[min((name for name in fitted if name in DEVICES), key=distance)]


@final
class MeasuredKernels(ComputeModel):
    """Times of compute nodes on a device, from measured kernels.

    Args:
        device: Name in ``DEVICES``.
        tf32: Whether matrix products of single precision run as TF32
            (``torch.backends.cuda.matmul.allow_tf32``).
        tables: Whether to use the installed tables of measured kernels, where there are any.
        fits: Fitted families of operators, in place of those that the package ships.

    Raises:
        ConfigError: If the device is not known.
    """

    def __init__(
        self,
        device: str,
        tf32: bool = False,
        tables: bool = True,
        fits: FittedKernels | None = None,
    ) -> None:
        if device not in DEVICES:
            raise ConfigError(
                f"compute model 'measured': there is no device '{device}'."
                f"{did_you_mean(device, DEVICES)} Known are {', '.join(DEVICES)}."
            )
        self.device = DEVICES[device]
        self._fits = fits or fits_of(device)
        self._tf32 = tf32
        self._tables = tables

    def durations_ns(self, trace: Trace, rows: np.ndarray, on_cpu: np.ndarray) -> np.ndarray:
        """See ``ComputeModel.durations_ns``; CPU nodes keep their recorded time.

        A kernel's time depends on its operator (the node's name), ``num_ops``, ``tensor_size``,
        ``dtype`` and, where stated, the sizes m, n, k and batch.
        """
        num_ops, tensor_size = (trace.integers(n)[0][rows] for n in ("num_ops", "tensor_size"))
        refuse_negative(trace, rows, num_ops, tensor_size)
        work = node_work(trace, rows, self.device, self._tf32)
        time_us = self._fitted(work)
        if self._tables:
            self._look_up(trace, rows, work, time_us)
        time_ns = np.minimum(np.floor(time_us * 1000), 2.0 * MAX_TIME_NS)
        time_ns = np.maximum(time_ns, 1).astype(np.int64)
        return np.where(on_cpu, MeasuredCompute().replayed_ns(trace, rows), time_ns)

    def _fitted(self, work: KernelWork) -> np.ndarray:
        """Return the time of each node by the roofline of its family, in microseconds."""
        time_us = np.empty(len(work.keys))
        keys = np.array(work.keys, dtype=object)
        for key in set(work.keys):
            rows = np.flatnonzero(keys == key)
            fit = self._fits.of(key)
            time_us[rows] = fit.microseconds(work.compute_us[rows], work.memory_us[rows])
        return time_us

    def _look_up(
        self, trace: Trace, rows: np.ndarray, work: KernelWork, time_us: np.ndarray
    ) -> None:
        """Replace the times of products whose sizes are stated by those of the tables."""
        sizes, stated = sizes_of(trace, rows)
        keys = np.array(work.keys, dtype=object)
        for key, precision in _TABLE_PRECISION.items():
            # The tables have single products; a batch of them runs as one kernel.
            found = np.flatnonzero((keys == key) & stated & (sizes[:, 3] == 1))
            table = installed_table(self.device.name, "gemm", precision) if len(found) else None
            if table is not None:
                time_us[found] = table.microseconds(sizes[found, :3])
