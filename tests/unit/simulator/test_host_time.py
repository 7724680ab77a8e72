"""A step lasts as long as the longer of host and device."""

import pytest
from simulator_traces import comp, workload

from layerdag.errors import ConfigError
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.compute import MeasuredCompute
from layerdag.simulator.host_time import (
    HostCosts,
    host_scale,
    replayed_step_us,
    with_host_model,
    with_measured_host,
)
from layerdag.simulator.run import simulate

CLUSTER = Cluster("small").with_ranks(1)


def makespan(found) -> int:
    return simulate(found, CLUSTER, compute=MeasuredCompute()).makespan_ns


def kernels(duration_us: int):
    return workload([comp(i, duration_us, (i - 1,) if i else ()) for i in range(20)])


@pytest.mark.parametrize(("kernel_us", "launch_us"), [(50, 10), (5, 40)])
def test_a_step_lasts_as_long_as_the_longer_one(kernel_us, launch_us):
    found = makespan(with_host_model(kernels(kernel_us), HostCosts(launch_us * 1000.0, 0.0)))
    longer, shorter = max(kernel_us, launch_us), min(kernel_us, launch_us)
    assert found == (20 * longer + shorter) * 1000


def profile():
    """Two calls with a gap of 30 us, each of which starts a kernel of 5 us."""
    cpu = {"is_cpu_op": True}
    return workload(
        [
            comp(0, 10, start_ns=0, duration_ns=10_000, **cpu),
            comp(1, 5, (0,), start_ns=10_000, duration_ns=5_000),
            comp(2, 10, start_ns=40_000, duration_ns=10_000, **cpu),
            comp(3, 5, (2, 1), start_ns=50_000, duration_ns=5_000),
        ]
    )


def test_a_replay_gives_back_the_measured_span():
    assert makespan(with_measured_host(profile())) == 55_000
    assert makespan(with_measured_host(profile(), 0.0)) < 11_000
    assert replayed_step_us(profile()) == 55
    assert replayed_step_us(kernels(5)) is None


@pytest.mark.parametrize("step_s", [30e-6, 55e-6, 250e-6])
def test_the_host_is_scaled_until_the_step_is_as_long_as_measured(step_s):
    scale = host_scale(lambda found: makespan(found) / 1e9, profile(), step_s)
    found = makespan(with_measured_host(profile(), scale)) / 1e9
    assert found == pytest.approx(step_s, rel=0.01)


def test_a_step_that_no_host_explains_is_refused():
    with pytest.raises(ConfigError, match="check the step and its unit"):
        host_scale(lambda found: makespan(found) / 1e9, profile(), 1.0)


def test_what_cannot_be_is_one_sentence():
    with pytest.raises(ConfigError, match="has calls of the host already"):
        with_host_model(profile())
    with pytest.raises(ConfigError, match="no call of the host tells when it started"):
        with_measured_host(kernels(5))
    with pytest.raises(ConfigError, match="must not be negative"):
        HostCosts(-1.0)
