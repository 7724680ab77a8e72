"""Curves of measured collectives."""

import dataclasses

import numpy as np
import pytest
from simulator_traces import coll, comp, workload

from layerdag.errors import ConfigError
from layerdag.hardware.collectives import CollectiveType
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.config import Congestion, RunOptions
from layerdag.simulator.fitted_collectives import (
    MAX_KNOTS,
    CollectiveCurve,
    NetworkLink,
    across_nodes_us,
    collective_us,
    fitted_devices,
    has_nodes,
)
from layerdag.simulator.run import simulate

SIZES = 2 ** np.arange(9, 30)


def test_a_curve_follows_latency_and_bandwidth_with_few_knots():
    us = 8 + SIZES / 200e3
    curve = CollectiveCurve.fit(SIZES, us)
    assert len(curve.knots) <= MAX_KNOTS
    assert curve.microseconds(SIZES) == pytest.approx(us, rel=0.1)
    assert curve.microseconds(np.array([2**33]))[0] == pytest.approx(2**33 / 200e3, rel=0.1)
    assert curve.microseconds(np.array([1]))[0] == pytest.approx(8, rel=0.01)


@pytest.mark.parametrize("device", fitted_devices())
def test_more_bytes_take_longer_and_ranks_between_lie_between(device):
    for operation in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        large = collective_us(device, operation, [2**26, 2**28], 8)
        assert large[0] < large[1] < 8 * large[0]
        between = collective_us(device, operation, [2**28], 6)[0]
        ends = [collective_us(device, operation, [2**28], ranks)[0] for ranks in (4, 8)]
        assert min(ends) * 0.99 <= between <= max(ends) * 1.01


def test_unknown_devices_and_operations_are_one_sentence():
    with pytest.raises(ConfigError, match=r"collectives of 'h10'\. Did you mean 'h100'"):
        collective_us("h10", "all_reduce", [8], 2)
    with pytest.raises(ConfigError, match="no measured collective 'scan'"):
        collective_us("h100", "scan", [8], 2)


@pytest.mark.parametrize("ranks", [4, 16])
def test_collectives_take_the_measured_time_and_that_of_the_network(ranks):
    nodes = [coll(0, CollectiveType.ALL_GATHER, 2**20)]
    job = workload(*[nodes] * ranks)
    cluster = Cluster("small").with_ranks(ranks)
    system = dataclasses.replace(cluster.system, fitted_collectives="h100")
    fitted = simulate(job, dataclasses.replace(cluster, system=system)).makespan_ns
    measured = collective_us("h100", "all_gather", [ranks * 2**20], min(ranks, 8))[0] * 1000
    if ranks == 16:
        # One message over the switch, and 15 shards over its 8 ports of 25 GB/s.
        least = collective_us("h100", "all_gather", [1], 8)[0] * 1000
        measured = 1000 + max(measured, least + 15 * 2**20 / (8 * 25 * 2**30 / 1e9))
    assert fitted == pytest.approx(measured, abs=1)
    assert fitted != simulate(job, cluster).makespan_ns


def test_a_device_by_name_has_its_collectives_unless_asked_or_links_are_shared():
    nodes = [comp(0, 1, num_ops=2**40, tensor_size=2**20),
             coll(1, CollectiveType.ALL_REDUCE, 2**20, (0,)),
             coll(2, CollectiveType.BROADCAST, 2**20, (1,))]  # fmt: skip
    job, slow = workload(*[nodes] * 4), Cluster("small").with_ranks(4)
    (link,) = slow.network.dimensions
    linked = dataclasses.replace(link, bandwidth_gib=450.0)
    cluster = dataclasses.replace(
        slow, network=dataclasses.replace(slow.network, dimensions=(linked,))
    )
    named = simulate(job, cluster, compute="h100:efficiency=1")
    assert "on h100 in nodes of 8" in " ".join(named.notes)
    assert "4 ALL_REDUCE; not measured, so as without: 4 BROADCAST." in " ".join(named.notes)
    none = dataclasses.replace(cluster.system, fitted_collectives="")
    many = workload(*[nodes] * 16)
    shared = dataclasses.replace(cluster, options=RunOptions(Congestion.AWARE))
    for found in (
        simulate(job, dataclasses.replace(cluster, system=none), compute="h100"),
        simulate(job, shared, compute="h100"),
        simulate(job, slow, compute="h100"),
        simulate(job, cluster, compute="h100", reference_semantics=True),
        simulate(job, cluster, compute="tpu-v4"),
        simulate(many, "small", compute="h100"),
    ):
        assert "NCCL" not in " ".join(found.notes)


def test_nodes_of_eight_are_told_from_other_networks():
    for ranks in ([4], [8], [2, 2], [8, 4], [2, 4, 16]):
        assert has_nodes("h100", ranks, [450.0] * len(ranks))
    for ranks in ([16], [4, 4], [32, 2]):
        assert not has_nodes("h100", ranks, [450.0] * len(ranks))


def test_links_of_another_bandwidth_than_the_device_s_are_those_of_another_machine():
    assert has_nodes("h100", [8, 4], [300.0, 25.0])
    assert has_nodes("h100", [8, 4], [900.0, 3.0])
    assert not has_nodes("h100", [8, 4], [25.0, 25.0])
    assert not has_nodes("h100", [2, 4, 4], [450.0, 1000.0, 25.0])


def test_nccl_s_choice_is_a_tree_of_few_bytes_a_ring_of_many_and_direct_to_all():
    link, nodes = NetworkLink(25_000.0, 5.0), np.full(16, 8)
    least = collective_us("h100", "all_reduce", [1], 8)[0]
    few, many = across_nodes_us("h100", "all_reduce", [1024, 2**32], nodes, link)
    assert few == pytest.approx(least + 2 * 4 * 5, rel=0.05)
    assert many == pytest.approx(least + 2 * 16 * 5 + 2 * 127 / 128 * 2**32 / 200_000, rel=0.01)
    piece = across_nodes_us("h100", "all_to_all", [2**32], nodes, link)[0]
    assert piece == pytest.approx(2**32 * 120 / 128 / 25_000, rel=0.01)
    alone = across_nodes_us("h100", "all_reduce", [2**30], np.ones(2, dtype=int), link)[0]
    assert alone == pytest.approx(2**30 / 25_000, rel=0.01)
