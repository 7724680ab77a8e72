"""The model of a release is trained once, and gone on with where it was stopped."""

from dataclasses import replace

import pytest

from layerdag.publication import training as recipe
from layerdag.publication.training import (
    run_of,
    train_model,
    train_or_resume,
)
from layerdag.publication.workspace import TRAINING
from layerdag.training.checkpoint import LOG


def test_a_stopped_training_says_that_the_same_command_goes_on(settings, data, work, monkeypatch):
    run = run_of(settings, data, work.path / TRAINING)
    stopped = replace(train_or_resume(run, settings, 60.0), reason="SIGTERM", step=3)
    monkeypatch.setattr(recipe, "train", lambda *_, **__: stopped)
    with pytest.raises(KeyboardInterrupt, match="stopped at step 3; the same command goes on"):
        train_or_resume(run, settings, 60.0)


def test_a_finished_training_is_noted_and_not_repeated(settings, data, work, monkeypatch):
    first = train_model(settings, data, work, 60.0)
    noted = work.stages["train"]
    assert noted["steps"] == 2
    assert noted["fingerprint"] == data.fingerprint
    assert (settings.private / TRAINING / LOG).is_file()
    monkeypatch.setattr(recipe, "train", None)  # no call any more
    again = train_model(settings, data, work, 60.0)
    assert again.meta.step == first.meta.step
    for mine, theirs in zip(again.model.parameters(), first.model.parameters(), strict=True):
        assert mine.equal(theirs)


def test_a_run_that_was_stopped_is_gone_on_with(settings, data, work, monkeypatch):
    train_model(settings, data, work, 60.0)
    work.note("train", {"fingerprint": data.fingerprint})  # all that stands before the end
    resumed: list[object] = []
    train = recipe.train

    def spied(*arguments: object, **keywords: object) -> object:
        resumed.append(keywords["resume_from"])
        return train(*arguments, **keywords)

    monkeypatch.setattr(recipe, "train", spied)
    train_model(settings, data, work, 60.0)
    assert resumed == [settings.private / TRAINING / "last"]


def test_what_a_killed_run_left_is_discarded_if_it_cannot_be_used(settings, data, work):
    last = settings.private / TRAINING / "last"
    train_model(settings, data, work, 60.0)
    del work.stages["train"]
    next(last.glob("*.safetensors")).write_bytes(b"cut off")
    assert train_model(settings, data, work, 60.0).meta.step <= 10
    assert work.stages["train"]["steps"] == 2
