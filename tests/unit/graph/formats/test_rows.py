"""Attributes of nodes as columns: what is a number and what a word."""

import gzip
import json
import lzma
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried
from raw_graphs import chain

from layerdag.codec.formats import flow_format
from layerdag.codec.recognition import suffix_of
from layerdag.errors import GraphError
from layerdag.graph.attributed_graph import AttributedGraph, read_json, write_json
from layerdag.graph.formats.rows import columns_of, is_number
from layerdag.runtime.notes import NoteCollector


def test_finite_numbers_are_told_from_words():
    assert all(map(is_number, ["0", "-1.5", "1e30", " 7 ", ".5", "5."]))
    words = ["", "nan", "inf", "-Infinity", "1e999", "0x10", "1,5", "one", "1_000", "\u0663"]
    assert not any(map(is_number, words))


def columns(rows, kinds=None):
    return columns_of(rows, kinds or {}, NoteCollector("rows"), "rows")


def test_a_column_is_numeric_only_if_every_value_is():
    categories, numbers = columns([{"op": "add", "cost": "2"}, {"op": "mul"}, {"cost": "-3"}])
    assert categories == {"op": ["add", "mul", ""]}
    np.testing.assert_array_equal(numbers["cost"], [2.0, math.nan, -3.0])
    categories, numbers = columns([{"size": "1"}, {"size": "large"}])
    assert categories == {"size": ["1", "large"]}
    assert numbers == {}
    rows = [{"id": "1", "name": "a"}, {"id": "2", "name": "b"}]
    categories, numbers = columns(rows, {"id": False, "name": True})
    assert categories == {"id": ["1", "2"], "name": ["a", "b"]}
    assert numbers == {}


def test_columns_stand_in_the_order_of_their_first_node():
    categories, numbers = columns([{"b": "x", "n": "1"}, {"a": "y", "m": "2", "b": "z"}])
    assert list(categories) == ["b", "a"]
    assert list(numbers) == ["n", "m"]


@pytest.mark.parametrize("rows", [[{}, {}], [{"cost": "1"}, {"cost": "2"}]])
def test_nodes_without_a_category_are_of_one_kind(rows):
    assert columns(rows)[0] == {"kind": ["node", "node"]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "its format is 'other', not 'layerdag-graph-1'"),
        ({"name": None}, "'name' must be a text, found null"),
        ({"numbers": {"x": ["1", 2]}}, r"'numbers\[\.\.\.\]\[0\]' must be a number or null"),
        ({"units": {"x": 3}}, r"'units\[\.\.\.\]' must be a text"),
        ({"categories": {"kind": "ab"}}, r"'categories\[\.\.\.\]' must be a list"),
        ({"edges": [[0.7, 1]]}, r"'edges\[0\]\[0\]' must be a whole number, found 0\.7"),
        ({"edges": [[0, 1, 1]]}, r"'edges\[0\]': Expected `array` of length 2, got 3"),
        ({"node_names": 3}, "'node_names' must be a list, found 3"),
        ({"conditions": []}, r"'conditions' must be an object, found \[\]"),
        ({"edges": [[0, 9]], "edge_types": ["data"]}, "names node 9"),
        ({"edges": [[0, 1], [0, 1]], "edge_types": ["data", "data"]}, "occurs twice"),
        ({"edges": [[0, 10**30]], "edge_types": ["data"]}, "not a graph"),
        ({"edges": [[0, 1]], "edge_types": ["control"]}, "edge_types has .control., which"),
        ({"edges": [[0, 1]], "edge_types": [0]}, r"'edge_types\[0\]' must be a text, found 0"),
        ({"edges": [[0, 1]], "edge_types": 3}, "'edge_types' must be a list, found 3"),
        ({"edges": [[0, 1]], "edge_types": []}, "0 edge types for 1 edges"),
        ({"categories": {"kind": ["a"], "more": ["a", "b"]}}, "'more' has 2 values for 1 nodes"),
        ({"categories": {}}, "no node"),
        ({"categories": 3}, "'categories' must be an object, found 3"),
    ],
)
def test_damaged_json_is_refused(tmp_path, change, message):
    path = tmp_path / "g.json"
    write_json(path, chain("g", "ab"))
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(GraphError, match=message):
        read_json(path)


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
    assert (again.name, again.categories) == (graph.name, graph.categories)
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


def name_of(path: Path) -> str | None:
    found = flow_format(path)
    return found.name if found else None


DOCUMENTS = [
    ({"format": "layerdag-graph-1", "name": "g"}, "JSON of layerdag"),
    ({"name": "w", "schemaVersion": "1.5", "workflow": {}}, "WfFormat"),
    ({"workflow": {"specification": {}}}, "WfFormat"),
    ({"directed": True, "nodes": []}, "node-link JSON"),
    ({"nodes": [], "links": [{}]}, "node-link JSON"),
    ({"nodes": [], "edges": [{}]}, "node-link JSON"),
    ({"format": "layerdag-trace-1", "nodes": [], "edges": []}, None),
    ({"schema": "1.1.1", "nodes": [], "directed": True}, None),
    ({"traceEvents": [], "nodes": [], "links": []}, None),
    ({"workload_graph": [], "nodes": [], "directed": True}, None),
    ({"workflow": {}}, None),
    ({"nodes": 3, "links": 4}, None),
    ({}, None),
]


@pytest.mark.parametrize(("document", "expected"), DOCUMENTS)
def test_json_is_told_from_its_keys(tmp_path, document, expected):
    path = tmp_path / "g.json"
    path.write_text(json.dumps(document))
    assert name_of(path) == expected


@pytest.mark.parametrize("content", [b"", b"[1, 2]", b"text", b"3"])
def test_json_that_is_no_object_is_no_graph(tmp_path, content):
    path = tmp_path / "g.json"
    path.write_bytes(content)
    assert name_of(path) is None


@pytest.mark.parametrize("before", [b"\xef\xbb\xbf", b"\n \t", b"\xef\xbb\xbf\r\n"])
def test_a_mark_of_utf8_and_blanks_are_passed_over(tmp_path, before):
    path = tmp_path / "g.json"
    path.write_bytes(before + json.dumps({"directed": True, "nodes": []}).encode())
    assert name_of(path) == "node-link JSON"


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_an_archive_is_looked_into(tmp_path, suffix, pack):
    path = tmp_path / f"g.json{suffix}"
    path.write_bytes(pack(b'{"format": "layerdag-graph-1"}'))
    assert name_of(path) == "JSON of layerdag"


def test_a_damaged_archive_is_told_by_name(tmp_path):
    path = tmp_path / "g.json.gz"
    path.write_bytes(gzip.compress(b"{}")[:10] + b"\xff" * 20)  # the head of an archive
    with pytest.raises(GraphError, match=r"g\.json\.gz"):
        flow_format(path)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("absent.graphml", "GraphML"),
        ("absent.dot", "DOT"),
        ("absent.GV.xz", "DOT"),
        ("absent.et", None),
        ("absent", None),
    ],
)
def test_other_suffixes_are_taken_at_their_word(tmp_path, name, expected):
    """The files are not there, so nothing is read."""
    assert name_of(tmp_path / name) == expected


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        ("a.json", ".json"),
        ("a.JSON.GZ", ".json"),
        ("a.b.dot.xz", ".dot"),
        ("a.json.gz.xz", ".json"),
        ("a.gz", ""),
        ("a", ""),
    ],
)
def test_the_suffix_before_that_of_an_archive(name, suffix):
    assert suffix_of(Path("folder.d") / name) == suffix
