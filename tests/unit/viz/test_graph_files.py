import xml.etree.ElementTree as ET

from trace_examples import EVERY_VALUE, comp

from layerdag.traces import NodeType
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
