"""Runs workloads on a described cluster, equal to ASTRA-sim's analytical backend tick by tick."""

from layerdag.simulator.cluster import (
    Congestion,
    Dimension,
    GroupCollectives,
    MemoryConfig,
    MemoryKind,
    NetworkConfig,
    RunOptions,
    SystemConfig,
    Topology,
    UnmodelledCollectives,
)
from layerdag.simulator.compute import MeasuredCompute, ReferenceCompute
from layerdag.simulator.presets import small_cluster
from layerdag.simulator.result import SimulationResult
from layerdag.simulator.run import simulate
from layerdag.simulator.variation import PowerLawNoise, Variation

__all__ = [
    "Congestion",
    "Dimension",
    "GroupCollectives",
    "MeasuredCompute",
    "MemoryConfig",
    "MemoryKind",
    "NetworkConfig",
    "PowerLawNoise",
    "ReferenceCompute",
    "RunOptions",
    "SimulationResult",
    "SystemConfig",
    "Topology",
    "UnmodelledCollectives",
    "Variation",
    "simulate",
    "small_cluster",
]
