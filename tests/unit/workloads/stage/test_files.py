"""Files under STAGE's names and under ours."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from layerdag.errors import UsageError
from layerdag.traces import Workload, read_workload, write_workload
from layerdag.traces.chakra import encode_trace, normalize, read_trace
from layerdag.workloads.stage import StageFlags, StageJob, StageLayout

JOB = StageJob(
    StageFlags(
        model_type="gpt", num_stacks=2, dp=12, tp=2, pp=2, dmodel=64, dff=64, seq=16, dvocal=50
    )
)


def test_a_rank_reads_as_it_was_made(tmp_path: Path) -> None:
    """Ranks with groups and peers of one digit and of two, which are patched into one form."""
    workload = JOB.workload()
    write_workload(workload, tmp_path / "w")
    for rank in (0, 11, 25, 47):
        assert (tmp_path / f"w.{rank}.et").read_bytes() == encode_trace(
            normalize(workload.traces[rank])
        )
    assert read_workload(tmp_path / "w").groups == workload.groups


def test_the_layout_of_stage(tmp_path: Path) -> None:
    layout = StageLayout(tmp_path / "new", "w")
    layout.write(JOB.workload())
    assert sorted(path.name for path in layout.folder.iterdir())[:3] == [
        "w.0.et",
        "w.1.et",
        "w.10.et",
    ]
    groups = json.loads((layout.folder / "w.json").read_text())
    assert groups["1"] == list(range(12))
    assert read_trace(layout.file(3)).num_nodes == JOB.stages[0].num_nodes
    with pytest.raises(UsageError, match="--overwrite"):
        layout.write(JOB.workload())
    layout.write(StageJob(replace(JOB.flags, pp=1)).workload(), overwrite=True)
    names = {path.name for path in layout.folder.iterdir()}
    assert names == {"w.json", *(f"w.{rank}.et" for rank in range(24))}


@pytest.mark.parametrize(
    ("name", "file", "groups"),
    [
        ("w", "w.7.et", "w.json"),
        ("w.%d.et", "w.7.et", "w.json"),
        ("trace_%d.et", "trace_7.et", "trace_%d.json"),  # as STAGE names it
    ],
)
def test_names(name: str, file: str, groups: str) -> None:
    layout = StageLayout(Path("there"), name)
    assert layout.file(7) == Path("there") / file
    assert layout.groups == Path("there") / groups


@pytest.mark.parametrize("name", ["", "a/w", ".%d"])
def test_names_that_are_none_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="--output_name"):
        StageLayout(tmp_path, name).require_free(overwrite=False)


def test_a_workload_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="StageJob"):
        StageLayout(tmp_path, "w").write(Workload(()))
