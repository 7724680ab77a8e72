"""Breakdown, critical path and sensitivities of runs small enough to check by hand."""

from simulator_traces import all_reduce, comp, recv, ring, send, system, workload

from layerdag.simulator import Cluster, MemoryConfig, NetworkConfig, RunOptions, simulate
from layerdag.simulator.analysis import break_down, by_node, critical_path, sensitivities
from layerdag.simulator.compute import ReferenceCompute


def test_breakdown_counts_every_tick_once():
    # 1 us of compute, then an all-reduce of 3 E + 2 (100 + 1000) = 2230 ns, of which 2 us of
    # independent compute hides 2000.
    nodes = [comp(0, 1), all_reduce(1, 2000, (0,)), comp(2, 2, (0,))]
    parts = break_down(simulate(workload(nodes, nodes), Cluster(ring(2), system())))
    assert parts.parts == ("compute", "dim 0", "idle")
    assert parts.time_ns_RP.tolist() == [[3000, 230, 0]] * 2


def test_breakdown_separates_waiting_in_receives_and_cpu_work():
    # Rank 1 waits for a message that leaves at 2000 and takes 500; its CPU works for 1 us.
    first = [comp(0, 2), send(1, 1, 400, (0,))]
    second = [recv(0, 0, 400), comp(1, 1, is_cpu_op=True)]
    parts = break_down(simulate(workload(first, second), Cluster(ring(2), system())))
    assert parts.parts == ("compute", "send", "cpu", "receive", "idle")
    assert parts.time_ns_RP.tolist() == [[2000, 500, 0, 0, 0], [0, 0, 1000, 1500, 0]]


def test_overlapping_receives_are_counted_once():
    first = [send(0, 1, 400), send(1, 1, 900, (0,))]
    second = [recv(0, 0, 400), recv(1, 0, 900)]
    result = simulate(workload(first, second), Cluster(ring(2), system()))
    # 500 ns, then 1000 ns: both receives wait from the start.
    assert break_down(result).time_ns_RP[1].tolist() == [0, 0, 1500, 0]


def test_group_is_labeled_by_the_dimension_it_crosses():
    # Ranks 0 and 2 of a 2 x 2 differ in dimension 1.
    inside, other = [all_reduce(0, 2000, pg_name="1")], [comp(0, 1)]
    load = workload(inside, other, inside, other, groups={"1": (0, 2)})
    network = NetworkConfig(ring(2).dimensions * 2)
    parts = break_down(simulate(load, Cluster(network, system(dimensions=2))))
    assert parts.parts == ("compute", "dim 1", "idle")


def test_a_group_across_two_dimensions_is_labeled_by_the_first_that_messages_cross():
    # Ranks 0 and 3 of a 2 x 2 differ in both.
    inside, other = [all_reduce(0, 2000, pg_name="1")], [comp(0, 1)]
    load = workload(inside, other, other, inside, groups={"1": (0, 3)})
    network = NetworkConfig(ring(2).dimensions * 2)
    parts = break_down(simulate(load, Cluster(network, system(dimensions=2))))
    assert parts.parts == ("compute", "dim 0", "idle")


def test_critical_path_crosses_to_the_rank_that_is_late():
    # Rank 1 computes 5 us before the all-reduce that rank 0 has long entered.
    early = [comp(0, 1), all_reduce(5, 2000, (0,)), comp(9, 1, (5,))]
    late = [comp(0, 2), comp(1, 3, (0,)), all_reduce(5, 2000, (1,)), comp(9, 1, (5,))]
    result = simulate(workload(early, late), Cluster(ring(2), system()))
    path = critical_path(result)
    ids = [(node.rank, int(result.nodes(node.rank).id_N[node.row])) for node in path]
    last = int(result.rank_finish_ns.argmax())
    assert ids == [(1, 0), (1, 1), (1, 5), (last, 9)]
    assert path[0].reason == "start"
    assert by_node(result, path)["n1"] == 3000


def test_critical_path_follows_a_receive_to_its_sender_and_a_slot_to_its_holder():
    first = [comp(0, 2), comp(1, 3), send(2, 1, 400, (1,))]
    second = [recv(0, 0, 400), comp(1, 1, (0,))]
    result = simulate(workload(first, second), Cluster(ring(2), system()))
    path = critical_path(result)
    found = [(node.rank, node.row, node.reason) for node in path]
    assert found == [
        (0, 0, "start"),
        (0, 1, "slot"),
        (0, 2, "dependency"),
        (1, 1, "dependency"),
    ]


def test_path_is_as_long_as_the_run():
    nodes = [comp(0, 1), all_reduce(1, 2000, (0,)), comp(2, 2, (1,))]
    result = simulate(workload(nodes, nodes), Cluster(ring(2), system()))
    path = critical_path(result)
    assert sum(node.finish_ns - node.start_ns for node in path) == result.makespan_ns


def test_sensitivities_name_what_helps():
    nodes = [comp(0, 1), all_reduce(1, 200_000, (0,))]
    cluster = Cluster(ring(2), system(), MemoryConfig(), RunOptions())
    found = sensitivities(workload(nodes, nodes), cluster, ReferenceCompute(cluster.system))
    assert [entry.change for entry in found] == [
        "as given",
        "compute +10 %",
        "dim 0 bandwidth +10 %",
        "dim 0 latency -10 %",
    ]
    base = found[0].makespan_ns
    # Compute 1000 -> 909 ns; two messages 100 us -> 100000 / 1.1 each; latency 100 -> 90, twice.
    assert [entry.makespan_ns - base for entry in found] == [0, -91, -2 * 9091 + 0, -20]
