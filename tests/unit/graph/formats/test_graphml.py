"""GraphML as we write it, as other tools write it, and files that are none."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import layerdag as ld
from layerdag.errors import GraphError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.graph.formats.graphml import (
    read_graphml,
    read_node_link,
    write_graphml,
)

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
@given(
    words=st.lists(WORDS, min_size=1, max_size=6),
    numbers=st.data(),
)
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
        ({"nodes": [{"id": 1}, {"id": 1}], "links": []}, "same id"),
        ({"nodes": [{"id": 1}], "links": [{"source": 1, "target": 2}]}, "node '2'.*not exist"),
        ({"nodes": [{"id": 1}], "links": [{"source": 1}]}, "'target' is missing"),
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
