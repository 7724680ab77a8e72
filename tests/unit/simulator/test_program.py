"""Whichever allocation of the kernel fails, the run is refused and every block is given back."""

import ctypes
import dataclasses
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from simulator_traces import (
    all_reduce,
    coll,
    comp,
    node,
    one_dimension,
    recv,
    ring,
    send,
    system,
    workload,
)
from symbolic_jobs import GPT, LLAMA, small

from layerdag.codec.placement import RankTraces
from layerdag.errors import ConfigError, SimulationError
from layerdag.hardware.collectives import CollectiveType
from layerdag.simulator import event_loop as kernel
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
from layerdag.simulator.event_loop import Method
from layerdag.simulator.program import LoweredProgram, endpoint_delay, lower
from layerdag.simulator.run import Variation, simulate
from layerdag.traces.builder import build_trace
from layerdag.traces.chakra.workload import read_workload, write_workload
from layerdag.traces.trace import NodeType, Trace, Workload

NATIVE = Path(__file__).resolve().parents[3] / "native" / "sim"
HEADER = """
#include <stdlib.h>
void *counted(void *old, size_t size, int zeroed);
void given_back(void *block);
#define malloc(size) counted(0, size, 0)
#define calloc(count, size) counted(0, (count) * (size), 1)
#define realloc(old, size) counted(old, size, 0)
#define free(block) given_back(block)
"""
COUNTER = """
#include <stdlib.h>
#include <string.h>
long allocations, held, fail_at;
void *counted(void *old, size_t size, int zeroed) {
    if (++allocations == fail_at) return 0;
    void *block = realloc(old, size);
    if (!old) held++;
    if (zeroed) memset(block, 0, size);
    return block;
}
void given_back(void *block) {
    held -= block != 0;
    free(block);
}
"""


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Return the kernel built with counted allocations."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler to build the kernel with counted allocations")
    folder = tmp_path_factory.mktemp("kernel")
    (folder / "counted.h").write_text(HEADER)
    (folder / "counter.c").write_text(COUNTER)
    sources = [str(path) for path in sorted(NATIVE.glob("*.c"))]
    common = [compiler, "-std=c11", "-fPIC", "-c", "-O0"]
    subprocess.run(
        [*common, "-include", str(folder / "counted.h"), *sources], cwd=folder, check=True
    )
    subprocess.run([*common, "counter.c"], cwd=folder, check=True)
    objects = sorted(path.name for path in folder.glob("*.o"))
    subprocess.run([compiler, "-shared", "-o", "kernel.so", *objects], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "kernel.so"))


def program(described: SystemConfig) -> LoweredProgram:
    """Return four ranks on a switch that compute, all-reduce and scatter."""
    scatter = coll(2, CollectiveType.REDUCE_SCATTER, 4000, (1,))
    nodes = [comp(0, 1), all_reduce(1, 4000, (0,)), scatter]
    cluster = Cluster(one_dimension(Topology.SWITCH, 4), described, MemoryConfig(), RunOptions())
    return lower(workload(*[nodes] * 4), cluster, MeasuredCompute())


@pytest.mark.parametrize("method", Method)
@pytest.mark.parametrize("algorithm", ["ring", "direct", "halvingDoubling", "inNetwork"])
def test_nothing_is_lost_whichever_allocation_fails(counting, monkeypatch, method, algorithm):
    monkeypatch.setattr(kernel, "library", lambda: counting)
    allocations, held, fail_at = (
        ctypes.c_long.in_dll(counting, name) for name in ("allocations", "held", "fail_at")
    )
    job = program(system(algorithm, reduce_scatter=(algorithm,)))
    allocations.value = held.value = fail_at.value = 0
    kernel.run_with(job, method)
    total = allocations.value
    assert total > 10
    assert held.value == 0
    for at in range(1, total + 1):
        allocations.value, fail_at.value = 0, at
        with pytest.raises(SimulationError, match="ran out of memory"):
            kernel.run_with(job, method)
        assert held.value == 0, f"allocation {at} of {total}"


def test_ranks_of_one_trace_share_its_columns():
    same, other = [comp(0, 1), comp(1, 1)], [comp(0, 2)]
    program = lower(workload(same, other, same), Cluster(ring(3), system()), MeasuredCompute())
    assert program.class_of_rank.tolist() == [0, 1, 0]
    assert program.out_ptr.tolist() == [0, 2, 3, 5]
    assert program.of_rank(2) is program.of_rank(0)


@pytest.mark.parametrize("npus", [2, 4])
def test_a_network_of_another_size_is_refused_with_both_numbers(npus):
    with pytest.raises(ConfigError) as caught:
        simulate(workload(*[[comp(0, 1)]] * 3), Cluster(ring(npus), system()))
    told = str(caught.value)
    assert f"the network has {npus} NPUs but" in told
    assert "traces of 3 ranks; change npus_count or give one trace per rank" in told


def aware(network: NetworkConfig, congestion: Congestion = Congestion.AWARE) -> int:
    options = RunOptions(congestion=congestion)
    load = workload(*[[comp(0, 1)]] * network.num_npus)
    return simulate(load, Cluster(network, system(), options=options)).makespan_ns


def test_congestion_of_the_reference_knows_one_dimension_and_a_ring_of_three():
    two = NetworkConfig(one_dimension(Topology.SWITCH, 2).dimensions * 2)
    with pytest.raises(ConfigError, match="supports one dimension, the network has 2; use --cong"):
        aware(two)
    assert aware(two, Congestion.AWARE_MULTI) == 1000
    assert aware(one_dimension(Topology.SWITCH, 4)) == 1000
    with pytest.raises(ConfigError, match="Ring of at least 3 NPUs; use FullyConnected for 2"):
        aware(ring(2))
    assert aware(ring(3)) == 1000
    assert aware(one_dimension(Topology.FULLY_CONNECTED, 2)) == 1000


def test_memories_of_a_node_serve_their_own_ranks_only():
    # Four ranks, two memories: ranks 0 and 1 wait for each other, as do 2 and 3.
    nodes = [node(0, NodeType.MEM_LOAD, tensor_size=90)]
    memory = MemoryConfig(MemoryKind.PER_NODE, 10, 1.0, npus_per_node=2, num_nodes=2)
    result = simulate(workload(*[nodes] * 4), Cluster(ring(4), system(), memory))
    assert result.finish_ns.tolist() == [100, 200, 100, 200]


@pytest.mark.parametrize(("per_node", "num_nodes", "needed"), [(2, 1, 2), (3, 1, 2), (1, 3, 4)])
def test_memories_that_do_not_suffice_are_refused_with_the_number_needed(
    per_node, num_nodes, needed
):
    nodes = [node(0, NodeType.MEM_LOAD, tensor_size=90)]
    memory = MemoryConfig(MemoryKind.PER_NODE, 10, 1.0, per_node, num_nodes)
    with pytest.raises(ConfigError) as caught:
        simulate(workload(*[nodes] * 4), Cluster(ring(4), system(), memory))
    told = str(caught.value)
    assert f"num-nodes is {num_nodes}, but 4 ranks" in told
    assert f"{per_node} are {needed} nodes; enlarge one of them" in told
    # Jobs that use no remote memory do not ask for it.
    computing = workload(*[[comp(0, 1)]] * 4)
    assert simulate(computing, Cluster(ring(4), system(), memory)).makespan_ns == 1000


@pytest.mark.parametrize(
    ("given", "scale", "expected"),
    [(None, 0.0, 10), (None, 3.0, 10), (7, 1.0, 7), (7, 0.5, 3), (7, 0.0, 0), (0, 9.0, 0)],
)
def test_a_stated_endpoint_delay_is_scaled_and_rounded_down(given, scale, expected):
    options = RunOptions(injection_scale=scale)
    cluster = Cluster(ring(2), system(endpoint_delay_ns=given), options=options)
    assert endpoint_delay(cluster) == expected


def test_varied_ranks_get_columns_of_their_own_and_others_keep_sharing():
    nodes = [comp(0, 4), all_reduce(1, 64, (0,))]
    result = simulate(
        workload(*[nodes] * 4), Cluster(ring(4), system()), variation=Variation({1: 0.5, 2: 0.5})
    )
    program = result.program
    assert program.of_rank(0) is program.of_rank(3)
    assert len({id(program.of_rank(rank)) for rank in range(4)}) == 3
    assert result.compute_ns.tolist() == [4000, 2000, 2000, 4000]
    # The collective keeps its group, plan and size: only compute changes.
    np.testing.assert_array_equal(program.of_rank(1).peer_N, program.of_rank(0).peer_N)


PLANS = (
    {"tensor": 2, "data": 2, "pipeline": 3, "micro_batches": 4},
    {"tensor": 4, "data": 2, "sequence_parallel": True, "zero": 3},
    {"data": 4, "pipeline": 2, "schedule": "gpipe"},
)


def _alone(workload: Workload) -> Workload:
    """Return the workload with columns that no two ranks share."""
    traces = [dataclasses.replace(t, id_N=t.id_N.copy()) for t in workload.traces]
    return dataclasses.replace(workload, traces=tuple(traces))


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("shape", [GPT, LLAMA])
def test_sharing_changes_no_tick_and_no_node(shape, plan):
    workload = small(shape, **plan).workload()
    cluster = Cluster("small")
    shared = simulate(workload, cluster, compute="h100")
    alone = simulate(_alone(workload), cluster, compute="h100")
    assert len(shared.program.classes) == plan.get("pipeline", 1)
    assert len(alone.program.classes) == workload.num_ranks
    np.testing.assert_array_equal(shared.issue_ns, alone.issue_ns)
    np.testing.assert_array_equal(shared.finish_ns, alone.finish_ns)
    for rank in range(workload.num_ranks):
        mine, theirs = shared.nodes(rank), alone.nodes(rank)
        for column in ("peer_N", "tag_N", "cost_N", "kind_N"):
            messages = getattr(mine, column), getattr(theirs, column)
            if column == "peer_N":  # of collectives it is the number of a plan
                ends = np.isin(mine.kind_N, (2, 3))
                messages = messages[0][ends], messages[1][ends]
            np.testing.assert_array_equal(*messages)


def test_ranks_read_from_files_share_a_class(tmp_path):
    workload = small(LLAMA, **PLANS[0]).workload()
    write_workload(workload, tmp_path / "w")
    result = simulate(read_workload(tmp_path / "w"), Cluster("small"), compute="h100")
    assert len(result.program.classes) == 3
    made = simulate(workload, Cluster("small"), compute="h100")
    np.testing.assert_array_equal(result.finish_ns, made.finish_ns)


def test_every_stage_of_a_long_pipeline_is_lowered_once(tmp_path):
    shape = dataclasses.replace(GPT, layers=24)
    write_workload(small(shape, data=2, pipeline=12).workload(), tmp_path / "w")
    result = simulate(read_workload(tmp_path / "w"), Cluster("small"), compute="h100")
    assert len(result.program.classes) == 12


def test_ranks_of_a_shared_class_may_differ_in_speed():
    workload = small(LLAMA, **PLANS[0]).workload()
    variation = Variation({1: 3.0, 5: 0.5})
    cluster = Cluster("small")
    shared = simulate(workload, cluster, compute="h100", variation=variation)
    alone = simulate(_alone(workload), cluster, compute="h100", variation=variation)
    np.testing.assert_array_equal(shared.finish_ns, alone.finish_ns)


def test_described_ranks_whose_groups_lie_otherwise_in_the_network_are_lowered_apart():
    program = build_trace([comp(0, 5), all_reduce(1, 4096, (0,), pg_name="pairs")])
    pairs = np.array([[0, 1], [2, 4], [3, 5], [6, 7]])
    traces = RankTraces([program], np.zeros(8, dtype=np.int64), {"pairs": pairs}, [])
    described = Workload(traces, traces.groups)
    config = system("ring", 2, group_collectives=GroupCollectives.HIERARCHICAL)
    links = Dimension(Topology.RING, 2, 1.0, 10.0), Dimension(Topology.RING, 4, 0.5, 500.0)
    cluster = Cluster(NetworkConfig(links), config)
    found = simulate(described, cluster, compute="measured")
    alone = simulate(_alone(described), cluster, compute="measured")
    assert found.program.class_of_rank.tolist() == [0, 0, 1, 1, 1, 1, 0, 0]
    np.testing.assert_array_equal(found.finish_ns, alone.finish_ns)


@pytest.mark.parametrize(
    "communication",
    [[all_reduce(1, 4096, (0,), pg_name="pairs")], [send(1, 0, 4096, (0,)), recv(2, 0, 4096)]],
    ids=["groups", "messages"],
)
def test_no_rank_stands_for_one_whose_partner_is_farther_away(communication):
    nodes = build_trace([comp(0, 5), *communication])
    pairs, partner_R = np.array([[0, 3], [1, 6], [2, 4], [5, 7]]), np.zeros(8, dtype=np.int64)
    partner_R[pairs] = pairs[:, ::-1]
    traces = RankTraces([nodes], np.zeros(8, dtype=np.int64), {"pairs": pairs}, [partner_R])
    cluster = Cluster(ring(8, latency_ns=500.0), system())
    job = lower(Workload(traces, traces.groups), cluster, MeasuredCompute())
    found, sent = kernel.run_representatives(job), kernel.run_with(job, Method.MESSAGES)
    assert found is not None
    assert len(found.ranks.rank_K) == 4
    np.testing.assert_array_equal(found.rank_finish_ns[found.ranks.of_rank], sent.rank_finish_ns)


def test_a_large_job_keeps_the_ticks_that_each_of_its_ranks_has_by_itself():
    plan = {"tensor": 4, "data": 8, "pipeline": 4, "micro_batches": 16, "batch": 128, "zero": 1}
    workload = small(LLAMA, **plan).workload()
    found = simulate(workload, Cluster("small"), compute="h100")
    every = kernel.run_with(found.program, Method.SOLVED)
    assert found.num_nodes > kernel.WORTH_DIVIDING
    assert len(found.outcome.issue_ns) == found.num_nodes // 32
    np.testing.assert_array_equal(found.issue_ns, every.issue_ns)
    np.testing.assert_array_equal(found.finish_ns, every.finish_ns)
    np.testing.assert_array_equal(found.rank_finish_ns, every.rank_finish_ns)


def _twin(trace: Trace, **words: int) -> Trace:
    """Return a trace with other values of some attributes; all other columns are shared."""
    table = trace.attributes
    word_A = table.word_A.copy()
    for name, value in words.items():
        word_A[table.name_A == trace.strings.index(name)] = value
    return dataclasses.replace(trace, attributes=dataclasses.replace(table, word_A=word_A))


def _renamed(trace: Trace, old: str, new: str) -> Trace:
    return dataclasses.replace(trace, strings=tuple(new if s == old else s for s in trace.strings))


def test_a_rank_like_another_in_columns_but_not_in_costs_is_a_class_of_its_own():
    first = build_trace([comp(0, 5), all_reduce(1, 4096, (0,))])
    other = _twin(first, comm_size=8192)
    with pytest.raises(SimulationError):  # sizes do not match: lowered apart, found out
        simulate(Workload((first, other)), Cluster("small"), compute="measured")


def test_a_rank_in_a_group_that_does_not_hold_it_is_still_refused():
    first = build_trace([comp(0, 5), all_reduce(1, 4096, (0,), pg_name="1")])
    groups = {"1": (0, 1), "2": (2, 3)}
    traces = (first, first, _renamed(first, "1", "2"), _renamed(first, "1", "2"))
    result = simulate(Workload(traces, groups), Cluster("small"), compute="measured")
    assert len(result.program.classes) == 1
    wrong = (first, first, first, _renamed(first, "1", "2"))
    with pytest.raises(SimulationError, match="which does not hold this rank"):
        simulate(Workload(wrong, groups), Cluster("small"), compute="measured")


def test_a_message_to_itself_is_still_refused():
    there = build_trace([comp(0, 5), send(1, 1, 4096, (0,)), recv(2, 1, 4096)])
    back = _twin(there, comm_dst=0, comm_src=0)
    result = simulate(Workload((there, back)), Cluster("small"), compute="measured")
    assert len(result.program.classes) == 1
    with pytest.raises(SimulationError, match="message to itself"):
        simulate(Workload((there, there)), Cluster("small"), compute="measured")
