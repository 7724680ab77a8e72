from dataclasses import replace

import numpy as np
import pytest

from layerdag.codec import AttributedGraph, fitting_ranks
from layerdag.codec._fold import EDGE_TYPES, NONE
from layerdag.codec._node_costs import node_numbers
from layerdag.codec._placement import JobPlan
from layerdag.codec._unfold import _Writer, unfold
from layerdag.errors import DataError, UsageError
from layerdag.evaluation.rules import check_workload, has_errors
from layerdag.traces import CollectiveType, NodeType, Workload, encode_workload
from layerdag.traces.analysis import match_communication


def graph(*rows: tuple[str, str, str, str, str]) -> AttributedGraph:
    """Return a chain of nodes given as (op, type, group, stage, peer)."""
    size = len(rows)
    op, kind, group, stage, peer = (list(column) for column in zip(*rows, strict=True))
    return AttributedGraph(
        name="job",
        categories={
            "op": op, "type": kind, "collective": [NONE] * size, "group": group,
            "stage": stage, "peer": peer, "device": ["cpu"] * size, "dtype": ["<other>"] * size,
        },
        numbers={"duration": np.full(size, 5000.0)},
        edge_index_2E=np.stack([np.arange(size - 1), np.arange(1, size)]),
        edge_type_E=np.zeros(size - 1, dtype=np.int64),
        edge_type_names=EDGE_TYPES,
    )  # fmt: skip


def work(stage: str = "0") -> tuple[str, str, str, str, str]:
    return ("aten::mm", "COMP", NONE, stage, NONE)


def collective(group: str, stage: str, peer: str = NONE) -> tuple[str, str, str, str, str]:
    return ("c10d::all_reduce", "COMM_COLL", group, stage, peer)


def members(unfolded, rank: int) -> tuple[int, ...]:
    trace = unfolded.workload.traces[rank]
    name = next(text for text in trace.texts("pg_name")[0] if text)
    return unfolded.workload.groups.get(name, tuple(range(unfolded.workload.num_ranks)))


def test_ranks_of_a_stage_without_messages_share_one_trace():
    traces = unfold(graph(work(), collective("world", "0")), 4).workload.traces
    assert len({id(trace) for trace in traces}) == 1


def test_a_message_becomes_a_send_and_a_receive_of_ranks_at_the_same_place():
    job = graph(work("0"), ("c10d::send", "MESSAGE", NONE, "0", "1"), work("1"))
    workload = unfold(job, 4).workload
    found = match_communication(workload)
    assert not found.mismatches
    assert found.send_rank_M.tolist() == [0, 1]
    assert found.recv_rank_M.tolist() == [2, 3]
    assert workload.traces[2].names() == ["c10d::recv", "aten::mm"]
    assert workload.traces[2].integers("duration_ns")[0].tolist() == [5000, 5000]


@pytest.mark.parametrize(
    ("group", "stage", "peer", "expected"),
    [
        ("world", "all", NONE, (0, 1, 2, 3, 4, 5, 6, 7)),
        ("stage", "0", NONE, (0, 1, 2, 3)),
        ("contiguous2", "0", NONE, (2, 3)),
        ("strided2", "0", NONE, (0, 2)),
        ("strided2", "all", NONE, (2, 6)),
        ("strided8", "0", "1", (0, 1, 2, 3, 4, 5, 6, 7)),
    ],
)
def test_the_role_of_a_group_decides_who_meets_rank_two(group, stage, peer, expected):
    job = graph(work("0"), collective(group, stage, peer), work("1"))
    unfolded = unfold(job, 8)
    assert members(unfolded, 2) == expected
    assert not match_communication(unfolded.workload).mismatches
    assert not unfolded.repairs


def test_contradictions_are_mended_and_counted():
    job = graph(
        work("0"),
        ("c10d::send", "MESSAGE", NONE, "1", NONE),
        ("aten::add", "COMM_COLL", "none", "1", NONE),
        ("c10d::all_reduce", "COMP", NONE, "0", NONE),
        work("1"),
    )
    unfolded = unfold(job, 4)
    assert unfolded.repairs == {
        "collective_without_group": 1,
        "communication_named_as_compute": 1,
        "compute_named_as_communication": 1,
        "message_without_receiver": 1,
    }
    assert not match_communication(unfolded.workload).mismatches


@pytest.mark.parametrize("stage", ["0", "all"])
def test_ranks_enter_collectives_that_do_not_depend_on_each_other_in_one_order(stage: str):
    job = graph(collective("strided2", stage), ("aten::copy_", "MEM_LOAD", NONE, "0", NONE),
                collective("contiguous2", stage), work())  # fmt: skip
    job = replace(job, edge_index_2E=np.array([[2], [3]]), edge_type_E=np.zeros(1, np.int64))
    unfolded = unfold(job, 4)
    assert unfolded.repairs == {"communication_order_added": 2}
    assert not unfolded.completions
    for trace in unfolded.workload.traces:
        assert trace.names() == ["c10d::all_reduce", "aten::copy_", "c10d::all_reduce", "aten::mm"]
        assert trace.data_deps.values.tolist() == [0, 1, 2]


def test_communication_of_one_rank_with_nobody_becomes_work():
    job = graph(work(), ("c10d::send", "MESSAGE", NONE, "0", "0"), collective("world", "0"))
    unfolded = unfold(job, 1)
    assert unfolded.repairs == {"collective_of_one_rank": 1, "message_of_one_rank": 1}
    trace = unfolded.workload.traces[0]
    assert set(trace.type_N.tolist()) == {int(NodeType.COMP)}
    assert trace.names() == ["aten::mm", "<other>", "<other>"]
    assert trace.integers("duration_ns")[0].tolist() == [5000] * 3
    assert trace.duration_us_N.tolist() == [5] * 3


@pytest.mark.parametrize("group", ["stage", "contiguous2", "strided4", "world"])
def test_a_collective_of_a_stage_with_one_rank_becomes_work(group: str):
    unfolded = unfold(graph(work("0"), collective(group, "0"), work("1")), 2)
    assert unfolded.repairs == {"collective_of_one_rank": 1}
    assert not unfolded.workload.groups
    assert not has_errors(check_workload(unfolded.workload))


def test_a_sub_group_that_does_not_divide_its_stage_and_so_holds_one_rank_becomes_work():
    unfolded = unfold(graph(work(), collective("contiguous2", "0")), 3)
    assert unfolded.repairs == {"collective_of_one_rank": 1}


def test_a_message_inside_a_stage_goes_around_its_ranks():
    job = graph(work("0"), ("c10d::send", "MESSAGE", NONE, "0", "0"), work("0"), work("1"))
    unfolded = unfold(job, 6)
    assert not unfolded.repairs
    found = match_communication(unfolded.workload)
    assert not found.mismatches
    assert found.send_rank_M.tolist() == [0, 1, 2]
    assert found.recv_rank_M.tolist() == [1, 2, 0]
    first = unfolded.workload.traces[0]
    assert first.names() == ["aten::mm", "c10d::send", "c10d::recv", "aten::mm"]
    assert first.id_N.tolist() == [0, 1, 2, 3]
    assert first.data_deps.values.tolist() == [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("word", "taken"),
    [("REDUCE", "ALL_REDUCE"), ("BARRIER", "ALL_REDUCE"), ("GATHER", "ALL_GATHER")],
)
def test_a_collective_that_consumers_refuse_gets_a_substitute(word: str, taken: str):
    job = graph(work(), collective("world", "0"))
    job.categories["collective"][1] = word
    unfolded = unfold(job, 2)
    assert unfolded.repairs == {"collective_that_is_not_simulated": 1}
    assert unfolded.workload.traces[0].integers("comm_type")[0][1] == CollectiveType[taken]
    assert not has_errors(check_workload(unfolded.workload))


def test_memory_nodes_and_communication_always_have_a_size():
    job = graph(("aten::copy_", "MEM_LOAD", NONE, "0", NONE), collective("world", "0"))
    trace = unfold(job, 2).workload.traces[0]
    assert trace.integers("tensor_size")[0].tolist() == [1, 0]
    assert trace.integers("comm_size")[0].tolist() == [0, 1]


def test_stages_that_send_each_other_messages_need_equally_many_ranks():
    job = graph(work("0"), ("c10d::send", "MESSAGE", NONE, "0", "1"), work("1"))
    assert fitting_ranks(job, 3) == 4
    with pytest.raises(UsageError, match="ask for 4"):
        unfold(job, 3)


def test_a_message_of_a_stage_with_one_rank_to_itself_goes_to_the_next_stage():
    unfolded = unfold(graph(work("0"), ("c10d::send", "MESSAGE", NONE, "1", "1"), work("1")), 2)
    assert unfolded.repairs == {"message_without_receiver": 1}
    assert match_communication(unfolded.workload).recv_rank_M.tolist() == [0]


def test_stages_without_messages_may_be_of_different_size():
    job = graph(work("0"), collective("world", "all"), work("1"), work("2"))
    workload = unfold(job, 4).workload
    assert workload.num_ranks == 4
    assert not match_communication(workload).mismatches


def test_a_flow_graph_is_no_job():
    flow = replace(graph(work()), categories={"kind": ["a"]})
    with pytest.raises(DataError, match="only a graph of kind 'trace'"):
        unfold(flow, 1)


def test_a_word_that_is_no_type_is_refused():
    with pytest.raises(DataError, match="'THINK' is no type"):
        unfold(graph(("aten::mm", "THINK", NONE, "0", NONE)), 1)


def test_the_ranks_of_a_stage_have_the_bytes_that_each_written_alone_has():
    job = graph(
        work("0"), collective("contiguous2", "0"), collective("strided2", "0"),
        ("c10d::send", "MESSAGE", NONE, "0", "1"), collective("world", "all"), work("1"),
        collective("contiguous2", "1"), ("c10d::send", "MESSAGE", NONE, "1", "1"),
        collective("stage", "0", "1"), work("1"),
    )  # fmt: skip
    plan = JobPlan(job, 8)
    writer = _Writer(plan, node_numbers(plan))
    alone = tuple(writer.trace(rank) for rank in range(8))
    groups = {name: ranks for ranks, name in writer.groups.items()}
    together = unfold(job, 8).workload
    assert encode_workload(together, "job") == encode_workload(Workload(alone, groups), "job")
    assert len({id(trace.name_N) for trace in together.traces}) == 2  # columns are held once
