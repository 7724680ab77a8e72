"""Where a rank's time goes, against counting every span by hand."""

import pytest
import slow_simulator
from hypothesis import given, strategies as st
from laws import tried
from random_clusters import random_program
from simulator_traces import all_reduce, comp, node, ring, send, system, workload

from layerdag.errors import SimulationError
from layerdag.simulator import (
    Cluster,
    MemoryConfig,
    MemoryKind,
    NetworkConfig,
    SimulationResult,
    simulate,
)
from layerdag.simulator.analysis import break_down
from layerdag.simulator.compute import MeasuredCompute
from layerdag.simulator.engine import Slot
from layerdag.traces import NodeType

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
    parts = break_down(result)
    for rank in range(result.num_ranks):
        rows = result.rows(rank)
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
    parts = break_down(result)
    assert parts.parts == ("compute", "dim 0", "send", "memory", "receive", "idle")
    assert parts.time_ns_RP.tolist() == [[0, 2230, 500, 100, 0, 0], [0, 2230, 0, 0, 500, 0]]


def test_collectives_that_are_not_simulated_count_as_replayed():
    nodes = [node(0, NodeType.COMM_COLL, (), 3, comm_type=1, comm_size=8)]
    replayed = simulate(workload(nodes, nodes), Cluster(ring(2), system(replay_only=True)))
    assert break_down(replayed).parts == ("compute", "replayed", "idle")
    assert break_down(replayed).time_ns_RP.tolist() == [[0, 3000, 0]] * 2


def test_a_rank_that_ends_early_is_not_idle_afterwards():
    parts = break_down(simulate(workload([comp(0, 9)], [comp(0, 2)]), Cluster(ring(2), system())))
    assert parts.time_ns_RP.tolist() == [[9000, 0], [2000, 0]]


def test_the_table_tells_milliseconds_with_the_mean_first_and_at_most_so_many_ranks():
    ranks = [[comp(0, 1000 * (rank + 1))] for rank in range(4)]
    table = break_down(simulate(workload(*ranks), Cluster(ring(4), system()))).table(max_ranks=2)
    lines = [line.split() for line in table.splitlines()]
    assert lines == [
        ["rank", "compute", "idle", "total"],
        ["ms"],
        ["mean", "2.500", "0.000", "2.500"],
        ["0", "1.000", "0.000", "1.000"],
        ["1", "2.000", "0.000", "2.000"],
    ]


@pytest.mark.parametrize(
    ("members", "part"), [((1, 5), "dim 1"), ((1, 2), "dim 0"), ((0, 7), "dim 0")]
)
def test_messages_of_a_group_are_charged_to_the_first_dimension_they_cross(members, part):
    # A network of 4 x 2 ranks: ranks 1 and 5 have the same place in the first dimension.
    calls, idle = [all_reduce(0, 2000, pg_name="1")], [comp(0, 1)]
    ranks = [calls if rank in members else idle for rank in range(8)]
    network = NetworkConfig((*ring(4).dimensions, *ring(2).dimensions))
    cluster = Cluster(network, system(dimensions=2))
    parts = break_down(simulate(workload(*ranks, groups={"1": members}), cluster)).parts
    assert [name for name in parts if name.startswith("dim")] == [part]
