"""Every timeline keeps the rules of the Trace Event Format."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried
from simulator_traces import ring, system
from trace_event_format import faults
from trace_examples import coll, comp, pair_workload

from layerdag.simulator.cluster import Cluster
from layerdag.simulator.config import RunOptions
from layerdag.simulator.run import simulate, write_timeline
from layerdag.traces.astra_text import parse_text, text_to_workload
from layerdag.traces.builder import build_trace
from layerdag.traces.trace import Workload
from layerdag.viz.views import chrome_trace

NODES = st.lists(
    st.tuples(st.integers(0, 9), st.booleans(), st.lists(st.integers(0, 40), max_size=3)),
    min_size=1,
    max_size=25,
)


def workload_of(nodes: list[tuple[int, bool, list[int]]]) -> Workload:
    specs = []
    for at, (us, communicates, deps) in enumerate(nodes):
        before = sorted({dep % at for dep in deps}) if at else []
        specs.append(coll(at, *before) if communicates else comp(at, *before, us=us))
    return Workload((build_trace(specs),) * 2)


@tried(60)
@given(NODES)
def test_timelines_without_start_times_keep_the_rules(nodes):
    assert faults(json.loads(chrome_trace(workload_of(nodes)))) == []


@tried(60)
@given(NODES, st.lists(st.integers(0, 30), min_size=25, max_size=25))
def test_timelines_with_any_start_times_nest_within_a_track(nodes, starts):
    workload = workload_of(nodes)
    trace = workload.traces[0]
    start_N = np.array(starts[: trace.num_nodes], np.uint64)
    timed = Workload((replace(trace, start_us_N=start_N),))
    # Stated start times may contradict dependencies; arrows then point back, all else must hold.
    found = faults(json.loads(chrome_trace(timed)))
    assert [each for each in found if "points back" not in each] == []


@pytest.mark.parametrize("streams", [1, 2])
def test_simulated_timelines_keep_the_rules(tmp_path, streams):
    text = b"HYBRID_DLRM 1\n3\na -1 5 ALLTOALL 64 0 ALLTOALL 32 6 ALLREDUCE 8 1\n" + b"".join(
        b"%b -1 10 NONE 0 20 NONE 0 30 ALLREDUCE 80000 4\n" % name for name in (b"b", b"c")
    )
    options = RunOptions(comm_streams=streams)
    result = simulate(
        text_to_workload(parse_text(text), 4), Cluster(ring(4), system(), options=options)
    )
    write_timeline(result, tmp_path / "t.json")
    assert faults(json.loads((tmp_path / "t.json").read_text())) == []


def test_several_ranks_keep_the_rules():
    assert faults(json.loads(chrome_trace(pair_workload()))) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"ph": "Y"}, "phase 'Y'"),
        ({"dur": -1}, "dur is -1, negative"),
        ({"ts": "0"}, "ts is '0', not a number"),
        ({"tid": 77}, "track 0, 77 has no name"),
        ({"dur": 6}, "overlaps in part"),
    ],
)
def test_the_checker_notices(change, expected):
    trace = json.loads(chrome_trace(workload_of([(4, False, []), (4, False, []), (4, True, [0])])))
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X" and event["tid"] == 0]
    slices[0].update(change)
    assert any(expected in each for each in faults(trace))
