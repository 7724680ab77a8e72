import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried
from random_jobs import random_job
from raw_graphs import chain

from layerdag.codec import AttributedGraph
from layerdag.datasets._splits import content_key
from layerdag.datasets.files import read_graphml, read_json, write_graphml, write_json
from layerdag.errors import GraphError


def test_json_keeps_everything(tmp_path):
    graph = random_job(1, 2)
    write_json(tmp_path / "g.json", graph)
    back = read_json(tmp_path / "g.json")
    assert content_key(back) == content_key(graph)
    assert back.conditions == graph.conditions
    assert back.name == graph.name
    assert np.array_equal(back.numbers["comm_bytes"], graph.numbers["comm_bytes"], equal_nan=True)


def test_graphml_keeps_structure_words_and_numbers(tmp_path):
    graph = replace(chain("g", "abc", label=2.5), numbers={"size": np.array([1.0, np.nan, 3.0])})
    write_graphml(tmp_path / "g.graphml", graph)
    back = read_graphml(tmp_path / "g.graphml")
    assert content_key(back) == content_key(graph)
    assert back.conditions == {"label": 2.5}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "its format is 'other'"),
        ({"edges": [[0, 9]], "edge_types": ["data"]}, "names node 9"),
        ({"edges": [[0, 1], [0, 1]], "edge_types": ["data", "data"]}, "occurs twice"),
        ({"edges": [[0, 10**30]], "edge_types": ["data"]}, "not a graph"),
        ({"edges": [[0, 1]], "edge_types": ["control"]}, "edge_types has 'control', which"),
        ({"edges": [[0, 1]], "edge_types": [0]}, "edge_types has 0, which edge_type_names lacks"),
        ({"edges": [[0, 1]], "edge_types": 3}, "not a graph"),
        ({"edges": [[0, 1]], "edge_types": []}, "0 edge types for 1 edges"),
        ({"categories": {"kind": ["a"], "more": ["a", "b"]}}, "'more' has 2 values for 1 nodes"),
        ({"categories": {}}, "no node"),
        ({"categories": 3}, "not a graph"),
    ],
)
def test_damaged_json_is_refused(tmp_path, change, message):
    path = tmp_path / "g.json"
    write_json(path, chain("g", "ab"))
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(GraphError, match=message):
        read_json(path)


UNDECLARED = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph>
<node id="n1"><data key="op">Add</data><data key="delay">2</data></node>
<node id="n2"><data key="op">Mul</data></node>
<edge source="n1" target="n2"><data key="deptype">Data</data><data key="distance">0</data></edge>
<edge source="n2" target="n1"><data key="deptype">Data</data><data key="distance">1</data></edge>
</graph></graphml>"""


def test_undeclared_keys_are_read_and_edges_of_a_loop_left_out(tmp_path):
    (tmp_path / "g.graphml").write_text(UNDECLARED)
    graph = read_graphml(tmp_path / "g.graphml")
    assert graph.categories == {"op": ["Add", "Mul"]}
    assert np.array_equal(graph.numbers["delay"], [2.0, np.nan], equal_nan=True)
    assert graph.edge_index_2E.tolist() == [[0], [1]]
    assert graph.edge_type_names[int(graph.edge_type_E[0])] == "Data"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<graphml><graph>", "not readable GraphML"),
        ("<html></html>", "no GraphML"),
        ("<graphml><graph edgedefault='undirected'><node id='a'/></graph></graphml>", "undirected"),
        ("<graphml><graph><node id='a'/><node id='a'/></graph></graphml>", "same id"),
        ("<graphml><graph><node id='a'/><edge source='a' target='b'/></graph></graphml>", "'b'"),
        ("<graphml><graph></graph></graphml>", "no node"),
    ],
)
def test_what_is_no_directed_graphml_is_refused(tmp_path, text, message):
    (tmp_path / "g.graphml").write_text(text)
    with pytest.raises(GraphError, match=message):
        read_graphml(tmp_path / "g.graphml")


@given(
    st.lists(st.text("abc\u00e9 <&\"'", max_size=4), min_size=1, max_size=5),
    st.lists(
        st.one_of(st.none(), st.floats(-1e9, 1e9, allow_subnormal=False)), min_size=5, max_size=5
    ),
    st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=6),
)
@tried(25)
def test_any_graph_comes_back_from_json(tmp_path_factory, words, numbers, pairs):
    size = len(words)
    edges = sorted({(a % size, b % size) for a, b in pairs if a % size < b % size})
    graph = AttributedGraph(
        name="g",
        categories={"kind": words},
        numbers={"x": np.array([math.nan if v is None else v for v in numbers[:size]])},
        units={"x": "ns"},
        edge_index_2E=np.array(edges, dtype=np.int64).reshape(-1, 2).T,
        edge_type_E=np.array([i % 2 for i in range(len(edges))], dtype=np.int64),
        edge_type_names=("data", "control"),
        conditions={"label": 1.5, "family": "gpt"},
    )
    path = tmp_path_factory.mktemp("law") / "g.json"
    write_json(path, graph)
    again = read_json(path)
    assert again.categories == graph.categories
    np.testing.assert_array_equal(again.numbers["x"], graph.numbers["x"])
    np.testing.assert_array_equal(again.edge_index_2E, graph.edge_index_2E)
    np.testing.assert_array_equal(again.edge_type_E, graph.edge_type_E)
    assert (again.units, again.conditions) == (graph.units, graph.conditions)
    assert again.edge_type_names == graph.edge_type_names


def test_conditions_that_are_neither_numbers_nor_words_are_left_out(tmp_path):
    write_json(tmp_path / "g.json", chain("g", "ab"))
    data = json.loads((tmp_path / "g.json").read_text())
    data["conditions"] = {"a": 1, "b": "x", "c": True, "d": None, "e": [1]}
    (tmp_path / "g.json").write_text(json.dumps(data))
    assert read_json(tmp_path / "g.json").conditions == {"a": 1.0, "b": "x"}


def graphml(body: str, keys: str = "", attributes: str = "") -> str:
    return f"<graphml>{keys}<graph edgedefault='directed' {attributes}>{body}</graph></graphml>"


def test_types_of_declared_keys_decide_between_words_and_numbers(tmp_path):
    keys = (
        "<key id='d0' for='node' attr.name='size' attr.type='double'/>"
        "<key id='d1' for='node' attr.name='code' attr.type='string'/>"
        "<key id='d2' for='graph' attr.name='cost' attr.type='float'/>"
        "<key id='d3' for='graph' attr.name='version' attr.type='string'/>"
    )
    body = (
        "<data key='d2'>2.5</data><data key='d3'>7</data>"
        "<node id='a'><data key='d0'>3</data><data key='d1'>1</data></node>"
        "<node id='b'><data key='d1'>2</data></node><edge source='a' target='b'/>"
    )
    (tmp_path / "g.graphml").write_text(graphml(body, keys))
    found = read_graphml(tmp_path / "g.graphml")
    assert found.categories == {"code": ["1", "2"]}
    np.testing.assert_array_equal(found.numbers["size"], [3.0, np.nan])
    assert found.conditions == {"cost": 2.5, "version": "7"}
    assert found.name == "g"


def test_a_column_with_one_word_in_it_is_a_column_of_words(tmp_path):
    body = "<node id='a'><data key='x'>3</data></node><node id='b'><data key='x'>many</data></node>"
    (tmp_path / "g.graphml").write_text(graphml(body))
    assert read_graphml(tmp_path / "g.graphml").categories == {"x": ["3", "many"]}


def test_nodes_without_attributes_get_one(tmp_path):
    (tmp_path / "g.graphml").write_text(graphml("<node id='a'/><node id='b'/>"))
    assert read_graphml(tmp_path / "g.graphml").categories == {"kind": ["node", "node"]}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("<node id='a'/><node id='a'/>", "two nodes have the same id; make ids unique"),
        ("<node id='a'/><edge source='a' target='z'/>", "names node 'z', which does not exist"),
    ],
)
def test_graphml_that_contradicts_itself_is_refused(tmp_path, body, told):
    (tmp_path / "g.graphml").write_text(graphml(body))
    with pytest.raises(GraphError, match=told):
        read_graphml(tmp_path / "g.graphml")


def test_types_of_edges_are_kept_and_the_usual_one_is_data(tmp_path):
    body = (
        "<node id='a'/><node id='b'/><node id='c'/>"
        "<edge source='a' target='b'><data key='deptype'>anti</data></edge>"
        "<edge source='b' target='c'/>"
        "<edge source='c' target='a'><data key='Distance'>1</data></edge>"
    )
    (tmp_path / "g.graphml").write_text(graphml(body))
    found = read_graphml(tmp_path / "g.graphml")
    assert found.edge_type_names == ("anti", "data")
    assert found.edge_index_2E.T.tolist() == [[0, 1], [1, 2]]
    assert found.edge_type_E.tolist() == [0, 1]
