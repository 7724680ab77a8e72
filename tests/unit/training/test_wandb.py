"""Weights & Biases, offline: needs no account and no network."""

from pathlib import Path

import pytest

from layerdag.errors import ConfigError
from layerdag.training.loggers import WandbLogger


def test_an_unknown_mode_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="wandb mode"):
        WandbLogger(tmp_path, "test", {}, mode="sometimes")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of wandb's own making
def test_without_a_key_a_run_is_written_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    logger = WandbLogger(tmp_path, "test", {"seed": 0})
    logger.log(1, {"train/node": 0.5})
    logger.close()
    assert list((tmp_path / "wandb").glob("offline-run-*"))
