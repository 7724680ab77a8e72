"""Node-link JSON of networkx, ProGraML and HLS data sets."""

import json
from pathlib import Path

import numpy as np
import pytest

import layerdag as ld
from layerdag.codec import AttributedGraph
from layerdag.datasets.files import read_node_link
from layerdag.errors import GraphError


def read(tmp_path: Path, document: object) -> AttributedGraph:
    path = tmp_path / "g.json"
    path.write_text(json.dumps(document))
    return read_node_link(path)


def test_control_and_data_flow_of_a_loop(tmp_path: Path) -> None:
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
    graph = read(tmp_path, document)
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


def test_edges_for_links_and_a_node_that_feeds_itself(tmp_path: Path) -> None:
    nodes = [{"id": "a"}, {"id": "b"}]
    edges = [{"source": "a", "target": "b"}, {"source": "b", "target": "b"}]
    graph = read(tmp_path, {"nodes": nodes, "edges": edges})
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
def test_faults_are_told(tmp_path: Path, document: object, told: str) -> None:
    with pytest.raises(GraphError, match=told):
        read(tmp_path, document)


def test_a_chain_of_many_nodes_does_not_exhaust_the_stack(tmp_path: Path) -> None:
    nodes = [{"id": i} for i in range(5000)]
    links = [{"source": i, "target": i + 1} for i in range(4999)]
    assert read(tmp_path, {"nodes": nodes, "links": links}).layer_N.max() == 4999
