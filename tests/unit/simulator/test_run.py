"""Ticks as CSV and as a timeline."""

import csv
import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried
from random_clusters import random_program
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
    small_cluster,
    system,
    ticks,
    workload,
)
from storage_nodes import storage_attribute

from layerdag.errors import ConfigError, SimulationError
from layerdag.hardware.collectives import CollectiveType
from layerdag.simulator.analysis import breakdown, critical_path
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.compute import MeasuredCompute
from layerdag.simulator.config import (
    Congestion,
    Dimension,
    GroupCollectives,
    MemoryConfig,
    MemoryKind,
    NetworkConfig,
    RunOptions,
    SystemConfig,
    Topology,
)
from layerdag.simulator.run import (
    NODE_COLUMNS,
    PowerLawNoise,
    Variation,
    simulate,
    write_nodes,
    write_timeline,
)
from layerdag.traces.builder import NodeSpec
from layerdag.traces.trace import NodeType

LOAD = workload(
    [comp(9, 2), comp(4, 1, is_cpu_op=True), send(7, 1, 400, (4,))],
    [recv(0, 0, 400), node(1, NodeType.MEM_STORE, (0,), tensor_size=90)],
)
MEMORY = MemoryConfig(MemoryKind.PER_NPU, latency_ns=10, bandwidth_bytes_per_ns=1.0)


def test_nodes_are_rows_by_rank_and_ascending_id(tmp_path):
    result = simulate(LOAD, Cluster(ring(2), system(), memory=MEMORY))
    write_nodes(result, tmp_path / "nodes.csv")
    assert b"\r" not in (tmp_path / "nodes.csv").read_bytes()  # on no system
    with (tmp_path / "nodes.csv").open(newline="") as file:
        head, *rows = csv.reader(file)
    assert tuple(head) == NODE_COLUMNS
    # The store takes 10 + 90 ns after the message of 100 + 400 ns, sent at 1000.
    assert rows == [
        ["0", "4", "4", "0", "1000", "COMP", "n4"],
        ["0", "7", "5", "1000", "1500", "COMM_SEND", "n7"],
        ["0", "9", "4", "0", "2000", "COMP", "n9"],
        ["1", "0", "6", "0", "1500", "COMM_RECV", "n0"],
        ["1", "1", "3", "1500", "1600", "MEM_STORE", "n1"],
    ]


def test_a_timeline_has_a_process_for_each_rank_and_microseconds(tmp_path):
    result = simulate(LOAD, Cluster(ring(2), system(), memory=MEMORY))
    write_timeline(result, tmp_path / "t.json")
    document = json.loads((tmp_path / "t.json").read_text())
    assert document["displayTimeUnit"] == "ns"
    events = document["traceEvents"]
    assert {(e["pid"], e["args"]["name"]) for e in events if e["name"] == "process_name"} == {
        (0, "rank 0"),
        (1, "rank 1"),
    }
    lanes = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    shown = [
        (e["pid"], lanes[e["pid"], e["tid"]], e["name"], e["cat"], e["ts"], e["dur"], e["args"])
        for e in events
        if e["ph"] == "X"
    ]
    assert shown[:2] == [
        (0, "CPU", "n4", "COMP", 0.0, 1.0, {"id": 4, "issue_ns": 0, "finish_ns": 1000}),
        (
            0, "communication", "n7", "COMM_SEND", 1.0, 0.5,
            {"id": 7, "issue_ns": 1000, "finish_ns": 1500},
        ),
    ]  # fmt: skip
    assert [row[1] for row in shown[2:]] == ["compute", "receive", "communication"]


def test_further_streams_are_lanes_after_the_slots(tmp_path):
    options = RunOptions(comm_streams=3)
    sends = [send(id, 1, 400, tag=id) for id in range(3)]
    load = workload(sends, [recv(id, 0, 400, tag=id) for id in range(3)])
    result = simulate(load, Cluster(ring(2), system(), options=options))
    write_timeline(result, tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    lanes = [(e["tid"], e["args"]["name"]) for e in events if e["name"] == "thread_name"][:6]
    assert lanes == [
        (0, "CPU"),
        (1, "compute"),
        (2, "communication"),
        (3, "receive"),
        (4, "communication 2"),
        (5, "communication 3"),
    ]
    used = [e["tid"] for e in events if e["ph"] == "X" and e["pid"] == 0]
    assert used == [2, 4, 5]


def test_nodes_without_a_name_are_called_by_their_id(tmp_path):
    bare = dataclasses.replace(comp(3, 1), name="")
    result = simulate(workload([bare], [bare]), Cluster(ring(2), system()))
    write_timeline(result, tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert {e["name"] for e in events if e["ph"] == "X"} == {"node 3"}


CHARGED = system(local_mem_bw_gb=1.0)


def notes(
    nodes: list[NodeSpec], config: SystemConfig = CHARGED, ranks: int = 2, **more
) -> list[str]:
    load = workload(*[nodes] * ranks)
    network = one_dimension(Topology.SWITCH, ranks)
    found = simulate(load, Cluster(network, config), **more).notes
    return [" ".join(note.split()[:4]) for note in found]


FREE = system()
SWITCHED = system("inNetwork")


@pytest.mark.parametrize(
    ("nodes", "config", "compute", "told"),
    [
        ([comp(0, 1), all_reduce(1, 64, (0,))], CHARGED, None, []),
        ([all_reduce(0, 0)], CHARGED, None, ["a collective of 0"]),  # though it takes time
        ([all_reduce(0, 64)], SWITCHED, None, []),  # charges no rank, so nothing is free
        # Other models are not told of the rules of the reference.
        ([comp(0, 0, duration_ns=7), all_reduce(1, 64, (0,))], FREE, MeasuredCompute(), []),
    ],
)
def test_what_a_run_is_told(nodes, config, compute, told):
    assert notes(nodes, config, compute=compute) == told


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (CollectiveType.ALL_REDUCE, True),
        (CollectiveType.REDUCE_SCATTER, True),
        (CollectiveType.ALL_GATHER, False),
        (CollectiveType.ALL_TO_ALL, False),
    ],
)
def test_free_reductions_are_told_where_something_is_reduced(kind, told):
    nodes = [coll(0, kind, 64)]
    assert notes(nodes, system()) == (["system.json has no local-mem-bw,"] if told else [])
    assert notes(nodes, CHARGED) == []


def test_a_job_of_one_rank_is_told_whatever_the_model():
    for compute in (None, MeasuredCompute()):
        assert notes([comp(0, 1)], ranks=1, compute=compute) == ["the job has one"]


def test_costs_without_durations_run_as_in_the_reference_and_are_told():
    nodes = [comp(0, 0, num_ops=10**9), comp(1, 0, (0,), tensor_size=64)]
    assert notes(nodes) == ["no compute node states"]
    # One duration is enough to know that times were meant.
    assert notes([*nodes, comp(2, 1)]) == []


def complaint(nodes: list[NodeSpec], **more) -> str:
    with pytest.raises(SimulationError) as caught:
        simulate(workload(nodes, [comp(0, 0)]), Cluster(ring(2), system()), **more)
    return str(caught.value)


def test_bare_nodes_are_refused_with_their_number_and_both_remedies():
    told = complaint([comp(0, 0), comp(1, 0, (0,))])
    # Two nodes of rank 0 and one of rank 1.
    assert "none of its 3 compute nodes states a duration" in told
    assert "would take 1 ns" in told
    assert "convert the host trace together with its profile" in told
    assert "give the nodes num_ops and tensor_size and choose a device with --compute" in told


def test_costs_under_measured_times_are_refused_with_the_device_as_remedy():
    told = complaint([comp(0, 0, num_ops=10**9)], compute=MeasuredCompute())
    assert "choose a device with --compute, such as h100, to make times of num_ops" in told
    assert "convert the host trace" not in told


def test_jobs_that_only_communicate_need_no_durations():
    load = workload([send(0, 1, 400)], [recv(0, 0, 400)])
    assert simulate(load, Cluster(ring(2), system())).makespan_ns == 500


@pytest.mark.parametrize("costs", [{"num_ops": 1}, {"tensor_size": 1}])
def test_a_single_operation_or_byte_is_a_cost(costs):
    assert notes([comp(0, 0, **costs), all_reduce(1, 64, (0,))]) == ["no compute node states"]
    with pytest.raises(SimulationError, match="choose a device with --compute, such as h100, to"):
        notes([comp(0, 0, **costs)], compute=MeasuredCompute())


def test_a_cost_of_nothing_is_none():
    with pytest.raises(SimulationError, match="convert the host trace together with its profile"):
        notes([comp(0, 0, num_ops=0, tensor_size=0)], compute=MeasuredCompute())


def test_a_summary_holds_plain_numbers_by_rank():
    nodes = [comp(0, 2), send(1, 1, 400, (0,))]
    result = simulate(workload(nodes, [recv(0, 0, 400)]), Cluster(ring(2), system()))
    summary = json.loads(json.dumps(result.summary()))
    events = summary.pop("events")
    assert "host time" in summary.pop("not_modeled")[0]
    assert summary == {
        "makespan": 2500,
        "finish": {"0": 2500, "1": 2500},
        "exposed_comm": {"0": 500, "1": 2500},
        "compute": {"0": 2000, "1": 0},
        "ranks": 2,
        "nodes": 3,
        "unit": "ns",
        "notes": [],
    }
    assert events == result.outcome.events > 0


def test_rows_of_ranks_lie_end_to_end():
    result = simulate(
        workload([comp(0, 1)], [comp(0, 1), comp(5, 1)], [comp(0, 1)]), Cluster(ring(3), system())
    )
    assert [result.program.rows(rank) for rank in range(3)] == [
        slice(0, 1),
        slice(1, 3),
        slice(3, 4),
    ]
    assert result.nodes(1).id_N.tolist() == [0, 5]
    assert (result.num_ranks, result.num_nodes) == (3, 4)


@given(st.integers(0, 2**32 - 1))
@tried(10)
def test_totals_are_sums_over_nodes(seed):
    program = random_program(seed)
    try:
        result = simulate(program.workload, program.cluster, compute=MeasuredCompute())
    except SimulationError:
        return  # stuck: crossing sends and collectives may wait for each other
    lasted = result.finish_ns - result.issue_ns
    for rank in range(result.num_ranks):
        rows, trace = result.program.rows(rank), program.workload.traces[rank]
        on_cpu = trace.integers("is_cpu_op")[0] != 0
        order = np.argsort(trace.id_N)
        gpu = [
            int(time)
            for time, kind, cpu in zip(
                lasted[rows], trace.type_N[order], on_cpu[order], strict=True
            )
            if kind == NodeType.COMP and not cpu
        ]
        assert result.compute_ns[rank] == sum(gpu)
        assert result.exposed_comm_ns[rank] == result.rank_finish_ns[rank] - sum(gpu)
        assert result.rank_finish_ns[rank] == result.finish_ns[rows].max()
    assert result.makespan_ns == result.finish_ns.max()


def test_time_of_a_shared_trace_counts_for_every_rank_that_runs_it():
    nodes = [comp(0, 3), all_reduce(1, 400, (0,))]
    result = simulate(workload(nodes, nodes, [comp(0, 1), nodes[1]]), Cluster(ring(3), system()))
    assert result.compute_ns.tolist() == [3000, 3000, 1000]
    assert len(result.program.classes) == 2


def test_compute_nodes_of_a_slot_are_issued_one_by_one_in_ascending_id():
    # Two independent nodes of 2 and 3 us share the one compute slot; a CPU node has its own.
    nodes = [comp(4, 3), comp(2, 2), comp(9, 1, is_cpu_op=True)]
    result = simulate(workload(nodes, nodes), Cluster(ring(2), system()))
    assert ticks(result) == [(0, 2000), (2000, 5000), (0, 1000)]
    assert result.exposed_comm_ns.tolist() == [0, 0]
    # 5 is ready from the start, 3 only after 1; when 1 ends both wait, and 3 goes first.
    nodes = [comp(1, 1), comp(3, 1, (1,)), comp(5, 1)]
    result = simulate(workload(nodes, nodes), Cluster(ring(2), system()))
    assert ticks(result) == [(0, 1000), (1000, 2000), (2000, 3000)]


@pytest.mark.parametrize(
    ("topology", "changes", "expected"),
    [
        # All messages of a half are in flight at once: E + T + E, then the second half: T + E.
        (Topology.FULLY_CONNECTED, {"algorithm": "direct"}, [10 + 1100 + 10 + 1100 + 10] * 4),
        # Two hops of 100: messages of 2000, 1000, 1000, 2000 B, E before and after each.
        (Topology.SWITCH, {"algorithm": "halvingDoubling"}, [5 * 10 + 4 * 200 + 6000] * 4),
        # Tree of the first chunk: root 3 - inner 1 - leaves 0 and 2; T = 100 + 4000 = 4100. Leaves
        # send at 10, the inner node has both at 4110, sends up at 4120; the root gets it at 8220,
        # sends down at 8230 and is done; inner 12330 + 10; leaves 12340 + 4100 + 10.
        (Topology.FULLY_CONNECTED, {"algorithm": "doubleBinaryTree"}, [16450, 12340, 16450, 8230]),
        # Two of four chunks side by side.
        (
            Topology.RING,
            {"preferred_dataset_splits": 4, "active_chunks_per_dimension": 2},
            [2 * 2170] * 4,
        ),
    ],
)
def test_an_all_reduce_of_4000_bytes_on_four_ranks_by_hand(topology, changes, expected):
    load = workload(*[[all_reduce(0, 4000)]] * 4)
    result = simulate(load, Cluster(one_dimension(topology, 4), system(**changes)))
    assert finish(result) == expected


@pytest.mark.parametrize(
    ("optimization", "expected"),
    [
        # RS dim 0 (2000 B): 2E + T; AR dim 1 of 2000 B: 3E + 2 x (100 + 1000); AG dim 0.
        ("localBWAware", (20 + 2100) + (30 + 2200) + (20 + 2100)),
        ("baseline", 2 * (30 + 2 * 2100)),  # the full size in every dimension
    ],
)
def test_an_all_reduce_over_two_dimensions(optimization, expected):
    config = system(dimensions=2, collective_optimization=optimization)
    network = NetworkConfig(ring(2).dimensions * 2)
    result = simulate(workload(*[[all_reduce(0, 4000)]] * 4), Cluster(network, config))
    assert finish(result) == [expected] * 4


def test_a_late_rank_holds_up_the_others():
    # Ring reduce-scatter of 2: rank 1 computes 5 us first; both then need its message.
    early = [coll(1, CollectiveType.REDUCE_SCATTER, 2000)]
    late = [comp(0, 5), coll(1, CollectiveType.REDUCE_SCATTER, 2000, (0,))]
    result = simulate(workload(early, late), Cluster(ring(2), system()))
    # Rank 1 finds rank 0's message waiting: E, receive at once, E. Rank 0: 5010 + 1100 + E.
    assert finish(result) == [5010 + 1100 + 10, 5000 + 10 + 10]


def test_a_group_is_a_flat_ring_in_the_order_of_its_file_with_a_fixed_delay():
    # Ranks 0 and 2 of a 4-ring: 2 hops; group delay 10 whatever the endpoint delay (here 50).
    member = [all_reduce(0, 2000, pg_name="7")]
    other = [comp(0, 1)]
    load = workload(member, other, member, other, groups={"7": (2, 0)})
    result = simulate(load, Cluster(ring(4), system(endpoint_delay_ns=50)))
    assert finish(result) == [30 + 2 * (200 + 1000), 1000, 30 + 2 * 1200, 1000]


def test_send_ends_at_arrival_and_receive_when_asked_for():
    # 400 B one hop: arrives at 500. Rank 1 asks at 2000 only and has it at once.
    result = simulate(
        workload([send(0, 1, 400)], [comp(0, 2), recv(1, 0, 400, (0,))]), Cluster(ring(2), system())
    )
    assert finish(result) == [500, 2000]


def test_rendezvous_asks_first():
    # 8192 B + 100 ns for the question, then the message: 8292 + 500.
    load = workload([send(0, 1, 400)], [recv(0, 0, 400)])
    result = simulate(load, Cluster(ring(2), system(), options=RunOptions(rendezvous=True)))
    assert finish(result) == [8792, 8792]


def test_only_the_lowest_differing_dimension_is_charged():
    # Rank 0 -> rank 3 of a 2 x 2: differs in both, dimension 0 (1 B/ns) is charged.
    dims = (Dimension(Topology.RING, 2, 1e9 / 2**30, 100.0), Dimension(Topology.RING, 2, 0.1, 7.0))
    load = workload([send(0, 3, 400)], [comp(0, 1)], [comp(0, 1)], [recv(0, 0, 400)])
    assert simulate(load, Cluster(NetworkConfig(dims), system())).rank_finish_ns[3] == 500


def test_links_are_shared_when_congestion_is_modeled():
    # Ranks 0 and 1 of a switch send 1000 B to rank 2: both are up at 1100, the down link carries
    # one after the other: 2200 and 2100 + 1100.
    load = workload([send(0, 2, 1000)], [send(0, 2, 1000)], [recv(0, 0, 1000), recv(1, 1, 1000)])
    aware = RunOptions(congestion=Congestion.AWARE)
    network = one_dimension(Topology.SWITCH, 3)
    assert finish(simulate(load, Cluster(network, system(), options=aware))) == [2200, 3200, 3200]
    assert finish(simulate(load, Cluster(network, system()))) == [1200, 1200, 1200]


def test_roofline_is_bound_by_memory_or_compute():
    # 1 GB/s and 1 TFLOPS: 1000 ops over 500 B take 500 ns (memory), over 1 B 1 ns (both).
    config = system(roofline_enabled=True, local_mem_bw_gb=1.0, peak_perf_tflops=1.0)
    nodes = [
        comp(0, 9, num_ops=1000, tensor_size=500),
        comp(1, 9, (0,), num_ops=4000, tensor_size=1),
    ]
    result = simulate(workload(nodes, nodes), Cluster(ring(2), config))
    assert ticks(result) == [(0, 500), (500, 504)]


def test_pooled_memory_serves_one_request_at_a_time():
    # 10 ns + 90 B / 1 B/ns = 100 ns; the second rank waits for the first.
    nodes = [node(0, NodeType.MEM_LOAD, tensor_size=90)]
    pool = MemoryConfig(MemoryKind.POOL, latency_ns=10, bandwidth_bytes_per_ns=1.0)
    load = workload(nodes, nodes)
    assert finish(simulate(load, Cluster(ring(2), system(), memory=pool))) == [100, 200]
    own = MemoryConfig(MemoryKind.PER_NPU, latency_ns=10, bandwidth_bytes_per_ns=1.0)
    assert finish(simulate(load, Cluster(ring(2), system(), memory=own))) == [100, 100]


def test_measured_times_keep_nanoseconds():
    nodes = [comp(0, 1, duration_ns=640), comp(1, 3, (0,))]
    load = workload(nodes, nodes)
    result = simulate(load, Cluster(ring(2), system()), compute=MeasuredCompute(scale=0.5))
    assert finish(result) == [320 + 1500] * 2


def test_small_cluster_replays_what_the_model_does_not_know():
    barrier = coll(0, CollectiveType.BARRIER, 0)
    nodes = [barrier, all_reduce(1, 8, (0,), pg_name="1")]
    system, network = small_cluster(2)
    load = workload(nodes, nodes, groups={"1": (0, 1)})
    result = simulate(load, Cluster(network, system))
    # Barrier 1 ns; ring of 2 on a switch: 3 E + 2 T, T = floor(2 x 1000 + 4 B / 26.8 B/ns) = 2000.
    assert finish(result) == [1 + 30 + 4000] * 2


def test_ranks_that_share_a_trace_equal_ranks_that_do_not():
    nodes = [comp(0, 1), all_reduce(1, 4000, (0,)), comp(2, 2)]
    shared = workload(*[nodes] * 4)
    apart = workload(*[[*nodes, comp(10 + rank, 0)] for rank in range(4)])
    left = simulate(shared, Cluster(ring(4), system()))
    right = simulate(apart, Cluster(ring(4), system()))
    assert len(left.program.classes) == 1
    assert len(right.program.classes) == 4
    np.testing.assert_array_equal(
        left.finish_ns.reshape(4, 3), right.finish_ns.reshape(4, 4)[:, :3]
    )


def test_congestion_over_two_dimensions_crosses_them_one_after_the_other():
    # 2 x 2: rank 0 -> 3 goes over dimension 0 to rank 1, then over dimension 1. Each link takes
    # 100 + 400. Rank 1 -> 3 shares the second link, which is busy until 400.
    load = workload(
        [send(0, 3, 400)], [send(0, 3, 400)], [comp(0, 1)], [recv(0, 0, 400), recv(1, 1, 400)]
    )
    network = NetworkConfig(one_dimension(Topology.FULLY_CONNECTED, 2).dimensions * 2)
    options = RunOptions(congestion=Congestion.AWARE_MULTI)
    result = simulate(load, Cluster(network, system(), options=options))
    assert ticks(result, 3) == [(0, 1000), (0, 500)]
    later = workload(
        [send(0, 3, 1000)],
        [comp(0, 1), send(1, 3, 1000, (0,))],
        [comp(0, 1)],
        [recv(0, 0, 1000), recv(1, 1, 1000)],
    )
    # The first is at rank 1 at 1100, when rank 1's own message (from 1000 on) holds the link: it
    # leaves at 2000 and arrives at 3100.
    result = simulate(later, Cluster(network, system(), options=options))
    assert ticks(result, 3) == [(0, 3100), (0, 2100)]


def test_congestion_through_switches_of_two_dimensions():
    # Up and down twice: 4 x (100 + 400).
    network = NetworkConfig(one_dimension(Topology.SWITCH, 2).dimensions * 2)
    load = workload([send(0, 3, 400)], [comp(0, 1)], [comp(0, 1)], [recv(0, 0, 400)])
    options = RunOptions(congestion=Congestion.AWARE_MULTI)
    assert simulate(load, Cluster(network, system(), options=options)).rank_finish_ns[3] == 2000


def test_hierarchical_groups_run_phase_by_phase_in_the_dimensions_they_span():
    # 2 x 2 x 2; the group is the upper half (dimension 2 fixed). As two dimensions of 2 ranks:
    # (2 E + T) + (3 E + 2 T') + (2 E + T) with T = 100 + 2000, T' = 100 + 1000.
    member, other = [all_reduce(0, 4000, pg_name="1")], [comp(0, 1)]
    load = workload(*[other] * 4, *[member] * 4, groups={"1": (4, 5, 6, 7)})
    network = NetworkConfig(ring(2).dimensions * 3)
    config = system(dimensions=3, group_collectives=GroupCollectives.HIERARCHICAL)
    result = simulate(load, Cluster(network, config))
    assert finish(result)[4:] == [2120 + 2230 + 2120] * 4
    # Ranks 0, 1 and 2 span no whole dimensions: a flat ring, as in the reference.
    load = workload(*[member] * 3, *[other] * 5, groups={"1": (0, 1, 2)})
    flat = simulate(load, Cluster(network, system(dimensions=3)))
    assert finish(simulate(load, Cluster(network, config))) == finish(flat)


NODES = [comp(0, 4), all_reduce(1, 2000, (0,))]
FOUR_RANKS = workload(*[NODES] * 4)


def test_a_straggler_slows_its_compute_and_everyone_waits():
    plain = simulate(FOUR_RANKS, Cluster(ring(4), system()))
    slow = simulate(FOUR_RANKS, Cluster(ring(4), system()), variation=Variation({2: 1.5}))
    assert slow.compute_ns.tolist() == [4000, 4000, 6000, 4000]
    assert slow.makespan_ns == plain.makespan_ns + 2000
    assert slow.rank_finish_ns.min() > plain.makespan_ns


def test_noise_depends_on_seed_and_rank_alone():
    noise = PowerLawNoise(exponent=2.5, scale=0.1, seed=3)
    first = simulate(FOUR_RANKS, Cluster(ring(4), system()), variation=Variation(noise=noise))
    again = simulate(FOUR_RANKS, Cluster(ring(4), system()), variation=Variation(noise=noise))
    np.testing.assert_array_equal(first.finish_ns, again.finish_ns)
    assert len(set(first.compute_ns.tolist())) == 4
    assert (first.compute_ns >= 4000).all()
    other = Variation(noise=PowerLawNoise(2.5, 0.1, seed=4))
    assert (
        simulate(FOUR_RANKS, Cluster(ring(4), system()), variation=other).makespan_ns
        != first.makespan_ns
    )


def test_noise_has_the_mean_and_tail_of_its_law():
    factor = PowerLawNoise(exponent=3.0, scale=0.5, seed=0).factors(rank=0, count=200_000)
    assert factor.mean() == pytest.approx(1.25, rel=0.01)
    assert (factor > 1.5).mean() == pytest.approx(2.0**-3, rel=0.03)


@pytest.mark.parametrize("factors", [{4: 2.0}, {0: 0.0}, {0: float("inf")}])
def test_impossible_speeds_are_refused(factors):
    with pytest.raises(ConfigError, match=f"rank {next(iter(factors))}"):
        simulate(FOUR_RANKS, Cluster(ring(4), system()), variation=Variation(factors))


def test_noise_without_a_mean_is_refused():
    with pytest.raises(ConfigError, match="exponent"):
        PowerLawNoise(1.0, 0.1, 0)


def test_nothing_becomes_faster_than_a_nanosecond():
    quick = workload([comp(0, 1)])
    for factor, expected in ((1e-6, 1), (0.001, 1), (0.0025, 2), (1.0, 1000)):
        found = simulate(quick, Cluster(ring(1), system()), variation=Variation({0: factor}))
        assert found.compute_ns.tolist() == [expected]


@pytest.mark.parametrize(("ranks", "ticks"), [(64, 4037238), (32, 3973212), (16, 3845089)])
def test_halving_doubling_of_an_odd_size_takes_the_ticks_of_the_reference(ranks, ticks):
    # Recorded from ASTRA-sim: one chunk whose size 2n does not divide.
    nodes = [comp(0, 1), all_reduce(1, 2_201_321, (0,))]
    network = NetworkConfig.single(Topology.FULLY_CONNECTED, ranks, 1.0, 0.0)
    cluster = Cluster(network, SystemConfig.uniform("halvingDoubling"))
    assert simulate(workload(*[nodes] * ranks), cluster).makespan_ns == ticks


def test_flat_rings_beside_a_slower_dimension_are_told_and_are_the_references_way():
    member, other = [comp(0, 1), all_reduce(1, 4000, (0,), pg_name="1")], [comp(0, 1)]
    load = workload(*[member] * 4, *[other] * 4, groups={"1": (0, 1, 2, 3)})
    fast, slow = Dimension(Topology.RING, 2, 50.0, 500.0), Dimension(Topology.RING, 4, 1.0, 500.0)
    cluster = Cluster(NetworkConfig((fast, slow)), SystemConfig.uniform("ring", 2))
    grid = simulate(load, cluster)
    flat = simulate(load, cluster, reference_semantics=True)
    assert grid.makespan_ns > flat.makespan_ns
    told = [note for note in flat.notes if "bandwidth of dimension 1 has no effect" in note]
    assert len(told) == 1
    assert told[0].startswith("4 collectives of groups that span dimension 1 (16,000 bytes)")
    assert not any("no effect" in note for note in grid.notes)


@pytest.mark.parametrize("kind", [99, 1000])
def test_a_collective_that_does_not_exist_is_refused_on_a_preset_too(kind):
    load = workload(*[[coll(0, kind, 8)]] * 2)
    with pytest.raises(SimulationError, match=f"comm_type {kind}.*which the model does not know"):
        simulate(load)


def test_a_factor_that_no_clock_holds_is_refused():
    with pytest.raises(ConfigError, match=r"a compute node would take 4e.* at most 1e15 ns"):
        simulate(FOUR_RANKS, Cluster(ring(4), system()), variation=Variation({0: 1e300}))


@pytest.mark.parametrize(("name", "value"), [("num_ops", -5), ("tensor_size", -1)])
def test_negative_costs_are_refused(name, value):
    costs = {"num_ops": 8, "tensor_size": 8, name: value}
    with pytest.raises(SimulationError, match=f"compute node 0 has {name} {value}; correct it"):
        simulate(workload([comp(0, 1, **costs)]), compute="h100")


def test_number_formats_have_their_rates_and_unknown_ones_are_told():
    def run(dtype):
        costs = {"num_ops": 10**12, "tensor_size": 8, "dtype": dtype}
        return simulate(workload([comp(0, 1, **costs)]), compute="h100")

    half, eight = run("bfloat16"), run("c10::Float8_e4m3fn")
    assert half.makespan_ns == pytest.approx(2 * eight.makespan_ns, rel=0.01)
    assert not any("formats" in note for note in eight.notes)
    assert any("'posit16' of compute nodes are not known" in n for n in run("posit16").notes)


def test_what_is_of_a_cpu_or_takes_no_time_is_told():
    on_cpu = [comp(0, 1, device="cpu"), node(1, NodeType.INVALID)]
    result = simulate(workload(on_cpu))
    assert breakdown(result).time_ns_RP.sum() == result.makespan_ns
    notes = " ".join(result.notes)
    assert "those of the CPU on which the trace was recorded" in notes
    assert "nodes of type INVALID take no time, as in the reference (1 of them)" in notes
    on_both = [comp(0, 1, device="cpu"), comp(1, 1, device="cuda")]
    assert not any("of the CPU" in n for n in simulate(workload(on_both)).notes)


def test_operations_on_storage_take_their_bytes_over_a_bandwidth_or_their_recorded_time():
    read = NodeSpec(
        0, "read", NodeType.STORAGE, duration_us=7,
        attributes=(storage_attribute("fs.read", 2_000_000),),
    )  # fmt: skip
    flush = NodeSpec(
        1, "flush", NodeType.STORAGE, data_deps=(0,), duration_us=3,
        attributes=(storage_attribute("block.flush"),),
    )  # fmt: skip
    load = workload([read, flush, comp(2, 1, (1,)), node(3, NodeType.CHECKPOINT, (2,), 99)])
    recorded = simulate(load)
    assert recorded.makespan_ns == 7000 + 3000 + 1000
    # Unlike skipped nodes of the reference, what spans others lets them start.
    spanned = [node(0, NodeType.BATCH), node(1, NodeType.CHECKPOINT, (0,)), comp(2, 1, (1,))]
    assert critical_path(simulate(workload(spanned)))[-1].row == 2
    assert simulate(workload(spanned)).makespan_ns == 1000
    told = " ".join(recorded.notes)
    assert "recorded durations (2 of them); state storage-bw" in told
    assert "span a batch or a checkpoint take no time of their own (1 of them)" in told
    system = dataclasses.replace(SystemConfig.uniform(), storage_bw_gb=2.0)
    cluster = Cluster(NetworkConfig.single(Topology.RING, 1), system)
    fast = simulate(load, cluster, compute="measured")
    assert fast.makespan_ns == 1_000_000 + 3000 + 1000
    parts = breakdown(fast)
    assert parts.time_ns_RP[0, parts.parts.index("storage")] == 1_003_000
    assert not any("storage-bw" in note for note in fast.notes)
