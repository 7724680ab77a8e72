import re
from dataclasses import replace

import numpy as np
import pytest
from simulator_traces import small_cluster

from layerdag.codec.folding import EDGE_TYPES, NONE
from layerdag.codec.placement import JobPlan, fitting_ranks
from layerdag.codec.unfolding import (
    Unfolded,
    _Writer,
    node_numbers,
    repair_in_words,
    unfold,
    unfold_sampled,
)
from layerdag.errors import DataError, UsageError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.hardware.collectives import CollectiveType
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.config import MemoryConfig, MemoryKind
from layerdag.simulator.run import simulate
from layerdag.traces.analysis import match_communication
from layerdag.traces.chakra.files import START_BYTES, START_OPS
from layerdag.traces.chakra.workload import encode_workload
from layerdag.traces.trace import NodeType, Workload
from layerdag.validation.checking import check_workload
from layerdag.validation.rules import has_errors

NAN = float("nan")
COMMUNICATION = ("MESSAGE", "COMM_COLL")


def job(*kinds: str, device: str = "cpu", **numbers: list[float]) -> AttributedGraph:
    """Return a chain of nodes of these types; collectives join all ranks, messages form a ring."""
    size = len(kinds)
    return AttributedGraph(
        name="job",
        categories={
            "op": ["c10d::send" if kind in COMMUNICATION else "aten::mm" for kind in kinds],
            "type": list(kinds),
            "group": ["world" if kind == "COMM_COLL" else NONE for kind in kinds],
            "stage": ["0"] * size,
            "peer": ["0" if kind == "MESSAGE" else NONE for kind in kinds],
            "device": [device] * size,
        },
        numbers={name: np.array(values) for name, values in numbers.items()},
        edge_index_2E=np.stack([np.arange(size - 1), np.arange(1, size)]),
        edge_type_E=np.zeros(size - 1, dtype=np.int64),
        edge_type_names=EDGE_TYPES,
    )


def costs(unfolded: Unfolded) -> tuple[list[int], list[int]]:
    """Return FLOPs and bytes of the first rank's nodes."""
    trace = unfolded.workload.traces[0]
    return trace.integers("num_ops")[0].tolist(), trace.integers("tensor_size")[0].tolist()


@pytest.mark.parametrize(
    ("types", "columns", "expected", "repaired"),
    [
        # One operation for each element that is written.
        (["COMP", "COMP"], {"flops": [NAN, 7.0], "bytes": [8e3, 16.0]}, ([1000, 7], [8000, 16]), 1),
        # Without times, too, one element is moved.
        (["COMP", "COMP"], {"flops": [5.0, NAN], "bytes": [1e2, NAN]}, ([5, 1], [100, 4]), 1),
        # Communication with nobody reads and writes its size.
        (
            ["COMM_COLL", "MESSAGE"],
            {"comm_bytes": [4000.0, NAN], "duration": [50.0, 50.0]},
            ([1000, 1000], [8000, 8000]),
            None,
        ),
        # A job of times alone gets no costs.
        (["COMP", "COMP"], {"duration": [50.0, 50.0]}, ([0, 0], [0, 0]), 0),
    ],
)
def test_costs_that_a_job_lacks_are_the_least_that_it_needs(types, columns, expected, repaired):
    unfolded = unfold(job(*types, **columns), 1)
    assert costs(unfolded) == expected
    if repaired is not None:
        assert unfolded.repairs == ({"compute_without_cost": repaired} if repaired else {})


def test_an_operator_with_flops_only_is_timed_by_them():
    assert costs(unfold(job("COMP", flops=[1e9], bytes=[NAN]), 1)) == ([10**9], [4])


def test_an_operator_without_costs_moves_what_others_move_in_its_time():
    graph = job(
        *["COMP"] * 4,
        flops=[5.0, 5.0, 5.0, NAN],
        bytes=[100.0, 3000.0, 9000.0, NAN],
        duration=[100.0, 1000.0, 1000.0, 400.0],
    )
    assert costs(unfold(graph, 1)) == ([5, 5, 5, 150], [100, 3000, 9000, 1200])


def test_absurd_numbers_stay_within_what_a_simulator_runs():
    graph = job("COMP", flops=[float("inf")], bytes=[1e300], duration=[-5.0])
    assert costs(unfold(graph, 1)) == ([10**15], [10**15])


def test_the_first_operator_of_a_sampled_job_takes_time_on_any_device():
    graph = job("COMP", "COMP", flops=[1.0, 1.0], bytes=[8.0, 8.0])
    assert costs(unfold(graph, 1)) == ([1, 1], [8, 8])
    sampled = unfold_sampled(graph, 1)
    assert costs(sampled) == ([1, 1], [START_BYTES, 8])
    assert (sampled.repairs, sampled.completions) == ({}, {"start_without_time": 1})
    system, network = small_cluster(1)
    roof = replace(
        system, roofline_enabled=True, peak_perf_tflops=16_000.0, local_mem_bw_gb=16_000.0
    )
    assert simulate(sampled.workload, Cluster(network, roof)).nodes(0).id_N.tolist() == [0, 1]


def test_only_the_first_of_several_operators_that_wait_for_nothing_is_enlarged():
    graph = job("COMP", "COMP", flops=[1.0, 1.0], bytes=[8.0, 8.0])
    graph = replace(graph, edge_index_2E=np.zeros((2, 0), np.int64), edge_type_E=np.zeros(0, int))
    assert costs(unfold_sampled(graph, 1))[1] == [START_BYTES, 8]


def test_what_takes_its_time_anyway_stays():
    for changes in ({"flops": [float(START_OPS)]}, {"bytes": [float(START_BYTES)]}):
        graph = job("COMP", **{"flops": [1.0], "bytes": [8.0], **changes})
        assert not unfold_sampled(graph, 1).completions
    on_host = job("COMP", device="host", flops=[1.0], bytes=[8.0])
    assert costs(unfold_sampled(on_host, 1)) == ([1], [8])


def test_a_message_or_memory_access_that_comes_first_takes_time_too():
    for kind, size in (("MESSAGE", "comm_size"), ("MEM_STORE", "tensor_size")):
        graph = job(kind, "COMP", flops=[NAN, 1.0], bytes=[1.0, 8.0], comm_bytes=[1.0, NAN])
        unfolded = unfold_sampled(graph, 2)
        assert unfolded.completions == {"start_without_time": 1}
        for trace in unfolded.workload.traces:
            assert trace.integers(size)[0][0] == START_BYTES
        memory = MemoryConfig(kind=MemoryKind.PER_NPU, bandwidth_bytes_per_ns=16_000.0)
        simulate(
            unfolded.workload,
            replace(Cluster("small").with_ranks(2), memory=memory),
            compute="reference",
        )


def test_a_collective_that_comes_first_keeps_its_size():
    graph = job("COMM_COLL", "COMP", flops=[NAN, 1.0], bytes=[NAN, 8.0], comm_bytes=[4.0, NAN])
    unfolded = unfold_sampled(graph, 2)
    assert not unfolded.repairs
    assert unfolded.workload.traces[0].integers("comm_size")[0].tolist() == [4, 0]


def test_a_duration_is_written_in_ns_and_in_us():
    trace = unfold(job("COMP", duration=[1_500_400.0]), 1).workload.traces[0]
    assert trace.integers("duration_ns")[0].tolist() == [1_500_400]
    assert trace.duration_us_N.tolist() == [1500]


def test_every_repair_that_the_docs_list_has_words(repository):
    table = (
        (repository / "docs" / "reference" / "attributes.md")
        .read_text()
        .partition("| repair | what was")[2]
    )
    rows = re.findall(r"^\| (`.*?`) \|", table, flags=re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert len(names) > 9
    for name in names:
        assert repair_in_words(name) != name.replace("_", " ")


def test_every_repair_in_the_code_has_words(repository):
    code = "".join(path.read_text() for path in (repository / "layerdag").rglob("*.py"))
    names = set(re.findall(r'repairs\["(\w+)"\]|_become_work\(node, "(\w+)"\)', code))
    assert len(names) > 7
    for name in (first or second for first, second in names):
        assert "_" not in repair_in_words(name)
        assert repair_in_words(name) != name.replace("_", " "), name


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
def test_ranks_enter_collectives_that_do_not_depend_on_each_other_in_one_order(stage):
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
def test_a_collective_of_a_stage_with_one_rank_becomes_work(group):
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
def test_a_collective_that_consumers_refuse_gets_a_substitute(word, taken):
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
