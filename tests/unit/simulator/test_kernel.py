"""When the kernel may solve collectives, and when it must simulate every message."""

from simulator_traces import all_reduce, comp, one_dimension, recv, send, system, workload

from layerdag.simulator import MeasuredCompute, MemoryConfig, RunOptions, Topology, kernel
from layerdag.simulator.program import Cluster, Program, lower
from layerdag.traces.build import NodeSpec


def program(latency_ns: float) -> Program:
    """Return two ranks that exchange 8 B and then 4096 B at 10 B/ns, beside an all-reduce."""

    def nodes(peer: int) -> list[NodeSpec]:
        first, second = send(1, peer, 8, (0,)), recv(2, peer, 8, (0,))
        large = send(3, peer, 4096, (2,), tag=1), recv(4, peer, 4096, (0,), tag=1)
        return [comp(0, 1), first, second, *large, all_reduce(5, 64, (0,))]

    network = one_dimension(Topology.FULLY_CONNECTED, 2, bytes_per_ns=10.0, latency_ns=latency_ns)
    cluster = Cluster(network, system(), MemoryConfig(), RunOptions())
    return lower(workload(nodes(1), nodes(0)), cluster, MeasuredCompute())


def test_messages_that_take_no_time_are_simulated_one_by_one():
    # 8 B without latency take 0 ns. Which of a rank's sends and receives ends first inside the tick
    # decides what takes the communication slot next, so nothing may be solved ahead.
    assert kernel.run_with(program(0.0), kernel.Method.SOLVED) is None
    assert kernel.run_with(program(1.0), kernel.Method.SOLVED) is not None
