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
    assert found.share_joined == 1
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
    assert found.share_joined == 0


def test_a_profile_of_the_host_alone_is_refused(tmp_path):
    with pytest.raises(TraceError, match="no kernel, copy or fill on a device"):
        imported(tmp_path, event("cpu_op", "aten::mm", 0, 1))
