"""Workload and cluster in, ticks out, equal to ASTRA-sim's analytical backend."""

from layerdag.simulator.analysis import (
    breakdown,
    by_node,
    critical_path,
    local_memory,
    sensitivities,
)
from layerdag.simulator.cluster import Cluster, ClusterPreset, read_memory
from layerdag.simulator.collectives import parse_implementation, reject_world_description
from layerdag.simulator.compute import (
    DEVICES,
    ComputeModel,
    Device,
    MeasuredCompute,
    RooflineCompute,
)
from layerdag.simulator.compute_choice import CHOICES, compute_model
from layerdag.simulator.config import (
    Congestion,
    Dimension,
    GroupCollectives,
    MissingImplementations,
    NetworkConfig,
    RunOptions,
    SystemConfig,
    Topology,
    UnsupportedCollectives,
)
from layerdag.simulator.lowering import NodeKind
from layerdag.simulator.run import (
    PowerLawNoise,
    SimulationResult,
    Variation,
    simulate,
    write_nodes,
    write_timeline,
)

__all__ = [
    "CHOICES",
    "DEVICES",
    "Cluster",
    "ClusterPreset",
    "ComputeModel",
    "Congestion",
    "Device",
    "Dimension",
    "GroupCollectives",
    "MeasuredCompute",
    "MissingImplementations",
    "NetworkConfig",
    "NodeKind",
    "PowerLawNoise",
    "RooflineCompute",
    "RunOptions",
    "SimulationResult",
    "SystemConfig",
    "Topology",
    "UnsupportedCollectives",
    "Variation",
    "breakdown",
    "by_node",
    "compute_model",
    "critical_path",
    "local_memory",
    "parse_implementation",
    "read_memory",
    "reject_world_description",
    "sensitivities",
    "simulate",
    "write_nodes",
    "write_timeline",
]
