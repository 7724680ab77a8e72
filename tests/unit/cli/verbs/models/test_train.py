"""``layerdag train`` in this process, on generated graphs that take no time."""

import contextlib
import io
import json
import math
import os
import shlex
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from layerdag.cli import main
from layerdag.cli.settings import compose, train_config
from layerdag.cli.verbs.models import _train as verb
from layerdag.errors import ConfigError
from layerdag.training import TrainResult
from layerdag.training.monitoring import ConsoleLogger, JsonlLogger

TINY = (
    "data=latent_preferential", "data.num_train=6", "data.num_val=2", "data.num_test=2",
    "model.width=32", "model.depth=1", "training.evaluate_every=1",
    "training.lr_schedule.warmup_steps=1",
    "logger.console=false", "logger.sample_graphs=0", "device=cpu",
)  # fmt: skip


@dataclass(frozen=True)
class Ran:
    """A run of two steps, with what it said."""

    folder: Path
    code: int
    out: str
    err: str


def train(*words: str) -> int:
    return main(["train", *TINY, *words])


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("runs") / "my run"
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = train("training.max_steps=2", "logger.console=true", f"out='{folder}'")
    return Ran(folder, code, out.getvalue(), err.getvalue())


def test_a_run_prints_one_json_object_with_what_came_of_it(ran: Ran) -> None:
    assert ran.code == 0
    told = json.loads(ran.out)
    assert (told["reason"], told["step"]) == ("budget", 2)
    assert told["best"] == str(ran.folder / "best")
    assert told["last"] == str(ran.folder / "last")
    assert all(math.isfinite(value) for value in told["metrics"].values())


def test_the_console_tells_data_model_each_validation_and_how_to_sample(ran: Ran) -> None:
    assert "6 train, 2 val, 2 test graphs" in ran.err
    assert "trained 2 steps" in ran.err
    assert f"checkpoint={shlex.quote(str(ran.folder / 'best'))}" in ran.err.replace('"', "'")
    lines = [json.loads(x) for x in (ran.folder / "train.jsonl").read_text().splitlines()]
    assert [x["step"] for x in lines if "validation/node" in x] == [1, 2]


def test_too_few_held_out_graphs_are_warned_of(ran: Ran) -> None:
    assert "layerdag: warning: " in ran.err


def test_settings_stay_beside_the_checkpoints_and_never_inside_with_paths(ran: Ran) -> None:
    kept = json.loads((ran.folder / "run.json").read_text())["config"]
    assert kept["training"]["max_steps"] == 2
    shared = json.loads((ran.folder / "best" / "config.json").read_text())["run"]
    assert "out" not in shared
    assert shared["data"]["num_train"] == 6


def test_resuming_goes_on_from_the_last_step_with_the_settings_of_the_run(
    ran: Ran, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(ran.folder, run)
    assert main(["train", f"resume={run}", "training.max_steps=3", "logger.console=false"]) == 0
    assert json.loads(capsys.readouterr().out)["step"] == 3
    steps = [json.loads(x)["step"] for x in (run / "train.jsonl").read_text().splitlines()]
    assert sorted(set(steps)) == [1, 2, 3]


def test_settings_that_cannot_go_on_with_a_run_are_not_kept_as_its_own(
    ran: Ran, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(ran.folder, run)
    before = (run / "run.json").read_text()
    words = (f"resume={run}", "training.max_steps=3", "logger.console=false")
    assert main(["train", *words, "model.width=64"]) == 1
    assert "cannot be resumed" in capsys.readouterr().err
    assert (run / "run.json").read_text() == before
    assert main(["train", *words]) == 0


def test_an_older_run_is_replaced_only_when_told(
    ran: Ran, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (ran.folder / "train.jsonl").read_bytes()
    assert train("training.max_steps=1", f"out='{ran.folder}'") == 2
    assert "overwrite=true" in capsys.readouterr().err
    assert (ran.folder / "train.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("resume=nowhere",), 1, "nowhere"),
        (("training.max_steps=-1",), 2, "max_steps"),
        (("data.num_val=0",), 1, "latent_preferential: the val part is empty"),
        (("conditions=[color]",), 1, "color"),
    ],
)
def test_what_cannot_be_trained_is_one_line_and_leaves_no_checkpoint(
    words: tuple[str, ...],
    code: int,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert train(*words, "out=here") == code
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("layerdag: error:")
    assert told in error
    assert not list(tmp_path.rglob("meta.json"))
    assert not (tmp_path / "outputs").exists()


def test_a_dry_run_prints_the_resolved_settings_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert train("dry_run=true", "seed=7", "out=here") == 0
    shown = OmegaConf.create(capsys.readouterr().out)
    assert (shown.seed, shown.out, shown.data.num_train) == (7, "here", 6)
    assert list(tmp_path.iterdir()) == []


def test_a_stopped_run_keeps_its_steps_and_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting = iter([signal.SIGTERM])
    monkeypatch.setattr(JsonlLogger, "log", lambda *_: [os.kill(os.getpid(), n) for n in waiting])
    out = tmp_path / "run"
    assert train("training.max_steps=50", f"out={out}") == 143
    said = capsys.readouterr()
    assert json.loads(said.out)["reason"] == "SIGTERM"
    assert "layerdag: stopped by SIGTERM: " in said.err
    assert f"Go on with: layerdag train resume={out}" in said.err


def test_a_run_that_is_stopped_before_its_first_step_has_nothing_to_go_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*_: object, **__: object) -> TrainResult:
        raise KeyboardInterrupt

    monkeypatch.setattr(verb, "train", stopped)
    assert train("training.max_steps=1", f"out={tmp_path / 'run'}") == 130
    assert "No checkpoint was written yet." in capsys.readouterr().err


def test_only_the_first_process_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As torchrun starts the second process: it holds no folder, which its first one does.
    monkeypatch.setenv("RANK", "1")
    assert not verb._is_first()
    monkeypatch.delenv("RANK")
    assert verb._is_first()


def test_a_gpu_that_is_not_there_is_told_with_what_to_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="torch sees no GPU; use device=cpu"):
        verb.pick_device("cuda")
    assert verb.pick_device("auto") == torch.device("cpu")
    with pytest.raises(ConfigError, match="There is no device 'warp'; use auto, cpu or cuda"):
        verb.pick_device("warp")


@pytest.mark.parametrize("word", ["sometimes", "3"])
def test_an_unknown_mode_of_wandb_is_refused_with_those_that_are_known(word: str) -> None:
    with pytest.raises(ConfigError, match=r"wandb.*disabled"):
        train_config(compose("train", [f"logger.wandb={word}", "out=x"]))


def test_the_log_goes_on_after_the_resumed_step(tmp_path: Path) -> None:
    (tmp_path / "last").mkdir()
    (tmp_path / "last" / "meta.json").write_text('{"step": 2}')
    (tmp_path / "train.jsonl").write_text("".join(f'{{"step": {i}}}\n' for i in (1, 2, 3)))
    quiet = train_config(compose("train", ["logger.console=false", "out=x"])).logger
    for logger in verb.open_loggers(quiet, tmp_path, {}, resume=Path("x")):
        logger.close()
    # What was logged after the checkpoint is done again.
    assert (tmp_path / "train.jsonl").read_text() == '{"step": 1}\n{"step": 2}\n'


def test_the_console_is_a_logger_where_it_is_asked_for(tmp_path: Path) -> None:
    settings = train_config(compose("train", ["logger.wandb=disabled", "out=x"])).logger
    loggers = verb.open_loggers(settings, tmp_path, {}, resume=None)
    assert [type(logger) for logger in loggers] == [JsonlLogger, ConsoleLogger]
    for logger in loggers:
        logger.close()


def test_checkpoints_that_are_not_there_are_told_as_none(tmp_path: Path) -> None:
    (tmp_path / "last").mkdir()
    result = TrainResult("SIGINT", 3, 1.26, {}, tmp_path / "best", tmp_path / "last")
    assert verb.describe(result) == {
        "reason": "SIGINT",
        "step": 3,
        "seconds": 1.3,
        "metrics": {},
        "best": None,
        "last": str(tmp_path / "last"),
    }
