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


TOLD = event("cpu_op", "aten::mm", 1.5, 2.25, **{"Record function id": 42})


def changed(raw: dict, **changes: object) -> dict:
    return {**raw, **changes}


def without(raw: dict, name: str) -> dict:
    return {key: value for key, value in raw.items() if key != name}


DAMAGE = {
    "args is a list": changed(kernel(1, 5, 1), args=[1]),
    "args is a text": changed(kernel(1, 5, 1), args="abc"),
    "no start": without(kernel(1, 5, 1), "ts"),
    "no name": without(kernel(1, 5, 1), "name"),
    "start is null": changed(kernel(1, 5, 1), ts=None),
    "start is infinite": changed(kernel(1, 5, 1), ts=float("inf")),
    "start is no number": changed(kernel(1, 5, 1), ts=float("nan")),
    "start beyond all time": changed(kernel(1, 5, 1), ts=1e300),
    "duration beyond all time": changed(kernel(1, 5, 1), dur=2**62),
    "duration is a word": changed(kernel(1, 5, 1), dur="long"),
    "thread is a list": changed(launch(1, 5), tid=[1]),
    "process is an object": changed(launch(1, 5), pid={}),
    "stream is a list": kernel(1, 5, 1, stream=[7]),
    "device is an object": kernel(1, 5, 1, device={}),
    "correlation is a word": changed(launch(1, 5), args={"correlation": "x"}),
    "correlation is a list": changed(launch(1, 5), args={"correlation": [1]}),
    "correlation is infinite": changed(launch(1, 5), args={"correlation": float("inf")}),
    "external id is a list": event("cpu_op", "aten::mm", 1, 1, **{"External id": [1]}),
    "old external id is a word": event("Operator", "aten::mm", 1, 1, **{"external id": "x"}),
    "handle is an object": event("cpu_op", "aten::mm", 1, 1, **{"Record function id": {"a": 1}}),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_malformed_event_is_one_sentence_with_the_file_and_its_name(tmp_path, name):
    path = write_profile(tmp_path / "p.json", [launch(3, 1), DAMAGE[name]])
    with pytest.raises(TraceError, match=r"p\.json: event '.*' is malformed \(.*export it again"):
        read_profile(path)


@pytest.mark.parametrize(
    "damage",
    [
        changed(TOLD, args=[1]),
        changed(TOLD, args={"Record function id": "x"}),
        changed(TOLD, args={"Record function id": [1]}),
        without(TOLD, "ts"),
        changed(TOLD, ts=None),
        changed(TOLD, ts=float("inf")),
        changed(TOLD, dur="x"),
        changed(TOLD, dur=float("nan")),
    ],
)
def test_a_malformed_event_is_no_timing(tmp_path, damage):
    path = write_profile(tmp_path / "p.json", [TOLD, damage])
    with pytest.raises(TraceError, match=r"p\.json: event 'aten::mm' is malformed"):
        read_timings(path)


def test_events_that_say_nothing_of_operators_may_look_as_they_like(tmp_path):
    others = [
        {"ph": "M", "name": "process_name", "args": [1]},
        {"ph": "X", "cat": ["kernel"], "name": "x"},
        {"ph": "X", "cat": {}, "name": "x"},
        {"ph": "X", "cat": "python_function", "ts": None, "dur": "x"},
        {"ph": "i", "cat": "kernel"},
        {"ph": "X", "cat": "kernel", "name": "no duration"},
        {},
    ]
    profile = read_profile(write_profile(tmp_path / "p.json", [launch(1, 0), *others]))
    assert (len(profile.calls), profile.kernels, profile.operators) == (1, (), ())


def test_absent_details_count_as_nothing(tmp_path):
    bare = changed(kernel(1, 5, 1), args=None)
    profile = read_profile(write_profile(tmp_path / "p.json", [bare]))
    assert profile.kernels[0].args == {}
    assert profile.kernels[0].correlation == 0
    assert profile.kernels[0].lane == (1, 7)  # process and thread, where no stream is told
    timings = read_timings(write_profile(tmp_path / "t.json", [changed(TOLD, args=None), TOLD]))
    assert timings.of == {42: (1500, 2250)}


def test_times_in_whole_microseconds_are_exact(tmp_path):
    """Since 1970 there are 1.7e15 microseconds: in a float the nanoseconds would be lost."""
    late = changed(TOLD, ts=1_763_800_000_000_001, dur=3)
    path = write_profile(tmp_path / "p.json", [late])
    assert read_timings(path).of == {42: (1_763_800_000_000_001_000, 3000)}
    (operator,) = read_profile(path).operators
    assert (operator.start, operator.end) == (1_763_800_000_000_001_000, 1_763_800_000_000_004_000)


def test_negative_durations_end_where_they_start(tmp_path):
    profile = read_profile(write_profile(tmp_path / "p.json", [kernel(1, 5, -2)]))
    assert (profile.kernels[0].start, profile.kernels[0].end) == (5000, 5000)


def test_the_external_id_of_old_versions_is_found_under_its_new_name(tmp_path):
    old = event("Operator", "aten::mm", 0, 5, **{"external id": 3})
    profile = read_profile(write_profile(tmp_path / "p.json", [old]))
    assert profile.operators[0].args["External id"] == 3


@pytest.mark.parametrize(
    "head",
    [
        {"distributedInfo": [1]},
        {"distributedInfo": 8},
        {"distributedInfo": None},
        {"other": {"world_size": 8}},
    ],
)
def test_a_world_that_is_no_object_is_unknown(tmp_path, head):
    path = write_profile(tmp_path / "p.json", [launch(1, 0)], **head)
    assert read_profile(path).distributed == {}


@pytest.mark.parametrize("told", ['{"world_size": ', "[" * 5000, '{"world_size": ' + "1" * 5000])
def test_a_damaged_world_is_unknown(tmp_path, told):
    path = tmp_path / "p.json"
    event_text = '{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 1}'
    path.write_text(f'{{"distributedInfo": {told}, "traceEvents": [{event_text}]}}')
    assert read_profile(path).distributed == {}
