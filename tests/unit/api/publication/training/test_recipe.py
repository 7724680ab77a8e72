"""One recipe for every model of a release."""

from dataclasses import replace

import pytest
import torch

from layerdag.api.publication import ReleaseSettings, Work
from layerdag.api.publication.training import _recipe
from layerdag.api.publication.training._recipe import (
    run_of,
    start_model,
    start_of,
    train_or_resume,
    training_settings,
)
from layerdag.datasets import GraphDataset
from layerdag.training import InitialWeights, Origin

START = InitialWeights({}, Origin("pretrained", "f", 5, "d"))


def test_a_warm_start_is_tuned_shortly_and_gently(settings: ReleaseSettings) -> None:
    tuned, fresh = (training_settings(settings, 0.2, start) for start in (START, None))
    assert (tuned.max_steps, fresh.max_steps) == (1, 10)
    assert tuned.optimizer.learning_rate < fresh.optimizer.learning_rate
    assert tuned.patience < fresh.patience
    assert tuned.max_seconds == fresh.max_seconds == 1.0  # never none
    assert tuned.seed == 3


def test_flow_graphs_start_from_random_weights(
    settings: ReleaseSettings, data: GraphDataset, work: Work
) -> None:
    run = run_of(settings, data, work.path / "student")
    assert run.start is None
    assert start_of(run) == "random weights"
    assert run.split == data.split
    given = run_of(settings, data, work.path / "student", run.spec)
    assert given.spec is run.spec


def test_the_start_of_a_run_has_its_first_weights(
    settings: ReleaseSettings, data: GraphDataset, work: Work
) -> None:
    run = run_of(settings, data, work.path / "student")
    random = start_model(run, 5)
    assert not random.training
    weights = {name: torch.zeros_like(value) for name, value in random.state_dict().items()}
    given = start_model(replace(run, start=replace(START, weights=weights)), 5)
    assert all(not value.any() for value in given.state_dict().values())
    again = start_model(run, 5).state_dict()
    assert all(again[name].equal(value) for name, value in random.state_dict().items())


def test_a_stopped_training_says_that_the_same_command_goes_on(
    settings: ReleaseSettings, data: GraphDataset, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(settings, data, work.path / "student")
    stopped = replace(train_or_resume(run, settings, 60.0), reason="SIGTERM", step=3)
    monkeypatch.setattr(_recipe, "train", lambda *_, **__: stopped)
    with pytest.raises(KeyboardInterrupt, match="stopped at step 3; the same command goes on"):
        train_or_resume(run, settings, 60.0)


def test_the_name_of_a_checkpoint_folder_stays_with_the_owner(
    settings: ReleaseSettings, data: GraphDataset, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = replace(data, schema=replace(data.schema, kind="trace"))

    class Warm:
        spec = run_of(settings, data, work.path / "student").spec
        start = replace(START, origin=replace(START.origin, name="acme-secret-base"))

    monkeypatch.setattr(_recipe, "warm_start", lambda *_, **__: Warm)
    shipped = run_of(settings, jobs, work.path / "student")
    own = run_of(replace(settings, init="acme-secret-base"), jobs, work.path / "student")
    none = run_of(replace(settings, init=None), jobs, work.path / "student")
    assert start_of(shipped) == "acme-secret-base"  # what warm_start says of "pretrained"
    assert start_of(own) == "another checkpoint"
    assert none.start is None
