"""One graph from whatever file holds it."""

from pathlib import Path

import pytest
from raw_graphs import chain
from small_workloads import collective, compute, job

from layerdag.codec import job_graph, rank_classes
from layerdag.datasets.files import (
    is_flow_file,
    read_graph,
    read_json,
    write_graphml,
    write_json,
)
from layerdag.errors import DataError
from layerdag.traces import write_workload
from layerdag.traces.chakra import encode_trace_json


def test_flow_graphs_are_told_by_their_content(tmp_path: Path) -> None:
    graph = chain("g", "aba", label=2.0)
    write_json(tmp_path / "g.json", graph)
    write_graphml(tmp_path / "g.graphml", graph)
    assert is_flow_file(tmp_path / "g.json")
    assert is_flow_file(str(tmp_path / "g.graphml"))
    for name in ("g.json", "g.graphml"):
        found = read_graph(tmp_path / name)
        assert found.categories["kind"] == ["a", "b", "a"]
        assert found.conditions == {"label": 2.0}
    assert read_graph(tmp_path / "g.json").name == read_json(tmp_path / "g.json").name


def test_traces_in_json_are_jobs_as_those_in_et_files(tmp_path: Path) -> None:
    workload = job((compute(1), collective(2, 1)), (compute(1), collective(2, 1)))
    write_workload(workload, tmp_path / "w")
    (tmp_path / "w.json").write_bytes(encode_trace_json(workload))
    assert not is_flow_file(tmp_path / "w.json")
    expected = job_graph("x", rank_classes(workload), workload.groups, {})
    for path in (tmp_path / "w", tmp_path / "w.json"):
        found = read_graph(path)
        assert found.categories == expected.categories
        assert found.name == str(path)


@pytest.mark.parametrize("name", ["gone.json", "gone.graphml", "gone", "gone.0.et"])
def test_what_is_not_there_is_told_by_name(tmp_path: Path, name: str) -> None:
    assert not is_flow_file(tmp_path / name)
    with pytest.raises(DataError, match="gone"):
        read_graph(tmp_path / name)
