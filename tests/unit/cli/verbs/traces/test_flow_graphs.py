"""``convert``, ``info``, ``view`` and ``validate`` of flow graphs, and a folder of them as data."""

import json
from pathlib import Path

import pytest

import layerdag as ld
from layerdag.cli import main

DOT = "digraph { node [kind=a, cost=2] x -> y; x -> z [style=dashed]; z [kind=b] }\n"


@pytest.fixture
def dot(tmp_path: Path) -> Path:
    path = tmp_path / "g.dot"
    path.write_text(DOT)
    return path


@pytest.mark.parametrize("form", ["json", "graphml", "wfformat", "dot"])
def test_a_graph_is_converted_and_stays_the_same(dot: Path, tmp_path: Path, form: str) -> None:
    out = tmp_path / f"out.{'json' if form == 'wfformat' else form}"
    assert main(["convert", str(dot), "--to", form, "--out", str(out)]) == 0
    found = ld.diff(dot, out)
    assert found.programs[0].aligned == 3
    assert not found.programs[0].differs
    assert main(["convert", str(dot), "--to", form, "--out", str(out)]) == 2  # it is there
    assert main(["convert", str(dot), "--to", form, "--out", str(out), "--overwrite"]) == 0


def test_a_job_becomes_a_workflow_with_its_durations(tmp_path: Path) -> None:
    out = tmp_path / "job.json"
    job = "data/examples/ddp_mlp"
    assert main(["convert", job, "--to", "wfformat", "--out", str(out)]) == 0
    tasks = json.loads(out.read_text())["workflow"]["execution"]["tasks"]
    assert len(tasks) == 65
    total = sum(task["runtimeInSeconds"] for task in tasks)
    assert total == pytest.approx(ld.read_trace(f"{job}.0.et").duration_us_N.sum() / 1e6, rel=1e-2)


def test_a_graph_has_no_form_of_traces(dot: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(dot), "--out", "x"]) == 2
    assert "has no form 'et'; choose one of json, graphml" in capsys.readouterr().err
    assert main(["convert", str(dot), str(dot), "--to", "json", "--out", "x"]) == 2


def test_info_counts_words_numbers_and_edges(dot: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(dot)]) == 0
    told = capsys.readouterr().out
    assert "g: 3 nodes, 2 edges (data 1, control 1)" in told
    assert "a 2, b 1" in told
    assert main(["info", str(dot), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["layers"] == 2
    assert found["numbers"]["cost"] == {"present": 3, "min": 2.0, "max": 2.0, "sum": 6.0}


def test_view_and_validate_take_any_flow_graph(dot: Path, tmp_path: Path) -> None:
    assert main(["view", str(dot), "--out", str(tmp_path / "g.svg")]) == 0
    assert main(["validate", str(dot)]) == 0
    (tmp_path / "bad.dot").write_text("digraph {")
    assert main(["validate", str(tmp_path)]) == 1


def test_a_folder_of_workflows_is_a_data_set(dot: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(12):
        text = DOT.replace("digraph {", f"digraph {{ label={number}; n{number} [kind=a];")
        (folder / f"g{number}.dot").write_text(text.replace("cost=2", f"cost={number}"))
    data = ld.load_dataset(folder)
    assert sum(map(len, data.graphs.values())) == 12
    assert {dag.conditions["label"] for part in data.graphs.values() for dag in part} == {
        float(number) for number in range(12)
    }
