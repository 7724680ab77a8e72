"""Several communication streams per rank, worked out by hand. E = 10 ns, 1 B/ns, 100 ns per hop."""

import dataclasses
import math

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
    workload,
)

from layerdag.errors import ConfigError, SimulationError
from layerdag.hardware.collectives import CollectiveType
from layerdag.simulator.analysis import breakdown
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.config import (
    Congestion,
    Dimension,
    GroupCollectives,
    MemoryConfig,
    MemoryKind,
    MissingImplementations,
    NetworkConfig,
    RunOptions,
    SystemConfig,
    Topology,
    UnsupportedCollectives,
)
from layerdag.simulator.run import SimulationResult, simulate
from layerdag.traces.builder import NodeSpec
from layerdag.traces.trace import Attribute, NodeType, Wire, Workload

RING_OF_TWO = 30 + 2 * 1100
"""A ring all-reduce of 2000 B between two ranks: 3 E + 2 (100 + 1000)."""


def run(load: Workload, streams: int) -> SimulationResult:
    network = one_dimension(Topology.FULLY_CONNECTED, load.num_ranks)
    return simulate(load, Cluster(network, system(), options=RunOptions(comm_streams=streams)))


def rows(result: SimulationResult, rank: int = 0) -> list[tuple[int, int, int]]:
    """Return (issue, finish, stream) of the nodes of a rank."""
    at = result.program.rows(rank)
    columns = (result.issue_ns[at], result.finish_ns[at], result.outcome.lane[at])
    return list(zip(*(column.tolist() for column in columns), strict=True))


def three_sends() -> Workload:
    sends = [send(id, 1, 400, tag=id) for id in range(3)]
    return workload(sends, [recv(id, 0, 400, tag=id) for id in range(3)])


def test_ready_nodes_take_the_lowest_free_stream_and_one_is_the_default():
    assert RunOptions().comm_streams == 1
    expected = [(0, 500, 0), (500, 1000, 0), (1000, 1500, 0)]
    assert rows(run(three_sends(), 1)) == expected
    # Two at once; the third waits until both are through at 500 and takes the lower stream.
    assert rows(run(three_sends(), 2)) == [(0, 500, 0), (0, 500, 1), (500, 1000, 0)]
    assert rows(run(three_sends(), 4)) == [(0, 500, 0), (0, 500, 1), (0, 500, 2)]


def test_collectives_of_two_groups_overlap():
    # Rank 0 is in both groups: one after the other on one stream, side by side on two.
    both = [all_reduce(0, 2000, pg_name="1"), all_reduce(1, 2000, pg_name="2")]
    first, second = [all_reduce(0, 2000, pg_name="1")], [all_reduce(0, 2000, pg_name="2")]
    load = workload(both, first, second, groups={"1": (0, 1), "2": (0, 2)})
    t = RING_OF_TWO
    assert rows(run(load, 1)) == [(0, t, 0), (t, 2 * t, 0)]
    # Rank 2 waits for rank 0's first message, which leaves at t + E; its second one follows E later
    # and ends rank 2's part at t + 2 E + 1100 + E, while rank 0 still waits for rank 2's second.
    assert run(load, 1).rank_finish_ns.tolist() == [2 * t, t, t + 30 + 1100]
    assert rows(run(load, 2)) == [(0, t, 0), (0, t, 1)]
    assert run(load, 2).rank_finish_ns.tolist() == [t, t, t]


def test_groups_met_in_opposite_orders_are_no_deadlock_with_two_streams():
    # Rank 0 reduces with group 1 first, rank 1 with group 2: one stream each would wait forever.
    groups = {"1": (0, 1), "2": (1, 0)}
    left = [all_reduce(0, 2000, pg_name="1"), all_reduce(1, 2000, pg_name="2")]
    right = [all_reduce(0, 2000, pg_name="2"), all_reduce(1, 2000, pg_name="1")]
    filler = [comp(0, 1)]
    load = workload(left, right, filler, groups=groups)
    assert run(load, 2).rank_finish_ns.tolist() == [RING_OF_TWO, RING_OF_TWO, 1000]


def test_exposed_communication_counts_overlapping_streams_once():
    # Compute 0-1000, a send 0-500, an all-reduce 0-2230: 1230 ns are exposed, once.
    nodes = [comp(0, 1), send(1, 1, 400), all_reduce(2, 2000)]
    other = [recv(0, 0, 400), all_reduce(2, 2000)]
    result = run(workload(nodes, other), 2)
    parts = breakdown(result)
    assert parts.time_ns_RP.sum(axis=1).tolist() == result.rank_finish_ns.tolist()
    found = dict(zip(parts.parts, parts.time_ns_RP[0].tolist(), strict=True))
    assert (found["compute"], found["send"], found["dim 0"]) == (1000, 0, RING_OF_TWO - 1000)
    assert result.exposed_comm_ns[0] == RING_OF_TWO - 1000


def test_remote_memory_takes_a_stream_too():
    nodes = [node(0, NodeType.MEM_LOAD, tensor_size=90), send(1, 1, 400)]
    load = workload(nodes, [recv(0, 0, 400)])
    memory = MemoryConfig(MemoryKind.PER_NPU, latency_ns=10, bandwidth_bytes_per_ns=1.0)
    network = one_dimension(Topology.FULLY_CONNECTED, 2)
    results = [
        simulate(
            load,
            Cluster(network, system(), memory=memory, options=RunOptions(comm_streams=streams)),
        )
        for streams in (1, 2)
    ]
    assert [rows(result)[1][:2] for result in results] == [(100, 600), (0, 500)]


IN_SWITCH = ("inNetwork",)
AWARE = RunOptions(congestion=Congestion.AWARE)


def reducing(**changes: object) -> SystemConfig:
    """Return a system whose one dimension reduces, gathers, scatters and broadcasts by itself."""
    lists = {"all_reduce": IN_SWITCH, "all_gather": IN_SWITCH, "reduce_scatter": IN_SWITCH}
    return system(**{**lists, "broadcast": IN_SWITCH, **changes})


@pytest.mark.parametrize(
    ("kind", "size", "up", "down"),
    [
        (CollectiveType.ALL_REDUCE, 4000, 4000, 4000),
        (CollectiveType.REDUCE_SCATTER, 4000, 4000, 1000),
        (CollectiveType.ALL_GATHER, 1000, 1000, 4000),
        (CollectiveType.BROADCAST, 4000, 4000, 4000),
    ],
)
def test_data_goes_up_and_down_once_and_shared_links_store_it_in_between(kind, size, up, down):
    load, network = workload(*[[coll(0, kind, size)]] * 4), one_dimension(Topology.SWITCH, 4)
    assert finish(simulate(load, Cluster(network, reducing()))) == [10 + 200 + 4000 + 10] * 4
    shared = simulate(load, Cluster(network, reducing(), options=AWARE))
    assert finish(shared) == [10 + (100 + up) + (100 + down) + 10] * 4


def test_the_switch_reduces_so_local_memory_does_not():
    nodes = [all_reduce(0, 4000)]
    network = one_dimension(Topology.SWITCH, 4)
    result = simulate(workload(*[nodes] * 4), Cluster(network, reducing(local_mem_bw_gb=1.0)))
    assert finish(result) == [4220] * 4


def test_a_transfer_is_rounded_down_once_and_chunks_follow_each_other():
    # floor(2 x 100.25 + 4001 / 2) = floor(200.5 + 2000.5) = 2201, not 200 + 2000.
    nodes = [all_reduce(0, 4001)]
    network = one_dimension(Topology.SWITCH, 4, bytes_per_ns=2.0, latency_ns=100.25)
    assert finish(simulate(workload(*[nodes] * 4), Cluster(network, reducing()))) == [20 + 2201] * 4
    # 4003 B in 4 splits: 5 whole chunks of 1000 B, one at a time: 5 x (20 + 1200).
    nodes = [all_reduce(0, 4003)]
    network = one_dimension(Topology.SWITCH, 4)
    cut = reducing(preferred_dataset_splits=4)
    assert finish(simulate(workload(*[nodes] * 4), Cluster(network, cut))) == [5 * 1220] * 4


@pytest.mark.parametrize("options", [RunOptions(), AWARE])
def test_everyone_waits_for_the_last_member(options):
    late = [comp(0, 5), all_reduce(1, 4000, (0,))]
    load = workload([all_reduce(1, 4000)], late, [all_reduce(1, 4000)])
    alone = 4220 if options is not AWARE else 8220
    result = simulate(load, Cluster(one_dimension(Topology.SWITCH, 3), reducing(), options=options))
    assert finish(result) == [5000 + alone] * 3


def test_other_messages_share_the_links_to_the_switch():
    # Rank 0's message holds its up link until 1000; its chunk leaves then and is up at 5100, when
    # all are; down by 9200. The message is with rank 1 at 2200.
    load = workload(
        [send(0, 1, 1000), all_reduce(1, 4000)],
        [recv(0, 0, 1000), all_reduce(1, 4000)],
        [all_reduce(1, 4000)],
    )
    options = RunOptions(congestion=Congestion.AWARE, comm_streams=2)
    result = simulate(load, Cluster(one_dimension(Topology.SWITCH, 3), reducing(), options=options))
    assert result.finish_ns.tolist() == [2200, 9210, 2200, 9210, 9210]


def test_one_dimension_may_reduce_while_another_runs_a_ring():
    # 2 x 2, 4000 B: scatter in the switch 4220; ring of 2000 B: 3 E + 2 (100 + 1000); gather 4220.
    nodes = [all_reduce(0, 4000)]
    dimensions = (
        *one_dimension(Topology.SWITCH, 2).dimensions,
        *one_dimension(Topology.RING, 2).dimensions,
    )
    mixed = reducing(all_reduce=("inNetwork", "ring"))
    result = simulate(workload(*[nodes] * 4), Cluster(NetworkConfig(dimensions), mixed))
    assert finish(result) == [4220 + 2230 + 4220] * 4


def test_a_group_of_one_switch_is_reduced_there():
    # A group's endpoint delay is 10 whatever that of the system; ranks 0 and 2 only take part.
    member, other = [all_reduce(0, 2000, pg_name="7")], [comp(0, 1)]
    load = workload(member, other, member, other, groups={"7": (2, 0)})
    network = one_dimension(Topology.SWITCH, 4)
    result = simulate(load, Cluster(network, reducing(endpoint_delay_ns=50)))
    assert finish(result) == [2220, 1000, 2220, 1000]


def test_a_group_that_spans_a_dimension_is_reduced_by_its_switch():
    pair = [all_reduce(0, 4000, pg_name="1")]
    rest = [all_reduce(0, 4000, pg_name="2")]
    load = workload(pair, pair, rest, rest, groups={"1": (0, 1), "2": (2, 3)})
    network = NetworkConfig((Dimension(Topology.SWITCH, 2, 1e9 / 2**30, 100.0),) * 2)
    hierarchical = reducing(
        all_reduce=("inNetwork", "ring"), group_collectives=GroupCollectives.HIERARCHICAL
    )
    assert finish(simulate(load, Cluster(network, hierarchical))) == [4220] * 4


def test_members_that_never_meet_are_named():
    load = workload([all_reduce(0, 64)], [all_reduce(0, 64)], [comp(0, 1)])
    for options in (RunOptions(), AWARE):
        with pytest.raises(SimulationError, match=r"rank 0 node 0 .* waits for rank 2, which has"):
            simulate(load, Cluster(one_dimension(Topology.SWITCH, 3), reducing(), options=options))
    load = workload([all_reduce(0, 64)], [all_reduce(0, 128)])
    with pytest.raises(SimulationError, match=r"deadlock.*rank 0 node 0.*waits for rank 1"):
        simulate(load, Cluster(one_dimension(Topology.SWITCH, 2), reducing()))


@pytest.mark.parametrize(
    ("topology", "kind", "changes", "words"),
    [
        (Topology.RING, CollectiveType.ALL_REDUCE, {}, "dimension 0, which is a Ring"),
        (Topology.FULLY_CONNECTED, CollectiveType.BROADCAST, {}, "is a FullyConnected"),
        (Topology.SWITCH, CollectiveType.ALL_TO_ALL, {"all_to_all": IN_SWITCH}, "nothing to sum"),
        (Topology.SWITCH, CollectiveType.BROADCAST, {"broadcast": ("ring",)}, "takes 'inNetwork'"),
    ],
)
def test_what_no_switch_can_do_is_refused(topology, kind, changes, words):
    nodes = [coll(0, kind, 4000)]
    with pytest.raises(ConfigError, match=words):
        simulate(workload(nodes, nodes), Cluster(one_dimension(topology, 2), reducing(**changes)))


def test_a_flat_group_across_dimensions_has_no_switch():
    nodes, rest = [all_reduce(0, 4000, pg_name="1")], [comp(0, 1)]
    load = workload(nodes, rest, rest, nodes, groups={"1": (0, 3)})
    network = NetworkConfig(one_dimension(Topology.SWITCH, 2).dimensions * 2)
    with pytest.raises(SimulationError, match="--group-collectives hierarchical"):
        simulate(load, Cluster(network, reducing()))


WORDS = {
    Topology: ["Ring", "FullyConnected", "Switch"],
    Congestion: ["unaware", "aware", "aware-multi"],
    MemoryKind: [
        "NO_MEMORY_EXPANSION", "PER_NODE_MEMORY_EXPANSION", "PER_NPU_MEMORY_EXPANSION",
        "MEMORY_POOL",
    ],
    UnsupportedCollectives: ["refuse", "replay"],
    MissingImplementations: ["refuse", "skip"],
    GroupCollectives: ["flat", "hierarchical"],
}  # fmt: skip
"""What files and flags call each choice: ASTRA-sim's words, and ours where it has none."""

LINK = Dimension(Topology.RING, 4, 50.0, 500.0)
REMOTE = MemoryConfig(MemoryKind.PER_NODE, 10, 1.0, 1, 1)

BOUNDS = [
    # What to change, its attribute, its key in the files, values allowed, values refused.
    (LINK, "npus", "npus_count", [1], [0, -1]),
    (LINK, "bandwidth_gib", "bandwidth", [1e-9, 1e9], [0.0, 9e-10, -1.0, math.inf, math.nan]),
    (LINK, "latency_ns", "latency", [0.0, 1e12], [-0.1, 1.1e12, math.nan]),
    (system(), "preferred_dataset_splits", "preferred-dataset-splits", [1, 10**6], [0, 10**6 + 1]),
    (
        system(),
        "active_chunks_per_dimension",
        "active-chunks-per-dimension",
        [1, 10**6],
        [0, 10**6 + 1],
    ),
    (system(), "endpoint_delay_ns", "endpoint-delay", [None, 0, 10**12], [-1, 10**12 + 1]),
    (system(), "scheduling_policy", "scheduling-policy", ["LIFO", "FIFO", "EXPLICIT"], ["fifo"]),
    (
        system(),
        "collective_optimization",
        "collective-optimization",
        ["baseline", "localBWAware"],
        ["Baseline"],
    ),
    (system(), "local_mem_bw_gb", "local-mem-bw", [None, 1e-3], [0.0, -1.0, math.inf, math.nan]),
    (system(), "peak_perf_tflops", "peak-perf", [None, 1e-3], [0.0, -1.0, math.inf, math.nan]),
    (REMOTE, "latency_ns", "remote-mem-latency", [0, 10**12], [-1, 10**12 + 1]),
    (REMOTE, "bandwidth_bytes_per_ns", "remote-mem-bw", [1e-3], [0.0, -1.0, math.inf, math.nan]),
    (REMOTE, "npus_per_node", "num-npus-per-node", [1, 8], [0]),
    (REMOTE, "num_nodes", "num-nodes", [None, 1], [0]),
    (RunOptions(), "queues_per_dimension", "num-queues-per-dim", [1, 1024], [0, 1025]),
    (RunOptions(), "comm_streams", "comm-streams", [1, 64], [0, 65]),
    (RunOptions(), "injection_scale", "injection-scale", [0.0, 9.0], [-0.1, math.inf, math.nan]),
]


@pytest.mark.parametrize("choices", WORDS)
def test_choices_have_the_words_of_files_and_flags(choices):
    assert [choice.value for choice in choices] == WORDS[choices]


@pytest.mark.parametrize(
    ("config", "name", "key", "value"),
    [(config, name, key, value) for config, name, key, fine, _ in BOUNDS for value in fine],
)
def test_the_limits_themselves_are_allowed(config, name, key, value):
    assert getattr(dataclasses.replace(config, **{name: value}), name) == value


@pytest.mark.parametrize(
    ("config", "name", "key", "value"),
    [(config, name, key, value) for config, name, key, _, wrong in BOUNDS for value in wrong],
)
def test_values_beyond_them_are_refused_with_key_and_value(config, name, key, value):
    with pytest.raises(ConfigError) as caught:
        dataclasses.replace(config, **{name: value})
    assert str(caught.value).startswith(f"{key} is {value!r}; it must be ")


def test_a_network_has_one_to_eight_dimensions_and_a_million_ranks():
    assert NetworkConfig((LINK,) * 8).num_npus == 4**8
    for count in (0, 9):
        with pytest.raises(ConfigError, match=f"topology is {count}; it must be 1 to 8 entries"):
            NetworkConfig((LINK,) * count)
    assert NetworkConfig.single(Topology.RING, 10**6).num_npus == 10**6
    sizes = [dataclasses.replace(LINK, npus=npus) for npus in (1000, 1001)]
    with pytest.raises(ConfigError, match="npus_count is 1001000; it must be at most 1e6 in all"):
        NetworkConfig(tuple(sizes))


def test_a_single_dimension_has_the_speed_it_is_given():
    [dimension] = NetworkConfig.single(Topology.SWITCH, 8, 25.0, 1000.0).dimensions
    assert dimension == Dimension(Topology.SWITCH, 8, 25.0, 1000.0)
    [dimension] = NetworkConfig.single(Topology.SWITCH, 8).dimensions
    assert (dimension.bandwidth_gib, dimension.latency_ns) == (50.0, 500.0)


@pytest.mark.parametrize("missing", ["local_mem_bw_gb", "peak_perf_tflops"])
def test_a_roofline_needs_both_rates(missing):
    rates = {"local_mem_bw_gb": 1.0, "peak_perf_tflops": 1.0}
    assert system(roofline_enabled=True, **rates).roofline_enabled
    with pytest.raises(ConfigError, match="given when roofline-enabled is 1"):
        system(roofline_enabled=True, **{**rates, missing: None})


@pytest.mark.parametrize(
    ("algorithm", "exchange"),
    [
        ("ring", "ring"),
        ("direct4", "direct4"),
        ("oneRing", "oneRing"),
        ("halvingDoubling", "direct"),
        ("doubleBinaryTree", "direct"),
    ],
)
def test_a_uniform_system_uses_one_algorithm_and_one_that_can_exchange(algorithm, exchange):
    made = SystemConfig.uniform(algorithm, 3)
    for names in (made.all_reduce, made.all_gather, made.reduce_scatter):
        assert names == (algorithm,) * 3
    assert made.all_to_all == (exchange,) * 3
    assert (made.preferred_dataset_splits, made.broadcast) == (1, ())


def complaint(*ranks: list[NodeSpec], **changes: object) -> str:
    """Return the message of the error that simulating ``ranks`` raises."""
    groups = changes.pop("groups", None)
    with pytest.raises(SimulationError) as caught:
        simulate(workload(*ranks, groups=groups), Cluster(ring(len(ranks)), system(**changes)))
    return str(caught.value)


PAIR = [[all_reduce(0, 64, pg_name="1")]] * 2
REORDERED = [
    [all_reduce(0, 64), coll(1, CollectiveType.ALL_GATHER, 64, (0,))],
    [coll(0, CollectiveType.ALL_GATHER, 64), all_reduce(1, 64, (0,))],
]
# A collective of all ranks after one of some: stream ids run apart (ASTRA-sim issue 339).
UNEQUAL = [*[[all_reduce(0, 64, pg_name="1"), all_reduce(1, 64, (0,))]] * 2, [all_reduce(1, 64)]]
EXCHANGE = [[coll(0, CollectiveType.ALL_TO_ALL, 64)]] * 2


@pytest.mark.parametrize(
    ("ranks", "changes", "words"),
    [
        ([[], [comp(0, 1)]], {}, "no nodes"),
        ([[comp(0, 1), comp(4, 1, (77,))], [comp(0, 1)]], {}, "node 4 depends on node 77"),
        ([[comp(0, 1), comp(4, 1, (77,))], [comp(0, 1)]], {}, "w.0.et"),
        (REORDERED, {}, "deadlock"),
        (UNEQUAL, {"groups": {"1": (0, 1)}}, "deadlock"),
        ([[all_reduce(0, 64)]] * 3, {"algorithm": "halvingDoubling"},
         "halvingDoubling needs a power of two"),
        ([[all_reduce(0, 64)]] * 3, {"algorithm": "doubleBinaryTree"},
         "doubleBinaryTree needs a power of two"),
        (EXCHANGE, {"all_to_all": ("halvingDoubling",)}, "all-to-all"),
        ([*PAIR, [comp(0, 1)]], {"all_reduce": ("doubleBinaryTree",), "groups": {"1": (0, 1)}},
         "communicator group"),
        ([[send(2, 1, 8, tag=-1)], [recv(2, 0, 8, tag=-1)]], {}, "comm_tag -1"),
        ([[send(2, 1, 8, tag=2**31)], [recv(2, 0, 8, tag=2**31)]], {}, f"comm_tag {2**31}"),
    ],
)  # fmt: skip
def test_jobs_that_cannot_run_are_told(ranks, changes, words):
    assert words in complaint(*ranks, **changes)


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


def test_the_double_binary_tree_serves_all_reduces_only():
    load = workload(*[[coll(0, CollectiveType.REDUCE_SCATTER, 64)]] * 2)
    with pytest.raises(ConfigError, match="reduce-scatter-implementation has 'doubleBinaryTree'"):
        simulate(load, Cluster(ring(2), system(reduce_scatter=("doubleBinaryTree",))))


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
    assert finish(simulate(workload(*[nodes] * 4), Cluster(TWO_SPEEDS, flat))) == [expected] * 4


@pytest.mark.parametrize(("duration_us", "expected"), [(3, 3000), (0, 1)])
def test_a_broadcast_takes_its_recorded_duration_on_its_own_rank(duration_us, expected):
    kind = int(CollectiveType.BROADCAST)
    nodes = [node(0, NodeType.COMM_COLL, (), duration_us, comm_type=kind, comm_size=4000)]
    result = simulate(workload(nodes, [comp(0, 9)]), Cluster(ring(2), system()))
    assert finish(result) == [expected, 9000]


def test_tags_count_modulo_500_million():
    load = workload([send(0, 1, 400, tag=500_000_007)], [recv(0, 0, 400, tag=7)])
    assert finish(simulate(load, Cluster(ring(2), system()))) == [500, 500]


def test_node_ids_may_be_any_64_bit_number_and_stand_in_any_order():
    high = 2**63 + 5
    nodes = [comp(high, 1), comp(7, 2), comp(2**40, 3, (7,))]
    result = simulate(workload(nodes, nodes), Cluster(ring(2), system()))
    # Rows are in ascending id: 7 from 0; at 2000 its child 2**40 comes before the largest id.
    assert ticks(result) == [(0, 2000), (2000, 5000), (5000, 6000)]


def test_replay_only_exposes_the_time_of_the_cpu_and_of_waiting_alone():
    # GPU 0-2000, all-reduce 2000-7000, CPU 7000-8000: the reference takes off both of the first.
    nodes = [
        comp(0, 2),
        node(1, NodeType.COMM_COLL, (0,), 5, comm_type=0, comm_size=1 << 30),
        comp(2, 1, (1,), is_cpu_op=True),
    ]
    result = simulate(workload(nodes, nodes), Cluster(ring(2), system(replay_only=True)))
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
    result = simulate(workload(*[nodes] * 4), Cluster(ring(4), plain, options=options))
    assert finish(result) == [expected] * 4


def test_children_of_a_skipped_node_wait_for_the_next_completion():
    # Node 0 ends at once, but node 2 is looked at only when node 1 completes at 2000.
    nodes = [node(0, NodeType.INVALID), comp(1, 2), comp(2, 1, (0,), is_cpu_op=True)]
    result = simulate(workload(nodes, nodes), Cluster(ring(2), system()))
    assert ticks(result) == [(0, 0), (0, 2000), (2000, 3000)]


def test_rendezvous_asks_before_every_message_of_a_collective():
    # Ring of 2, 2000 B: E, then twice: 8192 B there, 1000 B back, E.
    nodes = [all_reduce(0, 2000)]
    result = simulate(
        workload(nodes, nodes), Cluster(ring(2), system(), options=RunOptions(rendezvous=True))
    )
    assert finish(result) == [10 + 2 * (8292 + 1100 + 10)] * 2


def test_the_shorter_way_round_a_ring_is_clockwise_when_both_are_equal():
    # Rank 1's 3000 B hold the link 1 -> 2 until 3000; rank 0's 1000 B come to it at 1100 on their
    # way to rank 2, leave at 3000 and arrive at 4100. The other way round they would at 2200.
    load = workload(
        [send(0, 2, 1000)], [send(0, 2, 3000)], [recv(0, 0, 1000), recv(1, 1, 3000)], [comp(0, 1)]
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
    load = workload(both, both, [gather(0, "1")], [gather(1, "2")], groups=groups)
    two = RunOptions(queues_per_dimension=2)
    with pytest.raises(SimulationError, match=r"cycle of waits: rank 1 node 1 .*queues take turns"):
        simulate(load, Cluster(ring(4), system(), options=two))
    assert simulate(load, Cluster(ring(4), system())).makespan_ns > 0


@pytest.mark.parametrize("policy", ["LIFO", "FIFO", "EXPLICIT"])
def test_the_scheduling_policy_changes_no_tick(policy):
    nodes = [all_reduce(0, 4000, comm_priority=1), all_reduce(1, 4000, comm_priority=9)]
    result = simulate(workload(*[nodes] * 4), Cluster(ring(4), system(scheduling_policy=policy)))
    assert ticks(result) == [(0, 6670), (6670, 2 * 6670)]


def test_five_dimensions_need_to_be_told_who_takes_part():
    network = NetworkConfig(one_dimension(Topology.RING, 2).dimensions * 5)

    def load(*nodes: NodeSpec):
        return workload(*[list(nodes)] * 32)

    with pytest.raises(SimulationError, match=r"4 where it is missing.* has 5 dimensions"):
        simulate(load(all_reduce(0, 3200)), Cluster(network, system(dimensions=5)))
    # Told that dimension 0 alone does: a ring of 2 with messages of 1600 B, 3 E + 2 x 1700.
    told = load(all_reduce(0, 3200, involved_dim=(True, False, False, False, False)))
    assert finish(simulate(told, Cluster(network, system(dimensions=5)))) == [30 + 3400] * 32
