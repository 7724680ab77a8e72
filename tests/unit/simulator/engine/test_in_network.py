"""Collectives done by a switch; ticks worked out by hand. E = 10 ns, 1 B/ns, 100 ns per hop.

A chunk goes up once and the result comes down once: E + floor(2 x 100 + bytes / 1) + E after the
last member has begun, where bytes are those of the larger direction.
"""

import pytest
from simulator_traces import (
    all_reduce,
    coll,
    comp,
    finish,
    one_dimension,
    recv,
    send,
    system,
    workload,
)

from layerdag.errors import ConfigError, SimulationError
from layerdag.simulator import (
    Cluster,
    Congestion,
    Dimension,
    GroupCollectives,
    NetworkConfig,
    RunOptions,
    SystemConfig,
    Topology,
    simulate,
)
from layerdag.traces import CollectiveType

IN_SWITCH = ("inNetwork",)
AWARE = RunOptions(congestion=Congestion.AWARE)


def reducing(**changes: object) -> SystemConfig:
    """Return a system whose one dimension reduces, gathers, scatters and broadcasts by itself."""
    lists = {"all_reduce": IN_SWITCH, "all_gather": IN_SWITCH, "reduce_scatter": IN_SWITCH}
    return system(**{**lists, "broadcast": IN_SWITCH, **changes})


@pytest.mark.parametrize(
    ("kind", "size", "expected"),
    [
        (CollectiveType.ALL_REDUCE, 4000, 10 + 200 + 4000 + 10),
        (CollectiveType.REDUCE_SCATTER, 4000, 10 + 200 + 4000 + 10),  # up 4000, down 1000
        (CollectiveType.ALL_GATHER, 1000, 10 + 200 + 4000 + 10),  # up 1000, down 4 x 1000
        (CollectiveType.BROADCAST, 4000, 10 + 200 + 4000 + 10),
    ],
)
def test_data_goes_up_once_and_comes_down_once(kind, size, expected):
    nodes = [coll(0, kind, size)]
    network = one_dimension(Topology.SWITCH, 4)
    assert finish(simulate(workload(*[nodes] * 4), Cluster(network, reducing()))) == [expected] * 4


@pytest.mark.parametrize(
    ("kind", "size", "expected"),
    [
        (CollectiveType.ALL_REDUCE, 4000, 10 + 4100 + 4100 + 10),
        (CollectiveType.REDUCE_SCATTER, 4000, 10 + 4100 + 1100 + 10),
        (CollectiveType.ALL_GATHER, 1000, 10 + 1100 + 4100 + 10),
        (CollectiveType.BROADCAST, 4000, 10 + 4100 + 4100 + 10),
    ],
)
def test_with_shared_links_the_switch_stores_and_forwards(kind, size, expected):
    nodes = [coll(0, kind, size)]
    network = one_dimension(Topology.SWITCH, 4)
    result = simulate(workload(*[nodes] * 4), Cluster(network, reducing(), options=AWARE))
    assert finish(result) == [expected] * 4


def test_the_switch_reduces_so_local_memory_does_not():
    nodes = [all_reduce(0, 4000)]
    network = one_dimension(Topology.SWITCH, 4)
    result = simulate(workload(*[nodes] * 4), Cluster(network, reducing(local_mem_bw_gb=1.0)))
    assert finish(result) == [4220] * 4


def test_a_transfer_is_rounded_down_once():
    # floor(2 x 100.25 + 4001 / 2) = floor(200.5 + 2000.5) = 2201, not 200 + 2000.
    nodes = [all_reduce(0, 4001)]
    network = one_dimension(Topology.SWITCH, 4, bytes_per_ns=2.0, latency_ns=100.25)
    assert finish(simulate(workload(*[nodes] * 4), Cluster(network, reducing()))) == [20 + 2201] * 4


def test_chunks_follow_each_other():
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


def test_a_member_that_never_comes_is_named():
    load = workload([all_reduce(0, 64)], [all_reduce(0, 64)], [comp(0, 1)])
    for options in (RunOptions(), AWARE):
        with pytest.raises(SimulationError, match=r"rank 0 node 0 .* waits for rank 2, which has"):
            simulate(load, Cluster(one_dimension(Topology.SWITCH, 3), reducing(), options=options))


def test_members_of_different_sizes_never_meet():
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


def test_a_broadcast_takes_its_recorded_duration_unless_asked_for():
    nodes = [coll(0, CollectiveType.BROADCAST, 4000)]
    network = one_dimension(Topology.SWITCH, 2)
    assert finish(simulate(workload(nodes, nodes), Cluster(network, system()))) == [1, 1]
