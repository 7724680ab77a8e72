"""``ld.read``: a workload or a graph, told from the content and not from the name."""

from pathlib import Path

import pytest
from raw_graphs import chain
from small_workloads import compute, job

import layerdag as ld
from layerdag.codec import AttributedGraph
from layerdag.errors import DataError, GraphError
from layerdag.traces.chakra import encode_trace_json


def test_json_of_a_job_and_json_of_a_graph_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "same.json"
    path.write_bytes(encode_trace_json(job((compute(1),), (compute(1),))))
    found = ld.read(path)
    assert isinstance(found, ld.Workload)
    assert found.num_ranks == 2
    ld.write(chain("g", "ab"), path)
    assert isinstance(ld.read(str(path)), AttributedGraph)


@pytest.mark.parametrize("content", ['{"a": 1}', "[]", "words", '{"nodes": 3}'])
def test_content_of_no_format_is_refused_with_the_file(tmp_path: Path, content: str) -> None:
    path = tmp_path / "odd.json"
    path.write_text(content)
    with pytest.raises(DataError, match=r"odd\.json"):
        ld.read(path)


@pytest.mark.parametrize("name", ["cut.graphml", "cut.dot"])
def test_a_damaged_graph_is_told_as_the_graph_that_it_should_be(tmp_path: Path, name: str) -> None:
    ld.write(chain("g", "abc"), tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(GraphError, match="cut"):
        ld.read(tmp_path / name)
