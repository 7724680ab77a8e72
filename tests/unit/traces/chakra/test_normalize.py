import pytest
from trace_examples import coll, comp, message

from layerdag.errors import TraceError
from layerdag.traces import Attribute, NodeType, Trace, Wire
from layerdag.traces.chakra import NodeSpec, attribute_at, build_trace, normalize, without_nodes


def spec(kind: NodeType, *attributes: Attribute) -> Trace:
    return build_trace([NodeSpec(4, "x", kind, attributes=attributes)], source="x.et")


def found(trace: Trace) -> dict[str, tuple[int, object]]:
    rows = range(trace.attributes.wire_A.size)
    each = [attribute_at(trace.attributes, row, trace.strings) for row in rows]
    return {a.name: (a.wire, a.value) for a in each}


def test_attributes_get_the_type_that_feeder_v1_reads() -> None:
    trace = spec(
        NodeType.COMM_COLL,
        Attribute("is_cpu_op", Wire.INT32, 0),
        Attribute("comm_type", Wire.UINT32, 6),
        Attribute("comm_size", Wire.UINT64, 2**40),
        Attribute("other", Wire.UINT64, 5),
    )
    assert found(normalize(trace)) == {
        "is_cpu_op": (Wire.BOOL, False),
        "comm_type": (Wire.INT64, 6),
        "comm_size": (Wire.INT64, 2**40),
        "other": (Wire.UINT64, 5),
    }


def test_communication_leaves_the_cpu_and_computation_stays() -> None:
    cpu = Attribute("is_cpu_op", Wire.BOOL, True)
    trace = build_trace(
        [
            NodeSpec(0, "a", NodeType.COMP, attributes=(cpu,)),
            NodeSpec(1, "b", NodeType.COMM_COLL, attributes=(cpu, *coll(1).attributes[1:])),
        ]
    )
    assert normalize(trace).integers("is_cpu_op")[0].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        (
            spec(NodeType.COMM_COLL, Attribute("comm_type", Wire.INT64, 0)),
            "no attribute 'comm_size",
        ),
        (
            spec(NodeType.COMM_COLL, Attribute("comm_size", Wire.DOUBLE, 1.0)),
            "'comm_size' as double_val",
        ),
        (spec(NodeType.COMM_SEND, Attribute("comm_dst", Wire.INT32, 1)), "no attribute 'comm_tag'"),
        (spec(NodeType.MEM_LOAD), "no attribute 'tensor_size'"),
        (spec(NodeType.COMP, Attribute("comm_tag", Wire.INT64, 2**31)), "does not fit into int32"),
        (spec(NodeType.COMP, Attribute("tensor_size", Wire.INT64, -1)), "does not fit into uint64"),
        (spec(NodeType.COMP, Attribute("num_ops", Wire.UINT64, 2**63)), "does not fit into int64"),
        (build_trace([coll(4, group="default_pg")], source="x.et"), "group 'default_pg'"),
        (build_trace([comp(4, 9)], source="x.et"), "depends on node 9"),
        (build_trace([comp(4, 5), comp(5, 4)], source="x.et"), "wait for each other"),
    ],
)
def test_what_astra_sim_cannot_run_is_refused(trace: Trace, expected: str) -> None:
    with pytest.raises(TraceError, match=expected) as caught:
        normalize(trace)
    assert str(caught.value).startswith("x.et: ")
    assert "4" in str(caught.value)


@pytest.mark.parametrize("tag", [2**31 - 1, -(2**31)])
def test_the_largest_tags_stay(tag: int) -> None:
    trace = normalize(spec(NodeType.COMP, Attribute("comm_tag", Wire.INT64, tag)))
    assert found(trace)["comm_tag"] == (Wire.INT32, tag)


def test_metadata_nodes_go_and_their_children_inherit() -> None:
    meta = NodeSpec(1, "process_group:init", NodeType.METADATA, (0,))
    second = NodeSpec(2, "", NodeType.INVALID, (1,), (0,))
    trace = normalize(build_trace([comp(0), meta, second, comp(3, 2, 0), comp(4, ctrl=(1,))]))
    assert trace.id_N.tolist() == [0, 3, 4]
    assert trace.data_deps.of(1).tolist() == [0]
    assert trace.ctrl_deps.of(2).tolist() == [0]
    assert trace.names() == ["aten::mm"] * 3
    assert trace.integers("is_cpu_op")[1].all()


def test_sound_trace_is_left_alone() -> None:
    trace = build_trace([comp(0), coll(1, 0), message(2, NodeType.COMM_SEND, 1, 1)])
    assert normalize(trace) is trace
    assert without_nodes(trace, trace.type_N > 7) is trace
