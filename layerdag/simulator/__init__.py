"""Runs workloads on a described cluster, equal to ASTRA-sim's analytical backend tick by tick."""

from layerdag.simulator.cluster import (
    Congestion,
    Dimension,
    MemoryConfig,
    MemoryKind,
    NetworkConfig,
    RunOptions,
    SystemConfig,
    Topology,
)
from layerdag.simulator.result import SimulationResult
from layerdag.simulator.run import simulate

__all__ = [
    "Congestion",
    "Dimension",
    "MemoryConfig",
    "MemoryKind",
    "NetworkConfig",
    "RunOptions",
    "SimulationResult",
    "SystemConfig",
    "Topology",
    "simulate",
]
