"""Sentences beside the figures, and runs whose figures would be worth nothing."""

import pytest
from simulator_traces import (
    all_reduce,
    coll,
    comp,
    one_dimension,
    recv,
    ring,
    send,
    system,
    workload,
)

from layerdag.errors import SimulationError
from layerdag.simulator import Cluster, SystemConfig, Topology, simulate
from layerdag.simulator.compute import MeasuredCompute
from layerdag.traces import CollectiveType
from layerdag.traces.chakra import NodeSpec

CHARGED = system(local_mem_bw_gb=1.0)


def notes(
    nodes: list[NodeSpec], config: SystemConfig = CHARGED, ranks: int = 2, **more
) -> list[str]:
    """Return the first words of each note."""
    load = workload(*[nodes] * ranks)
    network = one_dimension(Topology.SWITCH, ranks)
    found = simulate(load, Cluster(network, config), **more).notes
    return [" ".join(note.split()[:4]) for note in found]


def test_a_plain_run_needs_no_note():
    assert notes([comp(0, 1), all_reduce(1, 64, (0,))]) == []


def test_a_collective_of_no_bytes_is_told_though_it_takes_time():
    assert notes([all_reduce(0, 0)]) == ["a collective of 0"]


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (CollectiveType.ALL_REDUCE, True),
        (CollectiveType.REDUCE_SCATTER, True),
        (CollectiveType.ALL_GATHER, False),
        (CollectiveType.ALL_TO_ALL, False),
    ],
)
def test_free_reductions_are_told_where_something_is_reduced(kind, told):
    nodes = [coll(0, kind, 64)]
    assert notes(nodes, system()) == (["system.json has no local-mem-bw,"] if told else [])
    assert notes(nodes, CHARGED) == []


def test_a_switch_that_reduces_charges_no_rank_so_nothing_is_free():
    assert notes([all_reduce(0, 64)], system("inNetwork")) == []


def test_other_compute_models_are_not_told_of_the_rules_of_the_reference():
    nodes = [comp(0, 0, duration_ns=7), all_reduce(1, 64, (0,))]
    assert notes(nodes, system(), compute=MeasuredCompute()) == []


def test_a_job_of_one_rank_is_told_whatever_the_model():
    for compute in (None, MeasuredCompute()):
        assert notes([comp(0, 1)], ranks=1, compute=compute) == ["the job has one"]


def test_costs_without_durations_run_as_in_the_reference_and_are_told():
    nodes = [comp(0, 0, num_ops=10**9), comp(1, 0, (0,), tensor_size=64)]
    assert notes(nodes) == ["no compute node states"]
    # One duration is enough to know that times were meant.
    assert notes([*nodes, comp(2, 1)]) == []


def complaint(nodes: list[NodeSpec], **more) -> str:
    with pytest.raises(SimulationError) as caught:
        simulate(workload(nodes, [comp(0, 0)]), Cluster(ring(2), system()), **more)
    return str(caught.value)


def test_bare_nodes_are_refused_with_their_number_and_both_remedies():
    told = complaint([comp(0, 0), comp(1, 0, (0,))])
    # Two nodes of rank 0 and one of rank 1.
    assert "none of its 3 compute nodes states a duration" in told
    assert "would take 1 ns" in told
    assert "convert the host trace together with its profile" in told
    assert "give the nodes num_ops and tensor_size and choose a device with --compute" in told


def test_costs_under_measured_times_are_refused_with_the_device_as_remedy():
    told = complaint([comp(0, 0, num_ops=10**9)], compute=MeasuredCompute())
    assert "choose a device with --compute, such as h100, to make times of num_ops" in told
    assert "convert the host trace" not in told


def test_jobs_that_only_communicate_need_no_durations():
    load = workload([send(0, 1, 400)], [recv(0, 0, 400)])
    assert simulate(load, Cluster(ring(2), system())).makespan_ns == 500


@pytest.mark.parametrize("costs", [{"num_ops": 1}, {"tensor_size": 1}])
def test_a_single_operation_or_byte_is_a_cost(costs):
    assert notes([comp(0, 0, **costs), all_reduce(1, 64, (0,))]) == ["no compute node states"]
    with pytest.raises(SimulationError, match="choose a device with --compute, such as h100, to"):
        notes([comp(0, 0, **costs)], compute=MeasuredCompute())


def test_a_cost_of_nothing_is_none():
    with pytest.raises(SimulationError, match="convert the host trace together with its profile"):
        notes([comp(0, 0, num_ops=0, tensor_size=0)], compute=MeasuredCompute())
