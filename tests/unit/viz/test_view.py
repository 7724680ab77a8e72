from trace_examples import coll, comp

from layerdag.traces import Attribute, NodeType, Wire
from layerdag.traces.chakra import NodeSpec, build_trace
from layerdag.viz import view_of_trace


def test_kinds_are_node_types_where_names_say_nothing() -> None:
    nodes = [comp(at, name=f"layer{chr(97 + at)}") for at in range(26)]
    view = view_of_trace(build_trace([*nodes, coll(26)]))
    assert view.kinds == ("COMP", "COMM_COLL")


def test_frequent_operators_are_kinds_of_their_own() -> None:
    names = ["mm(1)", "mm(2)", "mm(3)", "add", "add", "add", "relu", "relu", "add", *"abcd"]
    view = view_of_trace(build_trace([comp(at, name=name) for at, name in enumerate(names)]))
    assert {"mm", "add", "other computation"} <= set(view.kinds)
    assert view.kind_N[0] == view.kind_N[1]
    assert len(set(view.colors)) == len(view.kinds)


def test_long_values_are_cut() -> None:
    values = tuple(range(100))
    node = NodeSpec(0, "a", NodeType.COMP, attributes=(Attribute("l", Wire.INT64 + 1, values),))
    text = view_of_trace(build_trace([node])).details[0]["l"]
    assert text.startswith("0, 1, 2")
    assert len(text) == 60
