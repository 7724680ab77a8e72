"""Small clusters to start from, when no configuration files are at hand."""

import dataclasses

from layerdag.simulator._cluster import (
    Dimension,
    NetworkConfig,
    SystemConfig,
    Topology,
    UnmodeledCollectives,
)


def small_cluster(num_ranks: int) -> tuple[SystemConfig, NetworkConfig]:
    """Return a cluster for ``num_ranks`` ranks that can run traces of real training steps.

    One switch with 25 GB/s and 1000 ns a link, ring collectives in one chunk, 10 ns endpoint delay:
    round numbers in the range of one network card a rank, not a model of a certain machine. Unlike
    the reference it replays collectives that the model does not know (BARRIER, GATHER, groups of
    one rank) at their recorded duration.
    """
    network = NetworkConfig((Dimension(Topology.SWITCH, num_ranks, 25.0, 1000.0),))
    system = dataclasses.replace(
        SystemConfig.uniform("ring"), unmodeled=UnmodeledCollectives.REPLAY
    )
    return system, network
