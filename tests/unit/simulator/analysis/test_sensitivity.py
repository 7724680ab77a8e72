"""What-if runs: which part of the cluster is worth making better."""

import numpy as np
import pytest
from simulator_traces import all_reduce, comp, node, ring, system, workload

from layerdag.simulator import Cluster, NetworkConfig, Variation, simulate
from layerdag.simulator.analysis import sensitivities
from layerdag.simulator.analysis._sensitivity import ScaledCompute
from layerdag.simulator.compute import SKIPPED, MeasuredCompute, ReferenceCompute
from layerdag.traces import NodeType
from layerdag.traces.chakra import build_trace


def gains(load, cluster, **more) -> dict[str, float]:
    return {entry.change: entry.gain for entry in sensitivities(load, cluster, **more)}


def test_a_job_that_only_computes_gains_from_compute_alone():
    found = gains(workload([comp(0, 11)], [comp(0, 11)]), Cluster(ring(2), system()))
    assert found["compute +10 %"] == pytest.approx(1 / 11)
    assert {change for change, gain in found.items() if gain} == {"compute +10 %"}


def test_every_dimension_has_a_row_for_bandwidth_and_latency():
    nodes = [all_reduce(0, 100_000)]
    network = NetworkConfig(ring(2).dimensions * 2)
    rows = sensitivities(workload(*[nodes] * 4), Cluster(network, system(dimensions=2)))
    assert [row.change for row in rows] == [
        "as given",
        "compute +10 %",
        "dim 0 bandwidth +10 %",
        "dim 0 latency -10 %",
        "dim 1 bandwidth +10 %",
        "dim 1 latency -10 %",
    ]
    # Dimension 0 scatters and gathers twice what dimension 1 reduces, in messages of equal latency.
    assert rows[2].gain > rows[4].gain > 0
    assert rows[3].gain == pytest.approx(rows[5].gain)
    for row in rows:
        assert row.gain == (rows[0].makespan_ns - row.makespan_ns) / rows[0].makespan_ns


def test_ranks_that_differ_in_speed_differ_in_every_run():
    nodes = [comp(0, 10), all_reduce(1, 200, (0,))]
    slow = sensitivities(
        workload(nodes, nodes), Cluster(ring(2), system()), variation=Variation({1: 2.0})
    )
    assert slow[0].makespan_ns == 20_000 + 30 + 2 * 200
    assert slow[1].makespan_ns == 2 * 9090 + 30 + 2 * 200


def test_another_compute_model_is_kept():
    nodes = [comp(0, 1, duration_ns=550)]
    cluster = Cluster(ring(2), system())
    rows = sensitivities(workload(nodes, nodes), cluster, MeasuredCompute())
    assert [row.makespan_ns for row in rows[:2]] == [550, 500]


def test_scaled_times_are_floored_and_at_least_1_ns_and_skipped_nodes_stay_skipped():
    roofline = system(roofline_enabled=True, local_mem_bw_gb=1.0, peak_perf_tflops=1.0)
    trace = build_trace(
        [
            comp(0, 0, num_ops=1000, tensor_size=0),
            comp(1, 0, num_ops=1, tensor_size=1),
            comp(2, 0, num_ops=5, tensor_size=15),
        ]
    )
    rows, on_cpu = np.arange(3), np.zeros(3, dtype=bool)
    scaled = ScaledCompute(ReferenceCompute(roofline), 0.5)
    assert scaled.durations_ns(trace, rows, on_cpu).tolist() == [SKIPPED, 1, 7]


def test_a_run_of_no_time_gains_nothing():
    nodes = [node(0, NodeType.INVALID)]
    load = workload(nodes, nodes)
    assert simulate(load, Cluster(ring(2), system())).makespan_ns == 0
    assert set(gains(load, Cluster(ring(2), system())).values()) == {0.0}
