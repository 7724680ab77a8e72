"""Ranks that differ in speed, and noise."""

import numpy as np
import pytest
from simulator_traces import all_reduce, comp, ring, system, workload

from layerdag.errors import ConfigError
from layerdag.simulator import Cluster, PowerLawNoise, Variation, simulate

NODES = [comp(0, 4), all_reduce(1, 2000, (0,))]
LOAD = workload(*[NODES] * 4)


def test_a_straggler_slows_its_compute_and_everyone_waits():
    plain = simulate(LOAD, Cluster(ring(4), system()))
    slow = simulate(LOAD, Cluster(ring(4), system()), variation=Variation({2: 1.5}))
    assert slow.compute_ns.tolist() == [4000, 4000, 6000, 4000]
    assert slow.makespan_ns == plain.makespan_ns + 2000
    assert slow.rank_finish_ns.min() > plain.makespan_ns


def test_noise_depends_on_seed_and_rank_alone():
    noise = PowerLawNoise(exponent=2.5, scale=0.1, seed=3)
    first = simulate(LOAD, Cluster(ring(4), system()), variation=Variation(noise=noise))
    again = simulate(LOAD, Cluster(ring(4), system()), variation=Variation(noise=noise))
    np.testing.assert_array_equal(first.finish_ns, again.finish_ns)
    assert len(set(first.compute_ns.tolist())) == 4
    assert (first.compute_ns >= 4000).all()
    other = Variation(noise=PowerLawNoise(2.5, 0.1, seed=4))
    assert (
        simulate(LOAD, Cluster(ring(4), system()), variation=other).makespan_ns != first.makespan_ns
    )


def test_noise_has_the_mean_and_tail_of_its_law():
    factor = PowerLawNoise(exponent=3.0, scale=0.5, seed=0).factors(rank=0, count=200_000)
    assert factor.mean() == pytest.approx(1.25, rel=0.01)
    assert (factor > 1.5).mean() == pytest.approx(2.0**-3, rel=0.03)


@pytest.mark.parametrize("factors", [{9: 2.0}, {0: 0.0}, {0: float("inf")}])
def test_impossible_speeds_are_refused(factors):
    with pytest.raises(ConfigError, match=f"rank {next(iter(factors))}"):
        simulate(LOAD, Cluster(ring(4), system()), variation=Variation(factors))


def test_noise_without_a_mean_is_refused():
    with pytest.raises(ConfigError, match="exponent"):
        PowerLawNoise(1.0, 0.1, 0)


def test_nothing_becomes_faster_than_a_nanosecond():
    quick = workload([comp(0, 1)])
    for factor, expected in ((1e-6, 1), (0.001, 1), (0.0025, 2), (1.0, 1000)):
        found = simulate(quick, Cluster(ring(1), system()), variation=Variation({0: factor}))
        assert found.compute_ns.tolist() == [expected]


def test_a_speed_for_the_first_rank_beyond_the_cluster_is_refused():
    simulate(LOAD, Cluster(ring(4), system()), variation=Variation({3: 1.0}))
    with pytest.raises(ConfigError, match="rank 4 is given a speed, but ranks are 0 to 3"):
        simulate(LOAD, Cluster(ring(4), system()), variation=Variation({4: 1.0}))
