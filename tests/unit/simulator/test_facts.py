"""Rules of the reference that few recorded cases touch, with ticks worked out by hand.

E = 10 ns endpoint delay, links 1 B/ns and 100 ns per hop unless said; a group file is not needed.
"""

import pytest
from simulator_traces import (
    all_reduce,
    coll,
    comp,
    finish,
    node,
    one_dimension,
    recv,
    ring,
    send,
    system,
    ticks,
    workload as make_workload,
)

from layerdag.errors import SimulationError
from layerdag.simulator import (
    Cluster,
    Congestion,
    Dimension,
    NetworkConfig,
    RunOptions,
    Topology,
    simulate,
)
from layerdag.traces import CollectiveType, NodeType
from layerdag.traces.chakra import NodeSpec

TWO_SPEEDS = NetworkConfig(
    (
        Dimension(Topology.FULLY_CONNECTED, 2, 1e9 / 2**30, 100.0),
        Dimension(Topology.FULLY_CONNECTED, 2, 2e9 / 2**30, 50.0),
    )
)
"""2 x 2 ranks; dimension 1 has twice the bandwidth and half the latency."""


@pytest.mark.parametrize(
    ("algorithm", "kind", "expected"),
    [
        # 0 -> 1 -> 2 -> 3 -> 0: all neighbors differ in dimension 0, T = 1100 in all six steps.
        ("oneRing", CollectiveType.ALL_REDUCE, 7 * 10 + 6 * 1100),
        # Three messages of 1000 B leave at 10; two are charged to dimension 0 and arrive at 1110.
        ("oneDirect", CollectiveType.REDUCE_SCATTER, 10 + 1100 + 10),
        # Offset 1 is dimension 0 (2000 B: 2100), offset 2 dimension 1 (1000 B: 50 + 500), and back.
        ("oneHalvingDoubling", CollectiveType.ALL_REDUCE, 5 * 10 + 2 * 2100 + 2 * 550),
    ],
)
def test_one_algorithm_over_all_ranks_ignores_the_dimensions(algorithm, kind, expected):
    flat = system(all_reduce=(algorithm,), reduce_scatter=(algorithm,))
    nodes = [coll(0, kind, 4000)]
    assert (
        finish(simulate(make_workload(*[nodes] * 4), Cluster(TWO_SPEEDS, flat))) == [expected] * 4
    )


def test_a_dimension_of_one_rank_is_skipped():
    # Only the ring of 4 is left: 70 + 6 x 1100.
    network = NetworkConfig((*ring(1).dimensions, *ring(4).dimensions))
    nodes = [all_reduce(0, 4000)]
    result = simulate(make_workload(*[nodes] * 4), Cluster(network, system(dimensions=2)))
    assert finish(result) == [6670] * 4


@pytest.mark.parametrize("size", [0, 3, 7])
def test_a_chunk_has_at_least_a_byte_for_every_rank(size):
    # 2 splits of less than 4 B become 2 chunks of 4 B: messages of 1 B, 70 + 6 x 101 each.
    nodes = [all_reduce(0, size)]
    cut = system(preferred_dataset_splits=2)
    assert finish(simulate(make_workload(*[nodes] * 4), Cluster(ring(4), cut))) == [2 * 676] * 4


def test_an_all_gather_is_cut_by_the_shard_alone():
    # A shard of 11 B in 4 splits: chunks of 2 B, six of them; 4 E + 3 x 102 each.
    nodes = [coll(0, CollectiveType.ALL_GATHER, 11)]
    cut = system(preferred_dataset_splits=4)
    assert (
        finish(simulate(make_workload(*[nodes] * 4), Cluster(ring(4), cut))) == [6 * (40 + 306)] * 4
    )


@pytest.mark.parametrize(("duration_us", "expected"), [(3, 3000), (0, 1)])
def test_a_broadcast_takes_its_recorded_duration_on_its_own_rank(duration_us, expected):
    kind = int(CollectiveType.BROADCAST)
    nodes = [node(0, NodeType.COMM_COLL, (), duration_us, comm_type=kind, comm_size=4000)]
    result = simulate(make_workload(nodes, [comp(0, 9)]), Cluster(ring(2), system()))
    assert finish(result) == [expected, 9000]


def test_tags_count_modulo_500_million():
    load = make_workload([send(0, 1, 400, tag=500_000_007)], [recv(0, 0, 400, tag=7)])
    assert finish(simulate(load, Cluster(ring(2), system()))) == [500, 500]


def test_node_ids_may_be_any_64_bit_number_and_stand_in_any_order():
    high = 2**63 + 5
    nodes = [comp(high, 1), comp(7, 2), comp(2**40, 3, (7,))]
    result = simulate(make_workload(nodes, nodes), Cluster(ring(2), system()))
    # Rows are in ascending id: 7 from 0; at 2000 its child 2**40 comes before the largest id.
    assert ticks(result) == [(0, 2000), (2000, 5000), (5000, 6000)]


def test_replay_only_takes_the_recorded_duration_of_every_node():
    nodes = [comp(0, 2), node(1, NodeType.COMM_COLL, (0,), 5, comm_type=0, comm_size=1 << 30)]
    result = simulate(make_workload(nodes, nodes), Cluster(ring(2), system(replay_only=True)))
    assert ticks(result) == [(0, 2000), (2000, 7000)]


def test_replay_only_exposes_the_time_of_the_cpu_and_of_waiting_alone():
    # GPU 0-2000, all-reduce 2000-7000, CPU 7000-8000: the reference takes off both of the first.
    nodes = [
        comp(0, 2),
        node(1, NodeType.COMM_COLL, (0,), 5, comm_type=0, comm_size=1 << 30),
        comp(2, 1, (1,), is_cpu_op=True),
    ]
    result = simulate(make_workload(nodes, nodes), Cluster(ring(2), system(replay_only=True)))
    assert finish(result) == [8000, 8000]
    assert result.exposed_comm_ns.tolist() == [1000, 1000]
    assert result.compute_ns.tolist() == [2000, 2000]


@pytest.mark.parametrize(
    ("delay", "scale", "expected"),
    [
        # After 1000 ns of compute a ring of 4 with messages of 1000 B: 7 E + 6 x 1100.
        (10, 1.0, 7670),
        (0, 1.0, 7600),
        (1, 0.5, 7600),
        (3, 0.5, 7607),
        # Where the system states no delay it is 10 ns, and not scaled.
        (None, 0.5, 7670),
    ],
)
def test_the_endpoint_delay_may_be_0_after_the_first_tick(delay, scale, expected):
    nodes = [comp(0, 1), all_reduce(1, 4000, (0,))]
    options = RunOptions(injection_scale=scale)
    plain = system(endpoint_delay_ns=delay)
    result = simulate(make_workload(*[nodes] * 4), Cluster(ring(4), plain, options=options))
    assert finish(result) == [expected] * 4


def test_children_of_a_skipped_node_wait_for_the_next_completion():
    # Node 0 ends at once, but node 2 is looked at only when node 1 completes at 2000.
    nodes = [node(0, NodeType.INVALID), comp(1, 2), comp(2, 1, (0,), is_cpu_op=True)]
    result = simulate(make_workload(nodes, nodes), Cluster(ring(2), system()))
    assert ticks(result) == [(0, 0), (0, 2000), (2000, 3000)]


def test_rendezvous_asks_before_every_message_of_a_collective():
    # Ring of 2, 2000 B: E, then twice: 8192 B there, 1000 B back, E.
    nodes = [all_reduce(0, 2000)]
    result = simulate(
        make_workload(nodes, nodes), Cluster(ring(2), system(), options=RunOptions(rendezvous=True))
    )
    assert finish(result) == [10 + 2 * (8292 + 1100 + 10)] * 2


def test_the_shorter_way_round_a_ring_is_clockwise_when_both_are_equal():
    # Rank 1's 3000 B hold the link 1 -> 2 until 3000; rank 0's 1000 B come to it at 1100 on their
    # way to rank 2, leave at 3000 and arrive at 4100. The other way round they would at 2200.
    load = make_workload(
        [send(0, 2, 1000)],
        [send(0, 2, 3000)],
        [recv(0, 0, 1000), recv(1, 1, 3000)],
        [comp(0, 1)],
    )
    aware = RunOptions(congestion=Congestion.AWARE)
    assert ticks(simulate(load, Cluster(ring(4), system(), options=aware)), 2) == [
        (0, 4100),
        (0, 3100),
    ]


def test_members_of_a_group_that_turn_opposite_ways_are_a_deadlock():
    # Two queues a dimension: a rank's second all-gather of one chunk runs anticlockwise. It is the
    # second one of ranks 0 and 1, but the first one of rank 3.
    def gather(id: int, group: str, deps: tuple[int, ...] = ()) -> NodeSpec:
        return coll(id, CollectiveType.ALL_GATHER, 1000, deps, pg_name=group)

    both = [gather(0, "1"), gather(1, "2", (0,))]
    groups = {"1": (0, 1, 2), "2": (0, 1, 3)}
    load = make_workload(both, both, [gather(0, "1")], [gather(1, "2")], groups=groups)
    two = RunOptions(queues_per_dimension=2)
    with pytest.raises(SimulationError, match=r"cycle of waits: rank 1 node 1 .*queues take turns"):
        simulate(load, Cluster(ring(4), system(), options=two))
    assert simulate(load, Cluster(ring(4), system())).makespan_ns > 0


@pytest.mark.parametrize("policy", ["LIFO", "FIFO", "EXPLICIT"])
def test_the_scheduling_policy_changes_no_tick(policy):
    nodes = [all_reduce(0, 4000, comm_priority=1), all_reduce(1, 4000, comm_priority=9)]
    result = simulate(
        make_workload(*[nodes] * 4), Cluster(ring(4), system(scheduling_policy=policy))
    )
    assert ticks(result) == [(0, 6670), (6670, 2 * 6670)]


def test_exposed_communication_is_all_that_is_not_compute_on_the_gpu():
    # GPU 0-1000, CPU 1000-3000 after it, a send 3000-3500: 2500 ns are "exposed".
    nodes = [comp(0, 1), comp(1, 2, (0,), is_cpu_op=True), send(2, 1, 400, (1,))]
    result = simulate(make_workload(nodes, [recv(0, 0, 400)]), Cluster(ring(2), system()))
    assert result.exposed_comm_ns.tolist() == [2500, 3500]


def test_five_dimensions_need_to_be_told_who_takes_part():
    network = NetworkConfig(one_dimension(Topology.RING, 2).dimensions * 5)

    def load(*nodes: NodeSpec):
        return make_workload(*[list(nodes)] * 32)

    with pytest.raises(SimulationError, match=r"4 where it is missing.* has 5 dimensions"):
        simulate(load(all_reduce(0, 3200)), Cluster(network, system(dimensions=5)))
    # Told that dimension 0 alone does: a ring of 2 with messages of 1600 B, 3 E + 2 x 1700.
    told = load(all_reduce(0, 3200, involved_dim=(True, False, False, False, False)))
    assert finish(simulate(told, Cluster(network, system(dimensions=5)))) == [30 + 3400] * 32
