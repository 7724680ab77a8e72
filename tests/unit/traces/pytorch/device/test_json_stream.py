"""Large JSON as a stream: the same objects wherever the file is cut into pieces."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from laws import tried

from layerdag.errors import TraceError
from layerdag.traces.pytorch.device import _json_stream as stream
from layerdag.traces.pytorch.device._json_stream import read_head, stream_objects

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


@tried(60)
@given(OBJECTS, st.integers(1, 40), st.sampled_from([None, 1]), st.booleans())
def test_objects_are_those_of_the_list_however_the_file_is_read(
    tmp_path_factory, objects, chunk, indent, ascii_only
) -> None:
    path = tmp_path_factory.mktemp("s") / "x.json"
    text = json.dumps({"list": objects, "after": 1}, indent=indent, ensure_ascii=ascii_only)
    path.write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "CHUNK", max(chunk, len('{"list": [') + 4))
        found = list(stream_objects(path, "list"))
    assert found == objects


def test_compressed_files_and_the_text_before_the_list(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(b'{"a": 1, "list" : [{"b": 2}, {"c": 3}]}'))
    assert list(stream_objects(path, "list")) == [{"b": 2}, {"c": 3}]
    assert read_head(path, "list") == '{"a": 1, '


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"other": []}', r"no list 'list' in the first \d+ characters"),
        ("", "no list 'list'"),
        ('{"list": [1]}', "found 1 where an object belongs"),
        ('{"list": ["word"]}', "found 'word' where an object belongs"),
        ('{"list": [{"a": 1}', r"no valid JSON from character 18 on \(.*\); the trace is cut"),
        ('{"list": [{"a": 1}, {"b"', "no valid JSON from character 20 on"),
        ('{"list": [{"a": tru}]}', "no valid JSON from character 10 on"),
        ('{"list": [' + '{"a": ' * 5000, "values are nested too deeply"),
        ('{"list": [{"a": ' + "1" * 5000 + "}]}", "no valid JSON from character 10 on"),
    ],
)
def test_damage_is_told_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(TraceError, match=rf"x\.json: {says}"):
        list(stream_objects(path, "list"))


def test_the_place_counts_what_was_dropped_already(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(stream, "CHUNK", 16)
    text = '{"list": [' + '{"a": 1}, ' * 10 + "oops]}"
    with pytest.raises(TraceError, match=f"from character {text.index('oops')} on"):
        list(stream_objects(written(tmp_path, text), "list"))


def test_an_object_that_is_too_long_is_no_trace(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(stream, "CHUNK", 32)
    monkeypatch.setattr(stream, "LONGEST_OBJECT", 100)
    text = '{"list": [{"a": "' + "x" * 400 + '"}]}'
    with pytest.raises(TraceError, match="the object at character 10 is longer than 0 million"):
        list(stream_objects(written(tmp_path, text), "list"))


@pytest.mark.parametrize("tail", [b"\xff", b"\xc3"])
def test_text_that_is_no_utf_8_is_damage(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b'{"list": [{"a": "' + tail)
    with pytest.raises(
        TraceError, match=r"x\.json: the file is damaged or cut short .*can't decode"
    ):
        list(stream_objects(path, "list"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"none\.json: there is no such file"):
        list(stream_objects(tmp_path / "none.json", "list"))
