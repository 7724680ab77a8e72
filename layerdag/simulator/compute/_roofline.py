"""Roofline of real devices: a compute node takes max(FLOPs / peak, bytes / bandwidth)."""

from dataclasses import dataclass
from typing import final

import numpy as np

from layerdag.errors import ConfigError, SimulationError
from layerdag.simulator.compute._base import ComputeModel
from layerdag.simulator.engine import MAX_TIME_NS
from layerdag.traces import Trace

_CLASS_OF_DTYPE = {
    "double": "f64",
    "float64": "f64",
    "float": "f32",
    "float32": "f32",
    "bfloat16": "bf16",
    "half": "bf16",
    "float16": "bf16",
    "int8": "i8",
    "uint8": "i8",
    "signed char": "i8",
    "unsigned char": "i8",
}


_ITEM_BYTES = {"f64": 8, "f32": 4, "bf16": 2, "i8": 1}


def item_bytes(dtype: str) -> int:
    """Return the bytes of a number of the format ``dtype``, 4 for an unknown one."""
    return _ITEM_BYTES[_CLASS_OF_DTYPE.get(dtype.removeprefix("c10::").lower(), "f32")]


@dataclass(frozen=True)
class Device:
    """Data-sheet rates of one device, dense.

    Attributes:
        name: Name on the command line.
        flops: Peak operations per second by class of number: "f64", "f32", "bf16" (and f16), "i8".
        bytes_per_s: Memory bandwidth in bytes per second.
    """

    name: str
    flops: dict[str, float]
    bytes_per_s: float


DEVICES = {
    device.name: device
    for device in (
        Device("a100-40", {"f64": 9.7e12, "f32": 19.5e12, "bf16": 312e12, "i8": 624e12}, 1555e9),
        Device("a100-80", {"f64": 9.7e12, "f32": 19.5e12, "bf16": 312e12, "i8": 624e12}, 2039e9),
        Device("h100", {"f64": 34e12, "f32": 67e12, "bf16": 989e12, "i8": 1979e12}, 3350e9),
        Device("h200", {"f64": 34e12, "f32": 67e12, "bf16": 989e12, "i8": 1979e12}, 4800e9),
        Device("b200", {"f64": 37e12, "f32": 75e12, "bf16": 2250e12, "i8": 4500e12}, 8000e9),
        Device("tpu-v3", {"f32": 63.3e12, "bf16": 63.3e12}, 429.2e9),
        Device("tpu-v4", {"f32": 275e12, "bf16": 275e12, "i8": 275e12}, 1228e9),
    )
}
"""Presets. The A100's and TPU v3's rates are those of the estimators that
docs/reference/simulator.md names; the others are the makers' data sheets, dense rates of the SXM
versions (B200: an eighth of HGX and DGX B200)."""


@final
class RooflineCompute(ComputeModel):
    """Times of compute nodes on a device, from their ``num_ops``, ``tensor_size`` and ``dtype``.

    Unlike the reference's roofline it distinguishes number formats, keeps nodes without bytes
    (they take the time of their operations) and never returns less than 1 ns.

    Args:
        device: A preset of ``DEVICES`` or one of your own.
        efficiency: Share of both peaks that real kernels reach, in (0, 1].
        launch_ns: Fixed cost of a node in ns.
    """

    def __init__(self, device: Device, efficiency: float = 1.0, launch_ns: float = 0.0) -> None:
        if not 0 < efficiency <= 1 or launch_ns < 0:
            raise ConfigError(
                f"efficiency is {efficiency} and launch_ns {launch_ns}; the first must lie in "
                "(0, 1], the second must not be negative."
            )
        self._device = device
        self._efficiency = efficiency
        self._launch_ns = launch_ns

    def durations_ns(self, trace: Trace, rows: np.ndarray, on_cpu: np.ndarray) -> np.ndarray:
        """See ``ComputeModel.durations_ns``; CPU nodes keep their recorded time."""
        num_ops, has_ops = (column[rows] for column in trace.integers("num_ops"))
        tensor_size, has_size = (column[rows] for column in trace.integers("tensor_size"))
        lacking = ~(has_ops | has_size) & ~on_cpu
        if lacking.any():
            bad = int(trace.id_N[rows[np.argmax(lacking)]])
            raise SimulationError(
                f"{trace.source}: compute node {bad} has neither num_ops nor tensor_size; add one, "
                "or use measured durations."
            )
        peak = self._peaks(trace, rows) * self._efficiency
        seconds = np.maximum(
            num_ops / peak, tensor_size / (self._device.bytes_per_s * self._efficiency)
        )
        time_ns = np.minimum(np.floor(seconds * 1e9 + self._launch_ns), 2.0 * MAX_TIME_NS)
        time_ns = np.maximum(time_ns, 1).astype(np.int64)
        return np.where(on_cpu, self.replayed_ns(trace, rows), time_ns)

    def _peaks(self, trace: Trace, rows: np.ndarray) -> np.ndarray:
        """Return the peak rate of each node's number format; f32 where the device lacks it."""
        flops = self._device.flops
        names = trace.dtypes()
        rate_of = {
            name: flops.get(
                _CLASS_OF_DTYPE.get(name.removeprefix("c10::").lower(), "f32"), flops["f32"]
            )
            for name in set(names)
        }
        return np.array([rate_of[names[row]] for row in rows.tolist()], dtype=np.float64)
