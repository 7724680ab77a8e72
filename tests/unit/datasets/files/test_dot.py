"""DOT, read and written."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried

from layerdag.codec import AttributedGraph
from layerdag.datasets.files import read_dot, read_flow, write_dot
from layerdag.datasets.files._dot_parser import MOST_DEPTH
from layerdag.errors import GraphError

DOT = """// a comment
digraph "my graph" {
  rankdir=LR; node [shape=box, kind=task]; latency = 12.5
  a [label="load \\"x\\"" cost=3];
  subgraph cluster_0 { node [kind=inner] b; c [kind=other]; label="x" }  /* more */
  a -> {b c} -> d [type=call];
  d -> e:n [style=dashed]
  e [label=<b<i>x</i>> cost=-.5];
  # a line of the preprocessor
  graph [version="1" + "0"]
}
"""


def read(tmp_path: Path, text: str) -> AttributedGraph:
    path = tmp_path / "g.dot"
    path.write_text(text)
    return read_dot(path)


def test_nodes_defaults_subgraphs_and_chains_of_edges(tmp_path: Path) -> None:
    graph = read(tmp_path, DOT)
    assert graph.categories["kind"] == ["task", "inner", "other", "task", "task"]
    assert graph.categories["label"] == ['load "x"', "", "", "", "b<i>x</i>"]
    np.testing.assert_array_equal(graph.numbers["cost"], [3.0, np.nan, np.nan, np.nan, -0.5])
    names = [graph.edge_type_names[code] for code in graph.edge_type_E]
    assert list(zip(*graph.edge_index_2E.tolist(), names, strict=True)) == [
        (0, 1, "call"), (0, 2, "call"), (1, 3, "call"), (2, 3, "call"), (3, 4, "control"),
    ]  # fmt: skip
    assert graph.conditions == {"latency": 12.5, "version": 10.0}


def test_a_graph_without_attributes_has_nodes_of_one_kind(tmp_path: Path) -> None:
    graph = read(tmp_path, "strict digraph { 1 -> 2; 1 -> 2; 2 -> 3.5 }")
    assert graph.categories == {"kind": ["node"] * 3}
    assert graph.edge_index_2E.tolist() == [[0, 1], [1, 2]]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("graph { a -- b }", "line 1: begins with an undirected graph"),
        ("digraph {\n a -- b }", "line 2: '--' is an edge without direction"),
        ("digraph {\n a -> ", "line 2: the file ends where a node belongs"),
        ("digraph {\n a -> -> b }", "line 2: found '->' where a node belongs"),
        ("digraph { a [x=1 }", "found '}' where an attribute belongs"),
        ("digraph { a } digraph { b }", "a second graph"),
        ("digraph { a [l=<b] }", "'<' is never closed"),
        ("digraph { ? }", "is no DOT"),
        ("digraph { subgraph x }", "a subgraph without"),
        ("digraph { }", "there is no node"),
        ("digraph " + "{" * (MOST_DEPTH + 3), "nested more than"),
        ("hello", "begins with 'hello'"),
    ],
)
def test_faults_are_told_with_file_and_line(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(GraphError, match=told) as error:
        read(tmp_path, text)
    assert "g" in str(error.value)


def test_subgraphs_may_not_multiply_without_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("layerdag.datasets.files._dot_parser.MOST_EDGES", 50)
    nodes = " ".join(f"n{i}" for i in range(10))
    with pytest.raises(GraphError, match="more than 50 edges"):
        read(tmp_path, f"digraph {{ {{{nodes}}} -> {{m1 m2 m3 m4 m5 m6}} }}")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "g.gv"
    path.write_bytes(b"digraph { \xff }")
    with pytest.raises(GraphError, match="no text in UTF-8"):
        read_flow(path)


words = st.text("ab \"\\\n;]>#'é", min_size=1, max_size=5)


@tried(30)
@given(st.lists(words, min_size=1, max_size=5), words, st.sampled_from([2.0, -1.5, 1e30]))
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[str], type_: str, value: float
) -> None:
    size = len(kinds)
    graph = AttributedGraph(
        name='a "graph"',
        categories={"kind": kinds, "two words": ["x"] * size},
        numbers={"cost": np.array([value] + [np.nan] * (size - 1))},
        edge_index_2E=np.stack([np.arange(size - 1), np.arange(1, size)]),
        edge_type_E=np.ones(size - 1, dtype=np.int64),
        edge_type_names=("data", type_),
        conditions={"label": value, "device": "x y"},
    )
    path = tmp_path_factory.mktemp("d") / "g.dot"
    write_dot(path, graph)
    again = read_dot(path)
    assert again.categories == graph.categories
    assert again.conditions == graph.conditions
    assert again.edge_index_2E.tolist() == graph.edge_index_2E.tolist()
    assert {again.edge_type_names[code] for code in again.edge_type_E} <= {type_}
    np.testing.assert_array_equal(again.numbers["cost"], graph.numbers["cost"])
