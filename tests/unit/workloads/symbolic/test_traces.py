"""Traces of all ranks: groups, neighbors, files."""

from pathlib import Path

import numpy as np
from symbolic_jobs import GPT, LLAMA, MIXTURE, small

from layerdag.codec import job_graph, rank_classes
from layerdag.simulator import Cluster, simulate
from layerdag.traces import NodeType, Workload, read_workload, write_workload
from layerdag.traces.chakra import encode_trace, normalize
from layerdag.workloads.symbolic import Plan
from layerdag.workloads.symbolic.plans import ROLES, Grid


def _with_role(workload: Workload, rank: int) -> dict[str, tuple[int, ...]]:
    """Return the groups that a rank uses, by their ranks."""
    texts, named_N = workload.traces[rank].texts("pg_name")
    return {texts[row]: workload.groups[texts[row]] for row in np.flatnonzero(named_N).tolist()}


def test_tensor_varies_fastest_then_context_data_pipeline() -> None:
    """The default order of Megatron-LM, tp-cp-ep-dp-pp."""
    grid = Grid(Plan(tensor=2, context=2, data=2, pipeline=2, expert=2))
    assert grid.groups("tensor")[0].tolist() == [0, 1]
    assert grid.groups("context")[0].tolist() == [0, 2]
    assert grid.groups("data")[0].tolist() == [0, 2, 4, 6]
    assert grid.groups("expert")[0].tolist() == [0, 2]
    assert grid.groups("expert_data")[0].tolist() == [0, 4]
    assert grid.groups("embedding")[0].tolist() == [0, 8]
    assert grid.peer_R("next")[[0, 8]].tolist() == [8, 0]


def test_each_rank_is_in_one_group_of_each_role() -> None:
    plan = Plan(tensor=2, context=2, data=4, pipeline=3, expert=4)
    for role in ROLES:
        member = np.sort(Grid(plan).groups(role).reshape(-1))
        if role == "embedding":  # first and last stage only
            assert member.tolist() == [*range(16), *range(32, 48)]
        else:
            assert member.tolist() == list(range(48))


def test_ranks_communicate_in_groups_that_hold_them_and_nobody_else() -> None:
    workload = small(GPT, tensor=2, data=2, pipeline=2, micro_batches=2).workload()
    for rank in range(workload.num_ranks):
        groups = _with_role(workload, rank)
        assert len(groups) == 3  # tensor, data, tied embedding
        assert all(rank in members for members in groups.values())


def test_sends_and_receives_match_one_to_one() -> None:
    workload = small(LLAMA, pipeline=4, tensor=2, micro_batches=4).workload()
    sent, received = [], []
    for rank, trace in enumerate(workload.traces):
        tag_N, size_N = trace.integers("comm_tag")[0], trace.integers("comm_size")[0]
        for kind, end, found in (
            (NodeType.COMM_SEND, "comm_dst", sent),
            (NodeType.COMM_RECV, "comm_src", received),
        ):
            other_N = trace.integers(end)[0]
            for row in np.flatnonzero(trace.type_N == kind).tolist():
                ends = (rank, int(other_N[row]))
                ends = ends if kind == NodeType.COMM_SEND else ends[::-1]
                found.append((*ends, int(tag_N[row]), int(size_N[row])))
    assert sorted(sent) == sorted(received)
    assert len({message[:3] for message in sent}) == len(sent)


def test_a_file_is_what_encoding_the_trace_of_its_rank_gives() -> None:
    """With numbers of one to three digits and of one and two bytes."""
    workload = small(MIXTURE, tensor=2, data=64, expert=4, pipeline=2, batch=64).workload()
    assert len(workload.groups) > 100
    assert workload.num_ranks == 256
    ranks = []
    for rank, data in workload.traces.files():
        ranks.append(rank)
        if rank % 7 == 0 or rank > 250:
            assert data == encode_trace(normalize(workload.traces[rank]))
    assert ranks == list(reversed(range(256)))


def test_a_written_workload_reads_as_it_was(tmp_path: Path) -> None:
    workload = small(LLAMA, tensor=2, data=2, pipeline=2).workload()
    write_workload(workload, tmp_path / "w")
    read = read_workload(tmp_path / "w")
    assert read.groups == workload.groups
    for mine, theirs in zip(read.traces, workload.traces, strict=True):
        assert encode_trace(mine) == encode_trace(theirs)
        assert mine.metadata[0].value == "bfloat16"


def test_traces_are_made_once_and_share_their_columns() -> None:
    traces = small(LLAMA, tensor=2, data=2).workload().traces
    assert traces[3] is traces[-1]
    assert len(traces) == 4
    assert traces[0].id_N is traces[3].id_N
    assert traces[0].strings != traces[3].strings
    assert traces[1:3] == (traces[1], traces[2])


def test_the_number_format_of_the_trace_holds_for_its_nodes() -> None:
    trace = small(LLAMA).stages[0]
    assert set(trace.dtypes()) == {"bfloat16"}
    assert set(small(LLAMA, precision="fp32").stages[0].dtypes()) == {"float32"}
    fast, slow = (
        simulate(
            small(LLAMA, precision=name).workload(), Cluster.preset("small"), compute="h100"
        ).makespan_ns
        for name in ("bf16", "fp32")
    )
    assert fast < slow


def test_a_job_folds_into_one_class_of_ranks_a_stage() -> None:
    workload = small(LLAMA, tensor=2, pipeline=2, data=2, micro_batches=2).workload()
    classes = rank_classes(workload)
    assert [found.ranks for found in classes] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    graph = job_graph("job", classes, workload.groups, {})
    assert set(graph.categories["dtype"]) == {"bfloat16"}
