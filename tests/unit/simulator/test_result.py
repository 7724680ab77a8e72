"""What a finished run tells."""

import json

import numpy as np
from hypothesis import given, strategies as st
from laws import tried
from random_clusters import random_program
from simulator_traces import all_reduce, comp, recv, ring, send, system, workload

from layerdag.errors import SimulationError
from layerdag.simulator import Cluster, simulate
from layerdag.simulator.compute import MeasuredCompute
from layerdag.traces import NodeType


def test_a_summary_holds_plain_numbers_by_rank():
    nodes = [comp(0, 2), send(1, 1, 400, (0,))]
    result = simulate(workload(nodes, [recv(0, 0, 400)]), Cluster(ring(2), system()))
    summary = json.loads(json.dumps(result.summary()))
    events = summary.pop("events")
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
    assert events == result.events > 0


def test_rows_of_ranks_lie_end_to_end():
    result = simulate(
        workload([comp(0, 1)], [comp(0, 1), comp(5, 1)], [comp(0, 1)]), Cluster(ring(3), system())
    )
    assert [result.rows(rank) for rank in range(3)] == [slice(0, 1), slice(1, 3), slice(3, 4)]
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
        rows, trace = result.rows(rank), program.workload.traces[rank]
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
