"""Several communication streams per rank, worked out by hand. E = 10 ns, 1 B/ns, 100 ns per hop."""

import json

import pytest
from simulator_traces import all_reduce, comp, node, one_dimension, recv, send, system, workload

from layerdag.errors import ConfigError
from layerdag.simulator import (
    Cluster,
    MemoryConfig,
    MemoryKind,
    RunOptions,
    SimulationResult,
    Topology,
    simulate,
)
from layerdag.simulator.analysis import break_down, write_timeline
from layerdag.traces import NodeType, Workload

RING_OF_TWO = 30 + 2 * 1100
"""A ring all-reduce of 2000 B between two ranks: 3 E + 2 (100 + 1000)."""


def run(load: Workload, streams: int) -> SimulationResult:
    network = one_dimension(Topology.FULLY_CONNECTED, load.num_ranks)
    return simulate(load, Cluster(network, system(), options=RunOptions(comm_streams=streams)))


def rows(result: SimulationResult, rank: int = 0) -> list[tuple[int, int, int]]:
    """Return (issue, finish, stream) of the nodes of a rank."""
    at = result.rows(rank)
    columns = (result.issue_ns[at], result.finish_ns[at], result.lane[at])
    return list(zip(*(column.tolist() for column in columns), strict=True))


def three_sends() -> Workload:
    sends = [send(id, 1, 400, tag=id) for id in range(3)]
    return workload(sends, [recv(id, 0, 400, tag=id) for id in range(3)])


def test_one_stream_is_the_default_and_the_reference():
    assert RunOptions().comm_streams == 1
    expected = [(0, 500, 0), (500, 1000, 0), (1000, 1500, 0)]
    assert rows(run(three_sends(), 1)) == expected


def test_ready_nodes_take_the_lowest_free_stream_in_ascending_id():
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
    parts = break_down(result)
    assert parts.time_ns_RP.sum(axis=1).tolist() == result.rank_finish_ns.tolist()
    found = dict(zip(parts.parts, parts.time_ns_RP[0].tolist(), strict=True))
    assert (found["compute"], found["send"], found["dim 0"]) == (1000, 0, RING_OF_TWO - 1000)
    assert result.exposed_comm_ns[0] == RING_OF_TWO - 1000


def test_the_later_of_two_overlapping_streams_is_charged_its_tail_only():
    # Sends of 400 and 900 B from tick 0: the first is charged 500, the second 1000 - 500.
    load = workload(
        [send(0, 1, 400), send(1, 1, 900, tag=1)], [recv(0, 0, 400), recv(1, 0, 900, tag=1)]
    )
    parts = break_down(run(load, 2))
    found = dict(zip(parts.parts, parts.time_ns_RP[0].tolist(), strict=True))
    assert found["send"] == 1000
    assert parts.time_ns_RP.sum(axis=1).tolist() == [1000, 1000]


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


def test_the_timeline_has_a_lane_for_every_stream(tmp_path):
    write_timeline(run(three_sends(), 2), tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    lane = {e["name"]: names[e["tid"]] for e in events if e["ph"] == "X" and e["pid"] == 0}
    assert lane == {"n0": "communication", "n1": "communication 2", "n2": "communication"}


@pytest.mark.parametrize("streams", [0, 65])
def test_the_number_of_streams_is_bounded(streams):
    with pytest.raises(ConfigError, match="comm-streams"):
        RunOptions(comm_streams=streams)
