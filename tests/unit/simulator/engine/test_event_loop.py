"""When the kernel may solve collectives, and that its order of events is that of a slow one."""

import numpy as np
import pytest
import slow_simulator
from hypothesis import given, strategies as st
from laws import tried
from simulator_traces import all_reduce, comp, one_dimension, recv, send, system, ticks, workload

from layerdag.errors import SimulationError
from layerdag.simulator import Cluster, MemoryConfig, RunOptions, Topology, simulate
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


def random_jobs(rng: np.random.Generator, ranks: int) -> list[dict[int, slow_simulator.Job]]:
    """Return compute on both slots, and messages between neighbors, in random order of ids."""
    jobs: list[dict[int, slow_simulator.Job]] = [{} for _ in range(ranks)]
    for step in range(int(rng.integers(1, 12))):
        kind, source = rng.choice(["cpu", "gpu", "gpu", "message"]), int(rng.integers(ranks))
        if kind == "message" and ranks > 1:
            target, size = (source + 1) % ranks, int(rng.integers(1, 2000))
            key = (source, target, step, size)
            added = [(source, "comm", 100 + size, key), (target, "", 0, key)]
        else:
            added = [
                (
                    source,
                    "gpu" if kind == "message" else str(kind),
                    1000 * int(rng.integers(1, 4)),
                    None,
                )
            ]
        for rank, slot, time, key in added:
            own = jobs[rank]
            parents = tuple(sorted(rng.permutation(list(own))[: int(rng.integers(3))].tolist()))
            own[100 * step + int(rng.integers(100))] = slow_simulator.Job(slot, parents, time, key)
    return jobs


def as_node(id: int, job: slow_simulator.Job) -> NodeSpec:
    """Return the node of the trace that a job of the slow simulator stands for."""
    if job.key is not None:
        source, target, tag, size = job.key
        if job.slot:
            return send(id, target, size, job.parents, tag=tag)
        return recv(id, source, size, job.parents, tag=tag)
    return comp(id, job.time // 1000, job.parents, is_cpu_op=job.slot == "cpu")


@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
@tried(25)
def test_compute_and_messages_take_the_ticks_of_a_slow_simulator(seed, ranks):
    jobs = random_jobs(np.random.default_rng(seed), ranks)
    jobs = [own or {0: slow_simulator.Job("gpu", (), 1000)} for own in jobs]
    load = workload(*[[as_node(id, job) for id, job in own.items()] for own in jobs])
    cluster = Cluster(one_dimension(Topology.FULLY_CONNECTED, ranks), system())
    expected = slow_simulator.run(jobs)
    if any(len(found) < len(own) for found, own in zip(expected, jobs, strict=True)):
        with pytest.raises(SimulationError, match="deadlock"):
            simulate(load, cluster)
        return
    result = simulate(load, cluster)
    for rank, found in enumerate(expected):
        assert ticks(result, rank) == [found[id] for id in sorted(found)]
