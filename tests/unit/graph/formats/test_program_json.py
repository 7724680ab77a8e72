"""Forward programs as flow graphs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from layerdag.cli.main import main
from layerdag.codec.formats import read
from layerdag.errors import GraphError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.graph.formats.program_json import read_program_json, write_program_json

NODES: list[dict[str, Any]] = [
    {"operator": "input", "arguments": [{"input": ["B0", 8], "dtype": "float32"}]},
    {
        "operator": "aten.linear.default",
        "arguments": [{"edge": "#"}, {"parameter": ["w0", "a0.-1"], "dtype": "float32"}],
        "inputs": [0],
        "module": "first",
    },
    {
        "operator": "aten.cat.default",
        "arguments": [{"edge": "#*"}, 1],
        "inputs": [1, 1, 0],
        "mode": ["no_grad"],
    },
    {
        "operator": "aten.view.default",
        "arguments": [{"edge": "#"}, [{"size": "a0.0"}, -1]],
        "inputs": [2],
    },
    {
        "operator": "aten.dropout.default",
        "arguments": [{"edge": "#"}, 0.25, True],
        "keywords": {"other": {"float": "inf"}},
        "inputs": [3],
    },
]


def written(folder: Path, nodes: list[dict[str, Any]] = NODES, **more: Any) -> Path:
    path = folder / "one.program.json"
    data = {"format": "layerdag-program/1", "name": "one", "sizes": {"B0": 4, "w0": 16}}
    path.write_text(json.dumps({**data, "outputs": [len(nodes) - 1], "nodes": nodes, **more}))
    return path


def test_calls_are_nodes_and_places_of_inputs_are_types_of_edges(tmp_path):
    graph = read(written(tmp_path))
    assert isinstance(graph, AttributedGraph)
    assert graph.categories["call"][1] == (
        'aten.linear.default {"arguments":[{"edge":"#"},{"parameter":["?","?"],"dtype":"float32"}]}'
    )
    assert graph.categories["sizes"] == ["B0", "w0 a0.-1", "", "a0.0", "0.25"]
    kinds = [graph.edge_type_names[code] for code in graph.edge_type_E.tolist()]
    assert list(zip(graph.edges, kinds, strict=True)) == [
        ((0, 1), "0"),
        ((1, 2), "0+1"),
        ((0, 2), "2"),
        ((2, 3), "0"),
        ((3, 4), "0"),
    ]
    assert graph.conditions == {"B0": 4.0, "w0": 16.0}
    assert graph.node_names[1] == "v1 first"


def test_a_graph_is_written_as_the_program_that_it_was(tmp_path):
    graph = read_program_json(written(tmp_path))
    write_program_json(tmp_path / "again.program.json", graph)
    again = json.loads((tmp_path / "again.program.json").read_text())
    expected = [{key: value for key, value in node.items() if key != "module"} for node in NODES]
    assert [{k: v for k, v in node.items() if v != []} for node in again["nodes"]] == expected
    assert (again["sizes"], again["outputs"]) == ({"B0": 4, "w0": 16}, [4])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": "x"}, "its format is 'x'"),
        ({"nodes": [{"arguments": []}]}, "no program of layerdag"),
        ({"nodes": 3}, "no program of layerdag"),
        ({"sizes": {"B0": "many"}}, "no program of layerdag"),
    ],
)
def test_what_is_no_program_is_refused(tmp_path, change, reason):
    path = written(tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(GraphError, match=reason):
        read_program_json(path)


@pytest.mark.parametrize(
    ("column", "word", "reason"),
    [
        ("sizes", "w0", r"node 1 \(aten.linear.default\) cannot be filled: there are fewer"),
        ("sizes", "w0 w0 w0", "there are more sizes"),
        ("call", "aten.linear.default {", "cannot be filled"),
    ],
)
def test_gaps_that_do_not_fit_are_refused(tmp_path, column, word, reason):
    graph = read_program_json(written(tmp_path))
    graph.categories[column][1] = word
    with pytest.raises(GraphError, match=reason):
        write_program_json(tmp_path / "again.program.json", graph)


def test_edges_that_leave_a_place_empty_are_refused(tmp_path):
    graph = read_program_json(written(tmp_path))
    graph.edge_type_E[:] = np.array([0, 2, 2, 0, 0])
    assert graph.edge_type_names == ("0", "0+1", "2")
    with pytest.raises(GraphError, match=r"node 1 to 2|node 0 to 2"):
        write_program_json(tmp_path / "again.program.json", graph)
    graph.edge_type_E[:] = np.array([2, 1, 2, 0, 0])
    with pytest.raises(GraphError, match="node 1 lacks an input between its others"):
        write_program_json(tmp_path / "again.program.json", graph)


def test_pictures_show_operators_by_their_short_names(tmp_path):
    svg = tmp_path / "one.svg"
    assert main(["view", str(written(tmp_path)), "--out", str(svg)]) == 0
    shown = svg.read_text()
    assert ">linear<" in shown
    assert ">control<" not in shown
    assert "edge&quot;" not in shown.split("<title>")[0]
