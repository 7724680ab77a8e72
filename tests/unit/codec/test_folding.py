from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried
from random_jobs import random_job
from small_workloads import (
    collective as small_collective,
    compute,
    job as small_job,
    message,
    trace,
)

from layerdag.codec.folding import MESSAGE, RankClassTrace, job_graph, rank_classes
from layerdag.codec.placement import fitting_ranks
from layerdag.codec.unfolding import unfold
from layerdag.errors import GraphError, TraceError
from layerdag.traces.builder import NodeSpec, build_trace
from layerdag.traces.trace import Attribute, NodeType, Trace, Wire, Workload

COMP, SEND, RECV, COLL = (NodeType.COMP, NodeType.COMM_SEND, NodeType.COMM_RECV, NodeType.COMM_COLL)


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


LONE_RECEIVE = node(0, "c10d::recv", RECV, comm_src=0, comm_tag=5, comm_size=64)
LOST_SEND = node(0, "c10d::send", SEND, comm_dst=5, comm_tag=1, comm_size=8)


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        (([node(0, "aten::mm")], [LONE_RECEIVE]), "0 sends from rank class 0 to 1"),
        (([collective(0, group="7")],), "group '7', which is not among"),
        (([collective(0)], [collective(0), collective(1)]), "different numbers of collectives"),
        (([LOST_SEND],), "job: a message names rank 5, of which there is no trace"),
    ],
)
def test_communication_without_its_other_side_is_refused(ranks, words):
    with pytest.raises(TraceError, match=words):
        job(*ranks)


def test_a_trace_of_metadata_only_is_refused():
    trace: Trace = build_trace([NodeSpec(0, "pg", NodeType.METADATA)])
    with pytest.raises(GraphError, match="no work"):
        job_graph("job", [RankClassTrace(trace, (0,))], {}, {})


def test_a_group_of_three_of_four_classes_cannot_be_a_graph():
    ranks = [[collective(0, group="1")]] * 3 + [[node(0, "aten::mm")]]
    with pytest.raises(
        TraceError, match=r"job: group '1' joins 3 of 4 classes of ranks; .*one, two"
    ):
        job(*ranks, groups={"1": (0, 1, 2)})


def test_data_wins_where_merging_makes_two_edges_one():
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
def test_durations_in_nanoseconds_count_before_those_in_microseconds(values, expected):
    timed = replace(node(0, "aten::mm", **values), duration_us=3)
    assert job([timed]).numbers["duration"].tolist() == [expected]


def test_what_a_node_states_becomes_words_and_numbers():
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
def test_what_is_unfolded_and_folded_again_is_the_same_job(seed, stages, each):
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


def ranks(workload: Workload) -> list[tuple[int, ...]]:
    return [part.ranks for part in rank_classes(workload)]


def test_ranks_with_the_same_program_are_one_class_whatever_their_times():
    first = (compute(0, duration_us=5), small_collective(1, 0))
    second = (compute(0, duration_us=9), small_collective(1, 0))
    assert ranks(small_job(first, second)) == [(0, 1)]


def test_a_different_size_makes_another_class():
    assert ranks(
        small_job((small_collective(0),), (small_collective(0),), (small_collective(0, size=8),))
    ) == [(0, 1), (2,)]


def test_pipeline_stages_with_two_ranks_each_are_two_classes():
    def sender(rank: int):
        return (compute(0), message(1, 0, sends=True, source=rank, target=rank + 2))

    def receiver(rank: int):
        return (message(0, sends=False, source=rank - 2, target=rank), compute(1, 0))

    assert ranks(small_job(sender(0), sender(1), receiver(2), receiver(3))) == [(0, 1), (2, 3)]


def test_groups_count_by_their_shape_not_by_their_name():
    groups = {"1": (0, 1), "2": (2, 3)}
    parts = [(small_collective(0, group=name),) for name in ("1", "1", "2", "2")]
    assert ranks(small_job(*parts, groups=groups)) == [(0, 1, 2, 3)]


def test_a_shared_trace_is_one_class_in_no_time():
    shared = trace(compute(0), small_collective(1, 0))
    assert ranks(Workload((shared,) * 64)) == [tuple(range(64))]


def pipeline(*ranks: int) -> tuple:
    """Return the traces of the ranks of a pipeline, in the order of its stages."""
    before, after = (-1, *ranks[:-1]), (*ranks[1:], -1)
    by_rank = {}
    for source, rank, target in zip(before, ranks, after, strict=True):
        received = () if source < 0 else (message(0, sends=False, source=source, target=rank),)
        sent = () if target < 0 else (message(2, 1, sends=True, source=rank, target=target),)
        by_rank[rank] = (*received, compute(1, *(0,) * len(received)), *sent)
    return tuple(by_rank[rank] for rank in sorted(by_rank))


def test_stages_of_a_pipeline_with_the_same_program_are_classes_of_their_own():
    assert ranks(small_job(*pipeline(0, 1, 2, 3))) == [(0,), (1,), (2,), (3,)]


def test_replicas_of_a_pipeline_share_classes_however_they_are_numbered():
    one, two = pipeline(0, 2, 4, 6), pipeline(1, 3, 5, 7)
    assert ranks(small_job(*(t for pair in zip(one, two, strict=True) for t in pair))) == [
        (0, 1), (2, 3), (4, 5), (6, 7),
    ]  # fmt: skip
    assert ranks(small_job(*pipeline(0, 1, 2, 3), *pipeline(4, 5, 6, 7))) == [
        (0, 4), (1, 5), (2, 6), (3, 7),
    ]  # fmt: skip


def around(*ring: int) -> list[tuple]:
    """Return the traces of ranks that each send to the next one of a ring."""
    return [
        (
            message(0, sends=True, source=rank, target=ring[(place + 1) % len(ring)]),
            message(1, sends=False, source=ring[place - 1], target=rank),
        )
        for place, rank in enumerate(ring)
    ]


def test_a_ring_inside_a_stage_is_one_class_wherever_its_ranks_lie():
    parts = around(1, 2, 3)
    assert ranks(small_job((compute(0),), *parts)) == [(0,), (1, 2, 3)]


@pytest.mark.parametrize(
    "other",
    [
        (compute(0, name="other"), small_collective(1, 0)),
        (compute(0, type=2), small_collective(1, 0)),
        (compute(0), small_collective(1)),
        (compute(0), small_collective(1, 0, kind=2)),
        (compute(0), small_collective(1, 0, group="1")),
        (small_collective(0), compute(1, 0)),
    ],
)
def test_every_part_of_a_program_tells_ranks_apart(other):
    same = (compute(0), small_collective(1, 0))
    assert ranks(small_job(same, other, same, groups={"1": (0, 1)})) == [(0, 2), (1,)]


def test_ids_and_tags_do_not_tell_ranks_apart():
    first = (compute(3, name="a"), small_collective(9, 3))
    assert ranks(small_job(first, (compute(1, name="a"), small_collective(2, 1)))) == [(0, 1)]
    pair = (
        (message(0, sends=True, source=0, target=1, tag=5),),
        (message(0, sends=False, source=0, target=1, tag=5),),
        (message(0, sends=True, source=2, target=3, tag=77),),
        (message(0, sends=False, source=2, target=3, tag=77),),
    )
    assert ranks(small_job(*pair)) == [(0, 2), (1, 3)]


@pytest.mark.parametrize("target", [-3, 2])
def test_a_peer_outside_the_job_is_named_with_the_ranks_that_there_are(target):
    parts = ((message(0, sends=True, source=0, target=target),), (compute(0),))
    with pytest.raises(TraceError, match=rf"names rank {target}, but the job has ranks 0 to 1"):
        rank_classes(small_job(*parts))


@tried(25)
@given(st.permutations(range(6)))
def test_renumbering_the_ranks_renumbers_their_classes(order):
    """Two replicas of a pipeline of three stages, at any places."""
    place = {old: new for new, old in enumerate(order)}
    by_rank: dict[int, tuple] = {}
    for first in (0, 3):
        chain = [place[first + at] for at in range(3)]
        for at, rank in enumerate(chain):
            got = () if at == 0 else (message(0, sends=False, source=chain[at - 1], target=rank),)
            sent = (
                () if at == 2 else (message(2, 1, sends=True, source=rank, target=chain[at + 1]),)
            )
            by_rank[rank] = (*got, compute(1, *(0,) * len(got)), *sent)
    found = {frozenset(part) for part in ranks(small_job(*(by_rank[rank] for rank in range(6))))}
    pairs = {frozenset({place[at], place[3 + at]}) for at in range(3)}
    if all((place[0] < place[3]) == (place[at] < place[3 + at]) for at in (1, 2)):
        assert found == pairs
    else:  # replicas that are crossed do not meet at the same places
        assert found != pairs
