"""Clusters of which none is better than another in everything."""

from dataclasses import dataclass, replace

from layerdag.simulator import (
    Cluster,
    NetworkConfig,
    SystemConfig,
    Topology,
    UnsupportedCollectives,
)

_LINKS = (
    (0.1, 0.5), (0.3, 1.0), (1.0, 2.0), (3.0, 4.0),
    (10.0, 8.0), (30.0, 16.0), (100.0, 32.0), (300.0, 64.0),
)  # fmt: skip
"""Latency in microseconds and GiB/s, of which none is better in both."""
_SLOWER_LINK, _FASTER_COMPUTE = 2.0, 0.7


@dataclass(frozen=True)
class RankedCluster:
    """One switch, and accelerators of one speed.

    Attributes:
        latency_us: Latency of a hop in microseconds.
        gib_per_s: Bandwidth of a link in 2**30 bytes per second.
        compute_time: Time of an operator, of the common one as 1.
    """

    latency_us: float
    gib_per_s: float
    compute_time: float

    @property
    def name(self) -> str:
        """The numbers in short."""
        speed = "" if self.compute_time == 1 else f", compute time x {self.compute_time:g}"
        return f"{self.gib_per_s:g} GiB/s, {self.latency_us:g} us{speed}"

    def sized(self, ranks: int, speedup: float) -> Cluster:
        """Return it for jobs whose durations were measured on a device ``speedup`` times as slow.

        The network is slowed down instead of making durations shorter, which orders clusters alike
        and rounds no duration to whole nanoseconds.
        """
        system = replace(
            SystemConfig.uniform("ring"), unsupported_collectives=UnsupportedCollectives.REPLAY
        )
        latency_ns = 1e3 * self.latency_us * speedup
        network = NetworkConfig.single(Topology.SWITCH, ranks, self.gib_per_s / speedup, latency_ns)
        return Cluster(network, system)


CLUSTERS = tuple(
    RankedCluster(latency * slower, bandwidth, compute)
    for latency, bandwidth in _LINKS
    for slower, compute in ((1.0, 1.0), (_SLOWER_LINK, _FASTER_COMPUTE))
)
"""Sixteen: the faster a link or the compute, the longer the latency."""
