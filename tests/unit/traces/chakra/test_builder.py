import pytest
from trace_examples import comp

from layerdag.errors import TraceError
from layerdag.traces import Attribute, NodeType, Wire
from layerdag.traces.chakra import NodeSpec, build_trace


def test_integers_and_texts_tell_absent_from_zero() -> None:
    nodes = (
        NodeSpec(0, "a", NodeType.COMP, attributes=(Attribute("comm_type", Wire.INT64, 0),)),
        NodeSpec(1, "b", NodeType.COMP, attributes=(Attribute("pg_name", Wire.STRING, ""),)),
    )
    trace = build_trace(nodes)
    value_N, present_N = trace.integers("comm_type", default=-1)
    assert (value_N.tolist(), present_N.tolist()) == ([0, -1], [True, False])
    text_N, present_N = trace.texts("pg_name")
    assert (text_N, present_N.tolist()) == (["", ""], [False, True])


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        (Attribute("x", Wire.INT32, 2**31), "does not fit into int32_val"),
        (Attribute("x", Wire.UINT64, -1), "does not fit into uint64_val"),
        (Attribute("x", Wire.INT64, 1.5), "does not fit into int64_val"),
        (Attribute("x", Wire.INT64, float("inf")), "does not fit into int64_val"),
        (Attribute("x", Wire.INT64, float("nan")), "does not fit into int64_val"),
        (Attribute("x", Wire.FLOAT, 1e300), "does not fit into float_val"),
        (Attribute("x", Wire.DOUBLE, 10**400), "does not fit into double_val"),
        (Attribute("x", Wire.STRING, 3), "string_val cannot hold 3"),
        (Attribute("x", Wire.BOOL, "yes"), "needs a number"),
        (Attribute("x", Wire.STRING + 1, ("a", 3)), "string_val cannot hold 3"),
        (Attribute("x", Wire.BOOL + 1, True), "bool_list cannot hold True"),
    ],
)
def test_value_of_another_type_is_refused_by_name(attribute: Attribute, expected: str) -> None:
    with pytest.raises(TraceError, match=f"attribute 'x': .*{expected}"):
        build_trace([NodeSpec(0, "a", NodeType.COMP, attributes=(attribute,))])


def test_double_id_and_impossible_numbers_are_refused() -> None:
    with pytest.raises(TraceError, match="two nodes have id 4"):
        build_trace([comp(4), comp(4)])
    with pytest.raises(TraceError, match="names node -1"):
        build_trace([comp(0, -1)])
    with pytest.raises(TraceError, match="names node -7"):
        build_trace([comp(0), comp(1, 0), comp(2, 0, -7)])
    with pytest.raises(TraceError, match="node 0 has type 9"):
        build_trace([NodeSpec(0, "a", 9)])
    with pytest.raises(TraceError, match="duration_us -5"):
        build_trace([comp(0, us=-5)])


def test_empty_trace_has_columns() -> None:
    trace = build_trace([])
    assert trace.num_nodes == 0
    assert trace.io_N6.shape == (0, 6)
