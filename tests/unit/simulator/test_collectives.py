"""Names of implementations in system.json."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried
from simulator_traces import all_reduce, coll, comp, system, workload

from layerdag.errors import ConfigError, SimulationError
from layerdag.hardware.collectives import CollectiveType
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.collectives import (
    Algorithm,
    CollectivePlan,
    GroupIndex,
    Implementation,
    PhaseType,
    QueueChoice,
    RankStride,
    parse_implementation,
    reject_world_description,
)
from layerdag.simulator.compute import MeasuredCompute
from layerdag.simulator.config import (
    Dimension,
    GroupCollectives,
    MissingImplementations,
    NetworkConfig,
    SystemConfig,
    Topology,
)
from layerdag.simulator.program import lower
from layerdag.simulator.run import simulate
from layerdag.traces.analysis import is_group_name
from layerdag.traces.builder import NodeSpec


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ring", Implementation(Algorithm.RING)),
        ("direct", Implementation(Algorithm.DIRECT)),
        ("direct12", Implementation(Algorithm.DIRECT, 12)),
        ("halvingDoubling", Implementation(Algorithm.HALVING_DOUBLING)),
        ("doubleBinaryTree", Implementation(Algorithm.DOUBLE_BINARY_TREE)),
        ("inNetwork", Implementation(Algorithm.IN_NETWORK)),
        ("oneRing", Implementation(Algorithm.RING, flat=True)),
        ("oneDirect", Implementation(Algorithm.DIRECT, flat=True)),
        ("oneDirect3", Implementation(Algorithm.DIRECT, 3, flat=True)),
        ("oneHalvingDoubling", Implementation(Algorithm.HALVING_DOUBLING, flat=True)),
    ],
)
def test_every_name_of_the_reference_has_its_meaning(name, expected):
    assert parse_implementation(name) == expected


@pytest.mark.parametrize(
    "name",
    ["Ring", "ring2", "direct0", "direct-1", "direct1234567890", "oneInNetwork", "", "direct 2"],
)
def test_other_names_are_refused_with_those_that_are_known(name):
    with pytest.raises(ConfigError) as caught:
        parse_implementation(name)
    assert f"unknown collective implementation '{name}'" in str(caught.value)
    assert "known are ring, direct, halvingDoubling, doubleBinaryTree, oneRing" in str(caught.value)


AR, AG = PhaseType.ALL_REDUCE, PhaseType.ALL_GATHER
RS, A2A = PhaseType.REDUCE_SCATTER, PhaseType.ALL_TO_ALL
ANY, LOWER, UPPER = QueueChoice.ROUND_ROBIN, QueueChoice.FIRST_HALF, QueueChoice.UPPER_HALF


def grid(*sizes: int, topology: Topology = Topology.FULLY_CONNECTED) -> NetworkConfig:
    """Return a network with one dimension of each size, 1 B/ns and 100 ns per hop."""
    return NetworkConfig(tuple(Dimension(topology, n, 1e9 / 2**30, 100.0) for n in sizes))


def plans(
    nodes: list[NodeSpec],
    network: NetworkConfig,
    config: SystemConfig,
    groups: dict[str, tuple[int, ...]] | None = None,
) -> tuple[CollectivePlan, ...]:
    """Return the plans of a job in which every rank has the same nodes.

    Ranks outside the groups compute instead.
    """
    inside = {rank for members in (groups or {}).values() for rank in members}
    ranks = [
        nodes if not groups or rank in inside else [comp(0, 1)] for rank in range(network.num_npus)
    ]
    return lower(workload(*ranks, groups=groups), Cluster(network, config), MeasuredCompute()).plans


def steps(plan: CollectivePlan) -> list[tuple[int, PhaseType, int, QueueChoice]]:
    """Return (dimension, what is done, bytes, queues) of each phase."""
    return [(p.dimension, p.type, p.size, p.queue_choice) for p in plan.phases]


def test_an_all_reduce_scatters_up_turns_in_the_last_dimension_and_gathers_down():
    # 2 x 3 x 4: 2400 B are halved in dimension 0, cut to a third in 1, reduced in 2, and grow back.
    [plan] = plans([all_reduce(0, 2400)], grid(2, 3, 4), system(dimensions=3))
    assert (plan.chunks, plan.size) == (1, 2400)
    assert steps(plan) == [
        (0, RS, 2400, LOWER),
        (1, RS, 1200, LOWER),
        (2, AR, 400, LOWER),
        (1, AG, 400, UPPER),
        (0, AG, 1200, UPPER),
    ]
    assert [(p.members, p.stride) for p in plan.phases] == [(2, 1), (3, 2), (4, 6), (3, 2), (2, 1)]


def test_baseline_runs_the_whole_all_reduce_in_every_dimension_in_ascending_order():
    config = system(dimensions=3, collective_optimization="baseline")
    [plan] = plans([all_reduce(0, 2400)], grid(2, 3, 4), config)
    assert steps(plan) == [(d, AR, 2400, ANY) for d in (0, 1, 2)]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (CollectiveType.REDUCE_SCATTER, [(0, RS, 2400, ANY), (1, RS, 1200, ANY)]),
        (CollectiveType.ALL_TO_ALL, [(0, A2A, 2400, ANY), (1, A2A, 2400, ANY)]),
        # The shard of a rank grows from the last dimension down.
        (CollectiveType.ALL_GATHER, [(1, AG, 2400, ANY), (0, AG, 7200, ANY)]),
    ],
)
def test_other_collectives_go_through_the_dimensions_once(kind, expected):
    [plan] = plans([coll(0, kind, 2400)], grid(2, 3), system(dimensions=2))
    assert steps(plan) == expected


def test_a_broadcast_in_switches_goes_from_the_last_dimension_to_the_first():
    switches = grid(2, 2, topology=Topology.SWITCH)
    config = system(dimensions=2, broadcast=("inNetwork", "inNetwork"))
    [plan] = plans([coll(0, CollectiveType.BROADCAST, 2400)], switches, config)
    assert steps(plan) == [(1, PhaseType.BROADCAST, 2400, ANY), (0, PhaseType.BROADCAST, 2400, ANY)]


def test_dimensions_of_one_rank_are_left_out_and_do_not_stretch_the_strides():
    [plan] = plans([all_reduce(0, 2400)], grid(1, 2, 1, 3), system(dimensions=4))
    assert [(p.dimension, p.members, p.stride) for p in plan.phases] == [
        (1, 2, 1),
        (3, 3, 2),
        (1, 2, 1),
    ]


def test_involved_dim_picks_dimensions_and_the_last_picked_one_turns():
    nodes = [all_reduce(0, 2400, involved_dim=(True, True, False))]
    [plan] = plans(nodes, grid(2, 3, 4), system(dimensions=3))
    assert steps(plan) == [(0, RS, 2400, LOWER), (1, AR, 1200, LOWER), (0, AG, 1200, UPPER)]


@given(
    size=st.integers(0, 5000),
    splits=st.integers(1, 40),
    npus=st.integers(2, 6),
    gather=st.booleans(),
)
@tried(25)
def test_chunks_are_equal_whole_and_cover_the_size(size, splits, npus, gather):
    kind = CollectiveType.ALL_GATHER if gather else CollectiveType.ALL_REDUCE
    nodes, config = [coll(0, kind, size)], system(preferred_dataset_splits=splits)
    if gather and size < splits:
        with pytest.raises(SimulationError, match=f"{size} bytes cannot be cut into {splits}"):
            plans(nodes, grid(npus), config)
        return
    [plan] = plans(nodes, grid(npus), config)
    chunk = plan.phases[0].size
    if not gather and size // splits < npus:
        # Too little for a byte per rank and chunk: as many chunks as were asked for, of that size.
        assert (chunk, plan.chunks) == (npus, splits)
    else:
        assert chunk == size // splits
        assert (plan.chunks - 1) * chunk < size <= plan.chunks * chunk


def test_equal_collectives_share_a_plan_and_different_ones_do_not():
    same = [all_reduce(0, 64), all_reduce(1, 64, (0,)), all_reduce(2, 128, (1,))]
    other = coll(3, CollectiveType.REDUCE_SCATTER, 64, (2,))
    found = plans([*same, other], grid(2), system())
    assert [(p.size, p.phases[0].type) for p in found] == [(64, AR), (128, AR), (64, RS)]


@pytest.mark.parametrize(
    ("name", "members", "window"),
    [
        ("ring", 4, 1),
        ("halvingDoubling", 4, 1),
        ("doubleBinaryTree", 4, 1),
        ("direct", 4, 3),
        ("direct2", 4, 2),
        ("direct9", 4, 3),
    ],
)
def test_only_direct_has_several_messages_in_flight_and_at_most_one_per_peer(name, members, window):
    [plan] = plans([all_reduce(0, 64)], grid(members), system(name))
    assert plan.phases[0].window == window


def test_one_ring_spans_all_ranks_whatever_the_dimensions():
    [plan] = plans([all_reduce(0, 2400)], grid(2, 3), system("oneRing"))
    [phase] = plan.phases
    assert (phase.algorithm, phase.members, phase.stride) == (Algorithm.RING, 6, 1)
    assert (phase.type, phase.dimension, phase.size) == (AR, 0, 2400)


def test_trees_of_a_dimension_alternate_by_a_counter_of_its_own():
    tree = system("doubleBinaryTree", 2, collective_optimization="baseline")
    [plan] = plans([all_reduce(0, 64)], grid(2, 4), tree)
    counters = [phase.tree_counter for phase in plan.phases]
    assert len(set(counters)) == len(counters) == 2


def test_a_group_is_one_flat_ring_with_the_algorithm_of_a_list_of_one_entry():
    groups = {"1": (0, 1, 2)}
    nodes = [all_reduce(0, 64, pg_name="1")]
    [plan] = plans(nodes, grid(2, 2), system("direct"), groups)
    [phase] = plan.phases
    assert (phase.algorithm, phase.members, phase.window) == (Algorithm.DIRECT, 3, 2)
    assert (phase.stride, phase.dimension, phase.queue_choice) == (0, 0, LOWER)
    # The reference falls back to a ring where the list has an entry for each dimension.
    [plan] = plans(nodes, grid(2, 2), system("direct", 2), groups)
    assert plan.phases[0].algorithm is Algorithm.RING


def test_only_an_all_reduce_with_local_bw_aware_is_bound_to_half_of_the_queues_of_a_group():
    groups = {"1": (0, 1, 2)}
    reduce = [all_reduce(0, 64, pg_name="1")]
    scatter = [coll(0, CollectiveType.REDUCE_SCATTER, 64, pg_name="1")]
    baseline = system(collective_optimization="baseline")
    for nodes, config, choice in (
        (reduce, system(), LOWER),
        (reduce, baseline, ANY),
        (scatter, system(), ANY),
    ):
        [plan] = plans(nodes, grid(4), config, groups)
        assert plan.phases[0].queue_choice is choice


def test_a_group_of_all_ranks_runs_as_the_world_and_ignores_involved_dim():
    nodes = [all_reduce(0, 2400, pg_name="1", involved_dim=(True, False))]
    groups = {"1": (3, 2, 1, 0)}
    [plan] = plans(nodes, grid(2, 2), system(dimensions=2), groups)
    assert [phase.dimension for phase in plan.phases] == [0, 1, 0]


@pytest.mark.parametrize(
    ("members", "dims"),
    [((0, 1), [0]), ((1, 5), [2]), ((0, 2, 4, 6), [1, 2, 1]), ((0, 3), None), ((0, 1, 2), None)],
)
def test_hierarchical_groups_use_the_dimensions_they_span_in_full(members, dims):
    # 2 x 2 x 2: 0 and 3 differ in two dimensions, and three ranks fill none.
    config = system(dimensions=3, group_collectives=GroupCollectives.HIERARCHICAL)
    nodes = [all_reduce(0, 64, pg_name="1")]
    [plan] = plans(nodes, grid(2, 2, 2), config, {"1": members})
    if dims is None:
        assert [(p.stride, p.members) for p in plan.phases] == [(0, len(members))]
    else:
        assert [p.dimension for p in plan.phases] == dims
        assert all(p.stride == 2**p.dimension for p in plan.phases)


@pytest.mark.parametrize(
    ("members", "phases"),
    [
        # Every second rank of both nodes of 8, then nodes; back again for an all-reduce.
        (range(0, 16, 2), [(0, 4, 2), (1, 2, 8), (0, 4, 2)]),
        (range(0, 8, 4), [(0, 2, 4)]),
        ((4, 5, 6, 7), [(0, 4, 1)]),
        ((3, 11), [(1, 2, 8)]),
        ((2, 3, 4, 5), [(0, 4, 0)]),  # no quarter of the node: a flat ring
    ],
)
def test_hierarchical_groups_of_some_ranks_of_each_node_use_lines(members, phases):
    config = system(dimensions=2, group_collectives=GroupCollectives.HIERARCHICAL)
    nodes = [all_reduce(0, 64, pg_name="1")]
    [plan] = plans(nodes, grid(8, 2), config, {"1": tuple(members)})
    assert [(p.dimension, p.members, p.stride) for p in plan.phases] == phases


def test_one_algorithm_over_all_ranks_stays_flat_in_a_group():
    config = system("oneRing", group_collectives=GroupCollectives.HIERARCHICAL)
    [plan] = plans([all_reduce(0, 64, pg_name="1")], grid(4, 2), config, {"1": (0, 1, 4, 5)})
    assert [(p.dimension, p.members, p.stride) for p in plan.phases] == [(0, 4, 0)]


def test_a_missing_list_names_its_key_and_an_example():
    config = dataclasses.replace(system(), reduce_scatter=())
    nodes = [coll(0, CollectiveType.REDUCE_SCATTER, 64)]
    with pytest.raises(ConfigError) as caught:
        plans(nodes, grid(2), config)
    assert "REDUCE_SCATTER" in str(caught.value)
    assert "'reduce-scatter-implementation' is missing; add it, e.g. [\"ring\"]" in str(
        caught.value
    )


def test_more_entries_than_dimensions_are_refused_with_both_numbers():
    with pytest.raises(ConfigError, match="all-reduce-implementation has 3 entries for 2 dim"):
        plans([all_reduce(0, 64)], grid(2, 2), system(dimensions=3))


def test_fewer_entries_name_the_first_dimension_that_would_be_left_out():
    config = system(dimensions=1)
    with pytest.raises(ConfigError, match=r"1 of 3 entries, so dimension 2 would not"):
        plans([all_reduce(0, 64)], grid(2, 1, 2), config)
    skipping = dataclasses.replace(config, missing=MissingImplementations.SKIP)
    [plan] = plans([all_reduce(0, 64)], grid(2, 1, 2), skipping)
    assert [phase.dimension for phase in plan.phases] == [0]
    # Nothing is left out where the node does not take part in the dimension anyway.
    nodes = [all_reduce(0, 64, involved_dim=(True, False, False))]
    [plan] = plans(nodes, grid(2, 1, 2), config)
    assert [phase.dimension for phase in plan.phases] == [0]


def test_nothing_to_do_in_any_dimension_is_an_error_of_the_node():
    nodes = [all_reduce(7, 64, involved_dim=(False, False))]
    with pytest.raises(SimulationError, match=r"node 7 cannot run: no dimension with more than"):
        plans(nodes, grid(2, 2), system(dimensions=2))


# What n ranks in lock step take, from docs/reference/simulator.md, with E the endpoint delay, T a
# message and R a reduction.
CLOSED_FORMS = {
    CollectiveType.ALL_REDUCE: lambda n, e, r, t: (2 * n - 1) * e + (n - 1) * (r + 2 * t),
    CollectiveType.REDUCE_SCATTER: lambda n, e, r, t: n * e + (n - 1) * (r + t),
    CollectiveType.ALL_GATHER: lambda n, e, r, t: n * e + (n - 1) * t,
    CollectiveType.ALL_TO_ALL: lambda n, e, r, t: (n * (n - 1) // 2 + 1) * e + n * (n - 1) // 2 * t,
}
HOPS = {Topology.RING: 1, Topology.FULLY_CONNECTED: 1, Topology.SWITCH: 2}


@given(
    kind=st.sampled_from(sorted(CLOSED_FORMS)),
    topology=st.sampled_from(list(Topology)),
    n=st.integers(2, 7),
    message=st.integers(1, 5000),
    chunks=st.integers(1, 3),
    delay=st.integers(1, 50),
    local=st.sampled_from([None, 1.0, 7.0]),
    latency=st.sampled_from([0.0, 10.5, 100.0]),
)
@tried(30)
def test_rings_in_lock_step_take_the_published_time(
    kind, topology, n, message, chunks, delay, local, latency
):
    # Each chunk moves n messages' worth of bytes; a shard of an all-gather is one message.
    per_chunk = message if kind is CollectiveType.ALL_GATHER else message * n
    if per_chunk < n:
        return
    config = system(endpoint_delay_ns=delay, local_mem_bw_gb=local, preferred_dataset_splits=chunks)
    network = NetworkConfig((Dimension(topology, n, 2e9 / 2**30, latency),))
    nodes = [coll(0, kind, per_chunk * chunks)]
    result = simulate(workload(*[nodes] * n), Cluster(network, config))
    transfer = int(HOPS[topology] * latency + message / 2)
    reduction = 3 * int(message / local) if local else 0
    one = CLOSED_FORMS[kind](n, delay, reduction, transfer)
    assert result.rank_finish_ns.tolist() == [chunks * one] * n


groups_of = st.dictionaries(
    st.integers(1, 99).map(str),
    st.lists(st.integers(0, 7), min_size=1, max_size=8, unique=True).map(tuple),
    max_size=4,
)


def index(groups: dict[str, tuple[int, ...]], ranks: int = 8) -> GroupIndex:
    return GroupIndex.build(workload(*[[comp(0, 1)]] * ranks, groups=groups))


@given(groups_of)
@tried(25)
def test_members_and_places_are_those_of_the_group_file(groups):
    found = index(groups)
    assert found.names.tolist() == [int(name) for name in groups]
    assert {name: found.index_of[name] for name in groups} == {n: i for i, n in enumerate(groups)}
    for at, members in enumerate(groups.values()):
        assert found.rank[found.ptr[at] : found.ptr[at + 1]].tolist() == list(members)
        assert found.size(at) == len(members)
    for rank in range(8):
        rows = slice(found.rank_ptr[rank], found.rank_ptr[rank + 1])
        own = [
            (at, members.index(rank))
            for at, members in enumerate(groups.values())
            if rank in members
        ]
        assert list(zip(found.of_rank[rows], found.position[rows], strict=True)) == own


def slow_lines(members: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[RankStride, ...] | None:
    """Return the lines of a group by trying every grid of lines that tile their dimensions."""
    choices = []
    for d, size in enumerate(sizes):
        below = int(np.prod(sizes[:d]))
        choices.append(
            [
                (RankStride(count, step * below), [start + i * step for i in range(count)])
                for count in range(1, size + 1)
                for step in (range(1, size) if count > 1 else [1])
                for start in range(size)
                if size % (count * step) == 0 and start // step % count == 0
                and start + (count - 1) * step < size
            ]
        )  # fmt: skip
    for grid in itertools.product(*choices):
        places = itertools.product(*(place for _, place in grid))
        ranks = {sum(at * int(np.prod(sizes[:d])) for d, at in enumerate(p)) for p in places}
        if ranks == set(members):
            return tuple(line for line, _ in grid)
    return None


@given(
    st.sampled_from([(2, 2, 2), (4, 2), (2, 4), (1, 8), (8,), (2, 1, 4)]),
    st.lists(st.integers(0, 7), min_size=1, max_size=8, unique=True),
)
@tried(60)
def test_a_group_fills_lines_where_it_is_a_grid_of_them(sizes, members):
    assert index({"5": tuple(members)}).lines(0, sizes) == slow_lines(tuple(members), sizes)


@given(st.sampled_from([(8, 2), (4, 4), (2, 8), (16,)]), st.data())
@tried(40)
def test_the_rank_tells_its_place_on_every_line(sizes, data):
    """What the kernel relies on (native/sim/collective.c): rank / stride modulo members."""
    groups = {}
    for number in range(1, 4):
        step, count = data.draw(st.sampled_from([1, 2, 4])), data.draw(st.sampled_from([2, 4]))
        groups[str(number)] = tuple(range(0, step * count, step))
    found = index(groups, ranks=16)
    for at, members in enumerate(groups.values()):
        for line in found.lines(at, sizes) or ():
            places = {rank // line.stride % line.members for rank in members}
            assert places == set(range(line.members))


def test_world_groups_need_no_entry_and_other_names_are_refused():
    found = index({"0": tuple(range(8)), "3": (1, 0)})
    assert found.names.tolist() == [3]
    with pytest.raises(SimulationError, match=r"group '0' has no integer above 0 as its name"):
        index({"0": (0, 1)})
    with pytest.raises(SimulationError, match=r"groups '7' and '07' have the same number; rename"):
        index({"7": (0, 1), "07": (2, 3)})


@pytest.mark.parametrize(
    ("name", "usable"),
    [
        ("1", True),
        ("007", True),
        (str(2**31 - 1), True),
        (str(2**31), False),
        ("99999999999", False),
        ("0", False),
        ("-1", False),
        ("1.0", False),
        ("", False),
        ("tensor", False),
        ("9" * 5000, False),
        ("\u0663", False),
    ],
)
def test_names_of_groups_are_positive_32_bit_integers(name, usable):
    assert is_group_name(name) is usable


def test_a_file_that_describes_the_world_is_refused_as_the_reference_aborts():
    nodes = [comp(0, 1)]
    reject_world_description(workload(nodes, nodes, groups={"1": (0, 1)}))
    with pytest.raises(SimulationError) as caught:
        reject_world_description(workload(nodes, nodes, groups={"0": (0, 1)}))
    assert 'describe group "0"' in str(caught.value)
    assert "remove the entry from the group file, or give the group a number" in str(caught.value)
