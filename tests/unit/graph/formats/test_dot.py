"""DOT, read and written."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried
from raw_graphs import chain

from layerdag.codec.formats import read_graph
from layerdag.errors import GraphError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.graph.formats.dot import MAX_DEPTH, Parser, read_dot, write_dot
from layerdag.runtime.notes import NoteKind

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


def test_nodes_defaults_subgraphs_and_chains_of_edges(tmp_path):
    graph = read(tmp_path, DOT)
    assert graph.categories["kind"] == ["task", "inner", "other", "task", "task"]
    assert graph.categories["label"] == ['load "x"', "", "", "", "b<i>x</i>"]
    np.testing.assert_array_equal(graph.numbers["cost"], [3.0, np.nan, np.nan, np.nan, -0.5])
    names = [graph.edge_type_names[code] for code in graph.edge_type_E]
    assert list(zip(*graph.edge_index_2E.tolist(), names, strict=True)) == [
        (0, 1, "call"), (0, 2, "call"), (1, 3, "call"), (2, 3, "call"), (3, 4, "control"),
    ]  # fmt: skip
    assert graph.conditions == {"latency": 12.5, "version": 10.0}


def test_a_graph_without_attributes_has_nodes_of_one_kind(tmp_path):
    graph = read(tmp_path, "strict digraph { 1 -> 2; 1 -> 2; 2 -> 3.5 }")
    assert graph.categories == {"kind": ["node"] * 3}
    assert graph.edge_index_2E.tolist() == [[0, 1], [1, 2]]


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "g.gv"
    path.write_bytes(b"digraph { \xff }")
    with pytest.raises(GraphError, match="no text in UTF-8"):
        read_graph(path)


words = st.text("ab \"\\\n;]>#'é", min_size=1, max_size=5)


@tried(30)
@given(st.lists(words, min_size=1, max_size=5), words, st.sampled_from([2.0, -1.5, 1e30]))
def test_what_is_written_is_read_again(tmp_path_factory, kinds, type_, value):
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


def parsed(text: str) -> Parser:
    parser = Parser("g.dot", text)
    parser.parse()
    return parser


def edges(parser: Parser) -> dict[tuple[str, str], str]:
    names = list(parser.nodes)
    types = parser.edges.types
    return {(names[a], names[b]): "+".join(sorted(kinds)) for (a, b), kinds in types.items()}


def body(text: str) -> Parser:
    return parsed(f"digraph {{ {text} }}")


@pytest.mark.parametrize("head", ["digraph", "DiGraph g", "strict digraph", 'STRICT digraph "a b"'])
def test_keywords_are_read_in_any_case(head):
    assert list(parsed(f"{head} {{ a }}").nodes) == ["a"]


@pytest.mark.parametrize("word", ["a_1", "-1.5", ".5", "3.", "émile", '"two words"', '"a" + "b"'])
def test_names_of_nodes(word):
    name = {'"two words"': "two words", '"a" + "b"': "ab"}.get(word, word)
    assert list(body(word).nodes) == [name]


@pytest.mark.parametrize(
    ("quoted", "text"),
    [
        (r'"say \"x\""', 'say "x"'),
        ('"a\\\nb"', "ab"),  # a line that goes on
        (r'"a\\b"', r"a\b"),
        (r'"a\nb"', r"a\nb"),  # Graphviz's own escape stays
        ("<b<i>x</i>>", "b<i>x</i>"),
        ("true", "true"),
    ],
)
def test_values_of_attributes(quoted, text):
    assert body(f"a [label={quoted}]").nodes == {"a": {"label": text}}


def test_lists_of_attributes_are_joined():
    assert body("a [x=1; y=2] [x=3]").nodes == {"a": {"x": "3", "y": "2"}}


def test_subgraphs_are_joined_all_with_all_and_ports_are_no_part_of_a_name():
    found = body("{a b} -> subgraph s {c d}")
    assert list(edges(found)) == [("a", "c"), ("a", "d"), ("b", "c"), ("b", "d")]
    assert list(edges(body("{a {b c}} -> d"))) == [("a", "d"), ("b", "d"), ("c", "d")]
    found = body("{} -> a")
    assert (list(found.nodes), edges(found)) == (["a"], {})
    assert list(edges(body("a:left:ne -> b:1"))) == [("a", "b")]


def test_defaults_hold_from_where_they_stand_and_inside_their_subgraph():
    found = body("a; node [kind=x] b; { node [kind=y, n=1] c } d").nodes
    assert found == {"a": {}, "b": {"kind": "x"}, "c": {"kind": "y", "n": "1"}, "d": {"kind": "x"}}
    found = body("a -> b; node [kind=late]; a [n=1]").nodes
    assert found == {"a": {"n": "1"}, "b": {}}


@pytest.mark.parametrize(
    ("attributes", "kind"),
    [
        ("", "data"),
        ("[style=solid]", "data"),
        ("[style=dashed]", "control"),
        ('[style="bold,dotted"]', "control"),
        ("[type=call, style=dashed]", "call"),
        ("[deptype=d]", "d"),
        ("[dependency=e, deptype=d]", "d"),
        ('[type="", dependency=e]', "e"),
    ],
)
def test_the_type_of_an_edge(attributes, kind):
    assert edges(body(f"a -> b {attributes}")) == {("a", "b"): kind}


def test_an_edge_has_its_own_type_before_defaults_and_the_last_one_counts():
    found = edges(body("edge [type=x]; a -> b; a -> c [type=y]; { edge [type=z]; a -> d } a -> e"))
    assert list(found.values()) == ["x", "y", "z", "x"]


def test_types_of_edges_between_the_same_nodes_are_joined_but_in_a_strict_graph():
    text = "digraph { a -> b [type=y]; a -> b [type=x] }"
    assert edges(parsed(text)) == {("a", "b"): "x+y"}
    assert edges(parsed(f"strict {text}")) == {("a", "b"): "x"}


def test_values_of_the_graph_but_not_of_its_subgraphs():
    found = body('latency = 3; graph [device="x"]; { rank = same; a }')
    assert found.values == {"latency": "3", "device": "x"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("digraph {\n\n a [x=<b] }", "g.dot: line 3: '<' is never closed"),
        ("digraph {\n a -> b\n ? }", "g.dot: line 3: '? }' is no DOT"),
        ("digraph {\n a\n", "line 2: the file ends where a statement belongs"),
        ("digraph {\n a [x= ] }", "line 2: found ']' where a value belongs"),
        ("digraph {\n = 3 }", "line 2: found '=' where a node belongs"),
        ("digraph {\n a:-> b }", "line 2: found '->' where a port belongs"),
        ("digraph g\n a }", "line 2: '{' is missing"),
        ("digraph { a }\n b", "line 2: a second graph"),
        ("strict graph {", "begins with an undirected graph"),
        ("strict", "the file ends where digraph belongs"),
        ("", "the file ends where digraph belongs"),
        ("{ a }", "found '{' where digraph belongs"),
        ("hello", "begins with 'hello'"),
        ("digraph {\n a -- b }", "line 2: '--' is an edge without direction"),
        ("digraph {\n a -> ", "line 2: the file ends where a node belongs"),
        ("digraph { a [x=1 }", "line 1: found '}' where an attribute belongs"),
        ("digraph { subgraph x }", "line 1: a subgraph without"),
    ],
)
def test_a_fault_is_told_with_file_line_and_what_was_found(text, told):
    with pytest.raises(GraphError) as caught:
        parsed(text)
    assert told in str(caught.value)
    assert str(caught.value).startswith("g.dot: line ")


def test_a_file_without_nodes_is_refused(tmp_path):
    with pytest.raises(GraphError, match="there is no node"):
        read(tmp_path, "digraph { }")


def test_subgraphs_may_be_nested_to_the_bound_and_no_deeper():
    inside = "{" * MAX_DEPTH + "a" + "}" * MAX_DEPTH
    assert list(body(inside).nodes) == ["a"]
    with pytest.raises(GraphError, match=f"nested more than {MAX_DEPTH} deep"):
        body(f"{{{inside}}}")


def test_as_many_edges_as_the_bound_are_taken(monkeypatch):
    monkeypatch.setattr("layerdag.graph.formats.dot.MAX_EDGES", 4)
    assert len(edges(body("{a b} -> {c d}"))) == 4
    with pytest.raises(GraphError, match="more than 4 edges; split the graph"):
        body("{a b} -> {c d}; a -> b")


@pytest.mark.parametrize(
    ("number", "value"), [("1e-05", 1e-05), ("3.2e6", 3.2e6), ("-.5E+2", -50.0), ("1e+06", 1e6)]
)
def test_an_exponent_belongs_to_its_number(tmp_path, number, value):
    graph = read(tmp_path, f"digraph {{ a [cost={number}, op=mm]; a -> b }}")
    assert graph.numbers["cost"][0] == value
    assert list(graph.categories) == ["op"]


@pytest.mark.parametrize("token", ["0x70", "1.2.3", "3d", "1e5e", "2_000"])
def test_a_number_that_does_not_end_is_refused(tmp_path, token):
    with pytest.raises(GraphError, match=rf"line 2: '{re.escape(token)}' is neither a number"):
        read(tmp_path, f"digraph {{\n a [label={token}] }}")


@pytest.mark.parametrize(
    ("attributes", "told"),
    [("bold", "'bold' has no value"), ("x=1 bold", "'bold'"), ("color=#ff0000]\n", "is no DOT")],
)
def test_an_attribute_needs_a_value(tmp_path, attributes, told):
    with pytest.raises(GraphError, match=told):
        read(tmp_path, f"digraph {{ a [{attributes}]; a -> b }}")


def test_names_of_nodes_are_kept_and_are_words_where_there_are_no_others(tmp_path):
    graph = read(tmp_path, 'digraph { conv1 -> "relu \\"1\\"" -> pool; }')
    assert graph.categories == {"name": ["conv1", 'relu "1"', "pool"]}
    write_dot(tmp_path / "again.dot", graph)
    assert read_dot(tmp_path / "again.dot").node_names == graph.node_names
    typed = read(tmp_path, r'digraph { node [label="\N", op=mm]; conv1 -> relu1 }')
    assert typed.categories == {"op": ["mm", "mm"]}
    assert typed.node_names == ("conv1", "relu1")


@pytest.mark.parametrize("text", ["a -> b -> c -> a", "x -> a -> b; b -> c; c -> a", "a -> a"])
def test_the_edge_that_closes_a_loop_is_left_out_and_told_with_names(tmp_path, text):
    graph = read(tmp_path, f"digraph {{ {text} }}")
    assert graph.conditions["loop_edges"] == 1
    (note,) = graph.notes
    assert note.kind == NoteKind.EDGE
    assert note.word == ("a -> a" if text == "a -> a" else "a -> b -> c -> a")
    assert str(tmp_path / "g.dot") in str(note)


def test_text_before_the_graph_is_told_as_it_is_spelled(tmp_path):
    with pytest.raises(GraphError, match=r"text stands before the graph.*line 3: 'OrderedDict\("):
        read(tmp_path, "OrderedDict({'cores': 4})\nBuilding\ndigraph g {\n a -> b }")


def test_attributes_of_edges_that_are_no_type_are_told_and_those_for_drawing_not(tmp_path):
    graph = read(tmp_path, "digraph {\n a -> b -> c [bytes=3, color=red, headport=n] }")
    (note,) = graph.notes
    assert (note.kind, note.word, note.count) == (NoteKind.ATTRIBUTE, "bytes", 2)
    assert "line 2" in note.place


def test_a_subgraph_that_goes_on_later_is_one_subgraph():
    found = body("subgraph s {a}; subgraph s {b} -> c")
    assert list(edges(found)) == [("a", "c"), ("b", "c")]


def test_attributes_of_nodes_called_like_those_for_drawing_are_written_and_read(tmp_path):
    graph = replace(chain("g", "ab"), categories={"group": ["x", "y"], "op": ["p", "q"]})
    write_dot(tmp_path / "g.dot", graph)
    assert read_dot(tmp_path / "g.dot").categories == graph.categories
    foreign = read(tmp_path, 'digraph { a ["group"="x" "op"="p"]; a -> b ["color"="red"] }')
    assert foreign.categories == {"op": ["p", ""]}


def test_defaults_may_not_multiply_without_bound(tmp_path, monkeypatch):
    monkeypatch.setattr("layerdag.graph.formats.dot.MAX_CELLS", 40)
    with pytest.raises(GraphError, match="make more than 20 attributes"):
        read(tmp_path, "digraph { node [a=1, b=2, c=3]; " + ";".join("abcdefgh") + "}")


def test_the_name_of_a_graph_is_no_path_of_this_machine(tmp_path):
    graph = replace(chain("g", "ab"), name=str(tmp_path / "job"))
    write_dot(tmp_path / "g.dot", graph)
    assert (tmp_path / "g.dot").read_text().startswith('digraph "job" {')
