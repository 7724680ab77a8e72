import pytest

from layerdag.errors import TraceError
from layerdag.traces import CollectiveType, NodeType
from layerdag.traces.analysis import replay
from layerdag.traces.pytorch.device import import_device, read_profile
from tests.unit.traces.profile_json import event, kernel, launch, write_profile


def imported(tmp_path, *events: dict, **head: object):
    return import_device(read_profile(write_profile(tmp_path / "p.json", list(events), **head)))


def parents(trace, row: int) -> list[str]:
    names = trace.names()
    return [names[int(parent)] for parent in trace.ctrl_deps.of(row)]


STEP = (
    event("cpu_op", "aten::linear", 0, 20),
    event("cpu_op", "aten::addmm", 1, 10),
    launch(1, 5),
    kernel(1, 10, 50),
    event("cpu_op", "aten::relu", 20, 10),
    launch(2, 22),
    kernel(2, 61, 5),
    event("cuda_runtime", "cudaDeviceSynchronize", 40, 30, correlation=3),
)


def test_kernels_are_named_after_the_operator_that_launched_them(tmp_path):
    found = imported(tmp_path, *STEP)
    trace = found.trace()
    assert trace.names() == [
        "cudaLaunchKernel", "aten::addmm", "cudaLaunchKernel", "aten::relu",
        "cudaDeviceSynchronize",
    ]  # fmt: skip
    assert found.joined_fraction == 1
    assert trace.integers("is_cpu_op")[0].tolist() == [1, 0, 1, 0, 1]
    assert trace.texts("device")[0] == ["cpu", "cuda", "cpu", "cuda", "cpu"]
    assert trace.integers("duration_ns")[0].tolist()[1] == 50_000


def test_launches_streams_and_waits_are_control_dependencies(tmp_path):
    trace = imported(tmp_path, *STEP).trace()
    assert parents(trace, 1) == ["cudaLaunchKernel"]
    assert parents(trace, 3) == ["aten::addmm", "cudaLaunchKernel"]
    assert parents(trace, 4) == ["cudaLaunchKernel", "aten::relu"]
    assert trace.integers("duration_ns")[0].tolist()[4] == 4_000


def test_the_replay_takes_the_measured_time(tmp_path):
    result = replay(imported(tmp_path, *STEP).trace())
    assert result.measured_ns == 65_000
    assert result.error < 0.001


def test_a_replay_does_not_depend_on_when_the_clock_started(tmp_path):
    later = [{**entry, "ts": entry["ts"] + 1_000} for entry in STEP]
    found = replay(imported(tmp_path, *later).trace())
    assert found == replay(imported(tmp_path, *STEP).trace())
    assert 0 <= found.delay_ns <= found.measured_ns


def test_a_false_dependency_shows_in_the_replay(tmp_path):
    from dataclasses import replace

    from layerdag.traces.chakra import ragged

    trace = imported(tmp_path, *STEP).trace()
    wrong = replace(trace, data_deps=ragged([(), (), (1,), (), ()]))
    assert replay(wrong).replayed_ns == 67_000


def test_communication_kernels_are_typed_from_their_arguments(tmp_path):
    told = {"Collective name": "_allgather_base", "In msg nelems": 100, "dtype": "BFloat16",
            "Process Group Ranks": "[0, 2]"}  # fmt: skip
    found = imported(
        tmp_path,
        launch(1, 0),
        kernel(1, 3, 9, "ncclDevKernel_AllGather_RING_LL(ncclDevComm*)", **told),
        distributedInfo={"world_size": 4},
    )
    trace = found.trace()
    assert trace.names()[1] == "nccl::all_gather"
    assert trace.type_N[1] == NodeType.COMM_COLL
    assert trace.integers("comm_type")[0][1] == CollectiveType.ALL_GATHER
    assert trace.integers("comm_size")[0][1] == 200
    assert trace.texts("pg_name")[0][1] == "1"
    assert found.groups == {"0": (0, 1, 2, 3), "1": (0, 2)}


def test_old_communication_kernels_are_typed_from_names_and_operators(tmp_path):
    operator = event(
        "cpu_op", "c10d::allreduce_", 0, 5, **{"Input Dims": [[[8, 4]]], "Input type": ["float"]}
    )
    old = kernel(1, 6, 9, "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)")
    trace = imported(tmp_path, operator, launch(1, 1), old).trace()
    assert trace.names()[1] == "nccl::all_reduce"
    assert trace.integers("comm_size")[0][1] == 128


def test_a_kernel_without_launch_keeps_its_place_in_the_stream(tmp_path):
    found = imported(tmp_path, launch(1, 0), kernel(1, 3, 2), kernel(99, 6, 2))
    trace = found.trace()
    assert trace.names() == ["cudaLaunchKernel", "kernel", "kernel"]
    assert parents(trace, 2) == ["kernel"]
    assert found.joined_fraction == 0


def test_a_profile_of_the_host_alone_is_refused(tmp_path):
    with pytest.raises(TraceError, match="no kernel, copy or fill on a device"):
        imported(tmp_path, event("cpu_op", "aten::mm", 0, 1))


def span(trace, row: int) -> tuple[int, int]:
    """Return when a node ran, in nanoseconds from the first start."""
    start = int(trace.integers("start_ns")[0][row])
    return start, start + int(trace.integers("duration_ns")[0][row])


def test_a_call_that_blocks_is_a_launch_and_a_wait_around_its_copy(tmp_path):
    copy = event(
        "gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 12, 15,
        correlation=1, device=0, stream=7, bytes=4096,
    )  # fmt: skip
    trace = imported(tmp_path, event("cuda_runtime", "cudaMemcpy", 10, 20, correlation=1), copy)
    trace = trace.trace()
    assert trace.names() == ["cudaMemcpy", "memcpy_dtoh", "cudaMemcpy:wait"]
    assert [span(trace, row) for row in range(3)] == [(0, 2000), (2000, 17_000), (17_000, 20_000)]
    assert parents(trace, 1) == ["cudaMemcpy"]
    assert parents(trace, 2) == ["cudaMemcpy", "memcpy_dtoh"]
    assert trace.integers("tensor_size")[0].tolist() == [0, 4096, 0]
    assert replay(trace).replayed_ns == 20_000


def test_what_follows_a_call_that_blocked_waits_for_its_end(tmp_path):
    events = [
        event("cuda_runtime", "cudaMemcpy", 10, 20, correlation=1),
        kernel(1, 12, 15),
        launch(2, 40),
        kernel(2, 45, 5),
    ]
    trace = imported(tmp_path, *events).trace()
    assert trace.names()[2:4] == ["cudaMemcpy:wait", "cudaLaunchKernel"]
    assert parents(trace, 3) == ["cudaMemcpy:wait"]


def test_a_kernel_that_starts_before_its_launch_returns_waits_for_the_call_before(tmp_path):
    events = [launch(1, 0), kernel(1, 3, 1), launch(2, 10, 5), kernel(2, 12, 50, stream=8)]
    trace = imported(tmp_path, *events).trace()
    early = trace.names().index("kernel", 2)
    assert trace.ctrl_deps.of(early).tolist() == [0]


def test_streams_run_beside_each_other_and_a_wait_waits_for_each(tmp_path):
    events = [
        launch(1, 0),
        launch(2, 3),
        kernel(1, 5, 20, stream=7),
        kernel(2, 6, 30, stream=8),
        event("cuda_runtime", "cudaDeviceSynchronize", 10, 30, correlation=0),
        launch(3, 50),
        kernel(3, 53, 5, stream=8),
    ]
    trace = imported(tmp_path, *events).trace()
    names = trace.names()
    wait = names.index("cudaDeviceSynchronize")
    kernels = [row for row, name in enumerate(names) if name == "kernel"]
    assert trace.ctrl_deps.of(kernels[1]).tolist() == [names.index("cudaLaunchKernel", 1)]
    assert set(kernels[:2]) <= set(trace.ctrl_deps.of(wait).tolist())
    # The call slept until the last kernel ended at 36 us; it returned at 40 us.
    assert span(trace, wait) == (36_000, 40_000)
    assert kernels[1] in trace.ctrl_deps.of(kernels[2]).tolist()  # the same stream


def test_a_wait_does_not_wait_for_what_ended_before_or_ends_after(tmp_path):
    events = [
        launch(1, 0),
        kernel(1, 3, 2, stream=7),
        launch(2, 6),
        kernel(2, 9, 90, stream=8),
        event("cuda_runtime", "cudaStreamSynchronize", 20, 10, correlation=0),
    ]
    trace = imported(tmp_path, *events).trace()
    wait = trace.names().index("cudaStreamSynchronize")
    assert parents(trace, wait) == ["cudaLaunchKernel"]
    assert span(trace, wait) == (20_000, 30_000)


def test_threads_launch_beside_each_other(tmp_path):
    events = [launch(1, 0), {**launch(2, 1), "tid": 8}, kernel(1, 9, 2), kernel(2, 12, 2)]
    trace = imported(tmp_path, *events).trace()
    assert trace.ctrl_deps.of(trace.names().index("cudaLaunchKernel", 1)).tolist() == []


def test_messages_are_sends_and_receives_with_size_and_group(tmp_path):
    told = {"In msg nelems": 10, "dtype": "Float", "Process Group Ranks": "[0, 1]"}
    events = [
        event("cpu_op", "c10d::send", 0, 8),
        launch(1, 1),
        kernel(1, 5, 1, "ncclDevKernel_SendRecv", **told),
        event("cpu_op", "c10d::recv_", 20, 8),
        launch(2, 21),
        kernel(2, 25, 1, "ncclDevKernel_SendRecv", **told),
    ]
    trace = imported(tmp_path, *events).trace()
    assert trace.names()[1::2] == ["nccl::send", "nccl::recv"]
    assert trace.type_N[1::2].tolist() == [NodeType.COMM_SEND, NodeType.COMM_RECV]
    assert trace.integers("comm_size")[0].tolist() == [0, 40, 0, 40]
    assert trace.texts("pg_name")[0] == ["", "0", "", "0"]
    assert not trace.integers("comm_type")[1].any()


@pytest.mark.parametrize(
    ("name", "category", "expected"),
    [
        ("void gemm<float>(int)", "kernel", "kernel"),
        ("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", "memcpy_htod"),
        ("Memset (Device)", "gpu_memset", "memset"),
        ("(unknown)", "gpu_memset", "gpu_memset"),
        ("void gemm", "Kernel", "kernel"),
    ],
)
def test_device_work_of_no_operator_gets_a_public_name(tmp_path, name, category, expected):
    work = event(category, name, 3, 1, correlation=1, device=0, stream=7)
    assert imported(tmp_path, launch(1, 0), work).trace().names() == ["cudaLaunchKernel", expected]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cudaLaunchKernel_v7000", "cudaLaunchKernel"),
        ("cuMemcpyDtoH_v2", "cuMemcpyDtoH"),
        ("cudaStreamSynchronize_ptsz", "cudaStreamSynchronize"),
        ("hipLaunchKernel", "hipLaunchKernel"),
    ],
)
def test_calls_lose_the_version_in_their_name(tmp_path, name, expected):
    started = event("cuda_runtime", name, 0, 1, correlation=1)
    trace = imported(tmp_path, started, kernel(1, 3, 2)).trace()
    assert trace.names()[0] == expected


@pytest.mark.parametrize("size", [1, 0, -4, "8", 2**20 + 1, 10**12])
def test_a_world_that_cannot_be_is_not_written_down(tmp_path, size):
    found = imported(tmp_path, launch(1, 0), kernel(1, 3, 2), distributedInfo={"world_size": size})
    assert found.groups == {}


def test_communication_without_ranks_is_of_the_world(tmp_path):
    reduce = kernel(1, 3, 9, "ncclAllReduce")
    found = imported(tmp_path, launch(1, 0), reduce, distributedInfo={"world_size": 2})
    assert found.groups == {"0": (0, 1)}
    assert found.trace().texts("pg_name")[0] == ["", "0"]


def test_the_largest_tensor_of_the_operator_is_the_size_of_a_kernel(tmp_path):
    operator = event("cpu_op", "aten::relu", 0, 9, **{"Input Dims": [[8]], "Input type": ["float"]})
    trace = imported(tmp_path, operator, launch(1, 1), kernel(1, 5, 2)).trace()
    assert trace.integers("tensor_size")[0].tolist() == [0, 32]


def test_ids_count_the_nodes_and_times_start_with_the_first(tmp_path):
    trace = imported(tmp_path, launch(1, 1000), kernel(1, 1003.6, 2.5)).trace()
    assert trace.id_N.tolist() == [0, 1]
    assert trace.start_us_N.tolist() == [0, 3]  # whole microseconds, cut
    assert trace.duration_us_N.tolist() == [2, 3]  # rounded
    assert trace.integers("start_ns")[0].tolist() == [0, 3600]
