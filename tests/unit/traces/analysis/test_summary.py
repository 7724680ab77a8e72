from trace_examples import coll, comp, pair_workload

from layerdag.traces import Attribute, NodeType, Wire, Workload
from layerdag.traces.analysis import summarize
from layerdag.traces.analysis._summary import summarize_trace
from layerdag.traces.chakra import NodeSpec, build_trace


def test_counts_of_one_rank() -> None:
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


def test_communication_by_group_and_shared_ranks() -> None:
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


def test_messages_are_counted_once() -> None:
    found = summarize(pair_workload())
    assert (found.messages, found.message_bytes) == (1, 64)
