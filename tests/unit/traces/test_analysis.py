from dataclasses import replace

import numpy as np
import pytest
from trace_examples import coll, comp, message, pair_workload

from layerdag.errors import TraceError
from layerdag.traces.analysis import match_communication, program_order, summarize, summarize_trace
from layerdag.traces.builder import NodeSpec, build_trace
from layerdag.traces.trace import Attribute, NodeType, Wire, Workload


def job(*ranks, groups=None) -> Workload:
    return Workload(tuple(build_trace(nodes) for nodes in ranks), groups or {})


def messages(workload: Workload) -> list[str]:
    return [mismatch.message for mismatch in match_communication(workload).mismatches]


def test_collectives_and_messages_of_a_sound_job_match():
    found = match_communication(pair_workload())
    assert found.mismatches == ()
    assert found.rank_C.tolist() == [0, 1]
    assert found.instance_C.tolist() == [0, 0]
    assert (found.send_rank_M.tolist(), found.recv_rank_M.tolist()) == ([0], [1])
    assert (found.send_row_M.tolist(), found.recv_row_M.tolist()) == ([2], [2])
    assert found.bytes_M.tolist() == [64]


def test_groups_match_among_their_members_only():
    groups = {"5": (0, 2), "6": (1, 3)}
    ranks = [[coll(0, group=name), coll(1, 0)] for name in ("5", "6", "5", "6")]
    found = match_communication(job(*ranks, groups=groups))
    assert found.mismatches == ()
    # The collective of everybody, and one for each group.
    assert len(set(found.instance_C.tolist())) == 3
    by_rank = found.instance_C.reshape(4, 2)
    assert by_rank[0, 0] == by_rank[2, 0] != by_rank[1, 0]


def test_absent_member_is_named():
    (text,) = messages(job([coll(0), coll(1)], [coll(0)]))
    assert "Rank 0, node 1: collective number 1 of all ranks is never called by rank 1" in text


def test_disagreement_about_size_or_type_is_named():
    (text,) = messages(job([coll(0, size=8)], [coll(3, size=16)]))
    assert "8 bytes, but rank 1, node 3 has type 0 and 16 bytes" in text
    (text,) = messages(job([coll(0, kind=2)], [coll(0, kind=7)]))
    assert "type 2" in text
    assert "type 7" in text


def test_unknown_group_and_foreign_rank_are_named():
    (text,) = messages(job([coll(0, group="9")]))
    assert "names a communicator group that is not described" in text
    texts = messages(job([coll(0, group="1")], [coll(0, group="1")], groups={"1": (0,)}))
    assert any("Rank 1" in text and "does not belong" in text for text in texts)


def test_lonely_and_unequal_messages_are_named():
    (text,) = messages(job([message(0, NodeType.COMM_SEND, 1)], [comp(0)]))
    assert "the send from rank 0 to rank 1 with tag 7 has no matching receive on rank 1" in text
    (text,) = messages(job([comp(0)], [message(4, NodeType.COMM_RECV, 0)]))
    assert "the receive from rank 0 to rank 1 with tag 7 has no matching send on rank 0" in text
    (text,) = messages(pair_workload(size=65))
    assert "sends 65 bytes, but rank 1, node 2 receives 64" in text


def test_messages_with_one_tag_match_in_order():
    send, receive = NodeType.COMM_SEND, NodeType.COMM_RECV
    first = [message(0, send, 1, size=1), message(1, send, 1, 0, size=2)]
    second = [message(5, receive, 0, size=1), message(6, receive, 0, 5, size=2)]
    found = match_communication(job(first, second))
    assert found.mismatches == ()
    assert found.send_row_M.tolist() == [0, 1]
    assert found.recv_row_M.tolist() == [0, 1]


def test_messages_match_by_tag_whatever_their_order():
    send, receive = NodeType.COMM_SEND, NodeType.COMM_RECV
    first = [message(0, send, 1, tag=3), message(1, send, 1, 0, tag=4)]
    second = [message(5, receive, 0, tag=4), message(6, receive, 0, 5, tag=3)]
    found = match_communication(job(first, second))
    assert found.mismatches == ()
    assert found.recv_row_M[np.argsort(found.send_row_M)].tolist() == [1, 0]


def test_messages_of_other_tags_do_not_match():
    first, second = message(0, NodeType.COMM_SEND, 1, tag=3), message(5, NodeType.COMM_RECV, 0)
    texts = messages(job([first], [second]))
    assert len(texts) == 2
    assert "from rank 0 to rank 1 with tag 3 has no matching receive" in texts[0]
    assert "from rank 0 to rank 1 with tag 7 has no matching send" in texts[1]


def test_order_of_issue_follows_ids_unless_they_contradict_dependencies():
    assert program_order(build_trace([comp(2, 1), comp(1)])).tolist() == [1, 0]
    # Id 1 waits for id 2: the order of layers holds.
    assert program_order(build_trace([comp(1, 2), comp(2), comp(3)])).tolist() == [1, 2, 0]


def test_counts_of_one_rank():
    nodes = [
        comp(0, us=3, name="mm(1)"),
        comp(1, 0, us=4, name="mm(2)"),
        comp(2, 0, us=9, ctrl=(1,)),
        coll(3, 1),
        NodeSpec(4, "w", NodeType.MEM_LOAD, attributes=(Attribute("tensor_size", Wire.UINT64, 7),)),
    ]
    found = summarize_trace(build_trace(nodes))
    assert (found.nodes, found.data_edges, found.control_edges) == (5, 3, 1)
    assert found.types == {"MEM_LOAD": 1, "COMP": 3, "COMM_COLL": 1}
    assert found.operators["mm"] == 2
    assert (found.layers, found.widest_layer) == (3, 2)
    assert (found.critical_path_us, found.critical_path_nodes) == (16, 3)
    assert found.duration_us == 16
    assert found.tensor_bytes == 7


def test_communication_by_group_and_shared_ranks():
    member = [coll(0, size=100, group="1"), coll(1, 0, kind=6, size=8)]
    trace = build_trace(member)
    other = build_trace([coll(1, kind=6, size=8)])
    found = summarize(Workload((trace, other, trace), {"1": (0, 2)}))
    assert (found.num_ranks, found.distinct_traces, found.nodes) == (3, 2, 5)
    assert [rank.ranks for rank in found.ranks] == [(0, 2), (1,)]
    world, group = found.groups
    assert (world.group, world.size, world.collectives) == ("all ranks", 3, {"ALL_TO_ALL": 1})
    assert (group.group, group.size, group.bytes_per_rank) == ("1", 2, 100)
    assert found.mismatches == ()


def test_messages_are_counted_once():
    found = summarize(pair_workload())
    assert (found.messages, found.message_bytes) == (1, 64)


def test_the_measured_span_has_the_gaps_that_the_critical_path_has_not():
    host = (Attribute("is_cpu_op", Wire.BOOL, True),)
    nodes = [
        NodeSpec(0, "a", NodeType.COMP, start_us=100, duration_us=10, attributes=host),
        NodeSpec(1, "b", NodeType.COMP, (0,), start_us=1_000, duration_us=20),
    ]
    found = summarize_trace(build_trace(nodes))
    assert (found.critical_path_us, found.span_us) == (30, 920)
    bare = summarize_trace(build_trace([replace(nodes[1], data_deps=())]))
    assert bare.span_us is None
    assert "span_us" not in bare.to_json()


def test_sums_of_large_sizes_do_not_wrap():
    size = Attribute("tensor_size", Wire.UINT64, 2**62)
    nodes = [NodeSpec(at, "a", NodeType.COMP, attributes=(size,)) for at in range(5)]
    assert summarize_trace(build_trace(nodes)).tensor_bytes == 5 * 2**62


@pytest.mark.parametrize("name", ["tensor_size", "comm_size"])
def test_a_size_below_0_is_not_taken_off_a_sum(name):
    attributes = (Attribute(name, Wire.INT64, -5),)
    with pytest.raises(TraceError, match=f"'{name}' = -5; it is at least 0"):
        summarize_trace(build_trace([NodeSpec(7, "x", NodeType.COMP, attributes=attributes)]))
