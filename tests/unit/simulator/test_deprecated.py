import pytest
from simulator_traces import all_reduce, workload

from layerdag.simulator import Cluster, Congestion, RunOptions, simulate, small_cluster

NODES = [all_reduce(0, 3200)]


def test_the_call_by_parts_still_works_and_says_what_replaces_it() -> None:
    load = workload(NODES, NODES)
    system, network = small_cluster(2)
    options = RunOptions(congestion=Congestion.AWARE)
    wanted = simulate(load, Cluster(network, system, options=options)).rank_finish_ns.tolist()
    with pytest.warns(DeprecationWarning, match=r"call simulate\(workload, Cluster\("):
        old = simulate(load, system, network, options=options, memory=None)  # type: ignore
    assert old.rank_finish_ns.tolist() == wanted
    with pytest.warns(DeprecationWarning, match="deprecated"):
        named = simulate(load, system=system, network=network, options=options)  # type: ignore
    assert named.rank_finish_ns.tolist() == wanted
