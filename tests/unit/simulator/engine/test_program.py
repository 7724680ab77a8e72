"""A workload and a cluster together: what fits, and what ranks share."""

import numpy as np
import pytest
from simulator_traces import all_reduce, comp, node, one_dimension, ring, system, workload

from layerdag.errors import ConfigError
from layerdag.simulator import (
    Cluster,
    Congestion,
    MemoryConfig,
    MemoryKind,
    NetworkConfig,
    RunOptions,
    Topology,
    Variation,
    simulate,
)
from layerdag.simulator.compute import MeasuredCompute
from layerdag.simulator.engine import lower
from layerdag.simulator.engine._program import endpoint_delay, memory_ranks
from layerdag.traces import NodeType


def test_ranks_of_one_trace_share_its_columns():
    same, other = [comp(0, 1), comp(1, 1)], [comp(0, 2)]
    program = lower(workload(same, other, same), Cluster(ring(3), system()), MeasuredCompute())
    assert program.class_of_rank.tolist() == [0, 1, 0]
    assert program.out_ptr.tolist() == [0, 2, 3, 5]
    assert program.of_rank(2) is program.of_rank(0)


@pytest.mark.parametrize("npus", [2, 4])
def test_a_network_of_another_size_is_refused_with_both_numbers(npus):
    with pytest.raises(ConfigError) as caught:
        simulate(workload(*[[comp(0, 1)]] * 3), Cluster(ring(npus), system()))
    told = str(caught.value)
    assert f"the network has {npus} NPUs but" in told
    assert "traces of 3 ranks; change npus_count or give one trace per rank" in told


def aware(network: NetworkConfig, congestion: Congestion = Congestion.AWARE) -> int:
    options = RunOptions(congestion=congestion)
    load = workload(*[[comp(0, 1)]] * network.num_npus)
    return simulate(load, Cluster(network, system(), options=options)).makespan_ns


def test_congestion_of_the_reference_knows_one_dimension():
    two = NetworkConfig(one_dimension(Topology.SWITCH, 2).dimensions * 2)
    with pytest.raises(ConfigError, match="supports one dimension, the network has 2; use --cong"):
        aware(two)
    assert aware(two, Congestion.AWARE_MULTI) == 1000
    assert aware(one_dimension(Topology.SWITCH, 4)) == 1000


def test_congestion_of_the_reference_needs_a_ring_of_three():
    with pytest.raises(ConfigError, match="Ring of at least 3 NPUs; use FullyConnected for 2"):
        aware(ring(2))
    assert aware(ring(3)) == 1000
    assert aware(one_dimension(Topology.FULLY_CONNECTED, 2)) == 1000


@pytest.mark.parametrize(
    ("kind", "shared"),
    [
        (MemoryKind.NONE, 0),
        (MemoryKind.PER_NPU, 0),
        (MemoryKind.PER_NODE, 2),
        (MemoryKind.POOL, 8),
    ],
)
def test_ranks_that_share_a_memory_depend_on_its_kind(kind, shared):
    assert memory_ranks(MemoryConfig(kind, npus_per_node=2), 8) == shared


def test_memories_of_a_node_serve_their_own_ranks_only():
    # Four ranks, two memories: ranks 0 and 1 wait for each other, as do 2 and 3.
    nodes = [node(0, NodeType.MEM_LOAD, tensor_size=90)]
    memory = MemoryConfig(MemoryKind.PER_NODE, 10, 1.0, npus_per_node=2, num_nodes=2)
    result = simulate(workload(*[nodes] * 4), Cluster(ring(4), system(), memory))
    assert result.finish_ns.tolist() == [100, 200, 100, 200]


@pytest.mark.parametrize(("per_node", "num_nodes", "needed"), [(2, 1, 2), (3, 1, 2), (1, 3, 4)])
def test_memories_that_do_not_suffice_are_refused_with_the_number_needed(
    per_node, num_nodes, needed
):
    nodes = [node(0, NodeType.MEM_LOAD, tensor_size=90)]
    memory = MemoryConfig(MemoryKind.PER_NODE, 10, 1.0, per_node, num_nodes)
    with pytest.raises(ConfigError) as caught:
        simulate(workload(*[nodes] * 4), Cluster(ring(4), system(), memory))
    told = str(caught.value)
    assert f"num-nodes is {num_nodes}, but 4 ranks" in told
    assert f"{per_node} are {needed} nodes; enlarge one of them" in told
    # Jobs that use no remote memory do not ask for it.
    computing = workload(*[[comp(0, 1)]] * 4)
    assert simulate(computing, Cluster(ring(4), system(), memory)).makespan_ns == 1000


@pytest.mark.parametrize(
    ("given", "scale", "expected"),
    [(None, 0.0, 10), (None, 3.0, 10), (7, 1.0, 7), (7, 0.5, 3), (7, 0.0, 0), (0, 9.0, 0)],
)
def test_a_stated_endpoint_delay_is_scaled_and_rounded_down(given, scale, expected):
    options = RunOptions(injection_scale=scale)
    cluster = Cluster(ring(2), system(endpoint_delay_ns=given), options=options)
    assert endpoint_delay(cluster) == expected


def test_varied_ranks_get_columns_of_their_own_and_others_keep_sharing():
    nodes = [comp(0, 4), all_reduce(1, 64, (0,))]
    result = simulate(
        workload(*[nodes] * 4), Cluster(ring(4), system()), variation=Variation({1: 0.5, 2: 0.5})
    )
    program = result.program
    assert program.of_rank(0) is program.of_rank(3)
    assert len({id(program.of_rank(rank)) for rank in range(4)}) == 3
    assert result.compute_ns.tolist() == [4000, 2000, 2000, 4000]
    # The collective keeps its group, plan and size: only compute changes.
    np.testing.assert_array_equal(program.of_rank(1).peer_N, program.of_rank(0).peer_N)


def test_a_very_fast_rank_still_takes_a_ns_per_node():
    fast = Variation({0: 1e-9})
    result = simulate(
        workload([comp(0, 4)], [comp(0, 4)]), Cluster(ring(2), system()), variation=fast
    )
    assert result.compute_ns.tolist() == [1, 4000]


def test_factors_round_down():
    load = workload([comp(0, 0, duration_ns=7)], [comp(0, 1)])
    result = simulate(
        load, Cluster(ring(2), system()), compute=MeasuredCompute(), variation=Variation({0: 1.5})
    )
    assert result.compute_ns.tolist() == [10, 1000]
