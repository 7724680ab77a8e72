"""The simulated cluster as frozen dataclasses: network, system, remote memory, run options.

Units are those of ASTRA-sim's files and stand in each attribute; docs/reference/simulator.md has
the table. Constructing one in code checks it as thoroughly as reading it from a file does.
"""

import math
from dataclasses import dataclass
from enum import Enum

from layerdag.errors import ConfigError


class Topology(Enum):
    """How the ranks of one dimension are wired; the value is the name in ``network.yml``."""

    RING = "Ring"
    FULLY_CONNECTED = "FullyConnected"
    SWITCH = "Switch"


class Congestion(Enum):
    """Whether messages share links or never meet.

    The reference has AWARE for one dimension only; AWARE_MULTI is ours and crosses the dimensions
    of a message in ascending order, one link after the other.
    """

    UNAWARE = "unaware"
    AWARE = "aware"
    AWARE_MULTI = "aware-multi"


class MemoryKind(Enum):
    """Who shares the remote memory that MEM_LOAD and MEM_STORE nodes use."""

    NONE = "NO_MEMORY_EXPANSION"
    PER_NODE = "PER_NODE_MEMORY_EXPANSION"
    PER_NPU = "PER_NPU_MEMORY_EXPANSION"
    POOL = "MEMORY_POOL"


class UnsupportedCollectives(Enum):
    """What becomes of collectives that the reference cannot run.

    These are types such as BARRIER and GATHER, and collectives of a single rank.
    """

    REFUSE = "refuse"
    REPLAY = "replay"


class MissingImplementations(Enum):
    """What becomes of a collective whose implementation list is shorter than the network.

    SKIP is the reference's: the dimensions without an entry are silently not communicated.
    """

    REFUSE = "refuse"
    SKIP = "skip"


class GroupCollectives(Enum):
    """How a collective runs in a group that is smaller than the cluster.

    HIERARCHICAL is the default: in a network of several dimensions, a group that is a grid of
    equally spaced ranks of each dimension runs phase by phase in those it spans, as a collective
    of all ranks would; other groups stay flat. FLAT is the reference's: one ring over the members,
    in the order of the group file, whose messages take the first dimension in which neighbors
    differ, so that slower dimensions may have no effect.
    """

    FLAT = "flat"
    HIERARCHICAL = "hierarchical"


_MAX_NS = 10**12
MAX_COMM_STREAMS = 64
POLICIES = ("LIFO", "FIFO", "EXPLICIT")
OPTIMIZATIONS = ("localBWAware", "baseline")


def _require(condition: bool, key: str, value: object, wanted: str) -> None:
    if not condition:
        raise ConfigError(f"{key} is {value!r}; it must be {wanted}.")


@dataclass(frozen=True)
class Dimension:
    """One dimension of the network, with ``npus`` ranks along it.

    As in ASTRA-sim, 1 GB of the bandwidth of a link is 2**30 bytes; the latency is that of a hop.
    """

    topology: Topology
    npus: int
    bandwidth_gib: float
    latency_ns: float = 0.0

    def __post_init__(self) -> None:
        _require(self.npus >= 1, "npus_count", self.npus, "at least 1")
        fine = math.isfinite(self.bandwidth_gib) and self.bandwidth_gib >= 1e-9
        _require(fine, "bandwidth", self.bandwidth_gib, "a positive number of GB/s")
        fine = 0 <= self.latency_ns <= _MAX_NS
        _require(fine, "latency", self.latency_ns, "a number of ns from 0 to 1e12")

    @property
    def bytes_per_ns(self) -> float:
        """Bandwidth of a link in bytes per ns."""
        return self.bandwidth_gib * (1 << 30) / 1e9


@dataclass(frozen=True)
class NetworkConfig:
    """A network of one or several dimensions; dimension 0 varies fastest in rank numbers."""

    dimensions: tuple[Dimension, ...]

    def __post_init__(self) -> None:
        _require(1 <= len(self.dimensions) <= 8, "topology", len(self.dimensions), "1 to 8 entries")
        _require(self.num_npus <= 10**6, "npus_count", self.num_npus, "at most 1e6 in all")

    @property
    def num_npus(self) -> int:
        """Number of ranks of the cluster."""
        return math.prod(dimension.npus for dimension in self.dimensions)

    @classmethod
    def single(
        cls, topology: Topology, npus: int, bandwidth_gib: float = 50.0, latency_ns: float = 500.0
    ) -> "NetworkConfig":
        """Return a network of one dimension."""
        return cls((Dimension(topology, npus, bandwidth_gib, latency_ns),))


@dataclass(frozen=True)
class SystemConfig:
    """What a rank does with chunks, messages and compute nodes (ASTRA-sim's ``system.json``).

    Attributes:
        preferred_dataset_splits: Chunks that a collective is cut into.
        collective_optimization: "localBWAware" (reduce-scatter up, all-gather down the dimensions)
            or "baseline" (the collective itself in every dimension).
        all_reduce: Algorithm in each dimension: "ring", "direct", "direct<K>", "halvingDoubling",
            "doubleBinaryTree"; or one of "oneRing", "oneDirect", "oneHalvingDoubling" alone; or,
            beyond the reference, "inNetwork" where the dimension is a Switch that reduces.
        all_gather: The same for all-gathers, as are the two further lists for their collectives.
        broadcast: "inNetwork" in each dimension; by default a broadcast takes its recorded
            duration, as in the reference.
        endpoint_delay_ns: Cost before the first send and after every receive, in ns. None stands
            for 10 ns that ``RunOptions.injection_scale`` leaves alone, as in the reference.
        active_chunks_per_dimension: Chunks of one collective in flight in one dimension.
        scheduling_policy: "LIFO", "FIFO" or "EXPLICIT"; without effect, since a rank has one
            collective in flight at a time (docs/reference/simulator.md).
        local_mem_bw_gb: Local memory bandwidth in GB/s (1e9 bytes); None where reductions cost
            nothing and no roofline is used.
        peak_perf_tflops: Peak compute rate in TFLOPS (1e12), for the roofline.
        roofline_enabled: Whether GPU compute nodes take their time from the roofline instead of
            ``duration_micros``.
        replay_only: Whether every node takes its ``duration_micros``, communication too.
        unsupported_collectives: Whether a collective that the reference cannot run is an error, as
            by default, or takes its recorded duration on its own rank, as the reference does with
            BROADCAST.
        missing: For a collective of all ranks whose list has no entry for a dimension.
        group_collectives: For collectives of smaller groups; FLAT is the reference's way.
        storage_bw_gb: Bandwidth of a rank's storage in GB/s (1e9 bytes), beyond the reference; None
            where operations on storage take their recorded durations.
        track_local_mem: Whether the local memory of each rank is reported as in the reference.
        local_mem_trace: Prefix of the files of that report.
        fitted_collectives: Device whose measured times collectives take, beyond the reference, with
            what the last dimension of the network adds among several nodes; "" where all are
            simulated. None: that of a named compute model, where links are not shared and nodes
            have 8 ranks.
    """

    preferred_dataset_splits: int
    collective_optimization: str = "localBWAware"
    all_reduce: tuple[str, ...] = ()
    all_gather: tuple[str, ...] = ()
    reduce_scatter: tuple[str, ...] = ()
    all_to_all: tuple[str, ...] = ()
    broadcast: tuple[str, ...] = ()
    endpoint_delay_ns: int | None = None
    active_chunks_per_dimension: int = 1
    scheduling_policy: str = "LIFO"
    local_mem_bw_gb: float | None = None
    peak_perf_tflops: float | None = None
    roofline_enabled: bool = False
    replay_only: bool = False
    unsupported_collectives: UnsupportedCollectives = UnsupportedCollectives.REFUSE
    missing: MissingImplementations = MissingImplementations.REFUSE
    group_collectives: GroupCollectives = GroupCollectives.HIERARCHICAL
    storage_bw_gb: float | None = None
    track_local_mem: bool = False
    local_mem_trace: str = "local_mem_trace"
    fitted_collectives: str | None = None

    def __post_init__(self) -> None:
        for key, count in (
            ("preferred-dataset-splits", self.preferred_dataset_splits),
            ("active-chunks-per-dimension", self.active_chunks_per_dimension),
        ):
            _require(1 <= count <= 10**6, key, count, "1 to 1e6")
        prefix = self.local_mem_trace
        _require(prefix != "", "local-mem-trace-filename", prefix, "a prefix of files")
        delay = self.endpoint_delay_ns
        _require(delay is None or 0 <= delay <= _MAX_NS, "endpoint-delay", delay, "0 to 1e12 ns")
        for key, value, known in (
            ("scheduling-policy", self.scheduling_policy, POLICIES),
            ("collective-optimization", self.collective_optimization, OPTIMIZATIONS),
        ):
            _require(value in known, key, value, "one of " + ", ".join(known))
        for key, rate, needed in (
            ("storage-bw", self.storage_bw_gb, False),
            ("local-mem-bw", self.local_mem_bw_gb, self.roofline_enabled),
            ("peak-perf", self.peak_perf_tflops, self.roofline_enabled),
        ):
            if rate is None:
                _require(not needed, key, rate, "given when roofline-enabled is 1")
            else:
                _require(math.isfinite(rate) and rate > 0, key, rate, "a positive number")

    @classmethod
    def uniform(cls, algorithm: str = "ring", dimensions: int = 1) -> "SystemConfig":
        """Return a system that uses one algorithm for every collective, uncut, in each dimension.

        Halving-doubling and the double binary tree have no all-to-all; direct replaces them there.
        """
        names = (algorithm,) * dimensions
        exchange = names if algorithm.startswith(("ring", "direct", "oneRing")) else ("direct",)
        return cls(
            preferred_dataset_splits=1,
            all_reduce=names,
            all_gather=names,
            reduce_scatter=names,
            all_to_all=(exchange * dimensions)[:dimensions],
        )


@dataclass(frozen=True)
class MemoryConfig:
    """The remote memory behind MEM_LOAD and MEM_STORE nodes (ASTRA-sim's ``memory.json``).

    Attributes:
        kind: Who shares it; PER_NODE and POOL serve one request at a time, in order.
        latency_ns: Time before the first byte, in ns.
        bandwidth_bytes_per_ns: Bandwidth in bytes per ns, which is GB/s of 1e9 bytes.
        npus_per_node: Ranks that share one memory under PER_NODE.
        num_nodes: Memories under PER_NODE; None for as many as the ranks need.
    """

    kind: MemoryKind = MemoryKind.NONE
    latency_ns: int = 0
    bandwidth_bytes_per_ns: float = 1.0
    npus_per_node: int = 1
    num_nodes: int | None = None

    def __post_init__(self) -> None:
        fine = 0 <= self.latency_ns <= _MAX_NS
        _require(fine, "remote-mem-latency", self.latency_ns, "0 to 1e12 ns")
        rate = self.bandwidth_bytes_per_ns
        fine = math.isfinite(rate) and rate > 0
        _require(fine, "remote-mem-bw", rate, "a positive number of bytes per ns")
        _require(self.npus_per_node >= 1, "num-npus-per-node", self.npus_per_node, "at least 1")
        fine = self.num_nodes is None or self.num_nodes >= 1
        _require(fine, "num-nodes", self.num_nodes, "at least 1")


@dataclass(frozen=True)
class RunOptions:
    """What ASTRA-sim takes from its command line.

    Attributes:
        congestion: Network model.
        queues_per_dimension: Queues of a rank in each dimension.
        injection_scale: Factor on an endpoint delay that the system states.
        rendezvous: Whether a receiver asks (8192 bytes) before each message is sent.
        comm_streams: Communication nodes that a rank runs at once; beyond the reference, which has
            one. Each stream has queues of its own in every dimension.
    """

    congestion: Congestion = Congestion.UNAWARE
    queues_per_dimension: int = 1
    injection_scale: float = 1.0
    rendezvous: bool = False
    comm_streams: int = 1

    def __post_init__(self) -> None:
        for key, count, most in (
            ("num-queues-per-dim", self.queues_per_dimension, 1024),
            ("comm-streams", self.comm_streams, MAX_COMM_STREAMS),
        ):
            _require(1 <= count <= most, key, count, f"1 to {most}")
        scale = self.injection_scale
        fine = math.isfinite(scale) and scale >= 0
        _require(fine, "injection-scale", scale, "a number from 0 up")


MAX_TIME_NS = 10**15
"""Longest node or message that is run, 11 days: sums of many stay far from the clock's end."""
