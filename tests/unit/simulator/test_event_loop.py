"""Why a run stopped: chains of waits, cycles, skipped parents, messages nobody asked for."""

import dataclasses

import numpy as np
import pytest
import slow_simulator
from hypothesis import given, strategies as st
from laws import tried
from simulator_traces import (
    all_reduce,
    coll,
    comp,
    node,
    one_dimension,
    recv,
    ring,
    send,
    system,
    ticks,
    workload,
)

from layerdag.errors import SimulationError
from layerdag.hardware.collectives import CollectiveType
from layerdag.simulator import event_loop as kernel
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.compute import MeasuredCompute
from layerdag.simulator.config import MemoryConfig, RunOptions, Topology
from layerdag.simulator.program import LoweredProgram, lower
from layerdag.simulator.run import simulate
from layerdag.traces.builder import NodeSpec
from layerdag.traces.trace import NodeType


def complaint(*ranks: list[NodeSpec], **more: object) -> str:
    groups, queues = more.pop("groups", None), more.pop("queues", 1)
    options = RunOptions(queues_per_dimension=queues)
    with pytest.raises(SimulationError) as caught:
        simulate(
            workload(*ranks, groups=groups), Cluster(ring(len(ranks)), system(), options=options)
        )
    return str(caught.value)


def test_a_cycle_of_dependencies_is_spelled_out_and_cut_where_it_is_long():
    cycle = [comp(2, 1, (8,)), comp(5, 1, (2,)), comp(8, 1, (5,)), comp(9, 1)]
    told = complaint(cycle, [comp(0, 1)])
    assert "rank 0 node 2 'n2' (COMP) never starts: its dependencies form a cycle" in told
    assert "each node waiting for the next: 2 -> 8 -> 5 -> 2; remove one of these" in told
    assert told.endswith("2 of 5 nodes were done when everything stopped at tick 1000.")
    behind = [comp(0, 1, (5,)), comp(5, 1, (6,)), comp(6, 1, (5,))]
    assert "5 -> 6 -> 5" in complaint(behind, [comp(0, 1)])
    ring_of_nodes = [comp(id, 1, ((id + 1) % 20,)) for id in range(20)]
    told = complaint(ring_of_nodes, [comp(0, 1)])
    assert "0 -> 1 -> 2 -> 3 -> 4 -> 5 -> 6 -> 7 -> 8 -> 9 -> 10 -> 11 ...;" in told


def test_a_chain_of_waits_is_told_to_the_rank_that_waits_for_nothing():
    # 0 waits for 1, which waits for 2, which is done.
    told = complaint(
        [recv(0, 1, 8)], [recv(0, 2, 8), send(1, 0, 8, (0,))], [comp(0, 3)],
    )  # fmt: skip
    assert told == (
        "deadlock: rank 0 node 0 'n0' (COMM_RECV, 8 bytes, tag 0) waits for rank 1; "
        "rank 1 node 0 'n0' (COMM_RECV, 8 bytes, tag 0) waits for rank 2, which has finished all "
        "its nodes without taking part. 1 of 4 nodes were done when everything stopped at tick "
        "3000."
    )


def test_a_chain_that_ends_at_a_rank_with_a_cycle_tells_the_cycle():
    told = complaint([recv(0, 1, 8)], [comp(0, 1, (1,)), comp(1, 1, (0,)), send(2, 0, 8, (1,))])
    assert "rank 0 node 0 'n0' (COMM_RECV, 8 bytes, tag 0) waits for rank 1; " in told
    assert "rank 1 node 0 'n0' (COMP) never starts: its dependencies form a cycle" in told


def test_a_cycle_of_waits_leaves_out_the_ranks_before_it():
    # 0 waits for 1; 1 and 2 wait for each other.
    told = complaint(
        [recv(0, 1, 8)],
        [recv(0, 2, 8), send(1, 2, 8, (0,)), send(2, 0, 8, (0,))],
        [recv(0, 1, 8), send(1, 1, 8, (0,))],
    )
    assert told.startswith("deadlock, a cycle of waits: rank 1 node 0")
    assert "rank 0 node" not in told
    assert "must issue matching collectives and messages in the same order" in told


@pytest.mark.parametrize(("ranks", "more"), [(6, ""), (7, "... 1 more ..."), (9, "... 3 more ...")])
def test_long_cycles_of_waits_show_six_links(ranks, more):
    nodes = [
        [recv(0, (rank + 1) % ranks, 8), send(1, (rank - 1) % ranks, 8, (0,))]
        for rank in range(ranks)
    ]
    told = complaint(*nodes)
    assert told.count("waits for rank") == 6
    assert more in told
    assert f"rank {ranks - 1} node 0 'n0' (COMM_RECV, 8 bytes, tag 0) waits for rank 0." in told


def test_only_several_queues_are_told_to_take_turns():
    one = [recv(0, 1, 8), send(1, 1, 8, (0,))]
    two = [recv(0, 0, 8), send(1, 0, 8, (0,))]
    assert "in the same order, with the same sizes. 0 of 4 nodes were done" in complaint(one, two)
    assert "queues take turns" in complaint(one, two, queues=2)


def test_sizes_that_differ_are_told_before_the_wait():
    told = complaint([send(0, 1, 8, tag=3)], [recv(0, 0, 16, tag=3)])
    assert told.startswith("deadlock: rank 1 node 0 'n0' (COMM_RECV, 16 bytes, tag 3) waits for")
    assert (
        "rank 1 expects a message of 16 bytes from rank 0, which sent 8 bytes; give both sides "
        "the same size." in told
    )


def test_another_tag_is_no_difference_in_size():
    told = complaint([send(0, 1, 8, tag=3)], [recv(0, 0, 16, tag=4)])
    assert "expects a message" not in told
    assert "rank 0, which has finished all its nodes without taking part" in told


def test_of_messages_that_nobody_receives_the_sender_is_named():
    told = complaint([send(4, 1, 8, tag=7), send(5, 1, 9, (4,), tag=7)], [recv(0, 0, 8, tag=7)])
    assert told == (
        "rank 0 node 5 'n5' (COMM_SEND, 9 bytes, tag 7) sends 9 bytes with tag 7 to rank 1, which "
        "never receives them; add the COMM_RECV node to rank 1 or drop the COMM_SEND."
    )


def test_children_of_skipped_nodes_alone_are_told_so():
    told = complaint([node(0, NodeType.INVALID), comp(3, 1, (0,))], [comp(0, 1)])
    assert "rank 0 node 3 'n3' (COMP) never starts: it depends on skipped nodes only" in told
    assert "remove the skipped nodes" in told


def test_nodes_and_groups_are_named_as_far_as_they_have_names():
    groups = {"5": (0, 1)}
    told = complaint([all_reduce(0, 64, pg_name="5")], [comp(0, 1)], groups=groups)
    assert "(ALL_REDUCE, 64 bytes, group 5)" in told
    told = complaint([coll(0, CollectiveType.ALL_GATHER, 64, pg_name="0")], [comp(0, 1)])
    assert "(ALL_GATHER, 64 bytes) waits" in told
    bare = dataclasses.replace(recv(2, 1, 8), name="")
    assert "rank 0 node 2 (COMM_RECV, 8 bytes, tag 0) waits" in complaint([bare], [comp(0, 1)])


def test_of_several_sends_the_one_that_nobody_receives_is_named():
    # Peer, tag and size must all fit: each other send differs from the lost one in one of them.
    sends = [send(0, 2, 64, tag=7), send(1, 1, 64, tag=8), send(2, 1, 65, tag=7)]
    lost = send(3, 1, 64, tag=7)
    receives = [[recv(0, 0, 64, tag=8), recv(1, 0, 65, tag=7)], [recv(0, 0, 64, tag=7)]]
    told = complaint([*sends, lost, comp(4, 1)], *receives)
    assert "rank 0 node 3 'n3' (COMM_SEND" in told
    assert "sends 64 bytes with tag 7 to rank 1, which never receives them" in told


def program(latency_ns: float) -> LoweredProgram:
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
