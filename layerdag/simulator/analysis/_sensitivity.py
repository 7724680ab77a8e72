"""What-if sensitivities: how the makespan answers when one part of the cluster is 10 % better."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np

from layerdag.simulator import Cluster, Variation, simulate
from layerdag.simulator.compute import SKIPPED, ComputeModel, compute_model
from layerdag.traces import Trace, Workload


@dataclass(frozen=True)
class Sensitivity:
    """Outcome of one change.

    Attributes:
        change: What was changed, in words.
        makespan_ns: Makespan with it.
        gain: Share of the makespan that it saves; negative if it costs.
    """

    change: str
    makespan_ns: int
    gain: float


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


def sensitivities(
    workload: Workload,
    cluster: Cluster,
    compute: ComputeModel | str | None = None,
    variation: Variation | None = None,
) -> tuple[Sensitivity, ...]:
    """Simulate again with compute, then each dimension's bandwidth and latency, 10 % better.

    Args:
        workload: Traces of all ranks.
        cluster: What to run on.
        compute: Times of compute nodes, as ``simulate`` takes them.
        variation: Ranks that differ in speed; none by default.

    Returns:
        One entry per change, in that order; the first is the unchanged cluster.
    """
    if not isinstance(compute, ComputeModel):
        compute = compute_model(compute or "reference", cluster.system)
    base = simulate(workload, cluster, compute=compute, variation=variation).makespan_ns
    found = [Sensitivity("as given", base, 0.0)]
    faster = ScaledCompute(compute, 1 / 1.1)
    runs: list[tuple[str, Cluster, ComputeModel]] = [("compute +10 %", cluster, faster)]
    for index in range(len(cluster.network.dimensions)):
        for label, change in _DIMENSION_CHANGES.items():
            runs.append((f"dim {index} {label}", _changed(cluster, index, change), compute))
    for label, other, model in runs:
        makespan = simulate(workload, other, compute=model, variation=variation).makespan_ns
        found.append(Sensitivity(label, makespan, (base - makespan) / base if base else 0.0))
    return tuple(found)


_DIMENSION_CHANGES: dict[str, Callable[[float, float], tuple[float, float]]] = {
    "bandwidth +10 %": lambda bandwidth, latency: (bandwidth * 1.1, latency),
    "latency -10 %": lambda bandwidth, latency: (bandwidth, latency * 0.9),
}


def _changed(
    cluster: Cluster, index: int, change: Callable[[float, float], tuple[float, float]]
) -> Cluster:
    """Return the cluster with one dimension's (bandwidth, latency) changed."""
    dimensions = list(cluster.network.dimensions)
    old = dimensions[index]
    bandwidth, latency = change(old.bandwidth_gib, old.latency_ns)
    dimensions[index] = dataclasses.replace(old, bandwidth_gib=bandwidth, latency_ns=latency)
    network = dataclasses.replace(cluster.network, dimensions=tuple(dimensions))
    return dataclasses.replace(cluster, network=network)
