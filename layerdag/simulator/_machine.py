"""The simulated cluster as one object: from ASTRA-sim's files, from a preset, or from its parts."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

from layerdag._runtime import did_you_mean
from layerdag.errors import UsageError
from layerdag.simulator._cluster import (
    Dimension,
    MemoryConfig,
    NetworkConfig,
    RunOptions,
    SystemConfig,
    Topology,
    UnsupportedCollectives,
)


@dataclass(frozen=True)
class Cluster:
    """Everything about the machine that a run needs.

    Attributes:
        network: Dimensions; their sizes multiply to the number of ranks.
        system: Algorithms, chunking, local compute rates.
        memory: Remote memory; none by default.
        options: Congestion model, queues, rendezvous; ASTRA-sim's defaults by default.
    """

    network: NetworkConfig
    system: SystemConfig
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    options: RunOptions = field(default_factory=RunOptions)

    @classmethod
    def from_files(
        cls,
        *,
        system: str | Path,
        network: str | Path,
        memory: str | Path | None = None,
        options: RunOptions | None = None,
    ) -> "Cluster":
        """Read ASTRA-sim's configuration files.

        Args:
            system: ``system.json``.
            network: ``network.yml``.
            memory: ``memory.json``; None for no remote memory.
            options: What ASTRA-sim takes from its command line; None for its defaults.

        Raises:
            ConfigError: If a file cannot be read, or holds a key or value that is not known.
        """
        from layerdag.simulator.astra import read_memory, read_network, read_system

        return cls(
            system=read_system(system),
            network=read_network(network),
            memory=MemoryConfig() if memory is None else read_memory(memory),
            options=options or RunOptions(),
        )

    @classmethod
    def preset(cls, name: str = "small") -> "ClusterPreset":
        """Return a described cluster that comes in every size.

        Args:
            name: "small", one switch with 25 GB/s and 1000 ns per link.

        Raises:
            UsageError: If there is no preset of that name.
        """
        if name not in PRESETS:
            raise UsageError(
                f"There is no cluster preset '{name}'.{did_you_mean(name, PRESETS)} Known are "
                f"{', '.join(PRESETS)}."
            )
        return PRESETS[name]

    @property
    def num_ranks(self) -> int:
        """Number of ranks of the cluster."""
        return self.network.num_npus


@dataclass(frozen=True)
class ClusterPreset:
    """A cluster for any number of ranks; ``simulate`` gives it as many as the workload has.

    Attributes:
        name: Of the preset.
        link: The only dimension of its network, whatever its size says.
        system: Algorithms, chunking, local compute rates.
        compute: Name of the compute model that suits its traces.
    """

    name: str
    link: Dimension
    system: SystemConfig
    compute: str = "measured"

    def sized(self, num_ranks: int) -> Cluster:
        """Return the cluster with ``num_ranks`` ranks."""
        network = NetworkConfig((dataclasses.replace(self.link, npus=num_ranks),))
        return Cluster(network, self.system)


def small_cluster(num_ranks: int) -> tuple[SystemConfig, NetworkConfig]:
    """Return system and network of ``Cluster.preset("small")`` for ``num_ranks`` ranks.

    One switch with 25 GB/s and 1000 ns per link, ring collectives in one chunk, 10 ns endpoint
    delay: round numbers in the range of one network card per rank, not a model of a certain
    machine. Unlike the reference it replays collectives that the model does not know (BARRIER,
    GATHER, groups of one rank) at their recorded duration.
    """
    cluster = Cluster.preset("small").sized(num_ranks)
    return cluster.system, cluster.network


PRESETS = {
    "small": ClusterPreset(
        "small",
        Dimension(Topology.SWITCH, 1, 25.0, 1000.0),
        dataclasses.replace(
            SystemConfig.uniform("ring"), unsupported_collectives=UnsupportedCollectives.REPLAY
        ),
    )
}
