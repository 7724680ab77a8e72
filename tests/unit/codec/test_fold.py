from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from random_jobs import random_job

from layerdag.codec import RankClassTrace, fitting_ranks, job_graph, rank_classes
from layerdag.codec._fold import MESSAGE
from layerdag.codec._unfold import unfold
from layerdag.errors import GraphError, TraceError
from layerdag.traces import Attribute, NodeType, Trace, Wire
from layerdag.traces.chakra import NodeSpec, build_trace

COMP, SEND, RECV, COLL = (
    NodeType.COMP,
    NodeType.COMM_SEND,
    NodeType.COMM_RECV,
    NodeType.COMM_COLL,
)


def node(number: int, name: str, kind: int = COMP, deps=(), ctrl=(), **values) -> NodeSpec:
    wires = {int: Wire.INT64, str: Wire.STRING, bool: Wire.BOOL}
    attributes = tuple(Attribute(k, wires[type(v)], v) for k, v in values.items())
    return NodeSpec(number, name, kind, tuple(deps), tuple(ctrl), attributes=attributes)


def job(*ranks: list[NodeSpec], groups=None):
    classes = [
        RankClassTrace(build_trace(nodes, source=f"rank {rank}"), (rank,))
        for rank, nodes in enumerate(ranks)
    ]
    return job_graph("job", classes, groups or {}, {"label": 1.0})


def edges(graph) -> set[tuple[str, str]]:
    ops = graph.categories["op"]
    return {(ops[a], ops[b]) for a, b in graph.edge_index_2E.T.tolist()}


def test_a_send_and_its_receive_are_one_node_between_the_two_programs():
    sender = [
        node(0, "aten::mm"),
        node(1, "c10d::send", SEND, [0], comm_dst=1, comm_tag=5, comm_size=64),
    ]
    receiver = [
        node(0, "c10d::recv", RECV, comm_src=0, comm_tag=5, comm_size=64),
        node(1, "aten::relu", COMP, [0]),
    ]
    graph = job(sender, receiver)
    assert graph.num_nodes == 3
    assert edges(graph) == {("aten::mm", "c10d::send"), ("c10d::send", "aten::relu")}
    place = graph.categories["type"].index(MESSAGE)
    assert graph.categories["stage"][place] == "0"
    assert graph.categories["peer"][place] == "1"
    assert graph.numbers["comm_bytes"][place] == 64
    assert graph.conditions["num_layers"] == 3


def collective(number: int, deps=(), group: str = "0") -> NodeSpec:
    return node(number, "c10d::all_reduce", COLL, deps, comm_type=0, comm_size=8, pg_name=group)


def test_a_collective_of_all_classes_is_one_node_that_joins_them():
    graph = job(
        [node(0, "aten::mm"), collective(1, [0])], [node(0, "aten::add"), collective(1, [0])]
    )
    assert graph.num_nodes == 3
    assert graph.categories["stage"][graph.categories["type"].index("COMM_COLL")] == "all"
    assert edges(graph) == {("aten::mm", "c10d::all_reduce"), ("aten::add", "c10d::all_reduce")}


def test_a_collective_of_two_of_three_classes_names_both():
    first = [node(0, "aten::mm"), collective(1, [0], "1")]
    last = [node(0, "aten::add"), collective(1, [0], "1")]
    graph = job(first, [node(0, "aten::sub")], last, groups={"1": (0, 2)})
    place = graph.categories["type"].index("COMM_COLL")
    assert graph.categories["stage"][place] == "0"
    assert graph.categories["peer"][place] == "2"


def test_collectives_pair_in_order_of_issue_not_of_rows():
    # Rank 1 lists its collectives in reverse, but their ids say which one it issues first.
    first = [collective(0), node(1, "aten::mm", COMP, [0]), collective(2, [1])]
    second = [collective(7, [5]), node(5, "aten::add", COMP, [3]), collective(3)]
    graph = job(first, second)
    assert graph.num_nodes == 4
    assert graph.conditions["num_layers"] == 3


def test_metadata_is_left_out_and_its_children_inherit_its_parents():
    graph = job(
        [node(0, "aten::mm"), node(1, "x", NodeType.METADATA, [0]), node(2, "aten::add", COMP, [1])]
    )
    assert edges(graph) == {("aten::mm", "aten::add")}


def test_private_words_become_other_and_missing_numbers_nan():
    graph = job([node(0, "aten::secret_op", device="cuda:3", dtype="MyType", num_ops=0)])
    assert graph.categories["op"] == ["<other>"]
    assert graph.categories["device"] == ["cuda"]
    assert graph.categories["dtype"] == ["<other>"]
    assert np.isnan(graph.numbers["flops"]).all()


def test_control_edges_on_a_cycle_of_buffered_messages_are_dropped_and_no_others():
    def exchange(other: int) -> list[NodeSpec]:
        return [
            node(0, "aten::mm"),
            node(1, "c10d::send", SEND, [0], comm_dst=other, comm_tag=1, comm_size=8),
            node(2, "c10d::recv", RECV, [], [1], comm_src=other, comm_tag=1, comm_size=8),
            node(3, "aten::add", COMP, [2], [0]),
        ]

    graph = job(exchange(1), exchange(0))
    names = [graph.edge_type_names[code] for code in graph.edge_type_E.tolist()]
    assert names.count("control") == 2  # mm -> add of each rank; send -> recv would close a cycle
    assert graph.num_nodes == 6


def test_a_receive_without_a_send_is_refused():
    with pytest.raises(TraceError, match="0 sends from rank class 0 to 1"):
        job(
            [node(0, "aten::mm")],
            [node(0, "c10d::recv", RECV, comm_src=0, comm_tag=5, comm_size=64)],
        )


def test_an_unknown_group_is_refused():
    with pytest.raises(TraceError, match="group '7', which is not among"):
        job([collective(0, group="7")])


def test_ranks_that_issue_different_numbers_of_collectives_are_refused():
    with pytest.raises(TraceError, match="different numbers of collectives"):
        job([collective(0)], [collective(0), collective(1)])


def test_a_trace_of_metadata_only_is_refused():
    trace: Trace = build_trace([NodeSpec(0, "pg", NodeType.METADATA)])
    with pytest.raises(GraphError, match="no work"):
        job_graph("job", [RankClassTrace(trace, (0,))], {}, {})


def test_a_group_of_three_of_four_classes_cannot_be_a_graph() -> None:
    ranks = [[collective(0, group="1")]] * 3 + [[node(0, "aten::mm")]]
    with pytest.raises(
        TraceError, match=r"job: group '1' joins 3 of 4 classes of ranks; .*one, two"
    ):
        job(*ranks, groups={"1": (0, 1, 2)})


def test_a_message_to_a_rank_without_a_trace_is_refused() -> None:
    with pytest.raises(TraceError, match="job: a message names rank 5, of which there is no trace"):
        job([node(0, "c10d::send", SEND, comm_dst=5, comm_tag=1, comm_size=8)])


def test_data_wins_where_merging_makes_two_edges_one() -> None:
    """Rank 0 waits for the collective by data, rank 1 by order only; both run mm before."""
    first = [node(0, "aten::mm"), collective(1, [0]), node(2, "aten::add", COMP, [1])]
    graph = job(first, first)
    pairs = list(zip(*graph.edge_index_2E.tolist(), strict=True))
    assert len(pairs) == len(set(pairs)) == 4
    both = [node(0, "aten::mm"), node(1, "aten::add", COMP, [0], [0])]
    assert job(both).edge_type_E.tolist() == [0]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"duration_ns": 7}, 7.0),
        ({"duration_ns": 0}, 3000.0),  # the duration in microseconds of the node
        ({}, 3000.0),
    ],
)
def test_durations_in_nanoseconds_count_before_those_in_microseconds(values, expected) -> None:
    timed = replace(node(0, "aten::mm", **values), duration_us=3)
    assert job([timed]).numbers["duration"].tolist() == [expected]


def test_what_a_node_states_becomes_words_and_numbers() -> None:
    graph = job(
        [
            node(0, "aten::add.Tensor", num_ops=5, tensor_size=9, device="cuda:1", dtype="float16"),
            node(1, "aten::mm", COMP, [0], is_cpu_op=True, device="cuda:1"),
            node(2, "c10d::x", COLL, [1], comm_type=77, comm_size=3),
            node(3, "aten::mm", COMP, [2]),
        ]
    )
    assert graph.categories["op"] == ["aten::add", "aten::mm", "<other>", "aten::mm"]
    assert graph.categories["device"] == ["cuda", "host", "none", "none"]
    assert graph.categories["dtype"] == ["float16", "none", "none", "none"]
    assert graph.categories["collective"] == ["none", "none", "INVALID", "none"]
    assert graph.categories["group"] == ["none", "none", "world", "none"]
    assert graph.numbers["flops"].tolist()[0] == 5
    assert graph.numbers["bytes"].tolist()[0] == 9
    assert np.isnan(graph.numbers["comm_bytes"]).tolist() == [True, True, False, True]
    assert graph.units == {"flops": "flops", "bytes": "bytes", "comm_bytes": "bytes",
                           "duration": "ns"}  # fmt: skip
    assert graph.conditions == {
        "label": 1.0,
        "world_size": "1",
        "num_nodes": 4.0,
        "num_layers": 4.0,
    }


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("stages", "each"), [(1, 2), (2, 2), (3, 2)])
def test_what_is_unfolded_and_folded_again_is_the_same_job(
    seed: int, stages: int, each: int
) -> None:
    """Random jobs without repairs: ranks of a stage are one class again, with all its edges."""
    graph = random_job(seed, stages)
    unfolded = unfold(graph, fitting_ranks(graph, stages * each))
    added = Counter({**unfolded.repairs, **unfolded.completions})
    assert set(added) <= {"communication_order_added"}  # else it is another job
    assert unfolded.completions if stages > 1 else not unfolded.completions
    classes = rank_classes(unfolded.workload)
    again = job_graph("again", classes, unfolded.workload.groups, {})
    assert again.num_nodes == graph.num_nodes
    for name in ("op", "type", "stage", "peer"):
        assert Counter(again.categories[name]) == Counter(graph.categories[name])
    durations = np.sort(again.numbers["duration"])
    assert durations.tolist() == np.sort(graph.numbers["duration"]).tolist()
    lost = graph.edge_index_2E.shape[1] + added["communication_order_added"]
    assert again.edge_index_2E.shape[1] <= lost
