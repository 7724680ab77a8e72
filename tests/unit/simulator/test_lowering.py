"""Traces as columns of the kernel: kinds, slots, costs, children, and who may run what."""

import dataclasses
from typing import final

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried
from simulator_traces import all_reduce, coll, comp, node, recv, ring, send, system, workload

from layerdag.errors import ConfigError, SimulationError
from layerdag.hardware.collectives import CollectiveType
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.compute import ComputeModel, MeasuredCompute, ReferenceCompute
from layerdag.simulator.config import MAX_TIME_NS, MemoryConfig, MemoryKind
from layerdag.simulator.lowering import ClassProgram, NodeKind, Slot
from layerdag.simulator.program import lower
from layerdag.simulator.run import simulate
from layerdag.traces.builder import NodeSpec
from layerdag.traces.trace import NodeType, Trace

REMOTE = MemoryConfig(MemoryKind.PER_NPU, latency_ns=7, bandwidth_bytes_per_ns=3.0)


def lowered(nodes: list[NodeSpec], *others: list[NodeSpec], **more) -> ClassProgram:
    """Return the columns of rank 0 of a job on a ring of as many ranks as are given."""
    ranks = [nodes, *(others or ([comp(0, 1)],))]
    groups, memory = more.pop("groups", None), more.pop("memory", REMOTE)
    config = system(**more)
    cluster = Cluster(ring(len(ranks)), config, memory)
    return lower(workload(*ranks, groups=groups), cluster, ReferenceCompute(config)).of_rank(0)


def complaint(*ranks: list[NodeSpec], error: type[Exception] = SimulationError, **more) -> str:
    with pytest.raises(error) as caught:
        lowered(*ranks, **more)
    return str(caught.value)


@pytest.mark.parametrize(
    ("spec", "kind", "slot"),
    [
        (comp(0, 1), NodeKind.TIMER, Slot.COMPUTE),
        (comp(0, 1, is_cpu_op=True), NodeKind.TIMER, Slot.CPU),
        (node(0, NodeType.MEM_LOAD, tensor_size=9), NodeKind.MEMORY, Slot.COMM),
        (node(0, NodeType.MEM_STORE, tensor_size=9), NodeKind.MEMORY, Slot.COMM),
        (node(0, NodeType.MEM_LOAD, tensor_size=9, is_cpu_op=True), NodeKind.MEMORY, Slot.CPU),
        (send(0, 1, 8), NodeKind.SEND, Slot.COMM),
        (recv(0, 1, 8), NodeKind.RECV, Slot.NONE),
        (all_reduce(0, 64), NodeKind.COLLECTIVE, Slot.COMM),
        (coll(0, CollectiveType.BROADCAST, 64), NodeKind.TIMER, Slot.COMM),
        (node(0, NodeType.INVALID), NodeKind.SKIP, Slot.NONE),
        (node(0, NodeType.INVALID, is_cpu_op=True), NodeKind.SKIP, Slot.NONE),
    ],
)
def test_every_type_has_its_kind_and_slot(spec, kind, slot):
    nodes = lowered([spec])
    assert (NodeKind(nodes.kind_N[0]), Slot(nodes.slot_N[0])) == (kind, slot)


def test_amounts_are_ns_of_timers_and_memory_and_bytes_of_messages():
    nodes = lowered(
        [
            comp(0, 3),
            comp(1, 0),
            node(2, NodeType.MEM_LOAD, tensor_size=10),  # 7 + floor(10 / 3)
            send(3, 1, 400, tag=500_000_004),
            recv(4, 1, 300, tag=2),
            coll(5, CollectiveType.BROADCAST, 64),
        ]
    )
    assert nodes.cost_N.tolist() == [3000, 1, 10, 400, 300, 1]
    assert nodes.tag_N[3:5].tolist() == [4, 2]
    assert nodes.peer_N[3:5].tolist() == [1, 1]
    assert nodes.peers == (1,)


def test_collectives_carry_their_plan_and_group():
    groups = {"9": (1, 0), "4": (0, 1)}
    same = [
        all_reduce(0, 64, pg_name="4"),
        all_reduce(1, 32, (0,)),
        all_reduce(2, 64, (1,), pg_name="9"),
        all_reduce(3, 64, (2,), pg_name="0"),
    ]
    nodes = lowered(same, same, groups=groups)
    # -1 stands for all ranks; groups are counted in the order of the file.
    assert nodes.tag_N.tolist() == [1, -1, 0, -1]
    assert nodes.groups == (0, 1)
    # Groups of all ranks run as all ranks do, but ignore involved_dim; equal sizes share a plan.
    assert nodes.peer_N[0] == nodes.peer_N[2] != nodes.peer_N[1]


@given(st.integers(0, 2**32 - 1))
@tried(25)
def test_children_are_the_union_of_both_kinds_of_dependencies(seed):
    rng = np.random.default_rng(seed)
    ids = rng.permutation(50)[: int(rng.integers(1, 9))].tolist()
    parents = {
        id: [tuple(sorted(set(rng.choice(ids[:at], rng.integers(3)).tolist()))) if at else ()
             for _ in range(2)]
        for at, id in enumerate(ids)
    }  # fmt: skip
    specs = [
        dataclasses.replace(comp(id, 1, data), ctrl_deps=ctrl)
        for id, (data, ctrl) in parents.items()
    ]
    nodes = lowered([specs[at] for at in rng.permutation(len(specs))])
    assert nodes.id_N.tolist() == sorted(ids)
    for row, id in enumerate(sorted(ids)):
        own = nodes.child_E[nodes.child_ptr[row] : nodes.child_ptr[row + 1]]
        expected = sorted(c for c, lists in parents.items() if any(id in deps for deps in lists))
        assert nodes.id_N[own].tolist() == expected
        assert nodes.indegree_N[row] == len(set(parents[id][0]) | set(parents[id][1]))


def test_a_repeated_id_is_named_with_its_rank_and_file():
    load = workload([comp(0, 1)], [comp(3, 1), comp(5, 1), comp(7, 2)])
    # As a file may hold it; traces that are built in Python are refused at once.
    copied = dataclasses.replace(load.traces[1], id_N=np.array([3, 5, 3], dtype=np.uint64))
    twice = dataclasses.replace(load, traces=(load.traces[0], copied))
    with pytest.raises(SimulationError) as caught:
        simulate(twice, Cluster(ring(2), system()))
    assert str(caught.value) == "rank 1: w.1.et: node id 3 occurs twice; make ids unique."


def test_a_control_dependency_on_nothing_is_named():
    orphan = dataclasses.replace(comp(4, 1), ctrl_deps=(9,))
    told = complaint([comp(0, 1), orphan])
    assert "rank 0: w.0.et: node 4 depends on node 9, which does not exist" in told


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (recv(3, 9, 8), "node 3 has comm_src 9, but ranks are 0 to 1"),
        (send(3, -1, 8), "node 3 has comm_dst -1, but ranks are 0 to 1"),
        (recv(3, 1, 0), "node 3 has no positive comm_size; give its bytes"),
        (node(3, NodeType.COMM_RECV, comm_size=8, comm_tag=0), "lacks the attribute 'comm_src'"),
        (node(3, NodeType.COMM_COLL, comm_size=8), "lacks the attribute 'comm_type'; add it"),
        (node(3, NodeType.MEM_LOAD), "lacks the attribute 'tensor_size'; add it"),
        (node(3, NodeType.MEM_STORE, tensor_size=-1), "moves -1 bytes, which is negative"),
        (node(3, NodeType.COMM_COLL, comm_type=98, comm_size=8), "comm_type 98, which the model"),
        (
            all_reduce(3, 64, pg_name="5"),
            "in communicator group '5', which the group file does not",
        ),
        (all_reduce(3, 64, pg_name="dp"), "add it under an integer name above 0"),
        (all_reduce(3, 64, involved_dim=3), "carries involved_dim as int64_val; write a bool_list"),
    ],
)
def test_nodes_that_cannot_run_say_what_is_wrong_and_what_to_do(spec, words):
    told = complaint([comp(0, 1), spec])
    assert told.startswith("rank 0: w.0.et: node 3 ")
    assert words in told


def test_an_unknown_collective_of_a_known_type_is_told_with_those_that_are_known():
    told = complaint([coll(0, CollectiveType.GATHER, 8)])
    assert f"comm_type {int(CollectiveType.GATHER)} (GATHER)" in told
    for kind in ("ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL", "BROADCAST"):
        assert f"({kind})" in told.split("known are")[1]


def test_a_message_to_the_own_rank_is_refused_for_the_rank_that_sends_it():
    shared = [comp(0, 1), send(2, 1, 8)]
    told = complaint(shared, shared)
    assert told == "rank 1: node 2 is a message to itself; give another rank."


@final
class Endless(ComputeModel):
    """A model whose every node takes one ns more than can be run."""

    def durations_ns(self, trace: Trace, rows: np.ndarray, on_cpu: np.ndarray) -> np.ndarray:
        """See ``ComputeModel.durations_ns``."""
        return np.full(len(rows), MAX_TIME_NS + 1)


def test_times_beyond_the_clock_are_refused_with_the_node():
    load = workload([comp(4, 1)], [comp(0, 1)])
    with pytest.raises(SimulationError, match=f"node 4 takes {MAX_TIME_NS + 1} ns; at most 1e15"):
        simulate(load, Cluster(ring(2), system()), compute=Endless())


@pytest.mark.parametrize(
    ("node_of", "limit"),
    [
        (lambda size: send(0, 1, size), 10**15),
        (lambda size: node(0, NodeType.MEM_LOAD, tensor_size=size), 3 * 10**15),
        # A collective may move its bytes once for each rank.
        (lambda size: all_reduce(0, size), 10**15 // 2),
    ],
)
def test_sizes_that_overflow_the_clock_are_refused(node_of, limit):
    lowered([node_of(limit * 999 // 1000)])
    assert "takes longer than 1e15 ns" in complaint([node_of(limit * 1001 // 1000)])


def test_a_slow_local_memory_counts_for_the_clock_too():
    slow = dataclasses.replace(system(), local_mem_bw_gb=1e-3)
    load = workload([send(0, 1, 10**13)], [comp(0, 1)])
    lower(load, Cluster(ring(2), system()), MeasuredCompute())
    with pytest.raises(SimulationError, match="takes longer than 1e15 ns"):
        lower(load, Cluster(ring(2), slow), MeasuredCompute())


def test_two_lists_of_dimensions_that_differ_are_refused():
    given = all_reduce(3, 64, involved_dim=(True,))
    other = all_reduce(3, 64, involved_dim=(False,)).attributes[-1]
    both = [dataclasses.replace(given, attributes=(*given.attributes, other))]
    assert "node 3 carries involved_dim twice; keep one" in complaint(both, both)
    same = [dataclasses.replace(given, attributes=(*given.attributes, given.attributes[-1]))]
    assert lowered(same, same).kind_N.tolist() == [NodeKind.COLLECTIVE]


def test_an_unknown_algorithm_is_a_fault_of_the_system_file():
    told = complaint([all_reduce(0, 64)], all_reduce=("rnig",), error=ConfigError)
    assert told.startswith("system: unknown collective implementation 'rnig'")
