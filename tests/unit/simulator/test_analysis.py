"""Breakdown, critical path and sensitivities of runs small enough to check by hand."""

import dataclasses
import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
import slow_simulator
from hypothesis import given, strategies as st
from laws import tried
from random_clusters import random_program
from simulator_traces import all_reduce, comp, node, recv, ring, send, system, ticks, workload

from layerdag.cli.main import main
from layerdag.errors import SimulationError
from layerdag.simulator.analysis import (
    LocalMemory,
    breakdown,
    by_kind,
    by_node,
    critical_path,
    local_memory,
)
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.compute import SKIPPED, MeasuredCompute, ReferenceCompute, ScaledCompute
from layerdag.simulator.config import MemoryConfig, MemoryKind, NetworkConfig, RunOptions
from layerdag.simulator.lowering import Slot
from layerdag.simulator.run import SimulationResult, Variation, simulate
from layerdag.traces.builder import NodeSpec, build_trace
from layerdag.traces.chakra.workload import write_workload
from layerdag.traces.trace import Attribute, NodeType, Wire, Workload


def test_breakdown_separates_waiting_in_receives_and_cpu_work():
    # Rank 1 waits for a message that leaves at 2000 and takes 500; its CPU works for 1 us.
    first = [comp(0, 2), send(1, 1, 400, (0,))]
    second = [recv(0, 0, 400), comp(1, 1, is_cpu_op=True)]
    parts = breakdown(simulate(workload(first, second), Cluster(ring(2), system())))
    assert parts.parts == ("compute", "send", "cpu", "receive", "idle")
    assert parts.time_ns_RP.tolist() == [[2000, 500, 0, 0, 0], [0, 0, 1000, 1500, 0]]


def test_critical_path_follows_a_receive_to_its_sender_and_a_slot_to_its_holder():
    first = [comp(0, 2), comp(1, 3), send(2, 1, 400, (1,))]
    second = [recv(0, 0, 400), comp(1, 1, (0,))]
    result = simulate(workload(first, second), Cluster(ring(2), system()))
    path = critical_path(result)
    found = [(node.rank, node.row, node.reason) for node in path]
    assert found == [(0, 0, "start"), (0, 1, "slot"), (0, 2, "dependency"), (1, 1, "dependency")]


def test_sensitivities_name_what_helps():
    nodes = [comp(0, 1), all_reduce(1, 200_000, (0,))]
    cluster = Cluster(ring(2), system(), MemoryConfig(), RunOptions())
    found = simulate(workload(nodes, nodes), cluster, what_if=True).what_if
    assert [entry.change for entry in found] == [
        "as given",
        "compute +10 %",
        "dim 0 bandwidth +10 %",
        "dim 0 latency -10 %",
    ]
    base = found[0].makespan_ns
    # Compute 1000 -> 909 ns; two messages 100 us -> 100000 / 1.1 each; latency 100 -> 90, twice.
    assert [entry.makespan_ns - base for entry in found] == [0, -91, -2 * 9091 + 0, -20]


COUNTED = ("compute", "communication", "memory", "cpu", "receive")
"""What a tick of a rank counts for: the first of these that runs."""


def kinds(result: SimulationResult, rank: int) -> list[str]:
    """Return what each node of a rank counts as; "" for nodes that take no time of their own."""
    found = []
    nodes = result.nodes(rank)
    for kind, slot in zip(nodes.type_N.tolist(), nodes.slot_N.tolist(), strict=True):
        if kind in (NodeType.MEM_LOAD, NodeType.MEM_STORE):
            found.append("memory")
        elif kind == NodeType.COMM_RECV:
            found.append("receive")
        else:
            names = {Slot.CPU: "cpu", Slot.COMPUTE: "compute", Slot.COMM: "communication"}
            found.append(names.get(Slot(slot), ""))
    return found


def random_result(seed: int) -> SimulationResult | None:
    """Return a complete random run, None where its ranks wait for each other."""
    program = random_program(seed)
    try:
        return simulate(program.workload, program.cluster, compute=MeasuredCompute())
    except SimulationError:
        return None


@given(st.integers(0, 2**32 - 1))
@tried(10)
def test_every_tick_counts_once_for_the_first_of_what_runs(seed):
    result = random_result(seed)
    if result is None:
        return
    parts = breakdown(result)
    for rank in range(result.num_ranks):
        rows = result.program.rows(rank)
        columns = (result.issue_ns[rows].tolist(), result.finish_ns[rows].tolist())
        spans = list(zip(*columns, kinds(result, rank), strict=True))
        end = int(result.rank_finish_ns[rank])
        slow = slow_simulator.exposed(spans, COUNTED, end)
        found = dict(zip(parts.parts, parts.time_ns_RP[rank].tolist(), strict=True))
        single = {"compute", "memory", "cpu", "receive", "idle"}
        communication = sum(time for part, time in found.items() if part not in single)
        assert communication == slow.get("communication", 0)
        assert all(found.get(part, 0) == slow.get(part, 0) for part in single)
        assert sum(found.values()) == end


def test_parts_of_communication_are_named_by_what_they_are():
    # A send 0-500, then an all-reduce of 2000 B in 2230 ns, then a load of 10 + 90 ns.
    nodes = [
        send(0, 1, 400),
        all_reduce(1, 2000, (0,)),
        node(2, NodeType.MEM_LOAD, (1,), tensor_size=90),
    ]
    other = [node(0, NodeType.COMM_RECV, comm_src=0, comm_size=400, comm_tag=0), nodes[1]]
    memory = MemoryConfig(MemoryKind.PER_NPU, latency_ns=10, bandwidth_bytes_per_ns=1.0)
    result = simulate(workload(nodes, other), Cluster(ring(2), system(), memory=memory))
    parts = breakdown(result)
    assert parts.parts == ("compute", "dim 0", "send", "memory", "receive", "idle")
    assert parts.time_ns_RP.tolist() == [[0, 2230, 500, 100, 0, 0], [0, 2230, 0, 0, 500, 0]]


def test_collectives_that_are_not_simulated_count_as_replayed():
    nodes = [node(0, NodeType.COMM_COLL, (), 3, comm_type=1, comm_size=8)]
    replayed = simulate(workload(nodes, nodes), Cluster(ring(2), system(replay_only=True)))
    assert breakdown(replayed).parts == ("compute", "replayed", "idle")
    assert breakdown(replayed).time_ns_RP.tolist() == [[0, 3000, 0]] * 2


@pytest.mark.parametrize(
    ("members", "part"), [((1, 5), "dim 1"), ((1, 2), "dim 0"), ((0, 7), "dim 0")]
)
def test_messages_of_a_group_are_charged_to_the_first_dimension_they_cross(members, part):
    # A network of 4 x 2 ranks: ranks 1 and 5 have the same place in the first dimension.
    calls, idle = [all_reduce(0, 2000, pg_name="1")], [comp(0, 1)]
    ranks = [calls if rank in members else idle for rank in range(8)]
    network = NetworkConfig((*ring(4).dimensions, *ring(2).dimensions))
    cluster = Cluster(network, system(dimensions=2))
    parts = breakdown(simulate(workload(*ranks, groups={"1": members}), cluster)).parts
    assert [name for name in parts if name.startswith("dim")] == [part]


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


def test_a_kind_is_what_a_node_states_and_else_its_name():
    stated = Attribute("op_type", Wire.STRING, "M")
    nodes = [
        replace(comp(0, 2), name="mb0.stack@1_COMP", attributes=(*comp(0, 2).attributes, stated)),
        replace(comp(1, 3, (0,)), name="mm.3.forward"),
    ]
    result = run(workload(nodes, [comp(0, 1)]))
    assert by_kind(result, critical_path(result)) == {"mm.3.forward": 3000, "M": 2000}


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


Spans = list[tuple[int, int]]


def tensors(inputs: tuple[str, ...], outputs: tuple[str, ...]) -> tuple[Attribute, ...]:
    lists = (("inputs", inputs), ("outputs", outputs))
    return tuple(Attribute(name, Wire.STRING + 1, value) for name, value in lists)


def layer(id: int, deps: tuple[int, ...], reads: str, writes: str) -> NodeSpec:
    """Return a node of 1 us; tensors are written "name:bytes name:bytes"."""
    words = [tuple(text.replace(":", " ").split()) for text in (reads, writes)]
    return NodeSpec(**{**vars(comp(id, 1, deps)), "attributes": tensors(*words)})


# ticks          0..1000   1000..2000   2000..3000
# w  (weight)      10         10           10        not written: always there
# a               100        100                     written by 0, read by 1
# b                           30           30        written by 1, read by 2
# c                                         5        written by 2, read by none: stays
CHAIN = [
    layer(0, (), "w:10", "a:100"),
    layer(1, (0,), "a:100.0", "b:30"),
    layer(2, (1,), "b:30 w:10", "c:5"),
]


def run_memory(*ranks: list[NodeSpec]) -> LocalMemory:
    result = simulate(workload(*ranks), Cluster(ring(len(ranks)), system()))
    return local_memory(result)


def test_tensors_live_to_their_last_reader_and_without_lists_while_the_node_runs():
    memory = run_memory(CHAIN, CHAIN[:1])
    assert memory.peak_bytes_R.tolist() == [140, 110]
    assert memory.peak_ns_R.tolist() == [1000, 0]
    assert memory.listed_R.tolist() == [1.0, 1.0]
    memory = run_memory([comp(0, 1, tensor_size=70), comp(1, 1, (0,), tensor_size=90)], CHAIN[:1])
    assert memory.peak_bytes_R.tolist() == [90, 110]
    assert memory.listed_R.tolist() == [0.0, 1.0]
    assert "a lower bound" in memory.line()


def test_lists_that_are_no_pairs_are_errors():
    for wrong in ("w", "w:-1", "w:many", "w:nan"):
        with pytest.raises(SimulationError, match=r"node 0 has an attribute 'inputs'"):
            run_memory([layer(0, (), wrong, "")], CHAIN)


def test_capacity_is_an_error_or_a_warning(tmp_path, capsys):
    write_workload(workload(CHAIN, CHAIN), tmp_path / "w")
    words = ["simulate", f"--workload={tmp_path / 'w'}", "--preset=small", "--json"]
    assert main([*words, "--report"]) == 0
    assert json.loads(capsys.readouterr().out)["peak_memory_bytes"] == {"0": 140, "1": 140}
    assert main([*words, "--memory-capacity=1e-7"]) == 1
    assert "more than the capacity of 100 bytes" in capsys.readouterr().err
    assert main([*words, "--memory-capacity=nan"]) == 2
    assert "--memory-capacity is nan" in capsys.readouterr().err
    assert main([*words, "--memory-capacity=1e-7", "--over-capacity=warn"]) == 0
    told = capsys.readouterr()
    assert "warning: rank 0" in told.err
    assert json.loads(told.out)["peak_memory_at"]["1"] == 1000


def slow_peak(nodes: list[tuple[NodeSpec, dict[str, int], dict[str, int]]], spans: Spans) -> int:
    """Return the peak by adding up what is live at every start of a tensor.

    Args:
        nodes: Nodes in ascending id, with the tensors that each reads and writes.
        spans: (issue, finish) of each node.
    """
    end = max(finish for _, finish in spans)
    live = []
    for name in {name for _, *lists in nodes for tensors in lists for name in tensors}:
        readers = [row for row, (_, reads, _) in enumerate(nodes) if name in reads]
        writers = [row for row, (_, _, writes) in enumerate(nodes) if name in writes]
        made = bool(writers) and (not readers or writers[0] < readers[0])
        start = spans[writers[0]][0] if made else 0
        stop = max(spans[row][1] for row in readers + writers) if made and readers else end
        size = max(tensors.get(name, 0) for _, *lists in nodes for tensors in lists)
        live.append((start, stop, size))
    return max(
        sum(size for start, stop, size in live if start <= time < stop) for time, _, _ in live
    )


def some_tensors(rng: np.random.Generator) -> dict[str, int]:
    """Return a few of five tensors; a tensor may be stated with two sizes."""
    names = rng.permutation(5)[: int(rng.integers(1, 4))].tolist()
    return {f"t{name}": 10**name * int(rng.integers(1, 3)) for name in names}


@given(st.integers(0, 2**32 - 1))
@tried(20)
def test_the_peak_is_that_of_a_count_at_every_event(seed):
    rng = np.random.default_rng(seed)
    nodes = []
    for id in range(int(rng.integers(1, 7))):
        deps = tuple(sorted(rng.permutation(id)[: int(rng.integers(2))].tolist()))
        plain = comp(id, int(rng.integers(1, 4)), deps, is_cpu_op=bool(rng.integers(2)))
        lists = some_tensors(rng), some_tensors(rng)
        flat = [tuple(str(w) for pair in part.items() for w in pair) for part in lists]
        attributes = (*plain.attributes, *tensors(*flat))
        nodes.append((dataclasses.replace(plain, attributes=attributes), *lists))
    result = simulate(workload([spec for spec, *_ in nodes]), Cluster(ring(1), system()))
    memory = local_memory(result)
    assert memory.peak_bytes_R.tolist() == [slow_peak(nodes, ticks(result))]


def test_nodes_that_state_no_bytes_or_are_skipped_hold_nothing():
    assert run_memory([node(0, NodeType.INVALID, tensor_size=8)], CHAIN).peak_bytes_R.tolist() == [
        0,
        140,
    ]
    assert run_memory([comp(0, 1), comp(1, 1, (0,))]).peak_bytes_R.tolist() == [0]
    assert run_memory([comp(0, 1, tensor_size=7), comp(1, 1, (0,))]).peak_bytes_R.tolist() == [7]


def test_memory_is_summed_up_by_rank_with_the_highest_peak():
    big = [comp(0, 1, tensor_size=2_500_000_000)]
    line = run_memory(CHAIN, big).line()
    assert line.startswith("peak local memory 2.500 GB on rank 1, a lower bound (50% of nodes")
    assert "lower bound" not in run_memory(CHAIN).line()
    memory = run_memory(CHAIN, CHAIN[:1])
    assert memory.summary() == {
        "peak_memory_bytes": {"0": 140, "1": 110},
        "peak_memory_at": {"0": 1000, "1": 0},
        "nodes_with_tensors": {"0": 1.0, "1": 1.0},
    }
    assert memory.over(140) == ""
    assert "rank 0 holds 140 bytes at 1000 ns" in memory.over(139)
    assert "(2 of 2 ranks exceed it)" in memory.over(100)
    assert "more than the capacity of 100 bytes" in memory.over(100)


@pytest.mark.parametrize(
    ("size", "allowed"), [("0", True), (str(2**61), True), (str(2**62), False), ("-1", False)]
)
def test_a_tensor_has_less_than_two_to_the_62_bytes(size, allowed):
    nodes = [layer(0, (), f"w:{size}", "a:1")]
    if allowed:
        assert run_memory(nodes).peak_bytes_R.tolist() == [int(size) + 1]
        return
    with pytest.raises(SimulationError, match="node 0 has an attribute 'inputs' that is no string"):
        run_memory(nodes)


def gains(load, cluster, **more) -> dict[str, float]:
    return {
        entry.change: entry.gain for entry in simulate(load, cluster, what_if=True, **more).what_if
    }


def test_a_job_that_only_computes_gains_from_compute_alone():
    found = gains(workload([comp(0, 11)], [comp(0, 11)]), Cluster(ring(2), system()))
    assert found["compute +10 %"] == pytest.approx(1 / 11)
    assert {change for change, gain in found.items() if gain} == {"compute +10 %"}


def test_every_dimension_has_a_row_for_bandwidth_and_latency():
    nodes = [all_reduce(0, 100_000)]
    network = NetworkConfig(ring(2).dimensions * 2)
    rows = simulate(
        workload(*[nodes] * 4), Cluster(network, system(dimensions=2)), what_if=True
    ).what_if
    assert [row.change for row in rows] == [
        "as given",
        "compute +10 %",
        "dim 0 bandwidth +10 %",
        "dim 0 latency -10 %",
        "dim 1 bandwidth +10 %",
        "dim 1 latency -10 %",
    ]
    # Dimension 0 scatters and gathers twice what dimension 1 reduces, in messages of equal latency.
    assert rows[2].gain > rows[4].gain > 0
    assert rows[3].gain == pytest.approx(rows[5].gain)
    for row in rows:
        assert row.gain == (rows[0].makespan_ns - row.makespan_ns) / rows[0].makespan_ns


def test_ranks_that_differ_in_speed_differ_in_every_run():
    nodes = [comp(0, 10), all_reduce(1, 200, (0,))]
    slow = simulate(
        workload(nodes, nodes),
        Cluster(ring(2), system()),
        variation=Variation({1: 2.0}),
        what_if=True,
    ).what_if
    assert slow[0].makespan_ns == 20_000 + 30 + 2 * 200
    assert slow[1].makespan_ns == 2 * 9090 + 30 + 2 * 200


def test_another_compute_model_is_kept():
    nodes = [comp(0, 1, duration_ns=550)]
    cluster = Cluster(ring(2), system())
    rows = simulate(
        workload(nodes, nodes), cluster, compute=MeasuredCompute(), what_if=True
    ).what_if
    assert [row.makespan_ns for row in rows[:2]] == [550, 500]


def test_scaled_times_are_floored_and_at_least_1_ns_and_skipped_nodes_stay_skipped():
    roofline = system(roofline_enabled=True, local_mem_bw_gb=1.0, peak_perf_tflops=1.0)
    trace = build_trace(
        [
            comp(0, 0, num_ops=1000, tensor_size=0),
            comp(1, 0, num_ops=1, tensor_size=1),
            comp(2, 0, num_ops=5, tensor_size=15),
        ]
    )
    rows, on_cpu = np.arange(3), np.zeros(3, dtype=bool)
    scaled = ScaledCompute(ReferenceCompute(roofline), 0.5)
    assert scaled.durations_ns(trace, rows, on_cpu).tolist() == [SKIPPED, 1, 7]


def test_a_run_of_no_time_gains_nothing():
    nodes = [node(0, NodeType.INVALID)]
    load = workload(nodes, nodes)
    assert simulate(load, Cluster(ring(2), system())).makespan_ns == 0
    assert set(gains(load, Cluster(ring(2), system())).values()) == {0.0}
