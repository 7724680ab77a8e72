import io
import xml.etree.ElementTree as ET

from trace_examples import EVERY_VALUE, comp

from layerdag.traces import Attribute, NodeType, Wire
from layerdag.traces.chakra import NodeSpec, build_trace
from layerdag.viz import dot, graphml, view_of_trace

XML = "{http://graphml.graphdrawing.org/xmlns}"
HOSTILE = 'a"b\\c<d>&\x00\x1b\n]]>'


def view():
    first = NodeSpec(2**63, HOSTILE, NodeType.METADATA, attributes=EVERY_VALUE)
    return view_of_trace(build_trace([first, comp(1, 2**63, us=3), comp(2, ctrl=(1,))]))


def test_graphml_is_xml_with_typed_values() -> None:
    root = ET.fromstring(graphml(view()))
    keys = {key.get("id"): key for key in root.iter(f"{XML}key")}
    types = {key.get("attr.name"): key.get("attr.type") for key in keys.values()}
    assert (types["duration_us"], types["double"], types["bool"]) == ("long", "double", "boolean")
    assert types["uint64"] == "string"  # does not fit into GraphML's long
    nodes = list(root.iter(f"{XML}node"))
    assert [node.get("id") for node in nodes] == [str(2**63), "1", "2"]
    values = {keys[data.get("key")].get("attr.name"): data.text for data in nodes[1]}
    assert values == {"name": "aten::mm", "kind": "COMP", "duration_us": "3", "is_cpu_op": "false"}
    edges = [(e.get("source"), e.get("target"), e[0].text) for e in root.iter(f"{XML}edge")]
    assert edges == [(str(2**63), "1", "data"), ("1", "2", "control")]


def test_dot_quotes_what_it_would_interpret() -> None:
    lines = dot(view()).splitlines()
    assert any(r'label="a\"b\\c<d>&' in line and r"\n]]>" in line for line in lines)
    assert f'"{2**63}" -> "1";' in lines
    assert '"1" -> "2" [style=dashed];' in lines
    assert lines[-1] == "}"


def test_another_reader_finds_the_same_graph() -> None:
    """networkx reads GraphML by itself."""
    import networkx as nx

    found = nx.read_graphml(io.StringIO(graphml(view())), force_multigraph=True)
    assert isinstance(found, nx.MultiDiGraph)
    assert set(found.nodes) == {str(2**63), "1", "2"}
    assert found.nodes["1"] == {
        "name": "aten::mm", "kind": "COMP", "duration_us": 3, "is_cpu_op": False,
    }  # fmt: skip
    assert found.nodes[str(2**63)]["double"] == -1.5e300
    kinds = {(a, b): data["dependency"] for a, b, data in found.edges(data=True)}
    assert kinds == {(str(2**63), "1"): "data", ("1", "2"): "control"}


def test_a_value_that_comes_with_several_types_is_text() -> None:
    nodes = [
        NodeSpec(n, "a", NodeType.COMP, attributes=(Attribute("mixed", wire, value),))
        for n, (wire, value) in enumerate(
            [(Wire.INT64, 3), (Wire.DOUBLE, 0.5), (Wire.BOOL, True), (Wire.STRING, "x")]
        )
    ]
    root = ET.fromstring(graphml(view_of_trace(build_trace(nodes))))
    (key,) = (key for key in root.iter(f"{XML}key") if key.get("attr.name") == "mixed")
    assert key.get("attr.type") == "string"
    values = [d.text for d in root.iter(f"{XML}data") if d.get("key") == key.get("id")]
    assert values == ["3", "0.5", "true", "x"]


def test_characters_that_xml_cannot_hold_are_replaced() -> None:
    text = graphml(view_of_trace(build_trace([comp(1, name="a\x00b\x1fc\ufffe")])))
    (name,) = (d.text for d in ET.fromstring(text).iter(f"{XML}data") if d.get("key") == "n0")
    assert name == "a\ufffdb\ufffdc\ufffd"


def test_dot_has_a_line_for_every_node_with_its_color_and_kind() -> None:
    text = dot(view_of_trace(build_trace([comp(1, name="mm\r\nx"), comp(2, 1, name="")])))
    assert '"1" [label="mm\\nx", fillcolor="#0072B2", tooltip="COMP"];' in text
    assert '"2" [label="", fillcolor="#0072B2", tooltip="COMP"];' in text
    assert text.count(" -> ") == 1
