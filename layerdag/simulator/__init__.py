"""Runs workloads on a described cluster, equal to ASTRA-sim's analytical backend tick by tick.

The names below are imported when they are first used, so that a run from the command line, which
needs few of them, starts fast.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_HOME = {
    "Congestion": "cluster",
    "Dimension": "cluster",
    "GroupCollectives": "cluster",
    "MeasuredCompute": "compute",
    "MemoryConfig": "cluster",
    "MemoryKind": "cluster",
    "NetworkConfig": "cluster",
    "PowerLawNoise": "variation",
    "ReferenceCompute": "compute",
    "RunOptions": "cluster",
    "SimulationResult": "result",
    "SystemConfig": "cluster",
    "Topology": "cluster",
    "UnmodelledCollectives": "cluster",
    "Variation": "variation",
    "simulate": "run",
    "small_cluster": "presets",
}

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


def __getattr__(name: str) -> Any:
    """Import a public name from its module on first use."""
    if name not in _HOME:
        raise AttributeError(f"module 'layerdag.simulator' has no attribute '{name}'")
    return getattr(importlib.import_module(f"layerdag.simulator.{_HOME[name]}"), name)
