"""What a known machine predicts, worked out by hand."""

import dataclasses

import pytest
from simulator_traces import all_reduce, comp, workload

from layerdag.errors import ConfigError, UsageError
from layerdag.simulator.calibration import CalibratedMachine, Link, OperatorCosts, Spread

COSTS = OperatorCosts({"n0": (1000.0, 2.0, 3.0)}, (500.0, 0.0, 0.0))
LINK = Link(latency_ns=100.0, bytes_per_s=1e9)
NODES = [comp(0, 7, num_ops=10, tensor_size=100), comp(1, 7, (0,), num_ops=10, tensor_size=100)]
ALONE_NS = 1000 + 20 + 300 + 500


def test_operators_take_their_own_rates_and_others_the_common_ones() -> None:
    assert CalibratedMachine(COSTS).predict(workload(NODES)).seconds == pytest.approx(
        ALONE_NS / 1e9
    )


@pytest.mark.parametrize(("cores", "sharing"), [(None, 1), (8, 1), (4, 1), (2, 2), (1, 4)])
def test_more_ranks_than_cores_take_turns(cores: int | None, sharing: float) -> None:
    made = CalibratedMachine(COSTS, LINK, cores).predict(workload(*[NODES] * 4))
    assert made.sharing == sharing
    assert made.seconds == pytest.approx(sharing * ALONE_NS / 1e9)


def test_messages_take_turns_too() -> None:
    # 2 ranks, 2000 B: (2n-1) E + 2 (n-1) T = 30 + 2 (100 + 1000); with one core T is twice that.
    nodes = [all_reduce(0, 2000)]
    made = CalibratedMachine(COSTS, LINK).predict(workload(nodes, nodes))
    assert made.seconds == pytest.approx(2230 / 1e9, rel=2e-3)
    shared = CalibratedMachine(COSTS, LINK, cores=1).predict(workload(nodes, nodes))
    assert shared.seconds == pytest.approx(4430 / 1e9, rel=2e-3)


def test_the_interval_is_the_spread_of_as_many_ranks() -> None:
    alone = Spread(20, 0.9, 1.0, 1.2, 1, 0.05)
    together = Spread(20, 0.5, 1.0, 2.0, 2, 0.3)
    machine = CalibratedMachine(COSTS, LINK, alone=alone, together=together)
    made = machine.predict(workload(NODES))
    assert made.low_s == pytest.approx(0.9 * made.seconds)
    assert made.high_s == pytest.approx(1.2 * made.seconds)
    made = machine.predict(workload(NODES, NODES))
    assert made.high_s == pytest.approx(2 * made.seconds)
    assert CalibratedMachine(COSTS).predict(workload(NODES)).low_s is None


@pytest.mark.parametrize(("weight", "factor"), [(0.0, 1), (0.5, 2), (1.0, 4)])
def test_what_a_measured_twin_missed_is_put_right(weight: float, factor: float) -> None:
    machine = CalibratedMachine(COSTS, LINK)
    twin = workload(NODES, NODES)
    plain = machine.predict(workload(*[NODES] * 4)).seconds
    made = machine.predict(
        workload(*[NODES] * 4), like=(twin, 4 * machine.predict(twin).seconds), weight=weight
    )
    assert made.seconds == pytest.approx(factor * plain)


def test_what_cannot_be_predicted_is_refused() -> None:
    with pytest.raises(UsageError, match="the machine has no link, and the workload 2 ranks"):
        CalibratedMachine(COSTS).predict(workload(NODES, NODES))
    with pytest.raises(UsageError, match=r"weight is 2\.0"):
        CalibratedMachine(COSTS).predict(workload(NODES), like=(workload(NODES), 1.0), weight=2.0)
    with pytest.raises(UsageError, match=r"measured time 0\.0 s"):
        CalibratedMachine(COSTS).predict(workload(NODES), like=(workload(NODES), 0.0))
    with pytest.raises(ConfigError, match="cores is 0"):
        CalibratedMachine(COSTS, cores=0)
    with pytest.raises(ConfigError, match=r"the link has -1\.0"):
        CalibratedMachine(COSTS, dataclasses.replace(LINK, latency_ns=-1.0))
    with pytest.raises(ConfigError, match="three numbers from 0 up"):
        OperatorCosts({"a": (-1.0, 0.0, 0.0)}, (0.0, 0.0, 0.0))
