"""Ranks that differ in groups and peers only: one class, the same outcome as with one each."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from simulator_traces import all_reduce, comp, recv, send
from symbolic_jobs import GPT, LLAMA, small

from layerdag.errors import SimulationError
from layerdag.simulator import Cluster, Variation, simulate
from layerdag.traces import Trace, Workload, read_workload, write_workload
from layerdag.traces.chakra import build_trace

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
    cluster = Cluster.preset("small")
    shared = simulate(workload, cluster, compute="h100")
    alone = simulate(_alone(workload), cluster, compute="h100")
    assert len(shared.program.classes) == plan.get("pipeline", 1)
    assert len(alone.program.classes) == workload.num_ranks
    np.testing.assert_array_equal(shared.issue_ns, alone.issue_ns)
    np.testing.assert_array_equal(shared.finish_ns, alone.finish_ns)
    for rank in range(workload.num_ranks):
        mine, theirs = shared.nodes(rank), alone.nodes(rank)
        for column in ("peer_N", "tag_N", "duration_or_bytes_N", "kind_N"):
            messages = getattr(mine, column), getattr(theirs, column)
            if column == "peer_N":  # of collectives it is the number of a plan
                ends = np.isin(mine.kind_N, (2, 3))
                messages = messages[0][ends], messages[1][ends]
            np.testing.assert_array_equal(*messages)


def test_ranks_read_from_files_share_a_class(tmp_path: Path):
    workload = small(LLAMA, **PLANS[0]).workload()
    write_workload(workload, tmp_path / "w")
    result = simulate(read_workload(tmp_path / "w"), Cluster.preset("small"), compute="h100")
    assert len(result.program.classes) == 3
    made = simulate(workload, Cluster.preset("small"), compute="h100")
    np.testing.assert_array_equal(result.finish_ns, made.finish_ns)


def test_ranks_of_a_shared_class_may_differ_in_speed():
    workload = small(LLAMA, **PLANS[0]).workload()
    variation = Variation({1: 3.0, 5: 0.5})
    cluster = Cluster.preset("small")
    shared = simulate(workload, cluster, compute="h100", variation=variation)
    alone = simulate(_alone(workload), cluster, compute="h100", variation=variation)
    np.testing.assert_array_equal(shared.finish_ns, alone.finish_ns)


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
        simulate(Workload((first, other)), Cluster.preset("small"), compute="measured")


def test_a_rank_in_a_group_that_does_not_hold_it_is_still_refused():
    first = build_trace([comp(0, 5), all_reduce(1, 4096, (0,), pg_name="1")])
    groups = {"1": (0, 1), "2": (2, 3)}
    traces = (first, first, _renamed(first, "1", "2"), _renamed(first, "1", "2"))
    result = simulate(Workload(traces, groups), Cluster.preset("small"), compute="measured")
    assert len(result.program.classes) == 1
    wrong = (first, first, first, _renamed(first, "1", "2"))
    with pytest.raises(SimulationError, match="which does not hold this rank"):
        simulate(Workload(wrong, groups), Cluster.preset("small"), compute="measured")


def test_a_message_to_itself_is_still_refused():
    there = build_trace([comp(0, 5), send(1, 1, 4096, (0,)), recv(2, 1, 4096)])
    back = _twin(there, comm_dst=0, comm_src=0)
    result = simulate(Workload((there, back)), Cluster.preset("small"), compute="measured")
    assert len(result.program.classes) == 1
    with pytest.raises(SimulationError, match="message to itself"):
        simulate(Workload((there, there)), Cluster.preset("small"), compute="measured")
