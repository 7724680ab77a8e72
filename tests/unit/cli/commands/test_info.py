"""``layerdag info`` of samples in parts."""

import json
import shutil
from pathlib import Path

import pytest
from sample_parts import written
from tiny_checkpoints import chain_checkpoint, job_checkpoint

from layerdag.cli.main import main


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    return written(job_checkpoint(folder), folder / "s")


@pytest.fixture
def jobs(run, tmp_path) -> Path:
    return shutil.copytree(run, tmp_path / "s")


def test_a_run_is_summed_up(jobs, capsys):
    assert main(["info", str(jobs)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith(f"{jobs}: 10 of 10 samples in 3 of 3 parts (tar), ")
    assert told[1].split() == ["seeds", "7", "to", "16"]
    assert any(line.strip().startswith("world_size") for line in told)


def test_json_says_the_same_and_what_is_missing(jobs, capsys):
    (jobs / "part-000001.tar").unlink()
    assert main(["info", str(jobs), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["num"], told["samples"], told["parts"]) == (10, 6, 3)
    assert told["missing_parts"] == ["part-000001.tar"]
    sizes = [(jobs / f"part-00000{i}.tar").stat().st_size for i in (0, 2)]
    assert told["bytes"] == sum(sizes)
    assert told["nodes"]["min"] <= told["nodes"]["mean"] <= told["nodes"]["max"] <= 8
    assert sum(told["conditions"]["world_size"].values()) == 6
    assert main(["info", str(jobs)]) == 0
    missing = "missing       1 part: part-000001.tar (missing beside its index)"
    assert missing in capsys.readouterr().out


def test_graphs_have_no_ranks(tmp_path, capsys):
    out = written(chain_checkpoint(tmp_path), tmp_path / "s")
    assert main(["info", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ranks"] is None
    assert set(told["conditions"]["label"]) == {"min", "mean", "max"}


def test_a_damaged_run_is_one_sentence(jobs, capsys):
    (jobs / "samples.json").write_text("{")
    assert main(["info", str(jobs)]) == 1
    assert "samples.json: does not describe samples" in capsys.readouterr().err
