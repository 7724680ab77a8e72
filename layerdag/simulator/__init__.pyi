from ._cluster import (
    OPTIMIZATIONS as OPTIMIZATIONS,
    POLICIES as POLICIES,
    Congestion as Congestion,
    Dimension as Dimension,
    GroupCollectives as GroupCollectives,
    MemoryConfig as MemoryConfig,
    MemoryKind as MemoryKind,
    MissingImplementations as MissingImplementations,
    NetworkConfig as NetworkConfig,
    RunOptions as RunOptions,
    SystemConfig as SystemConfig,
    Topology as Topology,
    UnsupportedCollectives as UnsupportedCollectives,
)
from ._machine import (
    Cluster as Cluster,
    ClusterPreset as ClusterPreset,
    small_cluster as small_cluster,
)
from ._result import SimulationResult as SimulationResult
from ._run import simulate as simulate
from ._variation import PowerLawNoise as PowerLawNoise, Variation as Variation
