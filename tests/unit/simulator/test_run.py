"""Ticks worked out by hand. E = 10 ns endpoint delay, links 1 B/ns, 100 ns per hop unless said."""

import numpy as np
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
    system as make_system,
    ticks,
    workload as make_workload,
)

from layerdag.simulator import (
    Cluster,
    Congestion,
    Dimension,
    GroupCollectives,
    MemoryConfig,
    MemoryKind,
    NetworkConfig,
    RunOptions,
    Topology,
    simulate,
    small_cluster,
)
from layerdag.simulator.compute import MeasuredCompute
from layerdag.traces import CollectiveType, NodeType


def test_compute_nodes_of_one_slot_run_one_after_the_other_by_id():
    # Two independent nodes of 2 and 3 us share the one compute slot; a CPU node has its own.
    nodes = [comp(4, 3), comp(2, 2), comp(9, 1, is_cpu_op=True)]
    result = simulate(make_workload(nodes, nodes), Cluster(ring(2), make_system()))
    assert ticks(result) == [(0, 2000), (2000, 5000), (0, 1000)]
    assert result.exposed_comm_ns.tolist() == [0, 0]


def test_ready_nodes_are_issued_in_ascending_id_not_in_order_of_readiness():
    # 5 is ready from the start, 3 only after 1; when 1 ends both wait, and 3 goes first.
    nodes = [comp(1, 1), comp(3, 1, (1,)), comp(5, 1)]
    result = simulate(make_workload(nodes, nodes), Cluster(ring(2), make_system()))
    assert ticks(result) == [(0, 1000), (1000, 2000), (2000, 3000)]


def test_ring_all_reduce_in_lock_step():
    # n = 4, 4000 B: T = 100 + 1000; (2n-1) E + 2 (n-1) T = 70 + 6600 = 6670.
    nodes = [all_reduce(0, 4000)]
    result = simulate(make_workload(*[nodes] * 4), Cluster(ring(4), make_system()))
    assert finish(result) == [6670] * 4


def test_ring_all_reduce_pays_for_reductions_with_a_local_bandwidth():
    # As above plus (n-1) R, R = 3 floor(1000 / 10) = 300.
    nodes = [all_reduce(0, 4000)]
    result = simulate(
        make_workload(*[nodes] * 4), Cluster(ring(4), make_system(local_mem_bw_gb=10.0))
    )
    assert finish(result) == [6670 + 900] * 4


@pytest.mark.parametrize(
    ("kind", "size", "expected"),
    [
        (CollectiveType.REDUCE_SCATTER, 4000, 4 * 10 + 3 * 1100),
        (CollectiveType.ALL_GATHER, 1000, 4 * 10 + 3 * 1100),  # the size is one rank's shard
        (CollectiveType.ALL_TO_ALL, 4000, 7 * 10 + 6 * 1100),  # n(n-1)/2 messages of a quarter
    ],
)
def test_other_ring_collectives_in_lock_step(kind, size, expected):
    nodes = [coll(0, kind, size)]
    result = simulate(make_workload(*[nodes] * 4), Cluster(ring(4), make_system()))
    assert finish(result) == [expected] * 4


def test_direct_all_reduce_takes_about_two_messages():
    # All messages of a half are in flight at once: E + T + E, then the second half: T + E.
    nodes = [all_reduce(0, 4000)]
    network = one_dimension(Topology.FULLY_CONNECTED, 4)
    result = simulate(make_workload(*[nodes] * 4), Cluster(network, make_system("direct")))
    assert finish(result) == [10 + 1100 + 10 + 1100 + 10] * 4


def test_halving_doubling_all_reduce_on_a_switch():
    # n = 4, 4000 B, two hops of 100: messages of 2000, 1000, 1000, 2000 B, E before and after each.
    nodes = [all_reduce(0, 4000)]
    network = one_dimension(Topology.SWITCH, 4)
    result = simulate(make_workload(*[nodes] * 4), Cluster(network, make_system("halvingDoubling")))
    assert finish(result) == [5 * 10 + 4 * 200 + 6000] * 4


def test_double_binary_tree_goes_up_and_down_with_the_whole_chunk():
    # n = 4, tree of the first chunk: root 3 - inner 1 - leaves 0 and 2; T = 100 + 4000 = 4100.
    # Leaves send at 10, the inner node has both at 4110, sends up at 4120; root gets it at 8220,
    # sends down at 8230 and is done; inner 12330 + 10; leaves 12340 + 4100 + 10.
    nodes = [all_reduce(0, 4000)]
    network = one_dimension(Topology.FULLY_CONNECTED, 4)
    result = simulate(
        make_workload(*[nodes] * 4), Cluster(network, make_system("doubleBinaryTree"))
    )
    assert finish(result) == [16450, 12340, 16450, 8230]


def test_chunks_are_whole_so_an_indivisible_size_costs_one_more():
    # 4003 B in 4 splits: chunks of 1000 B and a fifth one; each 70 + 6 (100 + 250) = 2170.
    nodes = [all_reduce(0, 4003)]
    system = make_system(preferred_dataset_splits=4)
    result = simulate(make_workload(*[nodes] * 4), Cluster(ring(4), system))
    assert finish(result) == [5 * 2170] * 4


def test_active_chunks_run_side_by_side():
    nodes = [all_reduce(0, 4000)]
    system = make_system(preferred_dataset_splits=4, active_chunks_per_dimension=2)
    result = simulate(make_workload(*[nodes] * 4), Cluster(ring(4), system))
    assert finish(result) == [2 * 2170] * 4


def test_all_reduce_over_two_dimensions_scatters_up_and_gathers_down():
    # 2 x 2, 4000 B: RS dim 0 (2000 B): 2E + T; AR dim 1 of 2000 B: 3E + 2 x (100 + 1000); AG dim 0.
    nodes = [all_reduce(0, 4000)]
    dimension = NetworkConfig(ring(2).dimensions * 2)
    result = simulate(make_workload(*[nodes] * 4), Cluster(dimension, make_system(dimensions=2)))
    assert finish(result) == [(20 + 2100) + (30 + 2200) + (20 + 2100)] * 4


def test_baseline_all_reduces_the_full_size_in_every_dimension():
    nodes = [all_reduce(0, 4000)]
    system = make_system(dimensions=2, collective_optimization="baseline")
    network = NetworkConfig(ring(2).dimensions * 2)
    result = simulate(make_workload(*[nodes] * 4), Cluster(network, system))
    assert finish(result) == [2 * (30 + 2 * 2100)] * 4


def test_a_late_rank_holds_up_the_others():
    # Ring reduce-scatter of 2: rank 1 computes 5 us first; both then need its message.
    early = [coll(1, CollectiveType.REDUCE_SCATTER, 2000)]
    late = [comp(0, 5), coll(1, CollectiveType.REDUCE_SCATTER, 2000, (0,))]
    result = simulate(make_workload(early, late), Cluster(ring(2), make_system()))
    # Rank 1 finds rank 0's message waiting: E, receive at once, E. Rank 0: 5010 + 1100 + E.
    assert finish(result) == [5010 + 1100 + 10, 5000 + 10 + 10]


def test_a_group_is_a_flat_ring_in_the_order_of_its_file_with_a_fixed_delay():
    # Ranks 0 and 2 of a 4-ring: 2 hops; group delay 10 whatever the endpoint delay (here 50).
    member = [all_reduce(0, 2000, pg_name="7")]
    other = [comp(0, 1)]
    load = make_workload(member, other, member, other, groups={"7": (2, 0)})
    result = simulate(load, Cluster(ring(4), make_system(endpoint_delay_ns=50)))
    assert finish(result) == [30 + 2 * (200 + 1000), 1000, 30 + 2 * 1200, 1000]


def test_send_ends_at_arrival_and_receive_when_asked_for():
    # 400 B one hop: arrives at 500. Rank 1 asks at 2000 only and has it at once.
    result = simulate(
        make_workload([send(0, 1, 400)], [comp(0, 2), recv(1, 0, 400, (0,))]),
        Cluster(ring(2), make_system()),
    )
    assert finish(result) == [500, 2000]


def test_rendezvous_asks_first():
    # 8192 B + 100 ns for the question, then the message: 8292 + 500.
    load = make_workload([send(0, 1, 400)], [recv(0, 0, 400)])
    result = simulate(load, Cluster(ring(2), make_system(), options=RunOptions(rendezvous=True)))
    assert finish(result) == [8792, 8792]


def test_only_the_lowest_differing_dimension_is_charged():
    # Rank 0 -> rank 3 of a 2 x 2: differs in both, dimension 0 (1 B/ns) is charged.
    dims = (Dimension(Topology.RING, 2, 1e9 / 2**30, 100.0), Dimension(Topology.RING, 2, 0.1, 7.0))
    load = make_workload([send(0, 3, 400)], [comp(0, 1)], [comp(0, 1)], [recv(0, 0, 400)])
    assert simulate(load, Cluster(NetworkConfig(dims), make_system())).rank_finish_ns[3] == 500


def test_links_are_shared_when_congestion_is_modeled():
    # Ranks 0 and 1 of a switch send 1000 B to rank 2: both are up at 1100, the down link carries
    # one after the other: 2200 and 2100 + 1100.
    load = make_workload(
        [send(0, 2, 1000)], [send(0, 2, 1000)], [recv(0, 0, 1000), recv(1, 1, 1000)]
    )
    aware = RunOptions(congestion=Congestion.AWARE)
    network = one_dimension(Topology.SWITCH, 3)
    assert finish(simulate(load, Cluster(network, make_system(), options=aware))) == [
        2200,
        3200,
        3200,
    ]
    assert finish(simulate(load, Cluster(network, make_system()))) == [1200, 1200, 1200]


def test_roofline_is_bound_by_memory_or_compute():
    # 1 GB/s and 1 TFLOPS: 1000 ops over 500 B take 500 ns (memory), over 1 B 1 ns (both).
    system = make_system(roofline_enabled=True, local_mem_bw_gb=1.0, peak_perf_tflops=1.0)
    nodes = [
        comp(0, 9, num_ops=1000, tensor_size=500),
        comp(1, 9, (0,), num_ops=4000, tensor_size=1),
    ]
    result = simulate(make_workload(nodes, nodes), Cluster(ring(2), system))
    assert ticks(result) == [(0, 500), (500, 504)]


def test_pooled_memory_serves_one_request_at_a_time():
    # 10 ns + 90 B / 1 B/ns = 100 ns; the second rank waits for the first.
    nodes = [node(0, NodeType.MEM_LOAD, tensor_size=90)]
    pool = MemoryConfig(MemoryKind.POOL, latency_ns=10, bandwidth_bytes_per_ns=1.0)
    load = make_workload(nodes, nodes)
    assert finish(simulate(load, Cluster(ring(2), make_system(), memory=pool))) == [100, 200]
    own = MemoryConfig(MemoryKind.PER_NPU, latency_ns=10, bandwidth_bytes_per_ns=1.0)
    assert finish(simulate(load, Cluster(ring(2), make_system(), memory=own))) == [100, 100]


def test_measured_times_keep_nanoseconds():
    nodes = [comp(0, 1, duration_ns=640), comp(1, 3, (0,))]
    load = make_workload(nodes, nodes)
    result = simulate(load, Cluster(ring(2), make_system()), compute=MeasuredCompute(scale=0.5))
    assert finish(result) == [320 + 1500] * 2


def test_small_cluster_replays_what_the_model_does_not_know():
    barrier = coll(0, CollectiveType.BARRIER, 0)
    nodes = [barrier, all_reduce(1, 8, (0,), pg_name="1")]
    system, network = small_cluster(2)
    load = make_workload(nodes, nodes, groups={"1": (0, 1)})
    result = simulate(load, Cluster(network, system))
    # Barrier 1 ns; ring of 2 on a switch: 3 E + 2 T, T = floor(2 x 1000 + 4 B / 26.8 B/ns) = 2000.
    assert finish(result) == [1 + 30 + 4000] * 2


def test_ranks_that_share_a_trace_equal_ranks_that_do_not():
    nodes = [comp(0, 1), all_reduce(1, 4000, (0,)), comp(2, 2)]
    shared = make_workload(*[nodes] * 4)
    apart = make_workload(*[[*nodes, comp(10 + rank, 0)] for rank in range(4)])
    left = simulate(shared, Cluster(ring(4), make_system()))
    right = simulate(apart, Cluster(ring(4), make_system()))
    assert len(left.program.classes) == 1
    assert len(right.program.classes) == 4
    np.testing.assert_array_equal(
        left.finish_ns.reshape(4, 3), right.finish_ns.reshape(4, 4)[:, :3]
    )


def test_congestion_over_two_dimensions_crosses_them_one_after_the_other():
    # 2 x 2: rank 0 -> 3 goes over dimension 0 to rank 1, then over dimension 1. Each link takes
    # 100 + 400. Rank 1 -> 3 shares the second link, which is busy until 400.
    load = make_workload(
        [send(0, 3, 400)],
        [send(0, 3, 400)],
        [comp(0, 1)],
        [recv(0, 0, 400), recv(1, 1, 400)],
    )
    network = NetworkConfig(one_dimension(Topology.FULLY_CONNECTED, 2).dimensions * 2)
    options = RunOptions(congestion=Congestion.AWARE_MULTI)
    result = simulate(load, Cluster(network, make_system(), options=options))
    assert ticks(result, 3) == [(0, 1000), (0, 500)]
    later = make_workload(
        [send(0, 3, 1000)],
        [comp(0, 1), send(1, 3, 1000, (0,))],
        [comp(0, 1)],
        [recv(0, 0, 1000), recv(1, 1, 1000)],
    )
    # The first is at rank 1 at 1100, when rank 1's own message (from 1000 on) holds the link: it
    # leaves at 2000 and arrives at 3100.
    result = simulate(later, Cluster(network, make_system(), options=options))
    assert ticks(result, 3) == [(0, 3100), (0, 2100)]


def test_congestion_through_switches_of_two_dimensions():
    # Up and down twice: 4 x (100 + 400).
    network = NetworkConfig(one_dimension(Topology.SWITCH, 2).dimensions * 2)
    load = make_workload([send(0, 3, 400)], [comp(0, 1)], [comp(0, 1)], [recv(0, 0, 400)])
    options = RunOptions(congestion=Congestion.AWARE_MULTI)
    assert (
        simulate(load, Cluster(network, make_system(), options=options)).rank_finish_ns[3] == 2000
    )


def test_hierarchical_groups_run_phase_by_phase_in_the_dimensions_they_span():
    # 2 x 2 x 2; the group is the upper half (dimension 2 fixed). As two dimensions of 2 ranks:
    # (2 E + T) + (3 E + 2 T') + (2 E + T) with T = 100 + 2000, T' = 100 + 1000.
    member, other = [all_reduce(0, 4000, pg_name="1")], [comp(0, 1)]
    load = make_workload(*[other] * 4, *[member] * 4, groups={"1": (4, 5, 6, 7)})
    network = NetworkConfig(ring(2).dimensions * 3)
    system = make_system(dimensions=3, group_collectives=GroupCollectives.HIERARCHICAL)
    result = simulate(load, Cluster(network, system))
    assert finish(result)[4:] == [2120 + 2230 + 2120] * 4
    # Ranks 0, 1 and 2 span no whole dimensions: a flat ring, as in the reference.
    load = make_workload(*[member] * 3, *[other] * 5, groups={"1": (0, 1, 2)})
    flat = simulate(load, Cluster(network, make_system(dimensions=3)))
    assert finish(simulate(load, Cluster(network, system))) == finish(flat)
