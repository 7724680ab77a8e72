"""The format of a flow graph's file, told from its start."""

import gzip
import json
import lzma
from pathlib import Path

import pytest

from layerdag.datasets.files import flow_format
from layerdag.datasets.files._flow_format import FlowFormat, graph_suffix
from layerdag.errors import GraphError

DOCUMENTS = [
    ({"format": "layerdag-graph-1", "name": "g"}, FlowFormat.JSON),
    ({"name": "w", "schemaVersion": "1.5", "workflow": {}}, FlowFormat.WFFORMAT),
    ({"workflow": {"specification": {}}}, FlowFormat.WFFORMAT),
    ({"directed": True, "nodes": []}, FlowFormat.NODE_LINK),
    ({"nodes": [], "links": [{}]}, FlowFormat.NODE_LINK),
    ({"nodes": [], "edges": [{}]}, FlowFormat.NODE_LINK),
    ({"format": "layerdag-trace-1", "nodes": [], "edges": []}, None),
    ({"schema": "1.1.1", "nodes": [], "directed": True}, None),
    ({"traceEvents": [], "nodes": [], "links": []}, None),
    ({"workload_graph": [], "nodes": [], "directed": True}, None),
    ({"workflow": {}}, None),
    ({"nodes": 3, "links": 4}, None),
    ({}, None),
]


@pytest.mark.parametrize(("document", "expected"), DOCUMENTS)
def test_json_is_told_from_its_keys(
    tmp_path: Path, document: object, expected: FlowFormat | None
) -> None:
    path = tmp_path / "g.json"
    path.write_text(json.dumps(document))
    assert flow_format(path) is expected


@pytest.mark.parametrize("content", [b"", b"[1, 2]", b"text", b"3"])
def test_json_that_is_no_object_is_no_graph(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "g.json"
    path.write_bytes(content)
    assert flow_format(path) is None


@pytest.mark.parametrize("before", [b"\xef\xbb\xbf", b"\n \t", b"\xef\xbb\xbf\r\n"])
def test_a_mark_of_utf8_and_blanks_are_passed_over(tmp_path: Path, before: bytes) -> None:
    path = tmp_path / "g.json"
    path.write_bytes(before + json.dumps({"directed": True, "nodes": []}).encode())
    assert flow_format(path) is FlowFormat.NODE_LINK


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_an_archive_is_looked_into(tmp_path: Path, suffix: str, pack: object) -> None:
    path = tmp_path / f"g.json{suffix}"
    path.write_bytes(pack(b'{"format": "layerdag-graph-1"}'))
    assert flow_format(path) is FlowFormat.JSON


def test_a_damaged_archive_is_told_by_name(tmp_path: Path) -> None:
    path = tmp_path / "g.json.gz"
    path.write_bytes(gzip.compress(b"{}")[:10] + b"\xff" * 20)  # the head of an archive
    with pytest.raises(GraphError, match=r"g\.json\.gz"):
        flow_format(path)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("absent.graphml", FlowFormat.GRAPHML),
        ("absent.dot", FlowFormat.DOT),
        ("absent.GV.xz", FlowFormat.DOT),
        ("absent.et", None),
        ("absent", None),
    ],
)
def test_other_suffixes_are_taken_at_their_word(
    tmp_path: Path, name: str, expected: FlowFormat | None
) -> None:
    """The files are not there, so nothing is read."""
    assert flow_format(tmp_path / name) is expected


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        ("a.json", ".json"),
        ("a.JSON.GZ", ".json"),
        ("a.b.dot.xz", ".dot"),
        ("a.json.gz.xz", ".json"),
        ("a.gz", ""),
        ("a", ""),
    ],
)
def test_the_suffix_before_that_of_an_archive(name: str, suffix: str) -> None:
    assert graph_suffix(Path("folder.d") / name) == suffix
