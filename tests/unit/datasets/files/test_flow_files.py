import json
from dataclasses import replace

import numpy as np
import pytest
from random_jobs import random_job
from raw_graphs import chain

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
        ({"edges": [[0, 1]], "edge_types": ["control"]}, "not a graph"),
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
