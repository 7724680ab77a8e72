"""``layerdag capture``: files, figures, models of the user's own, exit codes."""

import json

import pytest
from small_programs import language

import layerdag as ld
from layerdag.cli.commands.capture import _count
from layerdag.cli.main import main
from layerdag.traces.chakra.workload import read_workload

SMALL = ["--layers", "1", "--sequence", "64"]


def test_a_captured_step_is_written(tmp_path, capsys):
    prefix = str(tmp_path / "llama")
    words = ["capture", "llama3.2-1b", *SMALL, "--tensor", "2", "--out", prefix]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert out.startswith("llama3.2-1b: 323 M parameters on 2 ranks, ")
    assert "all_reduce:tensor" in out
    assert read_workload(prefix).num_ranks == 2
    assert main([*words, "--overwrite", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["operators"]["gemm"] == 3 * 8
    assert main(words) == 2
    assert "--overwrite" in capsys.readouterr().err


def test_a_model_of_the_users_own_is_captured(tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch\n"
        "def make():\n    return torch.nn.Linear(4, 4), torch.zeros(2, 4)\n"
        "def step():\n    return lambda: torch.ones(2, 2) @ torch.ones(2, 2)\n"
    )
    assert main(["capture", f"{file}:make", "--data", "2", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["model"], shown["collectives"]["all_reduce:data"]["count"]) == ("Linear", 1)
    assert main(["capture", f"{file}:step", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["operators"]["gemm"] == 1


def test_clip_accumulate_and_optimizer_reach_the_step(capsys):
    words = ["--clip", "0.5", "--accumulate", "2", "--optimizer", "sgd-momentum-foreach"]
    assert main(["capture", "gpt2", *SMALL, "--data", "2", *words, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    told = {name: shown["step"][name] for name in ("clip", "accumulate", "optimizer", "precision")}
    assert told == {
        "clip": 0.5,
        "accumulate": 2,
        "optimizer": "sgd-momentum-foreach",
        "precision": "bf16",
    }


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "Name a model"),
        (["gpt2"], "Say where the traces go"),
        (["gpt-2", "--json"], "Did you mean 'gpt2'"),
        (["gpt2", "--json", "--tensor", "5"], "12 query heads cannot be split evenly over 5"),
        (["gpt2", "--json", "--optimizer", "adamx"], "Did you mean 'adam"),
        (["gpt2", "--json", "--clip", "-1"], "clip is -1.0; it must be a number"),
        (["none.py:make", "--json"], "none.py does not exist"),
    ],
)
def test_wrong_use_is_told(words, sentence, capsys):
    assert main(["capture", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_what_a_file_of_a_model_says_beyond_what_is_known_is_told(tmp_path, capsys):
    shape = {"n_embd": 64, "n_head": 2, "n_layer": 1, "vocab_size": 100, "n_positions": 64}
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "gpt2", "unheard_of": 3, **shape}))
    assert main(["capture", str(file), "--sequence", "64", "--json"]) == 0
    printed = capsys.readouterr()
    assert [note["word"] for note in json.loads(printed.out)["notes"]] == ["unheard_of"]
    assert "key 'unheard_of': not known" in printed.err


def test_too_many_ranks_are_not_written(tmp_path, capsys):
    words = ["capture", "gpt2", *SMALL, "--phase", "inference", "--data", "4"]
    assert main([*words, "--max-ranks", "2", "--out", str(tmp_path / "x")]) == 2
    assert "max_ranks" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("parameters", "told"),
    [(9610, "9,610"), (999_999, "999,999"), (1_000_000, "1 M"), (8_030_261_248, "8.03 B")],
)
def test_small_models_are_not_told_in_billions(parameters, told):
    assert _count(parameters) == told


def test_a_program_is_captured_as_a_pipeline(tmp_path, capsys):
    file, prefix = tmp_path / "small.program.json", str(tmp_path / "stages")
    ld.program(*language(layers=4), name="small").save(file)
    words = ["--pipeline", "2", "--micro-batches", "3", "--schedule", "gpipe", "--data", "2"]
    assert main(["capture", str(file), *words, "--cuts", "layers.3", "--out", prefix]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("small: ")
    assert "on 4 ranks" in lines[0]
    stages = [line.split() for line in lines if line.split()[:1] in (["0"], ["1"])]
    assert [stage[2] for stage in stages] == ["3", "3"]
    assert read_workload(prefix).num_ranks == 4
    assert main(["capture", "gpt2", "--pipeline", "2", "--json"]) == 2
    assert "only programs are cut into stages" in capsys.readouterr().err
