"""``train privacy.epsilon=...``: the second half of the tests of ``_train.py``."""

import json
from pathlib import Path

import pytest

from layerdag.cli import main
from layerdag.training import load_checkpoint

SMALL = ("train", "data=corpus", "data.families=[mlp]", "data.max_nodes=60", "device=cpu")
TUNING = ("init=pretrained", "privacy.epsilon=inf", "privacy.steps=1")


def test_a_private_run_leaves_a_checkpoint_a_card_and_a_log_of_the_owner(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    assert main([*SMALL, *TUNING, "logger.console=false", f"out={folder}"]) == 0
    captured = capsys.readouterr()
    told = json.loads(captured.out)
    assert told["privacy"]["epsilon"] is None
    assert told["best"] == str(folder / "best")
    assert "nothing is promised" in captured.err
    assert load_checkpoint(folder / "best").meta.privacy is not None
    assert "| epsilon | none |" in (folder / "privacy.md").read_text()
    lines = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    assert all(name == "step" or name.startswith("owner_only/") for row in lines for name in row)
    config = json.loads((folder / "best" / "config.json").read_text())["run"]
    assert config["privacy"]["epsilon"] == "inf"
    assert str(tmp_path) not in json.dumps(config)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("privacy.epsilon=3",), "name their checkpoint with init=FOLDER"),
        ((*TUNING, "model.width=64"), "the model is that of init; leave out width"),
        ((*TUNING, "training.max_steps=5"), "set privacy.steps"),
        ((*TUNING, "conditions=[family]"), "leave out conditions"),
        ((*TUNING, "logger.wandb=offline"), "logger.wandb"),
        ((*TUNING, "data.num_bins=4"), "data.num_bins would be learned from the private graphs"),
        (("privacy.epsilon=-1",), "privacy.epsilon must be above 0"),
    ],
)
def test_what_would_break_the_promise_is_one_line(
    words: tuple[str, ...], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SMALL, *words, f"out={tmp_path / 'run'}"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("layerdag: error:")
    assert told in error
    assert not list(tmp_path.rglob("meta.json"))
