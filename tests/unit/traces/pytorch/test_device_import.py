"""Which operators stand around a launch, by hand and against a slow search."""

from typing import Any

import pytest
from profile_json import event, kernel as kernel_profile_json, launch, write_profile
from replay import replay

from layerdag.errors import TraceError
from layerdag.hardware.collectives import CollectiveType
from layerdag.runtime.notes import NoteKind
from layerdag.traces.pytorch.device_import import Launch, find_launches, import_device, is_wait
from layerdag.traces.pytorch.kernel_communication import (
    KernelCommunication,
    kernel_communication,
    tensor_bytes,
)
from layerdag.traces.pytorch.kineto import Event, Profile, read_profile
from layerdag.traces.trace import NodeType


def imported(tmp_path, *events: dict, **head: object):
    return import_device(read_profile(write_profile(tmp_path / "p.json", list(events), **head)))


def parents(trace, row: int) -> list[str]:
    names = trace.names()
    return [names[int(parent)] for parent in trace.ctrl_deps.of(row)]


STEP = (
    event("cpu_op", "aten::linear", 0, 20),
    event("cpu_op", "aten::addmm", 1, 10),
    launch(1, 5),
    kernel_profile_json(1, 10, 50),
    event("cpu_op", "aten::relu", 20, 10),
    launch(2, 22),
    kernel_profile_json(2, 61, 5),
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


def test_communication_kernels_are_typed_from_their_arguments(tmp_path):
    told = {"Collective name": "_allgather_base", "In msg nelems": 100, "dtype": "BFloat16",
            "Process Group Ranks": "[0, 2]"}  # fmt: skip
    found = imported(
        tmp_path,
        launch(1, 0),
        kernel_profile_json(1, 3, 9, "ncclDevKernel_AllGather_RING_LL(ncclDevComm*)", **told),
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
    old = kernel_profile_json(1, 6, 9, "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)")
    trace = imported(tmp_path, operator, launch(1, 1), old).trace()
    assert trace.names()[1] == "nccl::all_reduce"
    assert trace.integers("comm_size")[0][1] == 128


def test_a_kernel_without_launch_keeps_its_place_in_the_stream(tmp_path):
    found = imported(
        tmp_path, launch(1, 0), kernel_profile_json(1, 3, 2), kernel_profile_json(99, 6, 2)
    )
    trace = found.trace()
    assert trace.names() == ["cudaLaunchKernel", "kernel", "kernel"]
    assert parents(trace, 2) == ["kernel"]
    assert found.joined_fraction == 0


def rocm(name: str, ts: float, hint: int, category: str = "cuda_runtime", **args) -> dict:
    return event(category, name, ts, 5, **{"External id": hint, **args})


def test_kernels_without_correlation_belong_to_the_operator_with_their_external_id(tmp_path):
    found = imported(
        tmp_path,
        event("cpu_op", "aten::mm", 0, 60, **{"External id": 1}),
        rocm("hipLaunchKernel", 10, 1),
        rocm("gemm", 20, 1, "kernel", stream=7),
        event("cpu_op", "aten::add", 100, 60, **{"External id": 2}),
        rocm("hipLaunchKernel", 110, 2),
        rocm("hipMalloc", 112, 2),
        rocm("hipLaunchKernel", 113, 2),
        *(rocm("add", at, 2, "kernel", stream=7) for at in (120, 130, 140)),
        rocm("lost", 150, 3, "kernel", stream=7),
    )
    trace = found.trace()
    assert trace.names() == ["hipLaunchKernel", "aten::mm", "hipLaunchKernel", "aten::add",
        "hipLaunchKernel", "aten::add", "aten::add", "kernel"]  # fmt: skip
    assert [parents(trace, row)[-1:] for row in (1, 3, 5)] == [["hipLaunchKernel"]] * 3
    assert found.joined_fraction == 4 / 5


def test_launches_that_show_no_work_are_noted_with_their_time(tmp_path):
    graphs = [event("cuda_runtime", "cudaGraphLaunch", 100, 50, correlation=n) for n in (8, 9)]
    (note,) = imported(tmp_path, launch(1, 0), kernel_profile_json(1, 3, 2), *graphs).notes
    assert (note.kind, note.word, note.count) == (NoteKind.KERNEL, "cudaGraphLaunch", 2)
    assert "100 us in all, 67 % of the profile" in note.place


@pytest.mark.parametrize(
    ("name", "told", "kind"),
    [
        ("ncclDevKernel_AllGather_RING_LL", {}, NoteKind.SIZE),
        ("ncclDevKernel_SendRecv", {"Collective name": "send", "In msg nelems": 4,
                                    "dtype": "Float"}, NoteKind.PEER),
        ("ncclDevKernel_SendRecv", {}, NoteKind.COLLECTIVE),
        ("void deep_ep::intranode::dispatch<2, 768>(int4*)", {}, NoteKind.SIZE),
        ("void deep_ep::internode::notify_dispatch<true>(int*)", {}, NoteKind.COLLECTIVE),
        ("nvshmemi_transfer_rma_nbi", {}, NoteKind.COLLECTIVE),
    ],
)  # fmt: skip
def test_communication_of_which_not_all_is_told_stays_work_and_is_noted(tmp_path, name, told, kind):
    comm = kernel_profile_json(1, 3, 2, name, **told)
    found = imported(tmp_path, launch(1, 0), comm, distributedInfo={"world_size": 4})
    assert found.trace().type_N.tolist() == [NodeType.COMP] * 2
    assert not found.trace().integers("comm_size")[1].any()
    first, second = found.notes
    assert (first.kind, second.word) == (kind, "none of 4 ranks")
    assert "2 us" in first.place


@pytest.mark.parametrize(
    "name",
    ["void vllm::cross_device_reduce_1stage<bf16, 2>(vllm::RankData*)",
     "multimem_all_reduce_kernel<float>", "void flashinfer::allreduce_fusion_kernel_oneshot<1>()"],
)  # fmt: skip
def test_kernels_of_all_reduce_beside_nccl_are_known(tmp_path, name):
    told = {"Input Dims": [[8, 4], [8, 4]], "Input type": ["c10::Half"] * 2}
    operator = event("cpu_op", "_C_custom_ar::all_reduce", 0, 9, **told)
    comm = kernel_profile_json(1, 5, 2, name)
    found = imported(tmp_path, operator, launch(1, 1), comm, distributedInfo={"world_size": 2})
    trace = found.trace()
    assert (trace.names()[1], found.notes) == ("nccl::all_reduce", ())
    assert trace.integers("comm_size")[0].tolist() == [0, 64]


def test_a_group_that_is_not_told_is_the_only_one_or_noted(tmp_path):
    told = {"In msg nelems": 1, "dtype": "Float", "Process Group Name": "tp",
            "Process Group Ranks": "[0, 1, ..."}  # fmt: skip
    comm = kernel_profile_json(1, 3, 9, "ncclAllReduce", **told)
    info = {"world_size": 4, "pg_config": [{"pg_name": "tp", "ranks": [0, 2]}]}
    found = imported(tmp_path, launch(1, 0), comm, distributedInfo=info)
    assert (found.groups["1"], found.notes) == ((0, 2), ())
    other = {"world_size": 4, "pg_config": [{"pg_name": "dp", "ranks": [0, 2]}]}
    (note,) = imported(tmp_path, launch(1, 0), comm, distributedInfo=other).notes
    assert (note.kind, note.word) == (NoteKind.GROUP, "nccl::all_reduce")


def test_shapes_that_are_not_told_leave_the_size_out(tmp_path):
    trace = imported(
        tmp_path, event("cpu_op", "aten::mm", 0, 9), launch(1, 1), kernel_profile_json(1, 5, 2)
    ).trace()
    assert not trace.integers("tensor_size")[1].any()


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
        kernel_profile_json(1, 12, 15),
        launch(2, 40),
        kernel_profile_json(2, 45, 5),
    ]
    trace = imported(tmp_path, *events).trace()
    assert trace.names()[2:4] == ["cudaMemcpy:wait", "cudaLaunchKernel"]
    assert parents(trace, 3) == ["cudaMemcpy:wait"]


def test_a_kernel_that_starts_before_its_launch_returns_waits_for_the_call_before(tmp_path):
    events = [
        launch(1, 0),
        kernel_profile_json(1, 3, 1),
        launch(2, 10, 5),
        kernel_profile_json(2, 12, 50, stream=8),
    ]
    trace = imported(tmp_path, *events).trace()
    early = trace.names().index("kernel", 2)
    assert trace.ctrl_deps.of(early).tolist() == [0]


def test_streams_run_beside_each_other_and_a_wait_waits_for_each(tmp_path):
    events = [
        launch(1, 0),
        launch(2, 3),
        kernel_profile_json(1, 5, 20, stream=7),
        kernel_profile_json(2, 6, 30, stream=8),
        event("cuda_runtime", "cudaDeviceSynchronize", 10, 30, correlation=0),
        launch(3, 50),
        kernel_profile_json(3, 53, 5, stream=8),
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
        kernel_profile_json(1, 3, 2, stream=7),
        launch(2, 6),
        kernel_profile_json(2, 9, 90, stream=8),
        event("cuda_runtime", "cudaStreamSynchronize", 20, 10, correlation=0),
    ]
    trace = imported(tmp_path, *events).trace()
    wait = trace.names().index("cudaStreamSynchronize")
    assert parents(trace, wait) == ["cudaLaunchKernel"]
    assert span(trace, wait) == (20_000, 30_000)


def test_threads_launch_beside_each_other(tmp_path):
    events = [
        launch(1, 0),
        {**launch(2, 1), "tid": 8},
        kernel_profile_json(1, 9, 2),
        kernel_profile_json(2, 12, 2),
    ]
    trace = imported(tmp_path, *events).trace()
    assert trace.ctrl_deps.of(trace.names().index("cudaLaunchKernel", 1)).tolist() == []


def test_messages_are_sends_and_receives_with_size_and_group(tmp_path):
    told = {"In msg nelems": 10, "dtype": "Float", "Process Group Ranks": "[0, 1]"}
    events = [
        event("cpu_op", "c10d::send", 0, 8),
        launch(1, 1),
        kernel_profile_json(1, 5, 1, "ncclDevKernel_SendRecv", **told, **{"Dst Rank": 1}),
        event("cpu_op", "c10d::recv_", 20, 8),
        launch(2, 21),
        kernel_profile_json(2, 25, 1, "ncclDevKernel_SendRecv", **told, **{"Src Rank": "1"}),
    ]
    trace = imported(tmp_path, *events).trace()
    assert trace.names()[1::2] == ["nccl::send", "nccl::recv"]
    assert trace.type_N[1::2].tolist() == [NodeType.COMM_SEND, NodeType.COMM_RECV]
    assert trace.integers("comm_size")[0].tolist() == [0, 40, 0, 40]
    assert trace.texts("pg_name")[0] == ["", "0", "", "0"]
    assert trace.integers("comm_dst", -1)[0].tolist() == [-1, 1, -1, -1]
    assert trace.integers("comm_src", -1)[0].tolist() == [-1, -1, -1, 1]
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
    trace = imported(tmp_path, started, kernel_profile_json(1, 3, 2)).trace()
    assert trace.names()[0] == expected


@pytest.mark.parametrize("size", [1, 0, -4, "8", 2**20 + 1, 10**12])
def test_a_world_that_cannot_be_is_not_written_down(tmp_path, size):
    found = imported(
        tmp_path, launch(1, 0), kernel_profile_json(1, 3, 2), distributedInfo={"world_size": size}
    )
    assert found.groups == {}


def test_communication_without_ranks_is_of_the_world(tmp_path):
    told = {"In msg nelems": 1, "dtype": "Float"}
    reduce = kernel_profile_json(1, 3, 9, "ncclAllReduce", **told)
    found = imported(tmp_path, launch(1, 0), reduce, distributedInfo={"world_size": 2})
    assert found.groups == {"0": (0, 1)}
    assert found.trace().texts("pg_name")[0] == ["", "0"]


def test_the_largest_tensor_of_the_operator_is_the_size_of_a_kernel(tmp_path):
    operator = event("cpu_op", "aten::relu", 0, 9, **{"Input Dims": [[8]], "Input type": ["float"]})
    trace = imported(tmp_path, operator, launch(1, 1), kernel_profile_json(1, 5, 2)).trace()
    assert trace.integers("tensor_size")[0].tolist() == [0, 32]


def test_ids_count_the_nodes_and_times_start_with_the_first(tmp_path):
    trace = imported(tmp_path, launch(1, 1000), kernel_profile_json(1, 1003.6, 2.5)).trace()
    assert trace.id_N.tolist() == [0, 1]
    assert trace.start_us_N.tolist() == [0, 3]  # whole microseconds, cut
    assert trace.duration_us_N.tolist() == [2, 3]  # rounded
    assert trace.integers("start_ns")[0].tolist() == [0, 3600]


def span_launches(name: str, start: int, end: int, lane: object = 1, **args: object) -> Event:
    return Event(name, "cpu_op", start, end, (lane,), args)


def call(number: int, start: int, name: str = "cudaLaunchKernel", lane: object = 1) -> Event:
    return Event(name, "cuda_runtime", start, start + 2, (lane,), {"correlation": number})


def work(number: int, start: int, **args: object) -> Event:
    return Event("gemm", "kernel", start, start + 5, (0, 7), {"correlation": number, **args})


def profile(operators: list[Event], calls: list[Event], kernels: list[Event]) -> Profile:
    by_start = [sorted(group, key=lambda e: (e.start, -e.end)) for group in (operators, calls)]
    return Profile(tuple(by_start[0]), tuple(by_start[1]), tuple(kernels))


def test_one_call_may_start_several_kernels_and_others_start_none():
    calls = [call(1, 0), call(2, 10), call(3, 20, name="cudaGetDevice")]
    found = find_launches(profile([], calls, [work(2, 5), work(1, 6), work(2, 7)]))
    assert [(launch.call.start, launch.kernels) for launch in found] == [(0, (1,)), (10, (0, 2))]


@pytest.mark.parametrize(
    ("name", "waits"),
    [
        ("cudaDeviceSynchronize", True),
        ("cudaStreamSynchronize", True),
        ("hipEventSynchronize", True),
        ("cudaLaunchKernel", False),
    ],
)
def test_calls_that_wait_are_kept_although_they_start_nothing(name, waits):
    assert is_wait(call(9, 0, name)) is waits
    found = find_launches(profile([], [call(9, 0, name)], []))
    assert len(found) == waits


def test_a_call_without_correlation_starts_nothing_although_a_kernel_has_none_either():
    wait = call(0, 10, "cudaDeviceSynchronize")
    (found,) = find_launches(profile([], [wait], [work(0, 0)]))
    assert found.kernels == ()


def test_where_threads_are_numbered_otherwise_the_external_id_tells_the_operator():
    operators = [span_launches("aten::mm", 0, 100, lane="profiler", **{"External id": 5})]
    kernels = [work(1, 60, **{"External id": 5}), work(2, 70, **{"External id": 6})]
    known, unknown = find_launches(profile(operators, [call(1, 40), call(2, 41)], kernels))
    assert [op.name for op in known.operators] == ["aten::mm"]
    assert unknown.operators == ()


def test_a_kernel_without_external_id_is_not_given_to_an_operator_without_one():
    operators = [span_launches("aten::mm", 0, 100, lane="profiler")]
    (launch,) = find_launches(profile(operators, [call(1, 40)], [work(1, 60)]))
    assert launch.operators == ()


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["aten::linear", "aten::addmm", "aten::copy_"], "aten::addmm"),
        (["autograd::engine", "aten::mm"], "aten::mm"),
        (["torch::autograd::AccumulateGrad", "aten::add_"], "aten::add_"),
        (["my::op", "aten::mm"], "my::op"),
        (["Optimizer.step", "aten::add_"], "aten::add_"),
        (["Optimizer.step", "forward"], "forward"),
        (["profiler::_record_function_enter_new"], "profiler::_record_function_enter_new"),
        ([], None),
    ],
)
def test_the_launching_operator_is_the_outermost_with_a_kernel_of_its_own(names, expected):
    launch = Launch(call(1, 0), (0,), tuple(span_launches(name, 0, 10) for name in names))
    operator = launch.operator()
    assert (operator.name if operator else None) == expected


def test_nesting_equals_a_search_over_all_operators(rng):
    """Operators of a thread nest or follow each other, as calls of functions do."""

    def nest(start: int, end: int, lane: int, depth: int) -> list[Event]:
        found, at = [], start
        while depth and at + 2 < end:
            stop = int(rng.integers(at + 1, end))
            found += [
                span_launches(f"{depth}-{at}", at, stop, lane),
                *nest(at, stop, lane, depth - 1),
            ]
            at = stop + int(rng.integers(0, 3))
        return found

    for _ in range(20):
        operators = [op for lane in (1, 2) for op in nest(0, 60, lane, 3)]
        starts = rng.integers(0, 65, 12).tolist()
        calls = [call(n + 1, start, lane=1 + n % 2) for n, start in enumerate(starts)]
        kernels = [work(n + 1, 100 + n) for n in range(12)]
        for found in find_launches(profile(operators, calls, kernels)):
            here, now = found.call.lane, found.call.start
            open_now = [op for op in operators if op.lane == here and op.start <= now < op.end]
            expected = sorted(open_now, key=lambda op: (op.start, -op.end))
            assert [op.name for op in found.operators] == [op.name for op in expected]


def kernel(name: str, **args: Any) -> Event:
    return Event(name, "kernel", 0, 5, (0, 7), args)


def operator(name: str, dims: Any = None, types: Any = None) -> Event:
    return Event(name, "cpu_op", 0, 9, (1,), {"Input Dims": dims, "Input type": types})


def test_a_kernel_that_computes_communicates_nothing():
    assert kernel_communication(kernel("ampere_sgemm_nccl"), ()) is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclDevKernel_AllGather_RING_LL", CollectiveType.ALL_GATHER),
        ("ncclKernel_AllReduce_RING_LL_Sum_f32", CollectiveType.ALL_REDUCE),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", CollectiveType.REDUCE_SCATTER),
        ("ncclKernel_Broadcast_RING_LL_Sum_int8_t", CollectiveType.BROADCAST),
        ("rcclKernel_Reduce_RING_LL", CollectiveType.REDUCE),
    ],
)
def test_older_kernels_name_their_collective(name, kind):
    found = kernel_communication(kernel(name), ())
    assert found == KernelCommunication(NodeType.COMM_COLL, kind, None, ())


def test_newer_kernels_tell_collective_size_and_group():
    args = {"Collective name": "_allgather_base", "In msg nelems": 6, "dtype": "BFloat16",
            "Process Group Ranks": "[0, 2, 4]"}  # fmt: skip
    found = kernel_communication(kernel("ncclDevKernel_Generic", **args), ())
    assert found is not None
    assert (found.collective, found.num_bytes, found.ranks) == (
        CollectiveType.ALL_GATHER, 12, (0, 2, 4),
    )  # fmt: skip
    cut_off = kernel_communication(
        kernel("ncclDevKernel_AllReduce", **{"Process Group Ranks": "[0, 1, ..."}), ()
    )
    assert cut_off is not None
    assert cut_off.ranks == ()


@pytest.mark.parametrize(
    ("operators", "kind"),
    [
        (["record_param_comms", "c10d::send"], NodeType.COMM_SEND),
        (["c10d::recv"], NodeType.COMM_RECV),
    ],
)
def test_a_message_is_known_by_the_operator_that_launched_it(operators, kind):
    around = tuple(operator(name, [[4, 2]], ["float"]) for name in operators)
    found = kernel_communication(
        kernel("ncclDevKernel_SendRecv", **{"Process Group Ranks": [0, 1]}), around
    )
    assert found == KernelCommunication(kind, CollectiveType.INVALID, 32, (0, 1))


def test_a_group_of_sends_and_receives_has_no_known_kind():
    found = kernel_communication(kernel("ncclDevKernel_SendRecv", **{"In msg nelems": 3}), ())
    assert found == KernelCommunication(NodeType.COMM_COLL, CollectiveType.INVALID, None, ())


@pytest.mark.parametrize(
    ("dims", "types", "expected"),
    [
        ([[4, 2], [3]], ["float", "double"], 32),  # the largest counts
        ([[[4, 2], [2, 2]]], ["c10::Half"], 24),  # a list of tensors counts as a whole
        ([[5]], ["TensorList"], None),  # the profile does not say of what
        ([[5], [4]], ["Float9", "float"], None),
        ([[1024, 1024]], ["c10::Float8_e4m3fn"], 1 << 20),
        ([[4]], ["long long"], 32), ([[4]], ["unsigned __int64"], 32),
        ([[4]], ["c10::complex<double>"], 64),
        ([[], [7]], ["Scalar", "Scalar"], 0),
        (None, None, None),
        (5, ["float"], None),
        ([[2, 2]], "float", None),
        ("dims", None, None),
        ([5, [2, 3]], ["float", "float"], None),  # a number is no shape
        ([[[2, 2], [], [3]]], ["float"], 28),
        ([[[2, 2], "x", [3]]], ["float"], None),
        ([[2, "x"]], ["float"], None),
        ([[2, -1]], ["float"], None),
        ([[[[9]]]], ["float"], None),  # lists of lists of tensors do not exist
        ([[2, 2]], [["float"]], None),
    ],
)  # fmt: skip
def test_bytes_of_an_operator_are_those_of_its_largest_tensor_and_none_where_dims_are_none(
    dims, types, expected
):
    assert tensor_bytes({"Input Dims": dims, "Input type": types}) == expected


def test_a_kernel_without_a_count_has_the_size_of_the_operators_around_it():
    around = (operator("record_param_comms"), operator("c10d::allreduce_", [[[8]]], ["long int"]))
    found = kernel_communication(kernel("ncclDevKernel_AllReduce", **{"In msg nelems": 0}), around)
    assert found is not None
    assert found.num_bytes == 64


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ("allreduce", CollectiveType.ALL_REDUCE),
        ("allreduce_coalesced", CollectiveType.ALL_REDUCE),
        ("_reduce_scatter_base", CollectiveType.REDUCE_SCATTER),
        ("reduce", CollectiveType.REDUCE),
        ("all_to_all", CollectiveType.ALL_TO_ALL),
        ("broadcast", CollectiveType.BROADCAST),
        ("gather", CollectiveType.GATHER),
        ("scatter", CollectiveType.SCATTER),
        ("barrier", CollectiveType.BARRIER),
    ],
)
def test_the_collective_that_is_told_counts_before_the_name_of_the_kernel(told, kind):
    found = kernel_communication(
        kernel("ncclDevKernel_AllGather_RING_LL", **{"Collective name": told}), ()
    )
    assert found is not None
    assert found.collective == kind


def test_the_innermost_operator_that_says_it_decides():
    around = (operator("c10d::broadcast_"), operator("c10d::allreduce_"), operator("aten::copy_"))
    found = kernel_communication(kernel("ncclDevKernel_Generic"), around)
    assert found is not None
    assert found.collective == CollectiveType.ALL_REDUCE


@pytest.mark.parametrize(
    ("dtype", "width"),
    [
        ("Float", 4), ("double", 8), ("Half", 2), ("BFloat16", 2), ("Byte", 1), ("UInt16", 2),
        ("Char", 1), ("Float8_e5m2fnuz", 1), ("Float4_e2m1fn_x2", 1), ("Bits16", 2),
        ("no such type", None),
    ],
)  # fmt: skip
def test_elements_have_the_width_of_their_type(dtype, width):
    args = {"In msg nelems": 10, "dtype": dtype}
    found = kernel_communication(kernel("ncclDevKernel_AllReduce", **args), ())
    assert found is not None
    assert found.num_bytes == (None if width is None else 10 * width)


@pytest.mark.parametrize(
    "ranks",
    ["[0, 1", "[0, 1, ...", "[" * 5000, "7", '["0", "1"]', '[0, "1"]', "[[0], [1]]", "[0, -1]",
     "[true]", 5, {"0": 1}, None],
)  # fmt: skip
def test_a_list_of_ranks_that_is_none_counts_as_unknown(ranks):
    found = kernel_communication(kernel("ncclAllReduce", **{"Process Group Ranks": ranks}), ())
    assert found == KernelCommunication(NodeType.COMM_COLL, CollectiveType.ALL_REDUCE, None, ())
