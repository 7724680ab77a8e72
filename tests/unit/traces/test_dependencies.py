from dataclasses import replace

import numpy as np
import pytest
from trace_examples import comp

from layerdag.errors import TraceError
from layerdag.traces import CONTROL, DATA, Workload, dependency_edges, drop_dangling, trace_layers
from layerdag.traces.chakra import build_trace


def test_edges_go_from_parent_row_to_child_row_whatever_the_ids() -> None:
    trace = build_trace([comp(30, 10, 2**63), comp(10), comp(2**63, 10)])
    edges, kinds = dependency_edges(trace)
    assert sorted(zip(*edges.tolist(), strict=True)) == [(1, 0), (1, 2), (2, 0)]
    assert set(kinds.tolist()) == {DATA}
    assert trace_layers(trace).tolist() == [2, 0, 1]


def test_pair_that_is_both_counts_once_as_data() -> None:
    trace = build_trace([comp(0), comp(1, 0, 0, ctrl=(0,)), comp(2, ctrl=(1,))])
    edges, kinds = dependency_edges(trace)
    assert edges.tolist() == [[0, 1], [1, 2]]
    assert kinds.tolist() == [DATA, CONTROL]


def test_dangling_double_and_cyclic_are_named() -> None:
    with pytest.raises(TraceError, match="node 1 depends on node 5, which is not in the trace"):
        dependency_edges(build_trace([comp(0), comp(1, 5)]))
    trace = build_trace([comp(0), comp(1)])
    twice = replace(trace, id_N=np.zeros(2, np.uint64))
    with pytest.raises(TraceError, match="first id 0"):
        dependency_edges(twice)
    with pytest.raises(TraceError, match=r"3 nodes wait for each other in a cycle \(ids 7, 8, 9\)"):
        trace_layers(build_trace([comp(6), comp(7, 6, 9), comp(8, 7), comp(9, ctrl=(8,))]))
    with pytest.raises(TraceError, match="node 4 depends on itself"):
        trace_layers(build_trace([comp(4, 4)]))


def test_dropping_dangling_dependencies_keeps_the_others() -> None:
    trace = build_trace([comp(0, 9), comp(1, 0, 7, ctrl=(8, 0))])
    clean, dropped = drop_dangling(Workload((trace, trace)))
    assert dropped == 3
    assert clean.traces[0] is clean.traces[1]
    assert clean.traces[0].data_deps.of(0).tolist() == []
    assert clean.traces[0].data_deps.of(1).tolist() == [0]
    assert clean.traces[0].ctrl_deps.of(1).tolist() == [0]
