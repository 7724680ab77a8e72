import hashlib
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from layerdag.cli.main import main
from layerdag.training.loggers import JsonlLogger

pytestmark = pytest.mark.usefixtures("few_redraws")

TINY = (
    "data.max_nodes=60",
    "model.width=32",
    "model.depth=1",
    "training.evaluate_every=2",
    "training.lr_schedule.warmup_steps=1",
    "training.batch_graphs=8",
    "logger.console=false",
    "logger.sample_graphs=2",
    "threads=1",
)
UNSEEN = ("logger.sample_graphs=0",)
"""Without samples at each validation, where a test does not ask for them."""


def train(corpus: Path, out: Path, *more: str) -> int:
    return main(["train", f"data.folder={corpus}", *TINY, f"out={out}", *more])


@pytest.fixture(scope="module")
def checkpoint(small_corpus, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("run")
    assert train(small_corpus, out, "training.max_steps=4") == 0
    return out / "best"


def sample(checkpoint: Path, out: Path, *more: str) -> int:
    return main(
        [
            "sample",
            f"checkpoint={checkpoint}",
            "num=3",
            "max_nodes=24",
            "threads=1",
            f"out={out}",
            *more,
        ]
    )


def digests(folder: Path) -> dict[str, str]:
    files: Sequence[Path] = sorted(folder.rglob("*.et"))
    return {str(f.relative_to(folder)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


def test_training_leaves_log_pictures_and_checkpoints(checkpoint):
    run = checkpoint.parent
    lines = [json.loads(line) for line in (run / "train.jsonl").read_text().splitlines()]
    seen = [line for line in lines if "samples/valid_share" in line]
    assert [line["samples/valid_share"] for line in seen] == [1.0, 1.0]
    assert all("validation/node" in line for line in seen)
    assert len(list((run / "pictures").glob("*.png"))) == 2
    assert (run / "last" / "trainer.pt").is_file()
    assert not (run / "best" / "trainer.pt").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_run_says_how_to_go_on_and_names_only_what_exists(
    small_corpus, tmp_path, monkeypatch, capsys, number, code
):
    signals = iter([number])
    monkeypatch.setattr(JsonlLogger, "log", lambda *_: [os.kill(os.getpid(), n) for n in signals])
    run = tmp_path / "run"
    words = (
        "training.evaluate_every=50",
        "training.log_every=1",
        "training.max_steps=100",
        "--json",
    )
    assert train(small_corpus, run, *words, "--json") == code
    shown = capsys.readouterr()
    told = json.loads(shown.out, parse_constant=pytest.fail)
    assert (told["reason"], told["best"], told["last"]) == (number.name, None, str(run / "last"))
    assert not (run / "best").exists()
    assert f"layerdag train resume={run}" in shown.err
    assert not list(run.glob(".*"))


def test_a_key_in_the_environment_sends_nothing(small_corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setitem(sys.modules, "wandb", None)  # importing it would raise
    assert train(small_corpus, tmp_path / "run", *UNSEEN, "training.max_steps=1") == 0
    assert not (tmp_path / "run" / "wandb").exists()


def test_wandb_failing_does_not_fail_the_run(small_corpus, tmp_path, monkeypatch, capsys):
    pytest.importorskip("wandb")

    def reset(**_: object) -> None:
        raise ConnectionResetError("connection reset by peer")

    monkeypatch.setattr("wandb.init", reset)
    words = (*UNSEEN, "training.max_steps=1", "logger.wandb=online")
    assert train(small_corpus, tmp_path / "run", *words) == 0
    assert "warning: Weights & Biases failed" in capsys.readouterr().err
    assert (tmp_path / "run" / "last").is_dir()


def test_resumed_run_ends_as_one_that_was_not_interrupted(small_corpus, tmp_path):
    parts = tmp_path / "parts"
    assert train(small_corpus, tmp_path / "whole", *UNSEEN, "training.max_steps=4") == 0
    assert train(small_corpus, parts, *UNSEEN, "training.max_steps=2") == 0
    # The folder of the run is enough, as is its checkpoint: it keeps its settings.
    assert main(["train", f"resume={parts}", "training.max_steps=4"]) == 0
    weights = [(tmp_path / name / "last" / "weights.safetensors") for name in ("whole", "parts")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_same_seed_gives_the_same_traces_whatever_the_batch_size(checkpoint, tmp_path):
    for name, batch_size in (("together", 3), ("alone", 1)):
        words = ("seed=3", f"+batch_size={batch_size}", "best_of=2")
        assert sample(checkpoint, tmp_path / name, *words) == 0
    assert digests(tmp_path / "together") == digests(tmp_path / "alone")
    assert digests(tmp_path / "together")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["num=0"], 2, "'num' must be at least 1"),
        (["+conditions.family=mpl"], 1, "Did you mean 'mlp'"),
        (["+conditions.famly=mlp"], 1, "Did you mean 'family'"),
        (["format=graphm"], 2, "no format 'graphm'"),
        (["nmu=3"], 2, "Did you mean 'num'"),
    ],
)
def test_wrong_request_is_one_line_and_leaves_no_files(
    checkpoint, tmp_path, capsys, words, code, message
):
    assert sample(checkpoint, tmp_path / "out", *words) == code
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert message in error
    assert not (tmp_path / "out").exists()


def test_damaged_checkpoint_is_one_line(checkpoint, tmp_path, capsys):
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in checkpoint.iterdir():
        (broken / file.name).write_bytes(file.read_bytes()[:200])
    assert sample(broken, tmp_path / "out") == 1
    assert "broken" in capsys.readouterr().err.strip().splitlines()[-1]
