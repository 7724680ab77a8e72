"""Laws of the simulator on random workloads, clusters and times that often coincide."""

import numpy as np
from hypothesis import given, strategies as st
from laws import tried
from random_clusters import alike_program, random_collective, random_program, random_rings
from simulator_traces import coll, comp, system, workload

from layerdag.errors import LayerdagError
from layerdag.hardware.collectives import CollectiveType
from layerdag.simulator import event_loop as kernel
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.compute import MeasuredCompute
from layerdag.simulator.config import Dimension, GroupCollectives, NetworkConfig, Topology
from layerdag.simulator.lowering import Slot
from layerdag.simulator.program import lower

lasting = tried(60)
seeds = st.integers(0, 2**32 - 1)


@lasting
@given(seeds, st.sampled_from([random_program, random_rings]))
def test_solving_collectives_equals_sending_their_messages(seed, make):
    program = make(seed)
    solved = kernel.run_with(program, kernel.Method.SOLVED)
    sent = kernel.run_with(program, kernel.Method.MESSAGES)
    if solved is None or (solved.finish_ns < 0).any():
        return  # the kernel says so itself, and messages are sent instead
    np.testing.assert_array_equal(solved.issue_ns, sent.issue_ns)
    np.testing.assert_array_equal(solved.finish_ns, sent.finish_ns)
    np.testing.assert_array_equal(solved.rank_finish_ns, sent.rank_finish_ns)


@tried(150)
@given(seeds)
def test_a_group_on_links_of_different_length_is_solved_as_its_messages_are_sent(seed):
    program = random_collective(seed)
    solved = program and kernel.run_with(program, kernel.Method.SOLVED)
    if solved:
        sent = kernel.run_with(program, kernel.Method.MESSAGES)
        np.testing.assert_array_equal(solved.finish_ns, sent.finish_ns)


def test_ranks_that_one_stands_for_have_the_ticks_of_all_messages():
    fewer = 0
    for seed in range(120):
        program = alike_program(seed)
        found = kernel.run_representatives(program)
        if found is None:
            continue
        sent = kernel.run_with(program, kernel.Method.MESSAGES)
        fewer += len(found.ranks.rank_K) < program.num_ranks
        np.testing.assert_array_equal(
            found.rank_finish_ns[found.ranks.of_rank], sent.rank_finish_ns
        )
        for rank in range(program.num_ranks):
            for column in ("issue_ns", "finish_ns", "lane"):
                mine, theirs = getattr(found, column), getattr(sent, column)
                np.testing.assert_array_equal(mine[found.rows(rank)], theirs[sent.rows(rank)])
    assert fewer > 40


@tried(60)
@given(
    st.sampled_from(list(Topology)),
    st.sampled_from(["ring", "direct", "direct2", "halvingDoubling", "doubleBinaryTree"]),
    st.sampled_from(["ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL"]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([2, 4, 8]),
    st.booleans(),
)
def test_a_grid_of_ranks_is_solved_as_its_messages_are_sent(
    topology, algorithm, kind, stride, count, late
):
    """Groups such as every second rank of each node, phase by phase."""
    span = stride * count
    groups = {str(k + 1): tuple(range(k, span, stride)) for k in range(stride)}
    nodes = [
        [comp(0, 1 + late * (rank % 3)), coll(1, CollectiveType[kind], 640, (0,), pg_name=group)]
        for rank in range(span)
        for group, members in groups.items()
        if rank in members
    ]
    nodes += [[comp(0, 1)] for _ in range(32 - span)]
    links = (Dimension(topology, 4, 2.0, 50.0), Dimension(Topology.SWITCH, 8, 1.0, 300.0))
    config = system(algorithm, 2, group_collectives=GroupCollectives.HIERARCHICAL)
    cluster = Cluster(NetworkConfig(links), config)
    try:
        program = lower(workload(*nodes, groups=groups), cluster, MeasuredCompute())
    except LayerdagError:
        return  # halving and doubling has no all-to-all, trees do all-reduces only
    sent = kernel.run_with(program, kernel.Method.MESSAGES)
    assert (sent.finish_ns >= 0).all()
    solved = kernel.run_with(program, kernel.Method.SOLVED)
    if solved is not None:
        np.testing.assert_array_equal(solved.finish_ns, sent.finish_ns)


@lasting
@given(seeds)
def test_no_node_starts_before_its_parents_end_and_no_slot_or_stream_is_taken_twice(seed):
    program = random_program(seed)
    outcome = kernel.run_event_loop(program)
    for rank in range(program.num_ranks):
        nodes = program.of_rank(rank)
        rows = slice(program.out_ptr[rank], program.out_ptr[rank + 1])
        issue, finish = outcome.issue_ns[rows], outcome.finish_ns[rows]
        if (finish < 0).any():
            continue  # stuck: crossing sends and collectives may wait for each other
        parent = np.repeat(np.arange(len(issue)), np.diff(nodes.child_ptr))
        assert (finish[parent] <= issue[nodes.child_E]).all()
        lane = outcome.lane[rows]
        assert (lane < program.cluster.options.comm_streams).all()
        for slot, stream in [(Slot.CPU, 0), (Slot.COMPUTE, 0), *((Slot.COMM, i) for i in range(3))]:
            own = np.flatnonzero((nodes.slot_N == slot) & (lane == stream))
            own = own[np.lexsort((finish[own], issue[own]))]
            assert (finish[own][:-1] <= issue[own][1:]).all()
        assert outcome.rank_finish_ns[rank] == finish.max()
