"""``layerdag workload stage``: STAGE's own flags, files, figures, exit codes."""

import json
from pathlib import Path

import pytest

from layerdag.cli.main import main
from layerdag.traces.chakra.workload import read_workload

SMALL = (
    *("workload", "stage", "--model_type", "gpt", "--num_stacks", "2", "--dp", "2", "--pp", "2"),
    *("--dmodel", "64", "--dff", "128", "--head", "4", "--seq", "16", "--batch", "4"),
    *("--dvocal", "100"),
)


def test_traces_are_written_for_the_package_and_as_stage_does(tmp_path, capsys):
    prefix = str(tmp_path / "ours")
    stage = ["--output_dir", str(tmp_path / "theirs"), "--output_name", "w.%d.et"]
    assert main([*SMALL, "--out", prefix, *stage]) == 0
    assert capsys.readouterr().out.startswith("gpt: 4 ranks, ")
    assert read_workload(prefix).num_ranks == 4
    for rank in range(4):
        theirs = tmp_path / "theirs" / f"w.{rank}.et"
        assert theirs.read_bytes() == Path(f"{prefix}.{rank}.et").read_bytes()
    assert len(json.loads((tmp_path / "theirs" / "w.json").read_text())) == 2 + 4 + 4
    assert main([*SMALL, "--out", prefix]) == 2
    assert "--overwrite" in capsys.readouterr().err


def test_figures_as_json(capsys):
    assert main([*SMALL, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["ranks"], next(iter(shown["per_rank"]))) == (4, "w.0.et")
    assert shown["comm_groups"]["1"] == [0, 1]
    assert shown["per_rank"]["w.3.et"]["comm_count"]["RECV<-1"] == 1
    assert "ALL_REDUCE@pg2" in shown["per_rank"]["w.3.et"]["comm_elems"]


@pytest.mark.parametrize("word", ["true", "T", "1", "yes", "Y"])
def test_words_that_stage_takes_for_true(word, capsys):
    assert main([*SMALL, "--weight_sharded", word, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["flags"]["weight_sharded"] is True


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "Say where the traces go"),
        (["--json", "--weight-sharded", "1"], "Did you mean '--weight_sharded'"),
        (["--json", "--micro_batches", "2"], "Did you mean '--micro_batch'"),
        (["--json", "--dp", "1", "more"], "does not take 'more'"),
        (["--json", "--pp", "3"], "leaves stage 2 without a layer"),
        (["--output_dir", "x"], "--output_dir and --output_name belong together"),
        (["--out", "x", "--dp", "100000"], "are more than max_ranks"),
        (["--out", "x", "--max-bytes", "10"], "are more than max_bytes"),
    ],
)
def test_wrong_use_is_told(words, sentence, capsys):
    assert main([*SMALL, *words]) == 2
    assert sentence in capsys.readouterr().err


def test_help_names_every_flag_of_stage(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["workload", "stage", "--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    flags = "dp tp sp ep pp weight_sharded activation_recompute tpsp dvocal dmodel dff batch "
    flags += "micro_batch seq head kvhead num_stacks experts kexperts chakra_schema_version "
    flags += "model_type mixed_precision print_gpu_vram output_dir output_name"
    assert all(f"--{flag} " in shown for flag in flags.split())
    assert "example:" in shown
