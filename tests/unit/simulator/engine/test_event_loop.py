"""When the kernel may solve collectives, and when it must simulate every message."""

from simulator_traces import all_reduce, comp, one_dimension, recv, send, system, workload

from layerdag.simulator import Cluster, MemoryConfig, RunOptions, Topology
from layerdag.simulator.compute import MeasuredCompute
from layerdag.simulator.engine import Program, _event_loop as kernel, lower
from layerdag.traces.chakra import NodeSpec


def program(latency_ns: float) -> Program:
    """Return two ranks that exchange 8 B at 10 B/ns and then reduce."""

    def nodes(peer: int) -> list[NodeSpec]:
        exchange = send(1, peer, 8, (0,)), recv(2, peer, 8, (0,))
        return [comp(0, 1), *exchange, all_reduce(3, 64, (1, 2))]

    network = one_dimension(Topology.FULLY_CONNECTED, 2, bytes_per_ns=10.0, latency_ns=latency_ns)
    cluster = Cluster(network, system(), MemoryConfig(), RunOptions())
    return lower(workload(nodes(1), nodes(0)), cluster, MeasuredCompute())


def test_messages_that_take_no_time_are_simulated_one_by_one():
    # 8 B without latency take 0 ns: whether a send or receive of a rank ends first depends on which
    # rank came first in that tick, so nothing may be solved ahead.
    assert kernel.run_with(program(0.0), kernel.Method.SOLVED) is None
    assert kernel.run_with(program(1.0), kernel.Method.SOLVED) is not None
