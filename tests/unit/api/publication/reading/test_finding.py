"""Sorting the files of a folder into jobs."""

import gzip
import json
from pathlib import Path

import pytest
from random_jobs import random_job
from traced_jobs import write_jobs

from layerdag.api.publication.reading import find_sources
from layerdag.datasets.files import write_graphml
from layerdag.errors import DataError
from layerdag.traces import Workload

HOST = {"schema": "1.1.1-chakra.0.0.4", "pid": 1, "time": "", "start_ts": 0, "nodes": []}


def names(folder: Path) -> list[str]:
    return [source.name for source in find_sources(folder).found]


def test_ranks_of_a_prefix_are_one_job_and_folders_keep_their_names(tmp_path: Path) -> None:
    write_jobs(tmp_path / "a", 2, ranks=2)
    write_jobs(tmp_path / "b", 1)
    (tmp_path / "b" / "secretproj-0.0.et").rename(tmp_path / "b" / "0.et")
    assert names(tmp_path) == ["a/secretproj-0", "a/secretproj-1", "b"]
    job = find_sources(tmp_path).found[0].read()
    assert isinstance(job, Workload)
    assert job.num_ranks == 2


def test_numbered_files_without_a_dot_are_jobs_of_their_own(tmp_path: Path) -> None:
    write_jobs(tmp_path, 2)
    for i in (0, 1):
        (tmp_path / f"secretproj-{i}.0.et").rename(tmp_path / f"run{i}.et")
    assert names(tmp_path) == ["run0", "run1"]
    assert all(isinstance(source.read(), Workload) for source in find_sources(tmp_path).found)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["job_r0.et.json.gz", "job_r1.et.json.gz", "other_r0.et.json.gz"], ["job", "other"]),
        (["x/rank0.json", "x/rank1.json", "y/rank0.json"], ["x", "y"]),
        (["gpt.0.json", "gpt.1.json"], ["gpt"]),
        (["alone.json"], ["alone"]),
    ],
)
def test_pytorch_files_are_sorted_by_job_and_rank(
    tmp_path: Path, files: list[str], expected: list[str]
) -> None:
    for name in files:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        data = json.dumps(HOST).encode()
        path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    assert names(tmp_path) == expected


def test_a_missing_rank_is_told_when_the_job_is_read(tmp_path: Path) -> None:
    for rank in (0, 2):
        (tmp_path / f"job_rank{rank}.json").write_text(json.dumps(HOST))
    [source] = find_sources(tmp_path).found
    with pytest.raises(DataError, match="none of rank 1"):
        source.read()


def test_other_files_are_counted_and_damaged_ones_named(tmp_path: Path) -> None:
    write_graphml(tmp_path / "flow.graphml", random_job(0, 1))
    (tmp_path / "notes.md").write_text("x")
    (tmp_path / "a.dur.json").write_text("[[1, 2]]")
    (tmp_path / "torn.json.gz").write_bytes(b"\x1f\x8b\x08\x00broken")
    found = find_sources(tmp_path)
    assert [source.format for source in found.found] == ["GraphML"]
    assert found.others == {".md": 1, ".dur.json": 1}
    assert len(found.faulty) == 1
    assert found.faulty[0].startswith("torn.json.gz: ")
