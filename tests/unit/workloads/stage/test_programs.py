"""Programs of stages: dependencies, messages, groups, and what is known of STAGE's counts."""

from collections import Counter

import numpy as np
import pytest
from stage_words import flags_of

from layerdag.traces import NodeType, Trace, trace_layers
from layerdag.workloads.stage import StageFlags, StageJob
from layerdag.workloads.stage._job import groups, peers

SMALL = "--dmodel 64 --dff 128 --head 4 --kvhead 2 --seq 32 --batch 8 --dvocal 100 --num_stacks 2"


def _collectives(trace: Trace, degree: str) -> Counter[int]:
    """Return how often each kind of collective is done along a degree."""
    kind_N, _ = trace.integers("comm_type")
    text_N, _ = trace.texts("pg_name")
    rows = np.flatnonzero(trace.type_N == NodeType.COMM_COLL).tolist()
    return Counter(int(kind_N[row]) for row in rows if text_N[row] == degree)


def _stages(words: str) -> tuple[Trace, ...]:
    return StageJob(flags_of(f"{SMALL} {words}")).stages


ALL_REDUCE, ALL_GATHER, ALL_TO_ALL, REDUCE_SCATTER = 0, 2, 6, 7


@pytest.mark.parametrize(
    ("words", "degree", "counts"),
    [
        # of both layers, embeddings included
        ("--model_type gpt --tp 2", "tp", {ALL_GATHER: 12, REDUCE_SCATTER: 8, ALL_REDUCE: 2}),
        ("--model_type gpt --tp 2 --tpsp no", "tp", {ALL_REDUCE: 10, ALL_GATHER: 1}),
        ("--model_type gpt --sp 2", "cp", {ALL_GATHER: 4, REDUCE_SCATTER: 4, ALL_REDUCE: 4}),
        ("--model_type gpt --dp 2 --micro_batch 2", "dp", {ALL_REDUCE: 10}),
        ("--model_type gpt --dp 2 --weight_sharded y", "dp",
         {ALL_GATHER: 4, REDUCE_SCATTER: 2, ALL_REDUCE: 2}),
        ("--model_type moe --ep 4", "ep", {ALL_GATHER: 6, ALL_TO_ALL: 8}),
    ],
)  # fmt: skip
def test_collectives_of_each_degree(words: str, degree: str, counts: dict[int, int]) -> None:
    (trace,) = _stages(words)
    assert _collectives(trace, degree) == counts
    assert sum(trace.type_N == NodeType.COMM_COLL) == sum(counts.values())


def test_one_rank_does_not_communicate() -> None:
    for model in ("gpt", "llama", "moe"):
        (trace,) = _stages(f"--model_type {model}")
        assert set(trace.type_N.tolist()) == {NodeType.COMP}


@pytest.mark.parametrize(
    "words",
    [
        "--model_type gpt --pp 2 --tp 2 --dp 2 --micro_batch 4",
        "--model_type moe --pp 2 --ep 2 --tp 2 --sp 2 --weight_sharded t",
        "--model_type dense --mixed_precision 1 --num_stacks 3 --pp 3",
    ],
)
def test_programs_have_no_circles_and_no_loose_ends(words: str) -> None:
    for trace in _stages(words):
        trace_layers(trace)  # raises for either


def test_every_message_is_sent_and_received_once() -> None:
    """Six layers on four stages: the output lies on the second, and the last layer on the last."""
    flags = flags_of(f"{SMALL} --model_type gpt --num_stacks 6 --pp 4 --dp 2 --micro_batch 4")
    ends: dict[NodeType, list[tuple[int, ...]]] = {NodeType.COMM_SEND: [], NodeType.COMM_RECV: []}
    for rank, trace in enumerate(StageJob(flags).workload().traces):
        tag, size, source, target = (
            trace.integers(name)[0] for name in ("comm_tag", "comm_size", "comm_src", "comm_dst")
        )
        for row in np.flatnonzero(trace.type_N == NodeType.COMM_SEND).tolist():
            ends[NodeType.COMM_SEND].append((rank, target[row], tag[row], size[row]))
        for row in np.flatnonzero(trace.type_N == NodeType.COMM_RECV).tolist():
            ends[NodeType.COMM_RECV].append((source[row], rank, tag[row], size[row]))
    sent, received = (sorted(found) for found in ends.values())
    assert sent == received
    assert len(sent) == len(set(sent)) == 2 * 2 * (3 + 1) * 2  # both ways, two micro-batches, ranks


def test_neighbors_are_data_parallel_then_tensor_context_expert_stage() -> None:
    flags = StageFlags(model_type="moe", dp=2, tp=2, sp=2, ep=2, pp=2)
    members = groups(flags)
    first = {degree: ranks[0].tolist() for degree, ranks in members.items()}
    assert first == {"dp": [0, 1], "tp": [0, 2], "cp": [0, 4], "ep": [0, 8]}
    assert peers(flags)[1][:3].tolist() == [16, 17, 18]
    # within a degree: stage slowest, then the other degrees in their order
    assert members["dp"][:3].tolist() == [[0, 1], [8, 9], [4, 5]]


def test_groups_of_one_rank_are_listed_too() -> None:
    workload = StageJob(StageFlags(num_stacks=1, tp=2)).workload()
    assert workload.groups == {"1": (0,), "2": (1,), "3": (0, 1), "4": (0,), "5": (1,)}


def test_nodes_have_the_names_of_stage() -> None:
    (trace,) = _stages("--model_type gpt --tp 2")
    names = [trace.strings[index] for index in trace.name_N.tolist()]
    assert {"mb0.transformer.0.mha.qkv@0_COMP", "mb0.transformer.0.mha.qkv@0_X1COMM"} <= set(names)
    assert {"in_emb.w@1_COMP", "in_emb.w@1_X2_COMM"} <= set(names)
    assert trace.id_N.tolist() == list(range(trace.num_nodes))


def test_a_size_that_does_not_divide_is_cut() -> None:
    (trace,) = _stages("--model_type gpt --tp 3 --seq 10")
    rows = [index for index, name in enumerate(trace.name_N.tolist())
            if trace.strings[name] == "mb0.transformer.0.input_norm.y@0_COMP"]  # fmt: skip
    size, _ = trace.integers("tensor_size")
    assert size[rows].tolist() == [8 * 10 * 64 // 3]
