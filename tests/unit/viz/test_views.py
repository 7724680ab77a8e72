import io
import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried
from trace_examples import EVERY_VALUE, coll, comp

import layerdag as ld
from layerdag.cli.main import main
from layerdag.errors import GraphError, TraceError, UsageError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.graph.formats.dot import write_dot
from layerdag.graph.formats.graphml import encode_graphml
from layerdag.traces.builder import NodeSpec, build_trace
from layerdag.traces.trace import Attribute, NodeType, Trace, Wire, Workload
from layerdag.viz import views as timeline
from layerdag.viz.views import (
    GraphView,
    chrome_trace,
    drawn_rows,
    graph_rows,
    plain_details,
    view_of_graph,
    view_of_trace,
)


def events(trace: Trace, phase: str) -> list[dict]:
    loaded = json.loads(chrome_trace(Workload((trace,))))
    return [event for event in loaded["traceEvents"] if event["ph"] == phase]


def test_without_start_times_each_row_runs_one_node_at_a_time():
    trace = build_trace([comp(0, us=4), comp(1, us=3), coll(2, 0), comp(3, 2, us=1)])
    slices = {e["args"]["id"]: (e["ts"], e["dur"], e["tid"]) for e in events(trace, "X")}
    assert slices["0"] == (0, 4, 0)
    assert slices["1"] == (4, 3, 0)
    assert slices["2"] == (4, 1, 1000)
    assert slices["3"] == (7, 1, 0)


def test_start_times_of_the_trace_hold_and_overlaps_get_lanes():
    trace = build_trace([comp(0, us=10), comp(1, us=2), comp(2, us=5)])
    trace = replace(trace, start_us_N=np.array([100, 105, 107], np.uint64))
    slices = [(e["ts"], e["tid"]) for e in events(trace, "X")]
    assert slices == [(100, 0), (105, 1), (107, 1)]
    assert {e["args"]["name"] for e in events(trace, "M")} >= {"computation", "computation 2"}


def test_dependencies_between_tracks_are_arrows_with_two_ends():
    trace = build_trace([comp(0), coll(1, 0), comp(2, 0)])
    (start,), (end,) = events(trace, "s"), events(trace, "f")
    assert start["id"] == end["id"]
    assert (start["tid"], end["tid"]) == (0, 1000)
    assert start["ts"] <= end["ts"]


def test_numbers_that_json_or_a_browser_lacks_are_written_as_text():
    attributes = (
        Attribute("endless", Wire.DOUBLE, float("inf")),
        Attribute("none", Wire.DOUBLE, float("nan")),
        Attribute("large", Wire.UINT64, 2**64 - 1),
        Attribute("exact", Wire.INT64, -(2**53)),
        Attribute("flag", Wire.BOOL, True),
    )
    trace = build_trace([NodeSpec(2**63, "a", NodeType.COMP, attributes=attributes)])
    text = chrome_trace(Workload((trace,)))
    loaded = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    (args,) = (event["args"] for event in loaded["traceEvents"] if event["ph"] == "X")
    assert args == {
        "id": str(2**63),
        "endless": "inf",
        "none": "nan",
        "large": str(2**64 - 1),
        "exact": -(2**53),
        "flag": True,
    }


def test_more_overlaps_than_tracks_are_kept_for_do_not_run_into_the_next_row(monkeypatch):
    monkeypatch.setattr(timeline, "_LANES", 3)
    trace = build_trace([*(comp(n, us=9) for n in range(5)), coll(5)])
    trace = replace(trace, start_us_N=np.full(6, 100, np.uint64))
    found = {e["tid"]: e["args"]["name"] for e in events(trace, "M") if "tid" in e}
    assert found == {
        0: "computation", 1: "computation 2", 2: "computation 3", 3: "computation 4",
        4: "computation 5", 5: "communication",
    }  # fmt: skip
    assert [e["tid"] for e in events(trace, "X")] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        (NodeType.COMP, "computation"),
        (NodeType.COMM_SEND, "communication"),
        (NodeType.COMM_RECV, "communication"),
        (NodeType.MEM_LOAD, "memory"),
        (NodeType.MEM_STORE, "memory"),
        (NodeType.METADATA, "other"),
    ],
)
def test_kinds_of_nodes_have_rows(kind, row):
    trace = build_trace([NodeSpec(7, "", kind)])
    (track,) = (e for e in events(trace, "M") if e["name"] == "thread_name")
    (node,) = events(trace, "X")
    assert track["args"]["name"] == row
    assert (node["tid"], node["cat"], node["name"]) == (track["tid"], kind.name, "7")


def test_every_rank_is_a_process_and_shared_traces_are_placed_once():
    trace = build_trace([comp(0)])
    loaded = json.loads(chrome_trace(Workload((trace, trace))))["traceEvents"]
    names = [e["args"]["name"] for e in loaded if e["name"] == "process_name"]
    assert names == ["rank 0", "rank 1"]
    assert [e["pid"] for e in loaded if e["ph"] == "X"] == [0, 1]


@tried(30)
@given(st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_slices_of_a_track_do_not_overlap_and_wait_for_what_they_depend_on(size, seed):
    rng = np.random.default_rng(seed)
    make = (comp, lambda n, *deps, us: replace(coll(n, *deps), duration_us=us))
    nodes = [
        make[int(rng.integers(2))](
            n, *(d for d in range(n) if rng.random() < 0.3), us=int(rng.integers(0, 9))
        )
        for n in range(size)
    ]
    trace = build_trace(nodes)
    found = {int(e["args"]["id"]): e for e in events(trace, "X")}
    for node in nodes:
        own = found[node.id]
        assert own["dur"] == max(node.duration_us, 1)  # at least a microsecond, to be seen
        ends = [found[d]["ts"] + found[d]["dur"] for d in node.data_deps]
        assert own["ts"] >= max(ends, default=0)
    by_track: dict[int, list[tuple[float, float]]] = {}
    for event in found.values():
        by_track.setdefault(event["tid"], []).append((event["ts"], event["ts"] + event["dur"]))
    for spans in by_track.values():
        ordered = sorted(spans)
        assert all(end <= start for (_, end), (start, _) in pairwise(ordered))
    assert len(by_track) <= 2  # without start times nothing overlaps, so no row needs lanes


def graph(words: list[str], edges: list[tuple[int, int]]) -> AttributedGraph:
    return AttributedGraph(
        name="g",
        categories={"width": ["8"] * len(words), "op": words},
        numbers={"bytes": np.array([1.5, *[np.nan] * (len(words) - 1)])},
        edge_index_2E=np.array(edges, dtype=np.int64).reshape(-1, 2).T,
        edge_type_E=np.arange(len(edges)) % 2,
    )


def test_nodes_are_named_by_what_they_do_and_absent_numbers_left_out():
    view = view_of_graph(graph(["add", "mul", "add"], [(0, 1), (1, 2)]))
    assert view.labels == ("add", "mul", "add")
    assert view.kinds == ("add", "mul")
    assert view.kind_N.tolist() == [0, 1, 0]
    assert view.dashed_E.tolist() == [False, True]
    assert view.details[0] == {"width": "8", "op": "add", "bytes": 1.5}
    assert "bytes" not in view.details[1]


def test_rare_categories_share_a_color():
    view = view_of_graph(graph([f"op{at}" for at in range(20)], []))
    assert view.kinds[-1] == "other"
    assert len(view.kinds) == len(view.colors)
    assert view.kind_N.max() == len(view.kinds) - 1


def test_cycle_is_refused():
    with pytest.raises(GraphError, match="cycle"):
        view_of_graph(graph(["a", "b"], [(0, 1), (1, 0)]))


def graphml(view: GraphView) -> str:
    return encode_graphml(graph_rows(view)).decode()


def dot(view: GraphView, tmp_path: Path) -> str:
    write_dot(tmp_path / "g.dot", drawn_rows(view))
    return (tmp_path / "g.dot").read_text()


@pytest.mark.parametrize("name", ["v.graphml", "v.dot"])
@pytest.mark.parametrize("example", ["pp_gpt", "ddp_mlp"])
def test_control_edges_survive_what_view_writes(tmp_path, repository, name, example):
    source = repository / "data" / "examples" / example
    view = view_of_trace(ld.read_workload(source).traces[0])
    assert main(["view", str(source), "--out", str(tmp_path / name)]) == 0
    back = ld.read(tmp_path / name)
    assert isinstance(back, AttributedGraph)
    names = np.array(back.edge_type_names)[back.edge_type_E]
    assert back.edge_index_2E.shape[1] == view.edge_index_2E.shape[1]
    assert (names == "control").sum() == view.dashed_E.sum()


XML = "{http://graphml.graphdrawing.org/xmlns}"
HOSTILE = 'a"b\\c<d>&\x00\x1b\n]]>'


def view():
    first = NodeSpec(2**63, HOSTILE, NodeType.METADATA, attributes=EVERY_VALUE)
    return view_of_trace(build_trace([first, comp(1, 2**63, us=3), comp(2, ctrl=(1,))]))


def test_dot_quotes_what_it_would_interpret(tmp_path):
    lines = [line.strip() for line in dot(view(), tmp_path).splitlines()]
    assert any(r'label="a\"b\\c<d>&' in line for line in lines)
    assert f'{2**63} -> 1 [type="data"];' in lines
    assert '1 -> 2 [type="control", style=dashed];' in lines
    assert lines[-1] == "}"


def test_another_reader_finds_the_same_graph():
    """networkx reads GraphML by itself."""
    import networkx as nx

    text = graphml(view())
    types = {
        key.get("attr.name"): key.get("attr.type") for key in ET.fromstring(text).iter(f"{XML}key")
    }
    assert (types["duration_us"], types["double"], types["bool"]) == ("long", "double", "boolean")
    assert types["uint64"] == "string"  # does not fit into GraphML's long
    found = nx.read_graphml(io.StringIO(text), force_multigraph=True)
    assert isinstance(found, nx.MultiDiGraph)
    assert list(found.nodes) == [str(2**63), "1", "2"]
    assert found.nodes["1"] == {
        "name": "aten::mm", "kind": "COMP", "duration_us": 3, "is_cpu_op": False,
    }  # fmt: skip
    assert found.nodes[str(2**63)]["double"] == -1.5e300
    kinds = {(a, b): data["type"] for a, b, data in found.edges(data=True)}
    assert kinds == {(str(2**63), "1"): "data", ("1", "2"): "control"}


def test_a_value_that_comes_with_several_types_is_text():
    nodes = [
        NodeSpec(n, "a", NodeType.COMP, attributes=(Attribute("mixed", wire, value),))
        for n, (wire, value) in enumerate(
            [(Wire.INT64, 3), (Wire.DOUBLE, 0.5), (Wire.BOOL, True), (Wire.STRING, "x")]
        )
    ]
    root = ET.fromstring(graphml(view_of_trace(build_trace(nodes))))
    (key,) = (key for key in root.iter(f"{XML}key") if key.get("attr.name") == "mixed")
    assert key.get("attr.type") == "string"
    values = [d.text for d in root.iter(f"{XML}data") if d.get("key") == key.get("id")]
    assert values == ["3", "0.5", "true", "x"]


def test_characters_that_xml_cannot_hold_are_replaced():
    text = graphml(view_of_trace(build_trace([comp(1, name="a\x00b\x1fc\ufffe")])))
    root = ET.fromstring(text)
    (key,) = (k.get("id") for k in root.iter(f"{XML}key") if k.get("attr.name") == "name")
    (name,) = (d.text for d in root.iter(f"{XML}data") if d.get("key") == key)
    assert name == "a\ufffdb\ufffdc\ufffd"


def test_dot_has_a_line_for_every_node_with_its_color_and_kind(tmp_path):
    text = dot(view_of_trace(build_trace([comp(1, name="mm\r\nx"), comp(2, 1, name="")])), tmp_path)
    assert 'label="mm\nx", fillcolor="#0072B2", tooltip="COMP"];' in text
    assert 'label="", fillcolor="#0072B2", tooltip="COMP"];' in text
    assert text.count(" -> ") == 1


def test_kinds_are_node_types_where_names_say_nothing():
    nodes = [comp(at, name=f"layer{chr(97 + at)}") for at in range(26)]
    view = view_of_trace(build_trace([*nodes, coll(26)]))
    assert view.kinds == ("COMP", "COMM_COLL")


def test_frequent_operators_are_kinds_of_their_own():
    names = ["mm(1)", "mm(2)", "mm(3)", "add", "add", "add", "relu", "relu", "add", *"abcd"]
    view = view_of_trace(build_trace([comp(at, name=name) for at, name in enumerate(names)]))
    assert {"mm", "add", "other computation"} <= set(view.kinds)
    assert view.kind_N[0] == view.kind_N[1]
    assert len(set(view.colors)) == len(view.kinds)


def test_long_values_are_cut():
    values = tuple(range(100))
    node = NodeSpec(0, "a", NodeType.COMP, attributes=(Attribute("l", Wire.INT64 + 1, values),))
    text = view_of_trace(build_trace([node])).details[0]["l"]
    assert text.startswith("0, 1, 2")
    assert len(text) == 60


def test_a_view_has_ids_labels_edges_and_what_is_dashed():
    trace = build_trace([comp(70, name="mm"), comp(5, 70, name="add", ctrl=(9,)), coll(9)])
    view = view_of_trace(replace(trace, source="/some/where/job.0.et"))
    assert view.title == "job.0.et"
    assert view.ids == ("70", "5", "9")
    assert view.labels == ("mm", "add", "coll")
    edges = zip(*view.edge_index_2E.tolist(), view.dashed_E.tolist(), strict=True)
    assert sorted(edges) == [(0, 1, False), (2, 1, True)]
    assert [view.kinds[kind] for kind in view.kind_N] == ["COMP", "COMP", "COMM_COLL"]
    assert len(view.colors) == len(view.kinds) == 2


def test_details_are_times_and_attributes_and_nothing_that_is_zero():
    node = NodeSpec(
        0, "a", NodeType.COMP, start_us=5, duration_us=0,
        attributes=(
            Attribute("size", Wire.UINT64, 0),
            Attribute("raw", Wire.BYTES, b"\x00"),
            Attribute("unset", Wire.UNSET, None),
            Attribute("flags", Wire.BOOL + 1, (True, False)),
        ),
    )  # fmt: skip
    (details,) = view_of_trace(build_trace([node])).details
    assert details == {
        "start_us": 5, "size": 0, "raw": "b'\\x00'", "unset": "None", "flags": "True, False",
    }  # fmt: skip


@pytest.mark.parametrize(("size", "sound"), [(3, True), (4, False)])
def test_too_many_nodes_are_refused_with_what_to_do_instead(size, sound):
    view = view_of_trace(build_trace([comp(n) for n in range(size)]))
    if sound:
        view.require_at_most(3, "a picture", "Do this.")
        return
    with pytest.raises(UsageError, match=r"has 4 nodes; a picture shows at most 3\. Do this\."):
        view.require_at_most(3, "a picture", "Do this.")


def test_faulty_dependencies_are_refused():
    with pytest.raises(TraceError, match="node 1 depends on node 9"):
        view_of_trace(build_trace([comp(1, 9)]))
    with pytest.raises(TraceError, match="wait for each other in a cycle"):
        view_of_trace(build_trace([comp(1, 2), comp(2, 1)]))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (2**53, 2**53),
        (2**53 + 1, str(2**53 + 1)),
        (-(2**53) - 1, str(-(2**53) - 1)),
        (0.5, 0.5),
        (float("-inf"), "-inf"),
        (True, True),
        ("text", "text"),
    ],
)
def test_details_for_browsers_are_exact(value, shown):
    found = plain_details({"a": value})["a"]
    assert found == shown
    assert type(found) is type(shown)
