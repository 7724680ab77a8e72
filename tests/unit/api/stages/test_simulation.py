"""Real and synthetic jobs on small clusters, as the demo and a release run them."""

import numpy as np
import pytest
from simulator_traces import all_reduce, comp, recv, workload

from layerdag.api.stages import (
    SimulatedWorkloads,
    simulate_stage,
    simulation_parts,
    systems,
)
from layerdag.simulator import Topology

NODES = [comp(0, 100), all_reduce(1, 2**20, (0,))]
FINE = workload(NODES, NODES)
ALONE = workload([comp(0, 7)])
STUCK = workload([recv(0, 1, 8)], [comp(0, 1)])


def expected_ns(topology: Topology, gigabytes: float, latency_ns: float) -> int:
    """Return 100 us of compute, and a ring of two ranks with half the bytes in each message."""
    hops = 2 if topology is Topology.SWITCH else 1
    message = int(hops * latency_ns + 2**19 / (gigabytes * 2**30 / 1e9))
    return 100_000 + 30 + 2 * message


def test_every_system_runs_every_job_and_failures_are_told() -> None:
    found = simulate_stage([FINE, STUCK, ALONE], "simulating")
    assert found.makespan_ns.shape == (len(systems()), 2)
    assert found.makespan_ns[:, 0].tolist() == [
        expected_ns(*system) for system in systems().values()
    ]
    assert found.makespan_ns[:, 1].tolist() == [7000] * 4
    assert found.num_ranks.tolist() == [2, 1]
    [told] = found.failed
    assert "waits for rank 1" in told
    shares = 1 - 100_000 / found.makespan_ns[:, 0]
    np.testing.assert_allclose(found.exposed_fraction[:, 0], shares)
    assert found.exposed_fraction[:, 1].tolist() == [0.0] * 4


def test_times_are_geometric_means_over_jobs_of_several_ranks() -> None:
    real = SimulatedWorkloads(
        np.array([[1e6, 4e6, 1e9]] * 4), np.zeros((4, 3)), np.array([2, 4, 1]), ()
    )
    made = SimulatedWorkloads(np.array([[2e6, 3e6]] * 4), np.ones((4, 2)), np.array([2, 1]), ())
    drawn, times = simulation_parts(real, made)
    assert times is not None
    assert times.real == pytest.approx((2.0,) * 4)
    assert times.synthetic == pytest.approx((2.0,) * 4)
    makespan, share = drawn
    assert makespan.title.endswith(next(iter(systems())))
    assert [sample.values.tolist() for sample in makespan.samples] == [[1, 4, 1000], [2, 3]]
    assert [sample.values.tolist() for sample in share.samples] == [[0, 0, 0], [1, 1]]
    assert makespan.log
    assert not share.log


def test_without_parallel_jobs_on_both_sides_there_are_no_times() -> None:
    parallel, single = simulate_stage([FINE], "a"), simulate_stage([ALONE], "b")
    drawn, times = simulation_parts(parallel, single)
    assert (len(drawn), times) == (2, None)


def test_where_one_side_did_not_run_nothing_is_drawn() -> None:
    assert simulation_parts(simulate_stage([FINE], "a"), simulate_stage([STUCK], "b")) == ((), None)
