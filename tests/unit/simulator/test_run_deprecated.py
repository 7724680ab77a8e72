from typing import Any

import pytest
from simulator_traces import all_reduce, workload

from layerdag.simulator import Cluster, Congestion, RunOptions, simulate, small_cluster

NODES = [all_reduce(0, 3200)]
BY_PARTS: Any = simulate  # what the type checker refuses, and old programs still call


def test_the_call_by_parts_still_works_and_says_what_replaces_it() -> None:
    load = workload(NODES, NODES)
    system, network = small_cluster(2)
    options = RunOptions(congestion=Congestion.AWARE)
    wanted = simulate(load, Cluster(network, system, options=options)).rank_finish_ns.tolist()
    with pytest.warns(DeprecationWarning, match=r"call simulate\(workload, Cluster\("):
        old = BY_PARTS(load, system, network, options=options, memory=None)
    assert old.rank_finish_ns.tolist() == wanted
    with pytest.warns(DeprecationWarning, match="deprecated"):
        named = BY_PARTS(load, system=system, network=network, options=options)
    assert named.rank_finish_ns.tolist() == wanted
