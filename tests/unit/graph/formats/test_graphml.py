"""GraphML as we write it, as other tools write it, and files that are none."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import layerdag as ld
from layerdag.errors import GraphError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.graph.formats.graphml import read_graphml, write_graphml
from layerdag.graph.formats.node_link import read_node_link
from layerdag.runtime.notes import NoteKind

SPACE = "http://graphml.graphdrawing.org/xmlns"

# A triangle as other tools declare it: keys by number, one name for nodes and edges.
DECLARED = f"""<graphml xmlns="{SPACE}">
  <key id="d0" for="node" attr.name="op" attr.type="string"/>
  <key id="d1" for="node" attr.name="delay" attr.type="double"/>
  <key id="d2" for="edge" attr.name="type" attr.type="string"/>
  <key id="d3" for="graph" attr.name="latency" attr.type="int"/>
  <key id="d4" for="graph" attr.name="version" attr.type="string"/>
  <graph edgedefault="directed">
    <data key="d3">17</data><data key="d4">7</data>
    <node id="n0"><data key="d0">load</data><data key="d1">2.5</data></node>
    <node id="n1"><data key="d0">mul</data></node>
    <node id="n2"><data key="d0">7</data><data key="d1">1</data></node>
    <edge source="n0" target="n1"/>
    <edge source="n0" target="n2"><data key="d2">control</data></edge>
    <edge source="n1" target="n2"/>
  </graph>
</graphml>"""

# As HatScheT's library: no keys declared, a loop closed by an edge with a distance.
LOOP = """<graphml><graph edgedefault="directed">
  <node id="a"><data key="area">3</data></node>
  <node id="b"><data key="area">4</data></node>
  <edge source="a" target="b"><data key="deptype">Flow</data></edge>
  <edge source="b" target="a"><data key="Distance">1</data></edge>
</graph></graphml>"""


def read(tmp_path: Path, text: str) -> AttributedGraph:
    file = tmp_path / "graph.graphml"
    file.write_text(text)
    return read_graphml(file)


def test_declared_keys_give_names_types_and_graph_values(tmp_path):
    graph = read(tmp_path, DECLARED)
    assert graph.name == "graph"
    assert graph.categories == {"op": ["load", "mul", "7"]}  # declared as text, so "7" is a word
    np.testing.assert_array_equal(graph.numbers["delay"], [2.5, np.nan, 1])
    assert graph.conditions == {"latency": 17.0, "version": "7"}
    names = [graph.edge_type_names[code] for code in graph.edge_type_E]  # data, if none is given
    assert list(zip(*graph.edge_index_2E.tolist(), names, strict=True)) == [
        (0, 1, "data"), (0, 2, "control"), (1, 2, "data"),
    ]  # fmt: skip


def test_without_declared_keys_values_tell_numbers_from_words(tmp_path):
    graph = read(tmp_path, LOOP)
    assert graph.edge_index_2E.T.tolist() == [[0, 1]]  # not the edge to a later iteration
    assert graph.edge_type_names[int(graph.edge_type_E[0])] == "Flow"
    assert graph.categories == {"kind": ["node", "node"]}  # as no word tells them apart
    assert graph.numbers["area"].tolist() == [3, 4]
    words = read(tmp_path, LOOP.replace(">4<", ">four<"))
    assert words.categories["area"] == ["3", "four"]
    assert not words.numbers


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("<graphml", "<svg"), "is not readable GraphML"),
        ((DECLARED, "<html><body/></html>"), "is XML, but no GraphML"),
        ((DECLARED, "operator,parent\n"), "is not readable GraphML"),
        (("directed", "undirected"), "a DAG needs edgedefault='directed'"),
        (('id="n1"', 'id="n0"'), "two nodes have the same id"),
        (('target="n1"', 'target="n9"'), r"graph\.graphml.*names node 'n9', which does not exist"),
        ((DECLARED, f'<graphml xmlns="{SPACE}"><graph edgedefault="directed"/></graphml>'), "node"),
    ],
)
def test_what_is_no_directed_acyclic_graphml_is_refused(tmp_path, change, told):
    with pytest.raises(GraphError, match=told) as error:
        read(tmp_path, DECLARED.replace(*change))
    assert error.type is GraphError


# Words that XML can hold; leading and trailing space does not survive, as other tools indent text.
WORDS = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=8)


@settings(max_examples=25)
@given(words=st.lists(WORDS, min_size=1, max_size=6), numbers=st.data())
def test_what_is_written_is_read_again(tmp_path_factory, words, numbers):
    count = len(words)
    value = st.one_of(st.just(np.nan), st.floats(-1e9, 1e9, width=32))
    values = numbers.draw(st.lists(value, min_size=count, max_size=count))
    graph = AttributedGraph(
        name="written",
        categories={"op": words},
        numbers={"cost": np.array(values)} if not np.isnan(values).all() else {},
        edge_index_2E=np.array([[0] * (count - 1), range(1, count)], dtype=np.int64),
        edge_type_E=np.arange(count - 1) % 2,
        edge_type_names=("control", "data"),
        conditions={"label": 0.25, "family": "star"},
    )
    file = tmp_path_factory.mktemp("graphml") / "written.graphml"
    write_graphml(file, graph)
    again = read_graphml(file)
    assert again.categories == graph.categories
    assert again.conditions == graph.conditions
    for name, column in graph.numbers.items():
        np.testing.assert_array_equal(again.numbers[name], column)
    np.testing.assert_array_equal(again.edge_index_2E, graph.edge_index_2E)
    assert [again.edge_type_names[c] for c in again.edge_type_E] == [
        graph.edge_type_names[c] for c in graph.edge_type_E
    ]


def linked(tmp_path: Path, document: object) -> AttributedGraph:
    path = tmp_path / "g.json"
    path.write_text(json.dumps(document))
    return read_node_link(path)


def test_control_and_data_flow_of_a_loop(tmp_path):
    document = {
        "directed": True,
        "multigraph": True,
        "graph": {"label": 7, "device": "zc706", "deep": {"lut": 3}},
        "nodes": [
            {"id": 10, "text": "br", "block": 0, "features": {"full": ["x"], "two": [1, 2]}},
            {"id": 11, "text": "add", "block": 1, "long": list(range(99)), "none": None},
            {"id": 12, "text": "mul", "is_start": True},
        ],
        "links": [
            {"source": 10, "target": 11, "flow": 0, "key": 0},
            {"source": 10, "target": 11, "flow": 1, "key": 1},
            {"source": 11, "target": 12, "flow": 2},
            {"source": 12, "target": 11, "flow": 0},
            {"source": 12, "target": 10, "is_back_edge": 1},
        ],
    }
    graph = linked(tmp_path, document)
    assert graph.categories["text"] == ["br", "add", "mul"]
    assert graph.categories["features.full"] == ["x", "", ""]
    assert graph.categories["is_start"] == ["", "", "true"]
    np.testing.assert_array_equal(graph.numbers["features.two_1"], [2, np.nan, np.nan])
    assert "long" not in {**graph.numbers, **graph.categories}
    names = [graph.edge_type_names[code] for code in graph.edge_type_E]
    assert list(zip(*graph.edge_index_2E.tolist(), names, strict=True)) == [
        (0, 1, "control+data"), (1, 2, "call"),
    ]  # fmt: skip
    assert graph.conditions == {"loop_edges": 2, "label": 7, "device": "zc706", "deep.lut": 3}
    assert graph.layer_N.tolist() == [0, 1, 2]
    sniffed = ld.read(tmp_path / "g.json")
    assert isinstance(sniffed, AttributedGraph)


def test_edges_for_links_and_a_node_that_feeds_itself(tmp_path):
    nodes = [{"id": "a"}, {"id": "b"}]
    edges = [{"source": "a", "target": "b"}, {"source": "b", "target": "b"}]
    graph = linked(tmp_path, {"nodes": nodes, "edges": edges})
    assert graph.categories == {"kind": ["node", "node"]}
    assert graph.conditions == {"loop_edges": 1.0}
    assert graph.edge_type_names == ("data",)


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"directed": False, "nodes": [], "links": []}, "undirected"),
        ({"directed": "no", "nodes": [], "links": []}, "'directed' is 'no'; it must be true"),
        ({"nodes": [{"id": 1}, {"id": 1}], "links": []}, "same id"),
        ({"nodes": [{"id": 1}], "links": [{"source": 1, "target": 2}]}, "node '2'.*not exist"),
        ({"nodes": [{"id": 1}], "links": [{"source": 1}]}, "target' is missing"),
        ({"nodes": [], "links": []}, "no node"),
        ({"nodes": 3, "links": []}, "no node-link JSON"),
        ([], "no node-link JSON"),
    ],
)
def test_faults_are_told(tmp_path, document, told):
    with pytest.raises(GraphError, match=told):
        linked(tmp_path, document)


def test_a_chain_of_many_nodes_does_not_exhaust_the_stack(tmp_path):
    nodes = [{"id": i} for i in range(5000)]
    links = [{"source": i, "target": i + 1} for i in range(4999)]
    assert linked(tmp_path, {"nodes": nodes, "links": links}).layer_N.max() == 4999


def keyed(keys: str, nodes: str, edges: str = "", space: str = f' xmlns="{SPACE}"') -> str:
    return f"<graphml{space}>{keys}<graph edgedefault='directed'>{nodes}{edges}</graph></graphml>"


AB = '<node id="a"/><node id="b"/>'
A_TO_B = '<edge source="a" target="b"/>'


def test_defaults_count_for_nodes_edges_and_the_graph(tmp_path):
    keys = "".join(
        f'<key id="{scope}" for="{scope}" attr.name="{name}" attr.type="{kind}">'
        f"<default>{value}</default></key>"
        for scope, name, kind, value in (
            ("node", "op", "string", "conv"),
            ("edge", "type", "string", "control"),
            ("graph", "cost", "double", "2.5"),
        )
    )
    nodes = '<node id="a"><data key="node">relu</data></node><node id="b"/>'
    graph = read(tmp_path, keyed(keys, nodes, A_TO_B))
    assert graph.categories == {"op": ["relu", "conv"]}
    assert graph.edge_type_names[graph.edge_type_E[0]] == "control"
    assert graph.conditions == {"cost": 2.5}


@pytest.mark.parametrize(
    ("kind", "values", "words", "numbers"),
    [
        ("boolean", ["true", "\n 1 \n"], {"x": ["true", "true"]}, {}),
        ("Boolean", ["FALSE", "0"], {"x": ["false", "false"]}, {}),
        ("Real", ["1.5", "2"], {"kind": ["node"] * 2}, {"x": [1.5, 2.0]}),
        ("INT", ["1", ""], {"kind": ["node"] * 2}, {"x": [1.0, np.nan]}),
        ("string", ["1", "2"], {"x": ["1", "2"]}, {}),
    ],
)
def test_types_of_keys_are_read_in_any_case(tmp_path, kind, values, words, numbers):
    keys = f'<key id="k" for="node" attr.name="x" attr.type="{kind}"/>'
    nodes = "".join(
        f'<node id="{name}"><data key="k">{value}</data></node>'
        for name, value in zip("ab", values, strict=True)
    )
    graph = read(tmp_path, keyed(keys, nodes))
    assert graph.categories == words
    assert graph.notes == ()
    for name, column in numbers.items():
        np.testing.assert_array_equal(graph.numbers[name], column)


def test_a_key_of_edges_says_nothing_of_nodes(tmp_path):
    keys = (
        '<key id="n" for="node" attr.name="w" attr.type="double"/>'
        '<key id="e" for="edge" attr.name="w" attr.type="string"/>'
    )
    nodes = '<node id="a"><data key="n">1</data></node><node id="b"/>'
    graph = read(tmp_path, keyed(keys, nodes))
    np.testing.assert_array_equal(graph.numbers["w"], [1.0, np.nan])


@pytest.mark.parametrize(
    "space", ["", f' xmlns="{SPACE}"', ' xmlns="http://graphml.graphdrawing.org/xmlns/1.0rc"']
)
def test_elements_are_known_in_any_namespace_of_graphml(tmp_path, space):
    assert read(tmp_path, keyed("", AB, A_TO_B, space)).num_nodes == 2
    prefixed = keyed("", AB, A_TO_B, f' xmlns:g="{SPACE}"')
    for name in ("graph ", "node", "edge ", "graph>"):
        prefixed = prefixed.replace(f"<{name}", f"<g:{name}").replace(f"</{name}", f"</g:{name}")
    assert read(tmp_path, prefixed).edge_index_2E.tolist() == [[0], [1]]


def test_groups_of_yed_are_no_nodes_and_labels_are_read(tmp_path):
    space = f' xmlns="{SPACE}" xmlns:y="http://www.yworks.com/xml/graphml"'
    keys = (
        '<key for="node" id="d6" yfiles.type="nodegraphics"/>'
        '<key for="edge" id="d9" yfiles.type="edgegraphics"/>'
    )

    def node(name: str, label: str) -> str:
        drawn = f"<y:ShapeNode><y:NodeLabel>{label}<y:LabelModel/></y:NodeLabel></y:ShapeNode>"
        return f'<node id="{name}"><data key="d6">{drawn}</data></node>'

    inner = f'<graph edgedefault="directed">{node("g::a", "Conv")}{node("g::b", "Relu")}</graph>'
    dashed = '<data key="d9"><y:PolyLineEdge><y:LineStyle type="dashed"/></y:PolyLineEdge></data>'
    edge = f'<edge source="g::a" target="g::b">{dashed}</edge>'
    graph = read(tmp_path, keyed(keys, f'<node id="g">{inner}</node>', edge, space))
    assert graph.categories == {"label": ["Conv", "Relu"]}
    assert graph.edge_type_names[graph.edge_type_E[0]] == "control"
    assert [(note.kind, note.word) for note in graph.notes] == [(NoteKind.GROUP, "g")]
    ended = edge.replace('"g::b"', '"g"')
    assert read(tmp_path, keyed(keys, f'<node id="g">{inner}</node>', ended, space)).num_nodes == 3


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (keyed("", AB + "<hyperedge/>"), "has hyperedges"),
        (keyed("", AB, '<edge source="a" target="b" directed="false"/>'), "is undirected"),
        (keyed("", AB, '<edge source="a"/>'), "lacks its source or target"),
        (keyed("", "<node/>"), "a node has no id"),
        (keyed("", AB + "</graph><graph>" + AB), "holds 2 graphs"),
    ],
)
def test_what_is_not_read_of_graphml_is_refused(tmp_path, text, told):
    with pytest.raises(GraphError, match=told):
        read(tmp_path, text)


def test_loops_are_told_as_in_every_format_and_marked_ones_are_counted(tmp_path):
    assert read(tmp_path, LOOP).conditions == {"loop_edges": 1.0}
    assert read(tmp_path, LOOP).notes == ()
    graph = read(tmp_path, LOOP.replace(">1<", ">0<"))
    assert graph.conditions == {"loop_edges": 1.0}
    assert [note.word for note in graph.notes] == ["a -> b -> a"]


def test_names_of_nodes_are_written_again(tmp_path):
    graph = read(tmp_path, keyed("", AB, A_TO_B))
    write_graphml(tmp_path / "again.graphml", graph)
    assert read_graphml(tmp_path / "again.graphml").node_names == ("a", "b")


NAMED = [{"id": "k", "op": "mm"}, {"id": "l", "op": "add"}]
PLAIN = [{"id": 0, "op": "mm"}, {"id": 1, "op": "add"}]


@pytest.mark.parametrize(
    "document",
    [
        {"nodes": NAMED, "links": [{"source": 0, "target": 1}]},
        {"elements": {"nodes": [{"data": node} for node in NAMED],
                      "edges": [{"data": {"source": "k", "target": "l"}}]}},
        {"elements": [*({"data": node} for node in NAMED),
                      {"data": {"source": "k", "target": "l"}}]},
        {"graph": {"nodes": {"k": {"metadata": {"op": "mm"}}, "l": {"metadata": {"op": "add"}}},
                   "edges": [{"source": "k", "target": "l"}]}},
        {"nodes": [{"key": node["id"], "attributes": {"op": node["op"]}} for node in NAMED],
         "edges": [{"source": "k", "target": "l"}]},
        {"nodes": NAMED, "edges": [{"from": "k", "to": "l"}]},
    ],
)  # fmt: skip
def test_related_formats_of_json_are_the_same_graph(tmp_path, document):
    graph = linked(tmp_path, document)
    assert ld.read(tmp_path / "g.json").node_names == graph.node_names == ("k", "l")
    assert graph.categories == {"op": ["mm", "add"]}
    assert graph.edge_index_2E.tolist() == [[0], [1]]
    assert graph.notes == ()


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"directed": True, "nodes": PLAIN, "arcs": [1]}, "neither 'links' nor 'edges'.*'arcs'"),
        ({"nodes": PLAIN, "links": [{"source": 0, "target": 1}],
          "edges": [{"source": 1, "target": 0}]}, "has both 'links' and 'edges'"),
        ({"elements": {"nodes": []}}, "edges' is missing"),
        ({"nodes": [{"key": "a"}], "edges": [{"source": "a", "target": "a", "undirected": True}]},
         "is undirected"),
        ({"directed": True, "nodes": [{"id": 0, "op": "\ud800"}], "links": []}, "is no text"),
    ],
)  # fmt: skip
def test_edges_that_would_vanish_are_an_error(tmp_path, document, told):
    with pytest.raises(GraphError, match=told) as error:
        linked(tmp_path, document)
    assert str(tmp_path / "g.json") in str(error.value)


def test_ends_that_are_all_positions_and_not_all_ids_count_positions(tmp_path):
    nodes = [{"id": 1}, {"id": 2}, {"id": 3}]
    links = [{"source": 0, "target": 1}, {"source": 1, "target": 2}]
    graph = linked(tmp_path, {"nodes": nodes, "links": links})
    assert graph.edge_index_2E.tolist() == [[0, 1], [1, 2]]
    assert [note.kind for note in graph.notes] == [NoteKind.EDGE]


def test_attributes_of_each_node_alone_take_no_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("layerdag.graph.formats.rows.MAX_CELLS", 100)
    nodes = [{"id": i, f"a{i}": 1} for i in range(30)]
    with pytest.raises(GraphError, match="a table of 900 cells, of which 30 are filled"):
        linked(tmp_path, {"nodes": nodes, "links": []})
