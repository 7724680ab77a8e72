"""Real and synthetic jobs on a few small clusters."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from layerdag._runtime import track
from layerdag.errors import SimulationError
from layerdag.report import Distribution, Sample, SystemTimes
from layerdag.simulator import (
    Cluster,
    NetworkConfig,
    SystemConfig,
    Topology,
    UnsupportedCollectives,
    simulate,
)
from layerdag.simulator.compute import MeasuredCompute
from layerdag.traces import Workload


@dataclass(frozen=True, eq=False)
class SimulatedWorkloads:
    """What the simulator said of a set of workloads.

    Attributes:
        makespan_ns: float64 (systems, workloads).
        exposed_fraction: float64 (systems, workloads): fraction of the makespan in which a rank
            does not compute, mean over ranks.
        num_ranks: int64 (workloads,).
        failed: Workloads that could not run, with the reason.
    """

    makespan_ns: np.ndarray
    exposed_fraction: np.ndarray
    num_ranks: np.ndarray
    failed: tuple[str, ...]


def systems() -> dict[str, tuple[Topology, float, float]]:
    """Return the small clusters: topology, GB/s (2**30 bytes) per link, ns per hop."""
    return {
        "switch, 25 GB/s, 1 us": (Topology.SWITCH, 25.0, 1_000.0),
        "ring, 12 GB/s, 2 us": (Topology.RING, 12.0, 2_000.0),
        "fully connected, 50 GB/s, 0.5 us": (Topology.FULLY_CONNECTED, 50.0, 500.0),
        "switch, 1 GB/s, 30 us": (Topology.SWITCH, 1.0, 30_000.0),
    }


def simulate_stage(workloads: Sequence[Workload], label: str) -> SimulatedWorkloads:
    """Run every workload on every system, with the durations the traces carry."""
    system = replace(
        SystemConfig.uniform("ring"), unsupported_collectives=UnsupportedCollectives.REPLAY
    )
    clusters = list(systems().values())
    makespans, shares, ranks, failed = [], [], [], []
    for workload in track(workloads, label, len(workloads)):
        try:
            results = [
                simulate(
                    workload,
                    Cluster(
                        NetworkConfig.single(topology, workload.num_ranks, bandwidth, latency),
                        system,
                    ),
                    compute=MeasuredCompute(),
                )
                for topology, bandwidth, latency in clusters
            ]
        except SimulationError as error:
            failed.append(f"{workload.source}: {error}")
            continue
        makespans.append([result.makespan_ns for result in results])
        shares.append(
            [
                float(np.mean(result.exposed_comm_ns / np.maximum(result.rank_finish_ns, 1)))
                for result in results
            ]
        )
        ranks.append(workload.num_ranks)
    shape = (-1, len(clusters))
    return SimulatedWorkloads(
        np.array(makespans, dtype=np.float64).reshape(shape).T,
        np.array(shares, dtype=np.float64).reshape(shape).T,
        np.array(ranks, dtype=np.int64),
        tuple(failed),
    )


def simulation_parts(
    real: SimulatedWorkloads, synthetic: SimulatedWorkloads
) -> tuple[tuple[Distribution, ...], SystemTimes | None]:
    """Return the distributions on the first system, and the mean time on each system."""
    both = (("real test", real), ("synthetic", synthetic))
    if not all(part.num_ranks.size for _, part in both):
        return (), None
    first = next(iter(systems()))
    drawn = (
        Distribution(
            f"makespan on {first}",
            "ms",
            tuple(Sample(name, part.makespan_ns[0] / 1e6) for name, part in both),
            log=True,
        ),
        Distribution(
            f"share of time in which a rank does not compute, on {first}",
            "fraction of the time",
            tuple(Sample(name, part.exposed_fraction[0]) for name, part in both),
        ),
    )
    parallel = [part.num_ranks > 1 for _, part in both]
    if not all(mask.any() for mask in parallel):
        return drawn, None
    # The geometric mean, so that no single large job decides the figure.
    means = [
        np.exp(np.log(part.makespan_ns[:, mask]).mean(axis=1)) / 1e6
        for (_, part), mask in zip(both, parallel, strict=True)
    ]
    times = SystemTimes(
        tuple(systems()),
        tuple(map(float, means[0])),
        tuple(map(float, means[1])),
        "geometric mean of the makespan in ms, jobs of several ranks",
    )
    return drawn, times
