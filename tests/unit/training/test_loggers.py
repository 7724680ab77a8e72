"""Weights & Biases: off unless asked for, and never the end of a run."""

import json
import os
import re
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from layerdag.errors import ConfigError, DataError
from layerdag.training.loggers import ConsoleLogger, JsonlLogger, WandbLogger, wandb_mode
from layerdag.training.loop import train
from layerdag.training.run import TrainingRun
from layerdag.training.settings import TrainSettings


def test_jsonl_holds_one_object_a_line(tmp_path):
    logger = JsonlLogger(tmp_path / "run" / "train.jsonl")
    logger.log(1, {"train/node": 0.5})
    logger.picture(1, "samples", tmp_path / "a.png")
    logger.close()
    lines = [
        json.loads(line) for line in (tmp_path / "run" / "train.jsonl").read_text().split("\n")[:-1]
    ]
    assert lines[0] == {"step": 1, "train/node": 0.5}
    assert lines[1]["picture"] == "samples"


def test_a_log_goes_on_from_the_checkpoint_or_starts_anew(tmp_path):
    file = tmp_path / "train.jsonl"
    file.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"step')
    JsonlLogger(file, resumed_step=2).close()
    assert file.read_text() == '{"step": 1}\n{"step": 2}\n'
    file = tmp_path / "train.jsonl"
    file.write_text('{"step": 1}\n')
    JsonlLogger(file).close()
    assert file.read_text() == ""


@pytest.mark.parametrize("line", [b"\xb5", b"[1]", b"{}", b'{"step": "2"}'])
def test_a_line_that_is_of_no_log_is_named(tmp_path, line):
    file = tmp_path / "train.jsonl"
    file.write_bytes(b'{"step": 1}\n' + line + b"\n")
    with pytest.raises(DataError, match=r"train\.jsonl, line 2: is not of the log of a run"):
        JsonlLogger(file, resumed_step=2)


def test_console_shows_validations_only():
    lines: list[str] = []
    logger = ConsoleLogger(lines.append)
    logger.log(1, {"train/node": 0.5})
    logger.log(2, {"validation/node": 0.25})
    assert lines == ["step 2: node 0.25\n"]


def test_what_is_no_number_is_null(tmp_path):
    logger = JsonlLogger(tmp_path / "train.jsonl")
    logger.log(1, {"a": float("nan"), "b": float("inf"), "c": 1.0})
    logger.close()
    assert (tmp_path / "train.jsonl").read_text() == '{"step": 1, "a": null, "b": null, "c": 1.0}\n'


class FakeRun:
    """A run whose named methods raise."""

    def __init__(self, failing: tuple[str, ...]) -> None:
        self._failing = failing
        self.logged: list[dict[str, Any]] = []
        self.finished = False

    def log(self, values: dict[str, Any], step: int) -> None:
        if "log" in self._failing:
            raise ConnectionResetError(104, "Connection reset by peer")
        self.logged.append({"step": step, **values})

    def finish(self) -> None:
        if "finish" in self._failing:
            raise ValueError("malformed\n answer")
        self.finished = True


class FakeUsageError(Exception):
    """What wandb raises where there is no key."""


def install_fake(monkeypatch: pytest.MonkeyPatch, *failing: str) -> FakeRun:
    run = FakeRun(failing)
    asked: dict[str, Any] = {}

    def init(**words: Any) -> FakeRun:
        asked.update(words)
        if "init" in failing:
            raise FakeUsageError("api_key not configured (no-tty)")
        return run

    fake = SimpleNamespace(
        init=init, Settings=SimpleNamespace, Image=lambda path: f"image {path}", asked=asked
    )
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return run


def use(folder: Path) -> list[str]:
    """Log a figure twice and a picture, close, and return what the user was told."""
    told: list[str] = []
    logger = WandbLogger(folder, "test", {"seed": 0}, "offline", told.append)
    logger.log(1, {"train/node": 0.5})
    logger.picture(1, "samples", folder / "x.png")
    logger.log(2, {"train/node": 0.4})
    logger.close()
    return told


@pytest.mark.parametrize("word", [False, None, "off", "false", "no", "disabled"])
def test_yamls_words_for_no_disable_it(word):
    assert wandb_mode(word) == "disabled"


@pytest.mark.parametrize("word", ["sometimes", True, 3])
def test_an_unknown_mode_is_refused_with_those_that_exist(word):
    with pytest.raises(ConfigError, match="one of disabled, offline, online"):
        wandb_mode(word)


def test_auto_is_refused_because_it_sent_figures_unasked():
    with pytest.raises(ConfigError, match=r"logger\.wandb=auto is gone"):
        wandb_mode("auto")


def test_a_mode_that_needs_a_missing_package_is_refused(monkeypatch):
    monkeypatch.setattr("layerdag.training.loggers.find_spec", lambda name: None)
    assert wandb_mode(False) == "disabled"
    with pytest.raises(ConfigError, match="pip install wandb"):
        wandb_mode("online")


def test_figures_and_pictures_are_handed_over(monkeypatch, tmp_path):
    run = install_fake(monkeypatch)
    told = use(tmp_path)
    assert run.logged == [
        {"step": 1, "train/node": 0.5},
        {"step": 1, "samples": f"image {tmp_path}/x.png"},
        {"step": 2, "train/node": 0.4},
    ]
    assert run.finished
    assert len(told) == 1
    assert "nothing is sent" in told[0]


@pytest.mark.parametrize(
    ("failing", "reason"),
    [
        ("init", "FakeUsageError: api_key not configured"),
        ("log", "ConnectionResetError: .*reset by peer"),
        ("finish", "ValueError: malformed answer"),
    ],
)
def test_an_error_of_the_client_is_one_warning(failing, reason, monkeypatch, tmp_path):
    install_fake(monkeypatch, failing)
    told = use(tmp_path)
    assert len(told) == 2
    assert told[1].startswith("warning: Weights & Biases failed")
    assert told[1].count("\n") == 1
    assert re.search(reason, told[1])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of wandb's own making
def test_an_offline_run_names_no_host(tmp_path):
    pytest.importorskip("wandb")
    told = use(tmp_path)
    assert len(told) == 2  # the picture does not exist
    written = list((tmp_path / "wandb").glob("offline-run-*/run-*.wandb"))
    assert written
    assert socket.gethostname().encode() not in written[0].read_bytes()


NAMES = ("layer_size", "node", "edge")


def test_reference_losses_are_those_of_the_golden_file(data, spec, tmp_path, repository):
    golden = repository / "tests" / "golden" / "reference_losses.json"
    settings = TrainSettings(
        max_steps=12, batch_graphs=4, evaluate_every=6, log_every=1, precision="float32"
    )
    train(TrainingRun(spec, data, data, tmp_path), settings)
    lines = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    found = [
        {"step": line["step"], **{k: v for k, v in line.items() if k.endswith(NAMES)}}
        for line in lines
    ]
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(json.dumps(found, indent=1) + "\n")
    wanted = json.loads(golden.read_text())
    assert len(found) == len(wanted) == 14  # 12 steps and 2 validations
    for line, expected in zip(found, wanted, strict=True):
        assert line == pytest.approx(expected, rel=1e-3)
