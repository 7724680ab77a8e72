"""``layerdag program``: recorded, resized, captured; exit codes."""

import json
from pathlib import Path

import pytest

from layerdag.cli.main import main

MODEL = (
    "import torch\n"
    "class Step(torch.nn.Module):\n"
    "    def __init__(self):\n"
    "        super().__init__()\n"
    "        self.layer = torch.nn.Linear(6, 20)\n"
    "    def forward(self, x):\n"
    "        return self.layer(x).reshape(x.shape[0], 4, 5).mean()\n"
    "def make():\n    return Step(), [torch.randn(3, 6)]\n"
    "def step():\n    return lambda: torch.ones(2)\n"
)


@pytest.fixture
def program(tmp_path, capsys) -> Path:
    (tmp_path / "mine.py").write_text(MODEL)
    path = tmp_path / "mine.program.json"
    assert main(["program", f"{tmp_path / 'mine.py'}:make", "--out", str(path), "--print"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("def make(v0):  # B0=3, n0=6, w0=20")
    assert "make: 3 calls, 140 parameters" in shown
    return path


def test_a_program_is_resized_and_captured(program, capsys):
    wide, traces = program.with_name("wide.program.json"), program.with_name("traces")
    words = ["--size", "h0=7", "--size", "B0=8", "--out", str(wide), "--json"]
    assert main(["program", str(program), *words]) == 1
    found = json.loads(capsys.readouterr().out)["findings"]
    assert [finding["rule"] for finding in found] == ["program-runs"]
    words[1] = "n0=12"
    assert main(["program", str(program), *words]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] == 20 * 12 + 20
    assert main(["capture", str(wide), "--data", "4", "--out", str(traces)]) == 0
    assert capsys.readouterr().out.startswith("make: 260 parameters on 4 ranks")


@pytest.mark.parametrize(
    ("words", "reason"),
    [(["--size", "w0"], "--size w0: write NAME=NUMBER"), (["--size", "q0=3"], "has no size 'q0'")],
)
def test_wrong_words_are_told(program, capsys, words, reason):
    assert main(["program", str(program), *words]) == 2
    assert reason in capsys.readouterr().err


def test_a_function_that_runs_a_step_has_no_program(program, capsys):
    assert main(["program", f"{program.with_name('mine.py')}:step"]) == 2
    assert "return (module, inputs); a function has no program" in capsys.readouterr().err


def test_a_file_that_is_no_program_is_refused(tmp_path, capsys):
    path = tmp_path / "other.program.json"
    path.write_text("{}")
    assert main(["program", str(path)]) == 1
    assert "is no program: its 'format' must be 'layerdag-program/1'" in capsys.readouterr().err


def test_a_picture_of_a_program_has_shapes_where_edges_begin(program, capsys):
    picture = program.with_name("mine.svg")
    assert main(["view", str(program), "--out", str(picture)]) == 0
    assert ">3 x 20</text>" in picture.read_text()
    data = json.loads(program.read_text())
    data["sizes"]["h0"] = 7  # cannot run
    program.write_text(json.dumps(data))
    assert main(["view", str(program), "--out", str(picture)]) == 0
    assert "note: without shapes, for make: node 2" in capsys.readouterr().err
    assert ">3 x 20</text>" not in picture.read_text()


def test_validate_runs_a_program(program, capsys):
    assert main(["validate", str(program)]) == 0
    assert "no finding" in capsys.readouterr().out
    data = json.loads(program.read_text())
    data["sizes"]["h0"] = 7
    program.write_text(json.dumps(data))
    assert main(["validate", str(program)]) == 1
    out = capsys.readouterr().out
    assert f"error: [program-runs] {program}: node 2: aten.reshape.default cannot run" in out
