import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried
from trace_examples import coll, comp

from layerdag.traces import Attribute, NodeType, Trace, Wire, Workload
from layerdag.traces.chakra import NodeSpec, build_trace
from layerdag.viz import _chrome_trace as timeline, chrome_trace


def events(trace: Trace, phase: str) -> list[dict]:
    loaded = json.loads(chrome_trace(Workload((trace,))))
    return [event for event in loaded["traceEvents"] if event["ph"] == phase]


def test_without_start_times_each_row_runs_one_node_at_a_time() -> None:
    trace = build_trace([comp(0, us=4), comp(1, us=3), coll(2, 0), comp(3, 2, us=1)])
    slices = {e["args"]["id"]: (e["ts"], e["dur"], e["tid"]) for e in events(trace, "X")}
    assert slices["0"] == (0, 4, 0)
    assert slices["1"] == (4, 3, 0)
    assert slices["2"] == (4, 1, 1000)
    assert slices["3"] == (7, 1, 0)


def test_start_times_of_the_trace_hold_and_overlaps_get_lanes() -> None:
    trace = build_trace([comp(0, us=10), comp(1, us=2), comp(2, us=5)])
    trace = replace(trace, start_us_N=np.array([100, 105, 107], np.uint64))
    slices = [(e["ts"], e["tid"]) for e in events(trace, "X")]
    assert slices == [(100, 0), (105, 1), (107, 1)]
    assert {e["args"]["name"] for e in events(trace, "M")} >= {"computation", "computation 2"}


def test_dependencies_between_tracks_are_arrows_with_two_ends() -> None:
    trace = build_trace([comp(0), coll(1, 0), comp(2, 0)])
    (start,), (end,) = events(trace, "s"), events(trace, "f")
    assert start["id"] == end["id"]
    assert (start["tid"], end["tid"]) == (0, 1000)
    assert start["ts"] <= end["ts"]


def test_numbers_that_json_or_a_browser_lacks_are_written_as_text() -> None:
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


def test_more_overlaps_than_tracks_are_kept_for_do_not_run_into_the_next_row(monkeypatch) -> None:
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
def test_kinds_of_nodes_have_rows(kind: NodeType, row: str) -> None:
    trace = build_trace([NodeSpec(7, "", kind)])
    (track,) = (e for e in events(trace, "M") if e["name"] == "thread_name")
    (node,) = events(trace, "X")
    assert track["args"]["name"] == row
    assert (node["tid"], node["cat"], node["name"]) == (track["tid"], kind.name, "7")


def test_every_rank_is_a_process_and_shared_traces_are_placed_once() -> None:
    trace = build_trace([comp(0)])
    loaded = json.loads(chrome_trace(Workload((trace, trace))))["traceEvents"]
    names = [e["args"]["name"] for e in loaded if e["name"] == "process_name"]
    assert names == ["rank 0", "rank 1"]
    assert [e["pid"] for e in loaded if e["ph"] == "X"] == [0, 1]


@tried(30)
@given(st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_slices_of_a_track_do_not_overlap_and_wait_for_what_they_depend_on(size, seed) -> None:
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
