import json
from dataclasses import replace

import numpy as np
from trace_examples import coll, comp

from layerdag.traces import Trace, Workload
from layerdag.traces.chakra import build_trace
from layerdag.viz import chrome_trace


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
