"""``layerdag workload``: files, figures, models, exit codes."""

import json

import pytest

from layerdag.cli.main import main
from layerdag.traces.chakra.workload import read_workload

PLAN = ["--tensor", "2", "--data", "2", "--batch", "4", "--sequence", "64"]


def test_a_workload_is_written(tmp_path, capsys):
    prefix = str(tmp_path / "gpt")
    assert main(["workload", "gpt2", *PLAN, "--out", prefix]) == 0
    out = capsys.readouterr().out
    assert out.startswith("gpt2: 124.44 M parameters on 4 ranks, ")
    assert "all_reduce:tensor" in out
    assert read_workload(prefix).num_ranks == 4
    assert main(["workload", "gpt2", *PLAN, "--out", prefix]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert main(["workload", "gpt2", *PLAN, "--out", prefix, "--overwrite"]) == 0


def test_figures_as_json_in_place_of_the_table(capsys):
    assert main(["workload", "gpt2", *PLAN, "--zero", "1", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["ranks"], shown["tokens"], shown["plan"]["zero"]) == (4, 256, 1)
    assert shown["communication"]["reduce_scatter:data"]["count"] == 4 * 14


def test_known_models_are_listed_with_their_parameters(capsys):
    assert main(["workload", "--list"]) == 0
    out = capsys.readouterr().out
    assert "llama3-8b              8,030,261,248 parameters" in out
    assert "46,702,792,704 parameters, 12.88 B a token" in out
    assert main(["workload", "--list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["llama3-70b"] == 70_553_706_496


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "Name a model"),
        (["gpt2", "--json", "all.json"], "does not take 'all.json'"),
        (["gpt2"], "Say where the traces go"),
        (["gpt-2", "--json"], "Did you mean 'gpt2'"),
        (["gpt2", "--tensor", "5", "--json"], "12 query heads cannot be split evenly over 5"),
    ],
)
def test_wrong_use_is_told(words, sentence, capsys):
    assert main(["workload", *words]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--data", "100000"], "100,000 ranks are more than max_ranks, 65,536"),
        (["--data", "8", "--max-ranks", "4"], "8 ranks are more than max_ranks, 4"),
        (["--data", "8", "--max-bytes", "1000"], "are more than max_bytes, 1.0 kB"),
    ],
)
def test_more_than_a_disk_takes_is_refused_before_anything_is_written(
    tmp_path, capsys, words, sentence
):
    assert main(["workload", "gpt2", *words, "--out", str(tmp_path / "w")]) == 2
    assert sentence in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_prefill_and_decode_on_ranks_of_their_own(tmp_path, capsys):
    words = ["workload", "gpt2", "--phase", "disaggregated", "--sequence", "64", "--tokens", "2"]
    sides = ["--prefill-tensor", "2", "--decode-tensor", "1"]
    prefix = str(tmp_path / "split")
    assert main([*words, *sides, "--out", prefix]) == 0
    assert "messages from prefill to decode" in capsys.readouterr().out
    assert read_workload(prefix).num_ranks == 3
    assert main(["validate", prefix]) == 0
    capsys.readouterr()
    assert main([*words, "--tensor", "2", "--json"]) == 2
    assert "give prefill_tensor and decode_tensor in place of tensor" in capsys.readouterr().err
    assert main(["workload", "gpt2", "--decode-tensor", "2", "--json"]) == 2
    assert "decode_tensor is for steps with ranks of their own" in capsys.readouterr().err
