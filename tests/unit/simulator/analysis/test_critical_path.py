"""Laws of the critical path, and cases worked out by hand."""

import itertools

from hypothesis import given, strategies as st
from laws import tried
from random_clusters import random_program
from simulator_traces import all_reduce, comp, node, recv, ring, send, system, workload

from layerdag.errors import SimulationError
from layerdag.simulator import Cluster, SimulationResult, simulate
from layerdag.simulator.analysis import by_node, critical_path
from layerdag.simulator.compute import MeasuredCompute
from layerdag.traces import NodeType, Workload


def run(load: Workload) -> SimulationResult:
    return simulate(load, Cluster(ring(load.num_ranks), system()))


def shown(result: SimulationResult) -> list[tuple[int, int, str, int, int]]:
    """Return (rank, node id, reason, start, finish) along the path."""
    return [
        (n.rank, int(result.nodes(n.rank).id_N[n.row]), n.reason, n.start_ns, n.finish_ns)
        for n in critical_path(result)
    ]


@given(st.integers(0, 2**32 - 1))
@tried(10)
def test_a_path_has_no_gap_and_ends_with_the_last_node(seed):
    program = random_program(seed)
    try:
        result = simulate(program.workload, program.cluster, compute=MeasuredCompute())
    except SimulationError:
        return  # stuck: crossing sends and collectives may wait for each other
    path = critical_path(result)
    assert path[0].reason == "start"
    assert all(node.reason in ("dependency", "slot") for node in path[1:])
    assert path[-1].finish_ns == result.makespan_ns
    for before, after in itertools.pairwise(path):
        assert before.finish_ns == after.start_ns
        assert before.rank == after.rank or before.finish_ns <= after.finish_ns
    assert sum(by_node(result, path).values()) == result.makespan_ns - path[0].start_ns


def test_the_slowest_of_several_parents_is_on_the_path():
    nodes = [comp(0, 3), comp(1, 5, is_cpu_op=True), comp(2, 1, (0, 1))]
    result = run(workload(nodes, [comp(0, 1)]))
    assert shown(result) == [(0, 1, "start", 0, 5000), (0, 2, "dependency", 5000, 6000)]


def test_a_dependency_is_named_before_a_slot_that_became_free_in_the_same_tick():
    # Node 5 waits for 0, which also held its slot.
    nodes = [comp(0, 2), comp(5, 1, (0,))]
    result = run(workload(nodes, [comp(0, 1)]))
    assert shown(result)[-1][2] == "dependency"


def test_a_collective_is_followed_to_the_member_that_entered_last():
    # Ranks 0 and 2 reduce twice; rank 2 is late for the second one only.
    quick = [all_reduce(0, 2000, pg_name="1"), all_reduce(1, 2000, (0,), pg_name="1")]
    late = [
        all_reduce(0, 2000, pg_name="1"),
        comp(3, 7, (0,)),
        all_reduce(4, 2000, (3,), pg_name="1"),
    ]
    result = run(workload(quick, [comp(0, 1)], late, [comp(0, 1)], groups={"1": (0, 2)}))
    first, second = 30 + 2 * 1200, 30 + 2 * 1200  # 2 hops on a ring of 4
    path = shown(result)
    assert path[1:3] == [
        (2, 3, "dependency", first, first + 7000),
        (2, 4, "dependency", first + 7000, first + 7000 + second),
    ]


def test_the_second_of_two_equal_messages_belongs_to_the_second_send():
    # Both messages are 400 B with tag 0; rank 1 asks for the second one after the first.
    sender = [comp(0, 1), send(1, 1, 400, (0,)), comp(2, 9, (1,)), send(3, 1, 400, (2,))]
    receiver = [recv(0, 0, 400), recv(1, 0, 400, (0,)), comp(2, 1, (1,))]
    result = run(workload(sender, receiver))
    assert [(rank, id) for rank, id, *_ in shown(result)] == [
        (0, 0), (0, 1), (0, 2), (0, 3), (1, 2),
    ]  # fmt: skip


def test_a_receive_that_only_a_skipped_node_held_up_starts_the_path():
    # INVALID ends at tick 0 without waking its child; the child is looked at when 1 completes.
    nodes = [node(0, NodeType.INVALID), comp(1, 2), recv(2, 1, 400, (0,)), comp(3, 1, (2,))]
    result = run(workload(nodes, [send(0, 0, 400)]))
    assert shown(result) == [(0, 2, "start", 2000, 2000), (0, 3, "dependency", 2000, 3000)]


def test_time_on_the_path_is_summed_by_name_and_the_longest_comes_first():
    nodes = [comp(0, 2), comp(1, 5, (0,)), comp(2, 4, (1,))]
    result = run(workload(nodes, [comp(0, 1)]))
    assert list(by_node(result, critical_path(result)).items()) == [
        ("n1", 5000),
        ("n2", 4000),
        ("n0", 2000),
    ]


def test_a_receive_that_was_posted_late_is_on_the_path_instead_of_its_send():
    # The message of 64 B is there after 5 us, the receive is posted after 9 us, and then a timer.
    sender = [comp(0, 1), send(1, 1, 64, (0,))]
    receiver = [comp(0, 9), recv(1, 0, 64, (0,)), comp(2, 3, (1,))]
    result = run(workload(sender, receiver))
    assert shown(result)[0][:2] == (1, 0)
    early = [comp(0, 1), recv(1, 0, 64), comp(2, 3, (1,))]
    late = [comp(0, 9), send(1, 1, 64, (0,))]
    path = [place[:2] for place in shown(run(workload(late, early)))]
    assert path[:2] == [(0, 0), (0, 1)]
    assert path[-1] == (1, 2)
