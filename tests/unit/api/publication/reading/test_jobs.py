"""What reading a folder finds, leaves out and keeps to itself."""

from pathlib import Path

import pytest
from traced_jobs import write_jobs

from layerdag.api.publication import ReleaseSettings
from layerdag.api.publication.reading import FoundJobs, read_jobs
from layerdag.errors import DataError


def read(folder: Path, **settings: object) -> FoundJobs:
    return read_jobs(ReleaseSettings(folder, folder.parent / "out", **settings))


def test_broken_files_are_left_out_with_the_reason_and_the_rest_is_read(tmp_path: Path) -> None:
    folder = write_jobs(tmp_path / "traces", 5)
    (folder / "secretproj-1.0.et").write_bytes(b"\x00\x01 no trace at all")
    (folder / "secretproj-2.0.et").write_bytes(b"")
    found = read(folder)
    assert [graph.name for graph in found.graphs] == [
        "secretproj-0",
        "secretproj-3",
        "secretproj-4",
    ]
    assert len(found.left_out) == 2
    assert found.left_out[0].startswith("secretproj-1: ")
    assert found.labeled == 3
    told = "\n".join(found.sentences())
    assert "3 jobs" in told
    assert "2 left out:" in told
    assert "from labels.csv" in told


def test_copies_of_a_job_are_one_run(tmp_path: Path) -> None:
    folder = write_jobs(tmp_path / "traces", 3)
    data = (folder / "secretproj-1.0.et").read_bytes()
    (folder / "again-1.0.et").write_bytes(data)
    found = read(folder)
    assert len(found.graphs) == 4
    assert found.num_runs == 3
    assert any("3 distinct programs" in line for line in found.sentences())


def test_names_and_the_folder_are_private_words(tmp_path: Path) -> None:
    found = read(write_jobs(tmp_path / "traces", 2))
    assert {"secretproj-0", "secretproj-1", str(tmp_path / "traces")} <= found.private


def test_names_that_samples_have_anyway_are_not_private(tmp_path: Path) -> None:
    folder = write_jobs(tmp_path / "traces", 1)
    (folder / "secretproj-0.0.et").rename(folder / "sample-00000.0.et")
    assert "sample-00000" not in read(folder).private


def test_larger_jobs_are_left_out(tmp_path: Path) -> None:
    folder = write_jobs(tmp_path / "traces", 4)
    sizes = sorted(graph.num_nodes for graph in read(folder).graphs)
    found = read(folder, max_nodes=sizes[0])
    assert {graph.num_nodes for graph in found.graphs} == {sizes[0]}
    assert "more than --max-nodes" in found.left_out[0]


def test_a_folder_without_traces_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    with pytest.raises(DataError, match="holds no job or graph that can be used"):
        read(tmp_path / "traces")
    (tmp_path / "traces" / "x.0.et").write_bytes(b"nonsense")
    with pytest.raises(DataError, match="the first reason: x: "):
        read(tmp_path / "traces")


def test_further_columns_of_a_label_file_stay_with_the_owner(tmp_path: Path) -> None:
    folder = write_jobs(tmp_path / "traces", 2)
    (folder / "labels.csv").write_text("name,label,customer\nsecretproj-0,1,acme\n")
    graph = read(folder).graphs[0]
    assert graph.conditions["label"] == 1.0
    assert "customer" not in graph.conditions
