from dataclasses import replace

import numpy as np

from layerdag.codec import AttributedGraph, Unfolded, unfold_sampled
from layerdag.codec._fold import EDGE_TYPES, NONE
from layerdag.codec._unfold import unfold
from layerdag.simulator import Cluster, MemoryConfig, MemoryKind, simulate, small_cluster
from layerdag.traces.chakra import START_BYTES, START_OPS

NAN = float("nan")
COMMUNICATION = ("MESSAGE", "COMM_COLL")


def job(*kinds: str, device: str = "cpu", **numbers: list[float]) -> AttributedGraph:
    """Return a chain of nodes of these types; collectives join all ranks, messages form a ring."""
    size = len(kinds)
    return AttributedGraph(
        name="job",
        categories={
            "op": ["c10d::send" if kind in COMMUNICATION else "aten::mm" for kind in kinds],
            "type": list(kinds),
            "group": ["world" if kind == "COMM_COLL" else NONE for kind in kinds],
            "stage": ["0"] * size,
            "peer": ["0" if kind == "MESSAGE" else NONE for kind in kinds],
            "device": [device] * size,
        },
        numbers={name: np.array(values) for name, values in numbers.items()},
        edge_index_2E=np.stack([np.arange(size - 1), np.arange(1, size)]),
        edge_type_E=np.zeros(size - 1, dtype=np.int64),
        edge_type_names=EDGE_TYPES,
    )


def costs(unfolded: Unfolded) -> tuple[list[int], list[int]]:
    """Return FLOPs and bytes of the first rank's nodes."""
    trace = unfolded.workload.traces[0]
    return trace.integers("num_ops")[0].tolist(), trace.integers("tensor_size")[0].tolist()


def test_an_operator_with_bytes_only_does_one_operation_for_each_element_it_writes():
    unfolded = unfold(job("COMP", "COMP", flops=[NAN, 7.0], bytes=[8000.0, 16.0]), 1)
    assert costs(unfolded) == ([1000, 7], [8000, 16])
    assert unfolded.repairs == {"compute_without_cost": 1}


def test_an_operator_with_flops_only_is_timed_by_them():
    assert costs(unfold(job("COMP", flops=[1e9], bytes=[NAN]), 1)) == ([10**9], [4])


def test_an_operator_without_costs_moves_what_others_move_in_its_time():
    graph = job(
        *["COMP"] * 4,
        flops=[5.0, 5.0, 5.0, NAN],
        bytes=[100.0, 3000.0, 9000.0, NAN],
        duration=[100.0, 1000.0, 1000.0, 400.0],
    )
    assert costs(unfold(graph, 1)) == ([5, 5, 5, 150], [100, 3000, 9000, 1200])


def test_an_operator_without_costs_and_times_moves_one_element():
    graph = job("COMP", "COMP", flops=[5.0, NAN], bytes=[100.0, NAN])
    assert costs(unfold(graph, 1)) == ([5, 1], [100, 4])


def test_communication_with_nobody_reads_and_writes_its_size():
    graph = job("COMM_COLL", "MESSAGE", comm_bytes=[4000.0, NAN], duration=[50.0, 50.0])
    assert costs(unfold(graph, 1)) == ([1000, 1000], [8000, 8000])


def test_a_job_of_times_alone_gets_no_costs():
    unfolded = unfold(job("COMP", "COMP", duration=[50.0, 50.0]), 1)
    assert costs(unfolded) == ([0, 0], [0, 0])
    assert unfolded.repairs == {}


def test_absurd_numbers_stay_within_what_a_simulator_runs():
    graph = job("COMP", flops=[float("inf")], bytes=[1e300], duration=[-5.0])
    assert costs(unfold(graph, 1)) == ([10**15], [10**15])


def test_the_first_operator_of_a_sampled_job_takes_time_on_any_device():
    graph = job("COMP", "COMP", flops=[1.0, 1.0], bytes=[8.0, 8.0])
    assert costs(unfold(graph, 1)) == ([1, 1], [8, 8])
    sampled = unfold_sampled(graph, 1)
    assert costs(sampled) == ([1, 1], [START_BYTES, 8])
    assert (sampled.repairs, sampled.completions) == ({}, {"start_without_time": 1})
    system, network = small_cluster(1)
    roof = replace(
        system, roofline_enabled=True, peak_perf_tflops=16_000.0, local_mem_bw_gb=16_000.0
    )
    assert simulate(sampled.workload, Cluster(network, roof)).nodes(0).id_N.tolist() == [0, 1]


def test_only_the_first_of_several_operators_that_wait_for_nothing_is_enlarged():
    graph = job("COMP", "COMP", flops=[1.0, 1.0], bytes=[8.0, 8.0])
    graph = replace(graph, edge_index_2E=np.zeros((2, 0), np.int64), edge_type_E=np.zeros(0, int))
    assert costs(unfold_sampled(graph, 1))[1] == [START_BYTES, 8]


def test_what_takes_its_time_anyway_stays():
    for changes in ({"flops": [float(START_OPS)]}, {"bytes": [float(START_BYTES)]}):
        graph = job("COMP", **{"flops": [1.0], "bytes": [8.0], **changes})
        assert not unfold_sampled(graph, 1).completions
    on_host = job("COMP", device="host", flops=[1.0], bytes=[8.0])
    assert costs(unfold_sampled(on_host, 1)) == ([1], [8])


def test_a_message_or_memory_access_that_comes_first_takes_time_too():
    for kind, size in (("MESSAGE", "comm_size"), ("MEM_STORE", "tensor_size")):
        graph = job(kind, "COMP", flops=[NAN, 1.0], bytes=[1.0, 8.0], comm_bytes=[1.0, NAN])
        unfolded = unfold_sampled(graph, 2)
        assert unfolded.completions == {"start_without_time": 1}
        for trace in unfolded.workload.traces:
            assert trace.integers(size)[0][0] == START_BYTES
        memory = MemoryConfig(kind=MemoryKind.PER_NPU, bandwidth_bytes_per_ns=16_000.0)
        simulate(unfolded.workload, replace(Cluster.preset().sized(2), memory=memory))


def test_a_collective_that_comes_first_keeps_its_size():
    graph = job("COMM_COLL", "COMP", flops=[NAN, 1.0], bytes=[NAN, 8.0], comm_bytes=[4.0, NAN])
    unfolded = unfold_sampled(graph, 2)
    assert not unfolded.repairs
    assert unfolded.workload.traces[0].integers("comm_size")[0].tolist() == [4, 0]


def test_a_duration_is_written_in_ns_and_in_us():
    trace = unfold(job("COMP", duration=[1_500_400.0]), 1).workload.traces[0]
    assert trace.integers("duration_ns")[0].tolist() == [1_500_400]
    assert trace.duration_us_N.tolist() == [1500]
