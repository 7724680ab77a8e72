"""Workload and cluster in, ticks out, equal to ASTRA-sim's analytical backend."""

from layerdag.simulator.analysis import breakdown, by_node, critical_path
from layerdag.simulator.config import Dimension, NetworkConfig, SystemConfig, Topology
from layerdag.simulator.run import Variation

__all__ = [
    "Dimension",
    "NetworkConfig",
    "SystemConfig",
    "Topology",
    "Variation",
    "breakdown",
    "by_node",
    "critical_path",
]
