"""Training inside a release: noted when it is done, taken up again, few steps for a warm start."""

from pathlib import Path

import pytest
from raw_graphs import chain

from layerdag.api.publication import ReleaseSettings
from layerdag.api.publication._folder import TRAINING, held_work
from layerdag.api.publication._training import _training, trained_model
from layerdag.datasets import GraphDataset
from layerdag.training import LOG


@pytest.fixture
def settings(tmp_path: Path) -> ReleaseSettings:
    (tmp_path / "traces").mkdir()
    return ReleaseSettings(tmp_path / "traces", tmp_path / "out", steps=1, seed=3)


@pytest.fixture(scope="module")
def data() -> GraphDataset:
    graphs = [chain(f"g{i}", "abcab"[: 2 + i % 4], label=1.0 + i) for i in range(8)]
    return GraphDataset.build("chains", "flow", {"train": graphs, "val": graphs[:2]})


def test_a_finished_training_is_noted_and_not_repeated(
    settings: ReleaseSettings, data: GraphDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held_work(settings.private, settings.out, settings.request(), overwrite=False) as work:
        first = trained_model(settings, data, work, 60.0)
        noted = work.stages["train"]
        assert noted["steps"] == 10  # ten times as many from random weights
        assert noted["start"] == "random weights"
        assert noted["fingerprint"] == data.fingerprint
        assert (settings.private / TRAINING / LOG).is_file()
        monkeypatch.setattr("layerdag.api.publication._training.train", None)  # no call any more
        again = trained_model(settings, data, work, 60.0)
    assert again.meta.step == first.meta.step
    for mine, theirs in zip(again.model.parameters(), first.model.parameters(), strict=True):
        assert mine.equal(theirs)


def test_what_a_killed_run_left_is_discarded_if_it_cannot_be_used(
    settings: ReleaseSettings, data: GraphDataset
) -> None:
    last = settings.private / TRAINING / "last"
    with held_work(settings.private, settings.out, settings.request(), overwrite=False) as work:
        trained_model(settings, data, work, 60.0)
        del work.stages["train"]
        next(last.glob("*.safetensors")).write_bytes(b"cut off")
        assert trained_model(settings, data, work, 60.0).meta.step <= 10
        assert work.stages["train"]["steps"] == 10


def test_a_warm_start_is_tuned_shortly_and_gently(settings: ReleaseSettings) -> None:
    tuned, fresh = (_training(settings, 0.2, tunes=warm) for warm in (True, False))
    assert (tuned.max_steps, fresh.max_steps) == (1, 10)
    assert tuned.optimizer.learning_rate < fresh.optimizer.learning_rate
    assert tuned.patience < fresh.patience
    assert tuned.max_seconds == fresh.max_seconds == 1.0  # never none
    assert tuned.seed == 3
