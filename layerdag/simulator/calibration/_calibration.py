"""A calibrated machine: costs, links, shared cores; and what it predicts of a job."""

import dataclasses
import math
from dataclasses import dataclass

from layerdag.errors import ConfigError, UsageError
from layerdag.simulator import (
    Cluster,
    Dimension,
    NetworkConfig,
    SystemConfig,
    Topology,
    UnsupportedCollectives,
    simulate,
)
from layerdag.simulator.analysis import ScaledCompute
from layerdag.simulator.calibration._costs import Costs
from layerdag.simulator.compute import ComputeModel
from layerdag.traces import Workload


@dataclass(frozen=True)
class Link:
    """What connects two ranks, every pair with one of its own.

    Attributes:
        latency_ns: Before the first byte of a message.
        bytes_per_s: Bandwidth in one direction.
    """

    latency_ns: float
    bytes_per_s: float

    def dimension(self, num_ranks: int, sharing: float = 1.0) -> Dimension:
        """Return the network's only dimension; ``sharing`` ranks take turns on a core."""
        bandwidth_gib = self.bytes_per_s / sharing / 2**30
        return Dimension(
            Topology.FULLY_CONNECTED, num_ranks, bandwidth_gib, self.latency_ns * sharing
        )


@dataclass(frozen=True)
class Spread:
    """How measured steps lay around predictions of runs that were left out of the fit.

    Attributes:
        runs: Number of runs.
        low: A tenth of the runs had a ratio of measured to predicted time below this.
        middle: Half of the runs.
        high: Nine tenths.
        most_ranks: Of the run with most ranks; beyond, the interval is a guess.
        error: Median relative error of the predictions.
    """

    runs: int
    low: float
    middle: float
    high: float
    most_ranks: int
    error: float


@dataclass(frozen=True)
class Prediction:
    """The time of a step that was not measured.

    Attributes:
        seconds: What the simulation says.
        low_s: Lower end of the interval of ``Spread``, four fifths of left-out runs; None without.
        high_s: Its upper end.
        sharing: Ranks that took turns on one core; 1 where each had its own.
    """

    seconds: float
    low_s: float | None
    high_s: float | None
    sharing: float


@dataclass(frozen=True)
class CalibratedMachine:
    """A machine as ``calibrate`` found it.

    Attributes:
        costs: Times of compute nodes where each rank has a core or device of its own.
        link: What connects ranks; None where no run had several and none was stated.
        cores: Cores of the one host that all ranks share, so that more ranks than cores take
            turns: compute and communication then last ranks / cores times as long. None where
            each rank has a device of its own.
        alone: How far predictions of runs of one rank were off; None of too few runs to tell.
        together: The same for runs of several ranks.
    """

    costs: Costs
    link: Link | None = None
    cores: int | None = None
    alone: Spread | None = None
    together: Spread | None = None

    def __post_init__(self) -> None:
        if self.cores is not None and self.cores < 1:
            raise ConfigError(f"cores is {self.cores}; it must be at least 1.")
        link = self.link
        if link and not (0 <= link.latency_ns < math.inf and 0 < link.bytes_per_s < math.inf):
            raise ConfigError(
                f"the link has {link.latency_ns} ns and {link.bytes_per_s} bytes per second; "
                "the first must not be negative, the second must be positive."
            )

    def spread(self, num_ranks: int) -> Spread | None:
        """Return how far predictions on ``num_ranks`` ranks may be off."""
        return self.alone if num_ranks == 1 else self.together

    def sharing(self, num_ranks: int) -> float:
        """Return how many ranks take turns on a core, at least 1."""
        return 1.0 if self.cores is None else max(1.0, num_ranks / self.cores)

    def cluster(self, num_ranks: int) -> Cluster:
        """Return the cluster of ``num_ranks`` ranks, as ``simulate`` takes it.

        Raises:
            UsageError: If there are several ranks and no link.
        """
        link = self.link
        if link is None and num_ranks > 1:
            raise UsageError(
                f"the machine has no link, and the workload {num_ranks} ranks; calibrate with runs "
                "of several ranks, or state latency and bandwidth."
            )
        dimension = (link or Link(0.0, 1e9)).dimension(num_ranks, self.sharing(num_ranks))
        system = dataclasses.replace(
            SystemConfig.uniform("ring"), unsupported_collectives=UnsupportedCollectives.REPLAY
        )
        return Cluster(NetworkConfig((dimension,)), system)

    def compute(self, num_ranks: int) -> ComputeModel:
        """Return the times of compute nodes where ``num_ranks`` ranks run at once."""
        sharing = self.sharing(num_ranks)
        model = self.costs.model()
        return model if sharing == 1 else ScaledCompute(model, sharing)

    def predict(
        self,
        workload: Workload,
        *,
        like: tuple[Workload, float] | None = None,
        weight: float = 0.5,
    ) -> Prediction:
        """Return the time of a step of ``workload`` on this machine.

        Args:
            workload: Traces of all ranks; durations in them are not used.
            like: The same job on another number of ranks, and its measured seconds. What the
                prediction of that run missed is put right, as far as ``weight`` says.
            weight: Share of the miss, in logarithms: 0 ignores ``like``, 1 trusts its one
                measurement fully.

        Raises:
            SimulationError: If the workload cannot run.
            UsageError: If it has several ranks and the machine no link, or ``weight`` or the
                seconds of ``like`` are out of range.
        """
        seconds = self._simulated_s(workload)
        if like is not None:
            other, measured_s = like
            if not 0 <= weight <= 1 or not 0 < measured_s < math.inf:
                raise UsageError(
                    f"weight is {weight} and the measured time {measured_s} s; the first must lie "
                    "in [0, 1], the second must be positive."
                )
            seconds *= (measured_s / self._simulated_s(other)) ** weight
        spread = self.spread(workload.num_ranks)
        return Prediction(
            seconds,
            seconds * spread.low if spread else None,
            seconds * spread.high if spread else None,
            self.sharing(workload.num_ranks),
        )

    def _simulated_s(self, workload: Workload) -> float:
        ranks = workload.num_ranks
        cluster, compute = self.cluster(ranks), self.compute(ranks)
        return simulate(workload, cluster, compute=compute).makespan_ns / 1e9
