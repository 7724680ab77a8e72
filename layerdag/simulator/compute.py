"""Compute models: how long a compute node takes on the simulated device.

One interface, several final models. The reference's own model is ``ReferenceCompute``; the others
are off by default.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, final

import numpy as np

from layerdag.errors import ConfigError, SimulationError
from layerdag.hardware.devices import Device
from layerdag.hardware.dtypes import nearest_class, number_class
from layerdag.simulator.config import MAX_TIME_NS, SystemConfig
from layerdag.traces.trace import Trace

SKIPPED = -1
"""Duration of a node that is skipped: it ends at once, without taking its slot."""


class ComputeModel(ABC):
    """Durations of compute nodes."""

    @abstractmethod
    def durations_ns(self, trace: Trace, rows: np.ndarray, on_cpu: np.ndarray) -> np.ndarray:
        """Return the time of each compute node.

        Args:
            trace: The trace.
            rows: int64 (M,), positions of the compute nodes in the trace.
            on_cpu: bool (M,), whether ``is_cpu_op`` is set.

        Returns:
            int64 (M,) ns, or ``SKIPPED``.

        Raises:
            SimulationError: If a node lacks what the model needs; names file and node.
        """

    def replayed_ns(self, trace: Trace, rows: np.ndarray) -> np.ndarray:
        """Return the time of nodes that are not simulated but replayed, int64 (M,) ns."""
        return recorded_ns(trace, rows)

    def is_timed(self, trace: Trace, rows: np.ndarray) -> bool:
        """Return whether the trace states what the model makes times of, at some of these nodes.

        Where it does not, every node would take 1 ns.
        """
        return True

    def explain(
        self, trace: Trace, rows: np.ndarray
    ) -> tuple[dict[str, Any], str, list[str]] | None:
        """Return how the model timed nodes: a document, a line, notes; None by default."""
        return None


def recorded_ns(trace: Trace, rows: np.ndarray) -> np.ndarray:
    """Return ``duration_micros`` in ns, 1 ns where it is 0 (ASTRA-sim's replay), int64 (M,)."""
    microseconds = trace.duration_us_N[rows]
    if (microseconds > MAX_TIME_NS // 1000).any():
        bad = int(trace.id_N[rows[np.argmax(microseconds)]])
        raise SimulationError(
            f"{trace.source}: node {bad} lasts {int(microseconds.max())} us; "
            "at most 1e12 us can be run."
        )
    return np.maximum(microseconds.astype(np.int64) * 1000, 1)


def whole_ns(time_ns: np.ndarray) -> np.ndarray:
    """Return times in whole ns, at least 1, int64; absurd ones stay within 64 bits."""
    return np.maximum(np.minimum(np.floor(time_ns), 2.0 * MAX_TIME_NS), 1).astype(np.int64)


def refuse_nodes(
    trace: Trace, rows: np.ndarray, wrong_M: np.ndarray, name: str, value_M: np.ndarray, hint: str
) -> None:
    """Raise SimulationError about the first node, if any, that a mask of ``rows`` picks."""
    if wrong_M.any():
        at = int(np.argmax(wrong_M))
        raise SimulationError(
            f"{trace.source}: compute node {int(trace.id_N[rows[at]])} has {name} "
            f"{int(value_M[at])}{hint}"
        )


@final
class ReferenceCompute(ComputeModel):
    """ASTRA-sim's model: the roofline for GPU nodes where it is enabled, else the recorded time.

    perf = min(local-mem-bw * num_ops / tensor_size, peak-perf); t = floor(1e9 * num_ops / perf) ns.
    A GPU node with tensor_size 0 is skipped (docs/reference/simulator.md, "Nodes").
    """

    def __init__(self, system: SystemConfig) -> None:
        self._roofline = system.roofline_enabled and not system.replay_only
        self._bytes_per_s = (system.local_mem_bw_gb or 0.0) * 1e9
        self._flops = (system.peak_perf_tflops or 0.0) * 1e12

    def durations_ns(self, trace: Trace, rows: np.ndarray, on_cpu: np.ndarray) -> np.ndarray:
        """See ``ComputeModel.durations_ns``."""
        if not self._roofline:
            return recorded_ns(trace, rows)
        time_ns = np.empty(len(rows), dtype=np.int64)
        time_ns[on_cpu] = recorded_ns(trace, rows[on_cpu])
        on_gpu = rows[~on_cpu]
        num_ops = self._needed(trace, "num_ops", on_gpu)
        tensor_size = self._needed(trace, "tensor_size", on_gpu)
        hint = "; give its bytes, at least 0."
        refuse_nodes(trace, on_gpu, tensor_size < 0, "tensor_size", tensor_size, hint)
        runs = tensor_size > 0
        hint = (
            ", for which the roofline has no time; give a positive num_ops, or set "
            "roofline-enabled to 0."
        )
        refuse_nodes(trace, on_gpu, (num_ops <= 0) & runs, "num_ops", num_ops, hint)
        # In the reference's order of operations.
        ops = num_ops[runs].astype(np.float64)
        intensity = ops / tensor_size[runs].astype(np.float64)
        perf = np.minimum(self._bytes_per_s * intensity, self._flops)
        gpu_ns = np.full(len(on_gpu), SKIPPED, dtype=np.int64)
        gpu_ns[runs] = np.minimum(np.floor(ops / perf * 1e9), 2.0 * MAX_TIME_NS)
        time_ns[~on_cpu] = gpu_ns
        return time_ns

    def is_timed(self, trace: Trace, rows: np.ndarray) -> bool:
        """See ``ComputeModel.is_timed``; the roofline refuses nodes without costs one by one."""
        return self._roofline or bool(trace.duration_us_N[rows].any())

    @staticmethod
    def _needed(trace: Trace, name: str, rows: np.ndarray) -> np.ndarray:
        value_N, present_N = trace.integers(name)
        if not present_N[rows].all():
            bad = int(trace.id_N[rows[np.argmin(present_N[rows])]])
            raise SimulationError(
                f"{trace.source}: compute node {bad} lacks '{name}', which the roofline needs; "
                "add it, or set roofline-enabled to 0."
            )
        return value_N[rows]


@final
class MeasuredCompute(ComputeModel):
    """Measured times: the attribute ``duration_ns`` where a node has it, else ``duration_micros``.

    Traces that this package collects or samples carry ``duration_ns``; most host operators last
    less than a microsecond, which ASTRA-sim's model would round away. Every node lasts at least
    1 ns. Times are multiplied by ``scale``.
    """

    def __init__(self, scale: float = 1.0) -> None:
        if not 0 < scale < float("inf"):
            raise ConfigError(f"the scale of measured times is {scale}; it must be positive.")
        self._scale = scale

    def durations_ns(self, trace: Trace, rows: np.ndarray, on_cpu: np.ndarray) -> np.ndarray:
        """See ``ComputeModel.durations_ns``; CPU and GPU nodes are treated alike."""
        return self.replayed_ns(trace, rows)

    def is_timed(self, trace: Trace, rows: np.ndarray) -> bool:
        """See ``ComputeModel.is_timed``."""
        if trace.duration_us_N[rows].any():
            return True
        return bool(trace.integers("duration_ns")[0][rows].any())

    def replayed_ns(self, trace: Trace, rows: np.ndarray) -> np.ndarray:
        """See ``ComputeModel.replayed_ns``."""
        fine_N, present_N = trace.integers("duration_ns")
        time_ns = np.where(present_N[rows], fine_N[rows], recorded_ns(trace, rows))
        if (time_ns < 0).any():
            bad = int(trace.id_N[rows[np.argmin(time_ns)]])
            raise SimulationError(
                f"{trace.source}: node {bad} has a negative duration_ns; correct it."
            )
        return whole_ns(time_ns * self._scale)


@final
class PredictedCompute(ComputeModel):
    """Times that a function predicts, such as a surrogate: microseconds for (trace, rows)."""

    def __init__(self, predict: Callable[[Trace, np.ndarray], np.ndarray]) -> None:
        self._predict = predict

    def durations_ns(self, trace: Trace, rows: np.ndarray, on_cpu: np.ndarray) -> np.ndarray:
        """See ``ComputeModel.durations_ns``."""
        time_us = np.asarray(self._predict(trace, rows), dtype=np.float64)
        if time_us.shape != rows.shape or not (np.isfinite(time_us) & (time_us >= 0)).all():
            raise SimulationError(
                f"{trace.source}: the predictor gave {time_us.shape[0] if time_us.ndim else 0} "
                f"times for {len(rows)} nodes, or one that is no time; fix the predictor."
            )
        return whole_ns(time_us * 1000)


def refuse_negative(
    trace: Trace, rows: np.ndarray, num_ops: np.ndarray, tensor_size: np.ndarray
) -> None:
    """Refuse operations or bytes below 0, which no device can compute.

    Raises:
        SimulationError: Naming file, node and number.
    """
    hint = "; correct it to a number from 0 up."
    for name, value_M in (("num_ops", num_ops), ("tensor_size", tensor_size)):
        refuse_nodes(trace, rows, value_M < 0, name, value_M, hint)


@final
class RooflineCompute(ComputeModel):
    """Times of compute nodes on a device, from their ``num_ops``, ``tensor_size`` and ``dtype``.

    Unlike the reference's roofline it distinguishes number formats, keeps nodes without bytes
    (they take the time of their operations) and never returns less than 1 ns.

    Args:
        device: Its rates.
        efficiency: Share of both peaks that real kernels reach, in (0, 1]; 1 is the data sheet.
        launch_ns: Fixed cost of a node in ns.
        memory_efficiency: Share of the memory bandwidth where it is another than ``efficiency``.
    """

    def __init__(
        self,
        device: Device,
        efficiency: float = 1.0,
        launch_ns: float = 0.0,
        *,
        memory_efficiency: float | None = None,
    ) -> None:
        memory = efficiency if memory_efficiency is None else memory_efficiency
        if not 0 < efficiency <= 1 or not 0 < memory <= 1 or launch_ns < 0:
            raise ConfigError(
                f"efficiency is {efficiency} and launch_ns {launch_ns}; the first must lie in "
                "(0, 1], the second must not be negative."
            )
        self._device = device
        self._efficiency = efficiency
        self._memory_efficiency = memory
        self._launch_ns = launch_ns

    @property
    def assumption(self) -> str:
        """What share of the data sheet the times assume, as a phrase."""
        launch = f", {self._launch_ns:g} ns of launch per node"
        if self._efficiency == self._memory_efficiency == 1:
            return f"data sheet of {self._device.name} at 100 %, which no step reaches{launch}"
        return (
            f"{self._device.name} at {self._efficiency:.0%} of its peak and "
            f"{self._memory_efficiency:.0%} of its memory bandwidth{launch}"
        )

    def durations_ns(self, trace: Trace, rows: np.ndarray, on_cpu: np.ndarray) -> np.ndarray:
        """See ``ComputeModel.durations_ns``; CPU nodes keep their recorded time."""
        num_ops, has_ops = (column[rows] for column in trace.integers("num_ops"))
        tensor_size, has_size = (column[rows] for column in trace.integers("tensor_size"))
        refuse_negative(trace, rows, num_ops, tensor_size)
        lacking = ~(has_ops | has_size) & ~on_cpu
        if lacking.any():
            bad = int(trace.id_N[rows[np.argmax(lacking)]])
            raise SimulationError(
                f"{trace.source}: compute node {bad} has neither num_ops nor tensor_size; add one, "
                "or use measured durations."
            )
        flops, names = self._device.flops, trace.dtypes()
        rate_of = {
            name: flops.get(nearest_class(number_class(name) or "f32", flops), flops["f32"])
            for name in set(names)
        }
        peak = np.array([rate_of[names[row]] for row in rows.tolist()], dtype=np.float64)
        peak *= self._efficiency
        seconds = np.maximum(
            num_ops / peak, tensor_size / (self._device.bytes_per_s * self._memory_efficiency)
        )
        time_ns = whole_ns(seconds * 1e9 + self._launch_ns)
        return np.where(on_cpu, self.replayed_ns(trace, rows), time_ns)


@final
class ScaledCompute(ComputeModel):
    """Another model's times, each multiplied by a factor and floored, at least 1 ns."""

    def __init__(self, inner: ComputeModel, factor: float) -> None:
        self._inner = inner
        self._factor = factor

    def durations_ns(self, trace: Trace, rows: np.ndarray, on_cpu: np.ndarray) -> np.ndarray:
        """See ``ComputeModel.durations_ns``."""
        time_ns = self._inner.durations_ns(trace, rows, on_cpu)
        scaled = np.maximum(np.floor(time_ns * self._factor), 1).astype(np.int64)
        return np.where(time_ns == SKIPPED, SKIPPED, scaled)
