"""benchmarks/gpu.py in small, on a processor."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from documentation import ROOT
from gpu import cpu_parts, gpu_parts, gpu_tests, line, main

QUICK = ("machine", "training")


def measured(out: Path, printed: str) -> dict[str, dict]:
    """Return the first rows by part."""
    rows = json.loads(out.read_text())["rows"]
    assert [row for row in rows if "error" in row] == []
    assert printed.splitlines()[-1] == f"{len(rows)} rows, 0 with an error, in {out}"
    return {row["part"]: row for row in reversed(rows)}


def test_a_training_step_is_measured_on_a_processor(tmp_path, monkeypatch, capfd):
    out = tmp_path / "gpu.json"
    monkeypatch.setattr(os, "environ", os.environ.copy())  # whose parts are forks of this process
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--out", str(out), "--cpu", "--parts", *QUICK])
    assert main() == 0
    found = measured(out, capfd.readouterr().out)
    assert found["machine"]["cpu_product_flops"] > 0
    row = found["training"]
    assert row["nodes_per_step"] == pytest.approx(100)
    assert row["nodes_per_s"] == pytest.approx(100 / row["step_ms"] * 1e3)
    assert 0 < row["mfu"] < 1
    assert row["operators"] > row["kernels"] > row["waits"] > 0


@pytest.mark.slow
def test_every_part_is_measured_on_a_processor(tmp_path):
    out, names = tmp_path / "gpu.json", [part.name for part in cpu_parts()]
    command = [sys.executable, str(ROOT / "benchmarks/gpu.py"), "--out", str(out), "--cpu"]
    done = subprocess.run(
        [*command, "--parts", *names], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = measured(out, done.stdout)
    shipped, drawn = found["shipped"], found["sampling"]
    assert shipped["nodes_per_graph"] == drawn["nodes_per_graph"] == 24
    assert drawn["position_ms"] == pytest.approx(2e3 / drawn["graphs_per_s"] / 24)
    assert found["same"]["same_share"] == 1.0


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="the tests pass on this machine")
def test_tests_that_are_all_skipped_are_an_error():
    assert gpu_tests(300)["error"] == "no test passed; they need a GPU that torch sees"


def test_a_part_that_there_is_not_is_refused(tmp_path, monkeypatch, capsys):
    words = ["gpu.py", "--out", str(tmp_path / "gpu.json"), "--cpu", "--parts", "trainig"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "There is no part 'trainig'; known are machine, training" in capsys.readouterr().err
    assert not (tmp_path / "gpu.json").exists()


def test_parts_have_names_of_their_own_and_tests_are_one_on_demand():
    for parts in (cpu_parts(), gpu_parts(tests=True)):
        assert len({part.name for part in parts}) == len(parts)
    added = {part.name for part in gpu_parts(tests=True)} - {p.name for p in gpu_parts(tests=False)}
    assert added == {"tests"}


def test_a_line_of_the_table_has_label_and_figures_or_the_error():
    row = {
        "part": "p",
        "what": "training",
        "device": "cuda",
        "width": 32,
        "step_ms": 2.5,
        "mfu": 0.1,
    }
    assert line(row) == "training cuda width=32: 2.5 ms a step, 0.1 MFU"
    assert line({"part": "p", "what": "jobs", "error": "not done"}) == "jobs: ERROR not done"
