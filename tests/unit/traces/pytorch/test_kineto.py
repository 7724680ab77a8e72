"""Large JSON as a stream: the same objects wherever the file is cut into pieces."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from laws import tried
from profile_json import event, kernel, launch, write_profile

from layerdag.errors import TraceError
from layerdag.runtime.notes import NoteCollector, NoteKind
from layerdag.traces.pytorch import kineto as stream
from layerdag.traces.pytorch.kineto import (
    read_head,
    read_profile,
    read_timings,
    stream_objects,
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
OBJECTS = st.lists(st.dictionaries(st.text(max_size=4), VALUES, max_size=3), max_size=5)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "x.json"
    path.write_text(text, encoding="utf-8")
    return path


@tried(25)
@given(OBJECTS, st.integers(1, 40), st.sampled_from([None, 1]), st.booleans())
def test_objects_are_those_of_the_list_however_the_file_is_read(
    tmp_path_factory, objects, chunk, indent, ascii_only
):
    path = tmp_path_factory.mktemp("s") / "x.json"
    text = json.dumps({"list": objects, "after": 1}, indent=indent, ensure_ascii=ascii_only)
    path.write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "CHUNK", max(chunk, len('{"list": [') + 4))
        found = list(stream_objects(path, "list"))
    assert found == objects


def test_compressed_files_and_the_text_before_the_list(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(b'{"a": 1, "list" : [{"b": 2}, {"c": 3}]}'))
    assert list(stream_objects(path, "list")) == [{"b": 2}, {"c": 3}]
    assert read_head(path, "list") == '{"a": 1, '


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"other": []}', r"no list 'list' in the first \d+ characters"),
        ("", "no list 'list'"),
        ('{"list": [1]}', "found 1 where an event belongs"),
        ('{"list": ["word"]}', "found 'word' where an event belongs"),
        ('{"list": [{"a": 1}', r"no valid JSON from character 18 on \(.*\); the trace is cut"),
        ('{"list": [{"a": 1}, {"b"', "no valid JSON from character 20 on"),
        ('{"list": [{"a": tru}]}', "no valid JSON from character 10 on"),
        ('{"list": [' + '{"a": ' * 5000, "values are nested too deeply"),
        ('{"list": [{"a": ' + "1" * 5000 + "}]}", "no valid JSON from character 10 on"),
    ],
)
def test_damage_is_told_with_its_place(tmp_path, text, says):
    path = written(tmp_path, text)
    with pytest.raises(TraceError, match=rf"x\.json: {says}"):
        list(stream_objects(path, "list"))


def test_the_place_counts_what_was_dropped_already(tmp_path, monkeypatch):
    monkeypatch.setattr(stream, "CHUNK", 16)
    text = '{"list": [' + '{"a": 1}, ' * 10 + "oops]}"
    with pytest.raises(TraceError, match=f"from character {text.index('oops')} on"):
        list(stream_objects(written(tmp_path, text), "list"))


def test_an_object_that_is_too_long_is_no_trace(tmp_path, monkeypatch):
    monkeypatch.setattr(stream, "CHUNK", 32)
    monkeypatch.setattr(stream, "MAX_OBJECT_LENGTH", 100)
    text = '{"list": [{"a": "' + "x" * 400 + '"}]}'
    with pytest.raises(TraceError, match="the object at character 10 is longer than 0 million"):
        list(stream_objects(written(tmp_path, text), "list"))


def test_text_that_is_cut_inside_a_letter_is_damage(tmp_path):
    path = tmp_path / "x.json"
    path.write_bytes(b'{"list": [{"a": "\xc3')
    with pytest.raises(
        TraceError, match=r"x\.json: the file is damaged or cut short .*can't decode"
    ):
        list(stream_objects(path, "list"))


FRAME = b'{"ph": "X", "cat": "python_function", "name": "%b", "pid": 1, "ts": 0, "dur": 1}'


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("chunk", [32, 1 << 20])
@pytest.mark.parametrize(
    ("name", "word", "read"),
    [
        (b"a\x01b", "raw control character", "a\x01b"),
        (rb"torch\cuda\__init__.py", "lone backslash", r"torch\cuda\__init__.py"),
        (b'{"device": "cpu"}(12): run', "unescaped quote", '{"device": "cpu"}(12): run'),
        (b'a\x01 "b" \\c', "unescaped quote", 'a\x01 "b" \\c'),
        (b"caf\xe9", "bytes that are no UTF-8", "caf\ufffd"),
    ],
)
def test_names_that_torch_writes_as_they_are_become_readable(
    tmp_path, monkeypatch, name, word, read, chunk, last
):
    monkeypatch.setattr(stream, "CHUNK", chunk)
    sound = json.dumps(TOLD).encode()
    events = [sound, FRAME % name] if last else [FRAME % name, sound]
    path = tmp_path / "x.json"
    path.write_bytes(b'{"traceEvents": [' + b", ".join(events) + b'], "traceName": "t"}')
    notes = NoteCollector("x")
    found = list(stream_objects(path, "traceEvents", notes))
    assert [event["name"] for event in found] == (
        ["aten::mm", read] if last else [read, "aten::mm"]
    )
    assert [(note.kind, note.word) for note in notes.notes] == [(NoteKind.ENCODING, word)]


def test_an_event_that_cannot_be_told_apart_is_left_out_only_if_nobody_needs_it(tmp_path):
    path = tmp_path / "x.json"
    for category, needed in (("python_function", False), ("kernel", True)):
        bad = f'{{"ph": "X", "cat": "{category}", "name": "x", "args": {{"a" 1}}}}'
        path.write_text(f'{{"traceEvents": [{bad}, {json.dumps(TOLD)}]}}')
        if needed:
            with pytest.raises(TraceError, match="the event at character 17 is no valid JSON"):
                read_profile(path)
        else:
            profile = read_profile(path)
            assert [event.name for event in profile.operators] == ["aten::mm"]
            assert "python_function" in profile.notes[0].effect


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(TraceError, match=r"none\.json: there is no such file"):
        list(stream_objects(tmp_path / "none.json", "list"))


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
    assert profile.operators[0].args["External id"] == 3


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
    with pytest.raises(
        TraceError,
        match=r"p\.json: (event '.*'|an event without a name) is malformed \(.*export it again",
    ):
        read_profile(path)


@pytest.mark.parametrize(
    "damage",
    [
        changed(TOLD, args=[1]),
        changed(TOLD, args={"Record function id": "x"}),
        changed(TOLD, args={"Record function id": [1]}),
        without(TOLD, "ts"),
        changed(TOLD, ts=None),
        changed(TOLD, dur="x"),
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


@pytest.mark.parametrize(
    ("raw", "left"),
    [
        (changed(kernel(2, 9, 1), ts=float("inf")), 1),
        (changed(kernel(2, 9, 1), ts=float("nan")), 1),
        (changed(kernel(2, 9, 1), ts=-1e300), 1),
        (changed(kernel(2, 9, 1), dur=-(2**63)), 2),
        (changed(kernel(2, 9, 1), dur=2**62), 2),
        (changed(kernel(2, 9, 1), dur=float("nan")), 2),
    ],
)
def test_times_that_cannot_be_are_noted_and_cost_no_other_event(tmp_path, raw, left):
    profile = read_profile(write_profile(tmp_path / "p.json", [kernel(1, 5, 2), raw]))
    assert len(profile.kernels) == left
    assert max(event.end for event in profile.kernels) <= 9000
    assert [note.kind for note in profile.notes] == [NoteKind.TIME]


@pytest.mark.parametrize(
    ("second", "end", "words"),
    [
        (kernel(2, 7, 2), 7000, ["kernel outlasts the next one of its stream"]),
        (kernel(2, 7, 2, stream=8), 105_000, []),
        (kernel(1, 7, 2), 105_000, []),  # of one graph launch
        (kernel(2, 7, 200), 105_000, ["kernel runs into the next one of its stream"]),
        (kernel(2, 104.5, 2), 105_000, []),
    ],
)
def test_a_kernel_cannot_outlast_the_next_one_of_its_stream(tmp_path, second, end, words):
    path = write_profile(tmp_path / "p.json", [launch(1, 0), kernel(1, 5, 100), second])
    profile = read_profile(path)
    assert profile.kernels[0].end == end
    assert [note.word for note in profile.notes] == words


@pytest.mark.parametrize(
    ("category", "device"), [("xpu_driver", "xpu"), ("privateuse1_runtime", "privateuseone")]
)
def test_calls_of_other_devices_are_calls(tmp_path, category, device):
    events = [event(category, "enqueueLaunch", 0, 1, correlation=1), kernel(1, 5, 2)]
    profile = read_profile(write_profile(tmp_path / "p.json", events))
    assert (profile.device, len(profile.calls), profile.notes) == (device, 1, ())


def test_a_device_whose_categories_are_not_read_is_named(tmp_path):
    events = [TOLD, event("mtia_ccp_events", "work", 0, 1)]
    with pytest.raises(TraceError, match=r"profile of MTIA.*'mtia_ccp_events' 1"):
        read_profile(write_profile(tmp_path / "p.json", events))


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
