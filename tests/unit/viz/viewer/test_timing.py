"""When nodes run, and which decide how long it all takes."""

import numpy as np
import pytest
from trace_examples import comp, pair_workload

from layerdag.errors import UsageError
from layerdag.traces import Workload
from layerdag.traces.chakra import build_trace
from layerdag.viz.viewer import recorded_timing, simulated_timing


def test_recorded_times_are_as_early_as_dependencies_allow() -> None:
    found = recorded_timing(
        build_trace([comp(0, us=5), comp(1, us=50), comp(2, 0, 1, us=7), comp(3, 0, us=1)])
    )
    assert found is not None
    assert found.start_us_N.tolist() == [0, 0, 50, 5]
    assert found.end_us_N.tolist() == [5, 50, 57, 6]
    assert np.flatnonzero(found.critical_N).tolist() == [1, 2]


def test_a_trace_without_durations_has_no_times() -> None:
    assert recorded_timing(build_trace([comp(0, us=0), comp(1, 0, us=0)])) is None


def test_simulated_times_are_those_of_the_nodes_whatever_their_order_in_the_file() -> None:
    nodes = [comp(0, us=5), comp(1, 0, us=7), comp(2, 1, us=9)]
    straight = Workload((build_trace(nodes),))
    turned = Workload((build_trace(nodes[::-1]),))
    first, second = (simulated_timing(one, "small", 0) for one in (straight, turned))
    assert first.start_us_N.tolist() == second.start_us_N[::-1].tolist()
    assert (first.end_us_N - first.start_us_N).tolist() == [5, 7, 9]
    assert first.critical_N.all()
    assert second.critical_N.all()
    assert first.source == "simulated, cluster “small”, rank 0"


def test_only_ranks_that_there_are_can_be_shown() -> None:
    with pytest.raises(UsageError, match=r"--rank 5: .* has ranks 0 to 1"):
        simulated_timing(pair_workload(), "small", 5)


def test_recorded_times_belong_to_nodes_and_not_to_their_places_in_the_file() -> None:
    nodes = [comp(0, us=5), comp(1, us=50), comp(2, 0, 1, us=7), comp(3, 0, us=1), comp(9, 3, us=8)]
    straight, turned = (recorded_timing(build_trace(each)) for each in (nodes, nodes[::-1]))
    assert straight is not None
    assert turned is not None
    assert straight.start_us_N.tolist() == turned.start_us_N[::-1].tolist()
    assert straight.critical_N.tolist() == turned.critical_N[::-1].tolist()
    path_N = straight.critical_N
    length = (straight.end_us_N - straight.start_us_N)[path_N].sum()
    assert length == straight.end_us_N.max()
