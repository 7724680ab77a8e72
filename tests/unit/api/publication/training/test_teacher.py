"""The teacher is trained once, and a training that was stopped or damaged is put right."""

import pytest

from layerdag.api.publication import TRAINING, ReleaseSettings, Work
from layerdag.api.publication.training import _recipe, trained_teacher
from layerdag.datasets import GraphDataset
from layerdag.training import LOG


def test_a_finished_training_is_noted_and_not_repeated(
    settings: ReleaseSettings, data: GraphDataset, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = trained_teacher(settings, data, work, 60.0)
    noted = work.stages["train"]
    assert noted["steps"] == 10  # ten times as many from random weights
    assert noted["start"] == "random weights"
    assert noted["fingerprint"] == data.fingerprint
    assert (settings.private / TRAINING / LOG).is_file()
    monkeypatch.setattr(_recipe, "train", None)  # no call any more
    again = trained_teacher(settings, data, work, 60.0)
    assert again.meta.step == first.meta.step
    for mine, theirs in zip(again.model.parameters(), first.model.parameters(), strict=True):
        assert mine.equal(theirs)


def test_a_run_that_was_stopped_is_gone_on_with(
    settings: ReleaseSettings, data: GraphDataset, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained_teacher(settings, data, work, 60.0)
    work.note("train", {"fingerprint": data.fingerprint})  # all that stands before the end
    resumed: list[object] = []
    train = _recipe.train

    def spied(*arguments: object, **keywords: object) -> object:
        resumed.append(keywords["resume_from"])
        return train(*arguments, **keywords)

    monkeypatch.setattr(_recipe, "train", spied)
    trained_teacher(settings, data, work, 60.0)
    assert resumed == [settings.private / TRAINING / "last"]


def test_what_a_killed_run_left_is_discarded_if_it_cannot_be_used(
    settings: ReleaseSettings, data: GraphDataset, work: Work
) -> None:
    last = settings.private / TRAINING / "last"
    trained_teacher(settings, data, work, 60.0)
    del work.stages["train"]
    next(last.glob("*.safetensors")).write_bytes(b"cut off")
    assert trained_teacher(settings, data, work, 60.0).meta.step <= 10
    assert work.stages["train"]["steps"] == 10
