"""``layerdag explore`` as it is typed."""

import json
from pathlib import Path

import pytest
import yaml
from small_studies import cluster, study

from layerdag.cli.main import main


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "study.yaml"
    clusters = {name: cluster(name, memory_gib=8.0) for name in ("near", "far")}
    plans = {"tensor": [1, 2, 3], "zero": [0, 3]}
    path.write_text(yaml.safe_dump(study(model="gpt2", plans=plans, clusters=clusters)))
    return path


def test_the_best_plans_are_printed_and_the_page_written(file, tmp_path, capsys):
    assert main(["explore", str(file), "--out", str(tmp_path / "study.html")]) == 0
    told = capsys.readouterr().out
    assert told.startswith("8 plans: 8 simulated, 0 too large for the memory, 4 left out\n")
    assert "gpt2 on near, 4 ranks" in told
    assert "data 2, tensor 2, ZeRO 3" in told
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        "study.yaml", "study.html", "study.json", "study.csv", ".study.journal.jsonl"
    }  # fmt: skip


def test_json_takes_the_place_of_the_table(file, capsys):
    assert main(["explore", str(file), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["simulated"] == len(shown["outcomes"]) == 8


def test_what_cannot_be_simulated_is_told_and_exit_code_1(tmp_path, capsys):
    path = tmp_path / "study.yaml"
    wrong = {"near": cluster(memory_gib=8.0, collectives="inNetwork")}
    path.write_text(yaml.safe_dump(study(model="gpt2", plans={"zero": 3}, clusters=wrong)))
    assert main(["explore", str(path), "--out", str(tmp_path / "page.html")]) == 1
    assert "failed: near, data 4, ZeRO 3: " in capsys.readouterr().out


def test_wrong_use_is_a_sentence_and_exit_code_2(file, tmp_path, capsys):
    assert main(["explore", str(file)]) == 2
    assert "Say where the page goes" in capsys.readouterr().err
    assert main(["explore", str(file), "--out", str(tmp_path / "page.pdf")]) == 2
    assert "is a .html file" in capsys.readouterr().err
    (tmp_path / "page.html").write_text("mine")
    assert main(["explore", str(file), "--out", str(tmp_path / "page.html")]) == 2
    assert (tmp_path / "page.html").read_text() == "mine"
