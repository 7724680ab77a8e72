"""``layerdag audit`` on folders and on a data set."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from raw_graphs import chain
from tile_files import write_tile, write_training_graphs_as_samples
from tiny_checkpoints import chain_checkpoint
from traced_jobs import write_jobs

import layerdag as ld
from layerdag.api.auditing.shadows import _settings
from layerdag.cli import main
from layerdag.datasets.files import write_json
from layerdag.errors import UsageError


def flows(folder: Path, start: int, count: int) -> Path:
    folder.mkdir()
    for i in range(start, start + count):
        graph = chain(f"g{i}", "abcab"[: 2 + i % 4] * (1 + i // 4), label=1.0 + i)
        write_json(folder / f"g{i}.json", graph)
    return folder


def test_three_folders_of_flow_graphs_are_audited_into_text_json_and_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train, holdout = flows(tmp_path / "train", 0, 12), flows(tmp_path / "holdout", 12, 12)
    made = flows(tmp_path / "made", 0, 12)
    (made / "notes.txt").write_text("made from acme_runs_77/x")
    words = ["--train", str(train), "--holdout", str(holdout), "--synthetic", str(made)]
    page, figures = tmp_path / "page.html", tmp_path / "figures.json"
    command = ["audit", *words, "--json", str(figures), "--report", str(page), "--strict"]
    assert main(command) == 1
    printed = capsys.readouterr().out
    assert "12 samples, 12 training and 12 held-out graphs" in printed
    assert "copies of real graphs, new durations 100%" in printed
    assert "honest holdout: area" in printed
    assert "TPR at 1% FPR cannot be told (12 held-out graphs" in printed
    assert "model:depth" in printed
    assert "looked for in 13 files): 0 found" in printed
    found = json.loads(figures.read_text())
    assert found["passes"] is False
    assert found["copies"]["copied"] == 1.0
    assert found["words"]["found"] == []
    attacks = {attack["name"]: attack for attack in found["attacks"]}
    assert attacks["nearest_sample"]["holdout"]["others"] == 12
    assert [rate["false_positive_rate"] for rate in attacks["reconstruction"]["rates"]] == [
        0.01, 0.001,
    ]  # fmt: skip
    assert "on an honest holdout" in page.read_text()


def test_traces_are_audited_and_a_word_of_theirs_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train, holdout = write_jobs(tmp_path / "a", 4), write_jobs(tmp_path / "b", 4, start=50)
    made = write_jobs(tmp_path / "made", 3, start=90)
    words = ["--train", str(train), "--holdout", str(holdout), "--synthetic", str(made)]
    (made / "labels.csv").write_text("name,label\nsecretproj-2,1.5\n")
    assert main(["audit", *words]) == 0
    printed = capsys.readouterr().out
    assert "3 samples, 4 training and 4 held-out graphs" in printed
    assert "labels.csv: holds 'secretproj-2', a word of the private traces." in printed


def test_a_data_set_is_audited_by_its_split_as_validate_does(
    tmp_path: Path, rng: np.random.Generator, capsys: pytest.CaptureFixture[str]
) -> None:
    tile = write_tile(tmp_path / "tile", rng, {"train": 9, "val": 4, "test": 4}, layers=4, codes=5)
    copies = write_training_graphs_as_samples(tile, tmp_path / "samples")
    figures = tmp_path / "a.json"
    assert main(["validate", str(copies), "--against", str(tile), "--json"]) == 0
    validated = json.loads(capsys.readouterr().out)
    assert (
        main(["audit", "--data", str(tile), "--synthetic", str(copies), "--json", str(figures)])
        == 0
    )
    assert "not searched for private words" in capsys.readouterr().err  # no traces, no words
    found = json.loads(figures.read_text())
    assert found == validated


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--train", "a"], "--train FOLDER and --holdout FOLDER, or --data DATA"),
        ([], "--train FOLDER and --holdout FOLDER, or --data DATA"),
        (["--data", "d", "--holdout", "b"], "--train FOLDER and --holdout FOLDER"),
        (["--train", "a", "--holdout", "b", "--labels", "l"], "--labels needs --data"),
        (["--data", "d", "--json", "p.json", "--report", "p.html"], "leave --json out"),
    ],
)
def test_wrong_use_is_a_sentence(
    capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    assert main(["audit", "--synthetic", "s", *words]) == 2
    assert told in capsys.readouterr().err


def test_the_call_in_python_takes_sets_or_a_data_set(tmp_path: Path) -> None:
    train = [chain(f"t{i}", "abc"[: 1 + i % 3] * 2) for i in range(6)]
    holdout = [chain(f"h{i}", "abd"[: 1 + i % 3] * 2) for i in range(6)]
    found = ld.audit(train=train, holdout=holdout, synthetic=train[:4])
    assert (found.train, found.held_out, found.copies.copied) == (6, 6, 1.0)
    assert found.words is None
    with pytest.raises(UsageError, match="neither samples nor data"):
        ld.audit(train[:4], train=train, holdout=holdout)
    with pytest.raises(UsageError, match="needs samples and a data set"):
        ld.audit(train[:4])


def test_the_weights_are_attacked_with_graphs_of_folders(tmp_path: Path) -> None:
    checkpoint = chain_checkpoint(tmp_path)
    graphs = [chain(f"g{i}", "abcab"[: 2 + i % 4]) for i in range(8)]
    found = ld.audit(
        train=graphs[:4], holdout=graphs[4:], synthetic=graphs[:2], checkpoint=checkpoint
    )
    assert found.weights[0].name == "likelihood"
    assert found.weights[0].holdout is not None
    assert found.weights[0].holdout.description == "2 held-out graphs pose as training graphs"


def test_shadow_models_are_trained_told_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_settings, "LEAST_SHADOWS", 6)
    chain_checkpoint(tmp_path)
    train, holdout = flows(tmp_path / "train", 0, 6), flows(tmp_path / "holdout", 6, 6)
    made = flows(tmp_path / "made", 0, 4)
    words = ["--train", str(train), "--holdout", str(holdout), "--synthetic", str(made)]
    figures = tmp_path / "figures.json"
    words += ["--checkpoint", str(tmp_path / "model"), "--json", str(figures)]
    words += ["--report", str(tmp_path / "page.html")]
    threads = torch.get_num_threads()
    try:
        assert main(["audit", *words, "--shadows", "6", "--shadow-steps", "1"]) == 0
    finally:
        torch.set_num_threads(threads)
    told = capsys.readouterr()
    assert "layerdag: shadow model 6 of 6: 1 steps" in told.err
    assert "attack likelihood_ratio_offline, on the weights" in told.out
    found = json.loads(figures.read_text())
    assert found["shadows"]["models"] == 6
    assert {"likelihood", "likelihood_ratio", "likelihood_ratio_offline"} <= {
        attack["name"] for attack in found["attacks"]
    }
    assert "each of 6 shadow models as the target" in (tmp_path / "page.html").read_text()
    assert len(list((tmp_path / "model.shadows").glob("*.npz"))) == 6


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--shadows"], "name them with --checkpoint"),
        (["--shadow-steps", "3", "--checkpoint", "c"], "--shadow-steps is for shadow models"),
        (["--init", "base"], "--init is for shadow models"),
        (["--shadows", "3", "--checkpoint", "c"], "at least 16 shadow models, found 3"),
        (
            ["--shadows", "--checkpoint", "c", "--shadow-budget", "soon"],
            "--shadow-budget is 'soon'; write a time",
        ),
        (
            ["--shadows", "--checkpoint", "c", "--shadow-budget", "1m", "--shadow-steps", "2"],
            "leave one of them out",
        ),
    ],
)
def test_wrong_use_of_shadow_models_is_a_sentence(
    capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    assert main(["audit", "--synthetic", "s", "--train", "a", "--holdout", "b", *words]) == 2
    assert told in capsys.readouterr().err
