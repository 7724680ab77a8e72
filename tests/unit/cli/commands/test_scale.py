"""``layerdag scale``: files, figures, exit codes."""

import json

import pytest

from layerdag.cli.main import main
from layerdag.traces.chakra.workload import read_workload

SOURCE = "data/examples/ddp_mlp"


def test_a_trace_is_written_on_more_ranks(tmp_path, capsys):
    prefix = str(tmp_path / "mlp")
    assert main(["scale", SOURCE, "--ranks", "8", "--out", prefix]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{SOURCE}: 2 ranks to 8, 130 nodes to 520")
    assert "data: 2 to 8 ranks" in out
    assert "Each rank keeps its batch" in out
    assert read_workload(prefix).num_ranks == 8
    assert main(["validate", prefix]) == 0
    assert main(["scale", SOURCE, "--ranks", "8", "--out", prefix]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert main(["scale", SOURCE, "--ranks", "4", "--out", prefix, "--overwrite"]) == 0
    assert read_workload(prefix).num_ranks == 4


def test_what_changes_is_told_as_json(tmp_path, capsys):
    prefix = str(tmp_path / "llama")
    words = ["--data", "2", "--zero", "3", "--batch", "2", "--sequence", "64"]
    assert main(["workload", "gpt2", *words, "--out", prefix]) == 0
    capsys.readouterr()
    assert main(["scale", prefix, "--data", "16", "--out", prefix + "16"]) == 0
    assert "data, sharded: 2 to 16 ranks" in capsys.readouterr().out
    assert main(["scale", prefix, "--data", "16", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ranks"] == {"before": 2, "after": 16}
    assert {change["what"] for change in found["changes"]} >= {"operations", "communication"}


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        ([SOURCE, "--ranks", "4"], 2, "Say where the traces go"),
        ([SOURCE, "--json"], 2, "Say what should change"),
        ([SOURCE, "--ranks", "4", "--max-ranks", "2", "--json"], 2, "more than max_ranks"),
        ([SOURCE, "--tensor", "4", "--json"], 2, "has no tensor parallelism"),
        (["data/nothing", "--ranks", "4", "--json"], 1, "data/nothing"),
    ],
)
def test_wrong_use_and_bad_data_are_told_apart(words, code, sentence, capsys):
    assert main(["scale", *words]) == code
    assert sentence in capsys.readouterr().err
