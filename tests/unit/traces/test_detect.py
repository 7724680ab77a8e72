from pathlib import Path

import pytest
from trace_examples import comp, pair_workload

from layerdag.errors import TraceError
from layerdag.traces import Format, Workload, pytorch_format, read_any
from layerdag.traces._detect import detect_format
from layerdag.traces.chakra import (
    build_trace,
    encode_feeder_json,
    encode_trace,
    encode_trace_json,
)

TEXT = b"DATA\n1\na -1 10 NONE 0 20 NONE 0 30 ALLREDUCE 1024 4\n"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (encode_trace(pair_workload().traces[0]), Format.CHAKRA),
        (encode_feeder_json(pair_workload().traces[0]), Format.FEEDER_JSON),
        (encode_trace_json(pair_workload()), Format.LAYERDAG_JSON),
        (b'{"schema": "1.1.1", "nodes": []}', Format.PYTORCH_HOST),
        (b'\xef\xbb\xbf {"schemaVersion": 1, "traceEvents": []}', Format.KINETO),
        (TEXT, Format.ASTRA_TEXT),
        (b"", Format.CHAKRA),
    ],
)
def test_format_is_told_from_the_content(data: bytes, expected: Format) -> None:
    assert detect_format(data, "x") is expected


def test_names_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "workload.et"
    path.write_bytes(TEXT)
    assert read_any(path, num_ranks=4).num_ranks == 4
    path.write_bytes(encode_trace_json(pair_workload()))
    assert read_any(path).num_ranks == 2


def test_groups_can_be_given(tmp_path: Path) -> None:
    path, groups = tmp_path / "job.json", tmp_path / "g.json"
    path.write_bytes(encode_trace_json(pair_workload()))
    groups.write_text('{"1": [1, 0]}')
    assert read_any(path, groups).groups == {"1": (1, 0)}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"a": 1}', "is JSON, but neither"),
        (b"a plain text that is no workload at all", "is a text, but no workload"),
        (b'{"traceEvents": []}', "no operator, runtime call or kernel among its events"),
    ],
)
def test_other_content_is_refused_with_a_reason(tmp_path: Path, data: bytes, expected: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(data)
    with pytest.raises(TraceError, match=expected):
        read_any(path)


@pytest.mark.slow
def test_reference_files_of_this_floor_are_read(shared_data: Path) -> None:
    for path in (shared_data / "traces" / "astra-sim_text").iterdir():
        assert read_any(path, num_ranks=8).num_ranks == 8
    for path in (shared_data / "traces" / "mlcommons_chakra").glob("json*"):
        assert read_any(path).traces[0].num_nodes > 5


def test_every_format_is_read_through_one_door(tmp_path: Path) -> None:
    trace = build_trace([comp(0), comp(1, 0)], version="1.0.0")
    files = {
        "feeder": encode_feeder_json(trace),
        "own": encode_trace_json(Workload((trace, trace))),
        "chakra": encode_trace(trace),
        "text": b"DATA\n1\na -1 1 NONE 0 2 NONE 0 3 ALLREDUCE 8 4\n",
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    ranks = {name: read_any(tmp_path / name, num_ranks=3).num_ranks for name in files}
    assert ranks == {"feeder": 1, "own": 2, "chakra": 1, "text": 3}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"no json at all", None),
        (b"[1, 2]", None),
        (b'{"workload_graph": []}', None),
        (b'{"schema": "1.1.1", "nodes": []}', Format.PYTORCH_HOST),
        (b'\xef\xbb\xbf  {"traceEvents": []}', Format.KINETO),
        (b'{"traceEvents": [], "schema": 1, "nodes": []}', Format.KINETO),
        (b'{"nodes": []}', None),
    ],
)
def test_files_of_pytorch_are_told_from_their_start(tmp_path: Path, data, expected) -> None:
    (tmp_path / "x").write_bytes(data)
    assert pytorch_format(tmp_path / "x") is expected


def test_a_list_that_begins_too_late_is_told_and_not_read_as_something_else(tmp_path: Path) -> None:
    late = tmp_path / "late.json"
    late.write_bytes(b'{"head": "' + b"x" * (1 << 20) + b'", "traceEvents": []}')
    with pytest.raises(TraceError, match=r"late\.json: no list 'traceEvents' in the first"):
        read_any(late)


def test_a_place_with_nothing_is_told(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no file PREFIX"):
        read_any(tmp_path)
    with pytest.raises(TraceError, match="there is no such file or folder"):
        read_any(tmp_path / "nothing")
    with pytest.raises(TraceError, match="there is no folder"):
        read_any(tmp_path / "no" / "folder")
