import pytest

from layerdag.errors import TraceError
from layerdag.traces.pytorch.device import read_profile, read_timings
from tests.unit.traces.profile_json import event, kernel, launch, write_profile


def test_events_are_sorted_by_kind_and_start(tmp_path):
    events = [
        kernel(1, 12.5, 3.25),
        launch(1, 10),
        event("cpu_op", "aten::mm", 9, 5),
        event("python_function", "x", 0, 99),
        event("cpu_op", "aten::matmul", 9, 6),
    ]
    profile = read_profile(write_profile(tmp_path / "p.json", events))
    assert [e.name for e in profile.operators] == ["aten::matmul", "aten::mm"]
    assert (profile.kernels[0].start, profile.kernels[0].end) == (12_500, 15_750)
    assert profile.kernels[0].lane == (0, 7)
    assert profile.calls[0].correlation == 1


def test_categories_of_old_versions_are_known(tmp_path):
    events = [
        event("Operator", "aten::mm", 0, 5, **{"external id": 3}),
        event("Runtime", "cudaLaunchKernel", 1, 1, correlation=4),
        event("Kernel", "gemm", 3, 1, correlation=4, stream=7, device=0),
    ]
    profile = read_profile(write_profile(tmp_path / "p.json", events))
    assert [len(x) for x in (profile.operators, profile.calls, profile.kernels)] == [1, 1, 1]


def test_the_world_is_read_from_the_head(tmp_path):
    info = {"backend": "nccl", "rank": 0, "world_size": 8}
    path = write_profile(tmp_path / "p.json", [launch(1, 0)], distributedInfo=info)
    assert read_profile(path).distributed == info


def test_a_profile_without_events_is_refused(tmp_path):
    with pytest.raises(TraceError, match="no operator, runtime call or kernel"):
        read_profile(write_profile(tmp_path / "p.json", []))


def test_timings_need_record_function_ids(tmp_path):
    told = event("cpu_op", "aten::mm", 1.5, 2.25, **{"Record function id": 42})
    path = write_profile(tmp_path / "p.json", [told])
    assert read_timings(path).of == {42: (1500, 2250)}
    with pytest.raises(TraceError, match="no event carries 'Record function id'"):
        read_timings(write_profile(tmp_path / "q.json", [launch(1, 0)]))
