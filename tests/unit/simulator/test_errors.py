"""Every way in which a run cannot end is an error that names rank, node and cause."""

import dataclasses

import pytest
from simulator_traces import (
    all_reduce,
    coll,
    comp,
    finish,
    node,
    recv,
    ring,
    send,
    system,
    workload,
)

from layerdag.errors import ConfigError, LayerdagError, SimulationError
from layerdag.simulator import (
    Cluster,
    Congestion,
    MemoryConfig,
    MemoryKind,
    MissingImplementations,
    NetworkConfig,
    RunOptions,
    simulate,
)
from layerdag.traces import Attribute, CollectiveType, NodeType, Wire, Workload
from layerdag.traces.chakra import NodeSpec


def complaint(*ranks: list[NodeSpec], **changes: object) -> str:
    """Return the message of the error that simulating ``ranks`` raises."""
    groups = changes.pop("groups", None)
    with pytest.raises(SimulationError) as caught:
        simulate(workload(*ranks, groups=groups), Cluster(ring(len(ranks)), system(**changes)))
    return str(caught.value)


def test_cycle_of_dependencies_is_spelled_out():
    nodes = [comp(0, 1), comp(1, 1, (3,)), comp(2, 1, (1,)), comp(3, 1, (2,))]
    text = complaint(nodes, nodes)
    assert "rank 0 node" in text
    assert "cycle" in text
    assert all(str(id) in text for id in (1, 2, 3))


def test_dangling_dependency_names_both_nodes_and_the_file():
    text = complaint([comp(0, 1), comp(4, 1, (77,))], [comp(0, 1)])
    assert "w.0.et" in text
    assert "node 4 depends on node 77" in text


def test_mutual_receives_are_a_cycle_of_waits():
    text = complaint(
        [recv(0, 1, 8), send(1, 1, 8, (0,))],
        [recv(0, 0, 8), send(1, 0, 8, (0,))],
    )
    assert "cycle of waits" in text
    assert "rank 0 node 0" in text
    assert "rank 1 node 0" in text


def test_receive_without_send_names_the_silent_rank():
    text = complaint([recv(5, 1, 8)], [comp(0, 1)])
    assert "rank 0 node 5 'n5' (COMM_RECV, 8 bytes, tag 0) waits for rank 1" in text
    assert "finished all its nodes" in text


def test_send_without_receive_is_an_error_although_the_sender_ends():
    text = complaint([send(3, 1, 8)], [comp(0, 1)])
    assert "rank 0 node 3" in text
    assert "rank 1, which never receives" in text


def test_sizes_that_differ_are_named():
    text = complaint([send(0, 1, 8)], [recv(0, 0, 16)])
    assert "16 bytes" in text
    assert "sent 8 bytes" in text


def test_missing_collective_names_the_rank_without_it():
    text = complaint([all_reduce(0, 64)], [all_reduce(0, 64)], [comp(0, 1)])
    assert "ALL_REDUCE, 64 bytes" in text
    assert "waits for rank 2" in text


def test_collectives_in_another_order_are_a_deadlock():
    first = [all_reduce(0, 64), coll(1, CollectiveType.ALL_GATHER, 64, (0,))]
    second = [coll(0, CollectiveType.ALL_GATHER, 64), all_reduce(1, 64, (0,))]
    assert "deadlock" in complaint(first, second)


def test_world_collective_after_unequal_group_collectives_is_a_deadlock():
    # Stream ids run apart (ASTRA-sim issue 339).
    inside = [all_reduce(0, 64, pg_name="1"), all_reduce(1, 64, (0,))]
    outside = [all_reduce(1, 64)]
    text = complaint(inside, inside, outside, groups={"1": (0, 1)})
    assert "deadlock" in text


def test_child_of_a_skipped_node_that_nothing_wakes():
    nodes = [node(0, NodeType.INVALID), comp(1, 1, (0,))]
    assert "node 1" in complaint(nodes, nodes)
    assert "skipped" in complaint(nodes, nodes)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (node(2, NodeType.METADATA), "METADATA"),
        (all_reduce(2, 64, is_cpu_op=True), "is_cpu_op"),
        (coll(2, CollectiveType.BARRIER, 0), "BARRIER"),
        (all_reduce(2, -1), "-1"),
        (coll(2, CollectiveType.ALL_GATHER, 0), "0 bytes"),
        (all_reduce(2, 64, involved_dim=(False,)), "no dimension"),
        (all_reduce(2, 64, pg_name="9"), "group '9'"),
        (all_reduce(2, 64, pg_name="tensor"), "group 'tensor'"),
        (all_reduce(2, 64, pg_name="1"), "one rank"),
        (all_reduce(2, 64, pg_name="2"), "does not hold this rank"),
        (node(2, NodeType.COMM_COLL, comm_type=0), "comm_size"),
        (node(2, NodeType.COMM_SEND, comm_dst=1, comm_size=8), "comm_tag"),
        (send(2, 5, 8), "comm_dst 5"),
        (send(2, 0, 8), "itself"),
        (send(2, 1, 0), "comm_size"),
        (node(2, NodeType.MEM_LOAD, tensor_size=8), "NO_MEMORY_EXPANSION"),
        (comp(2, 10**13), "1e12 us"),
        (all_reduce(2, 2**60), "1e15 ns"),
        (send(2, 1, 2**62), "1e15 ns"),
    ],
)
def test_a_node_that_cannot_run_is_named(bad, words):
    groups = {"1": (0,), "2": (1, 2)}
    text = complaint([bad], [comp(0, 1)], [comp(0, 1)], groups=groups)
    assert text.startswith("rank 0")
    assert "node 2" in text
    assert words in text


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (comp(2, 1), "num_ops"),
        (comp(2, 1, num_ops=1), "tensor_size"),
        (comp(2, 1, num_ops=0, tensor_size=8), "num_ops 0"),
        (comp(2, 1, num_ops=-7, tensor_size=8), "num_ops -7"),
        (comp(2, 1, num_ops=7, tensor_size=-8), "tensor_size -8"),
    ],
)
def test_roofline_names_what_a_node_lacks(bad, words):
    rates = {"roofline_enabled": True, "local_mem_bw_gb": 1.0, "peak_perf_tflops": 1.0}
    assert words in complaint([bad], [bad], **rates)


@pytest.mark.parametrize("algorithm", ["halvingDoubling", "doubleBinaryTree"])
def test_algorithms_for_powers_of_two_refuse_other_sizes(algorithm):
    text = complaint(*[[all_reduce(0, 64)]] * 3, **{"algorithm": algorithm})
    assert f"{algorithm} needs a power of two" in text


def test_halving_doubling_has_no_all_to_all():
    text = complaint(
        *[[coll(0, CollectiveType.ALL_TO_ALL, 64)]] * 2, all_to_all=("halvingDoubling",)
    )
    assert "all-to-all" in text


def test_double_binary_tree_serves_no_group():
    nodes = [all_reduce(0, 64, pg_name="1")]
    text = complaint(
        nodes, nodes, [comp(0, 1)], all_reduce=("doubleBinaryTree",), groups={"1": (0, 1)}
    )
    assert "communicator group" in text


def test_empty_trace_is_refused():
    assert "no nodes" in complaint([], [comp(0, 1)])


def test_duplicate_names_of_keys_are_config_errors():
    load = workload([all_reduce(0, 64)], [all_reduce(0, 64)])
    with pytest.raises(ConfigError, match="4 NPUs but"):
        simulate(load, Cluster(ring(4), system()))
    with pytest.raises(ConfigError, match="'all-reduce-implementation' is missing"):
        simulate(load, Cluster(ring(2), system(all_reduce=())))
    with pytest.raises(ConfigError, match="2 entries for 1"):
        simulate(load, Cluster(ring(2), system(dimensions=2)))
    with pytest.raises(ConfigError, match="unknown collective implementation 'rign'"):
        simulate(load, Cluster(ring(2), system(all_reduce=("rign",))))


def test_congestion_awareness_refuses_what_the_reference_cannot():
    load = workload([comp(0, 1)], [comp(0, 1)])
    aware = RunOptions(congestion=Congestion.AWARE)
    with pytest.raises(ConfigError, match="at least 3"):
        simulate(load, Cluster(ring(2), system(), options=aware))
    flat = NetworkConfig(ring(2).dimensions + ring(1).dimensions)
    with pytest.raises(ConfigError, match="one dimension"):
        simulate(load, Cluster(flat, system(), options=aware))


def test_all_errors_are_one_line_without_a_traceback():
    with pytest.raises(LayerdagError) as caught:
        simulate(workload([recv(0, 1, 8)], [recv(0, 0, 8)]), Cluster(ring(2), system()))
    assert "\n" not in str(caught.value)


def test_node_of_no_time_at_the_first_tick_is_refused_as_the_reference_aborts():
    rates = {"roofline_enabled": True, "local_mem_bw_gb": 1e6, "peak_perf_tflops": 1000.0}
    text = complaint(*[[comp(2, 1, num_ops=1, tensor_size=1)]] * 2, **rates)
    assert "rank 0 node 2" in text
    assert "0 ns at tick 0" in text


def test_without_endpoint_delay_no_collective_may_start_at_tick_0():
    load = workload(*[[all_reduce(0, 64)]] * 2)
    with pytest.raises(SimulationError, match=r"rank 0 node 0 .*0 ns at tick 0.*where the ref"):
        simulate(load, Cluster(ring(2), system(endpoint_delay_ns=0)))
    half = RunOptions(injection_scale=0.5)
    with pytest.raises(SimulationError, match="at tick 0"):
        simulate(load, Cluster(ring(2), system(endpoint_delay_ns=1), options=half))


def test_a_message_that_leaves_its_link_at_tick_0_is_refused_with_congestion():
    # 1 B at 2 B/ns holds its link for 0 ns: the reference aborts on the event that frees it.
    load = workload([send(0, 1, 1)], [recv(0, 0, 1)], [comp(0, 1)])
    aware = RunOptions(congestion=Congestion.AWARE)
    with pytest.raises(SimulationError, match=r"rank 0 node 0 'n0' \(COMM_SEND.*at tick 0"):
        simulate(load, Cluster(ring(3, bytes_per_ns=2.0), system(), options=aware))
    # Shared by nobody, or after some work, the same message is fine.
    assert simulate(load, Cluster(ring(3, bytes_per_ns=2.0), system())).makespan_ns == 1000
    later = workload([comp(0, 1), send(1, 1, 1, (0,))], [recv(0, 0, 1)], [comp(0, 1)])
    network = ring(3, bytes_per_ns=2.0)
    assert simulate(later, Cluster(network, system(), options=aware)).makespan_ns == 1100


def message(id: int, sends: bool, source: int, target: int, tag: int = 0) -> NodeSpec:
    """Return a message that states both its ends."""
    kind = NodeType.COMM_SEND if sends else NodeType.COMM_RECV
    return node(id, kind, comm_src=source, comm_dst=target, comm_size=8, comm_tag=tag)


def test_messages_stand_in_the_trace_of_the_rank_that_they_state():
    good = [message(4, True, 0, 1)], [message(4, False, 0, 1)]
    assert simulate(workload(*good), Cluster(ring(2), system())).makespan_ns > 0
    text = complaint([message(4, True, 1, 1)], good[1])
    assert "rank 0: w.0.et: node 4 is a send with comm_src 1, but stands in the trace of ra" in text
    text = complaint(good[0], [message(4, False, 0, 0)])
    assert "rank 1: w.1.et: node 4 is a receive with comm_dst 0" in text


@pytest.mark.parametrize("tag", [-1, 2**31])
def test_tags_out_of_bounds_are_refused(tag):
    assert f"comm_tag {tag}" in complaint([send(2, 1, 8, tag=tag)], [recv(2, 0, 8, tag=tag)])


def test_an_attribute_given_twice_is_refused_unless_both_are_equal():
    def twice(*sizes: int) -> list[NodeSpec]:
        extra = tuple(Attribute("comm_size", Wire.INT64, size) for size in sizes)
        first = all_reduce(3, 64)
        return [dataclasses.replace(first, attributes=(*first.attributes, *extra))]

    assert "node 3 carries attribute 'comm_size' twice" in complaint(twice(77), twice(77))
    simulate(workload(twice(64), twice(64)), Cluster(ring(2), system()))


def test_involved_dim_must_be_a_bool_list_with_an_entry_for_each_dimension():
    flat = NetworkConfig(ring(2).dimensions * 2)

    def involved(wire: int, value: object) -> Workload:
        attributes = (*all_reduce(3, 64).attributes, Attribute("involved_dim", wire, value))
        return workload(*[[dataclasses.replace(all_reduce(3, 64), attributes=attributes)]] * 4)

    with pytest.raises(SimulationError, match="node 3 carries involved_dim as int64_list"):
        simulate(involved(Wire.INT64 + 1, (1, 1)), Cluster(flat, system(dimensions=2)))
    with pytest.raises(SimulationError, match="node 3 carries involved_dim as bool_val"):
        simulate(involved(Wire.BOOL, True), Cluster(flat, system(dimensions=2)))
    with pytest.raises(SimulationError, match=r"node 3 .*involved_dim has 1 entries .*2 dimension"):
        simulate(involved(Wire.BOOL + 1, (True,)), Cluster(flat, system(dimensions=2)))


def test_too_few_implementations_are_refused_or_leave_a_dimension_out_when_asked():
    flat = NetworkConfig(ring(2).dimensions * 2)
    load = workload(*[[all_reduce(0, 64)]] * 4)
    with pytest.raises(ConfigError, match=r"has 1 of 2 entries, so dimension 1 would not be comm"):
        simulate(load, Cluster(flat, system(dimensions=1)))
    skipping = system(dimensions=1, missing=MissingImplementations.SKIP)
    left_out = workload(*[[all_reduce(0, 64, involved_dim=(True, False))]] * 4)
    # What does not take part needs no entry; asked to, the reference's result is the same.
    assert finish(simulate(load, Cluster(flat, skipping))) == finish(
        simulate(left_out, Cluster(flat, system()))
    )


def test_the_double_binary_tree_serves_all_reduces_only():
    load = workload(*[[coll(0, CollectiveType.REDUCE_SCATTER, 64)]] * 2)
    with pytest.raises(ConfigError, match="reduce-scatter-implementation has 'doubleBinaryTree'"):
        simulate(load, Cluster(ring(2), system(reduce_scatter=("doubleBinaryTree",))))


def test_too_few_memory_nodes_are_refused():
    nodes = [node(0, NodeType.MEM_LOAD, tensor_size=8)]
    memory = MemoryConfig(MemoryKind.PER_NODE, 5, 1.0, npus_per_node=2, num_nodes=1)
    with pytest.raises(ConfigError, match=r"num-nodes is 1, but 4 ranks .* are 2 nodes"):
        simulate(workload(*[nodes] * 4), Cluster(ring(4), system(), memory=memory))
    enough = dataclasses.replace(memory, num_nodes=2)
    assert (
        simulate(workload(*[nodes] * 4), Cluster(ring(4), system(), memory=enough)).makespan_ns
        == 26
    )


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ({"0": (0,)}, "group '0' has no integer above 0"),
        ({"tensor": (0, 1)}, "group 'tensor' has no integer above 0"),
        ({"1": (0, 1), "01": (0, 1)}, "'1' and '01' have the same number"),
        ({"9" * 5000: (0, 1)}, "has no integer above 0"),
    ],
)
def test_groups_need_distinct_numbers_above_0(groups, words):
    assert words in complaint([comp(0, 1)], [comp(0, 1)], groups=groups)


def test_an_unknown_collective_is_told_by_number_and_name():
    text = complaint(*[[coll(0, CollectiveType.INVALID, 8)]] * 2)
    assert "comm_type 99 (INVALID)" in text
    assert "known are 0 (ALL_REDUCE), 2 (ALL_GATHER)" in text
