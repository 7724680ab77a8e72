"""Shadow models are trained as the checkpoint says that it was."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import layerdag as ld
from layerdag.api.auditing.shadows import recipe_of
from layerdag.errors import CheckpointError, UsageError
from layerdag.sampling import checkpoint_fingerprint
from layerdag.training import LoadedCheckpoint
from layerdag.training._weights import Origin


def started_from(checkpoint: LoadedCheckpoint, name: str, path: Path) -> LoadedCheckpoint:
    origin = Origin(name, checkpoint_fingerprint(path))
    return replace(checkpoint, meta=replace(checkpoint.meta, origin=origin))


def test_settings_and_passes_are_those_of_the_checkpoint(memorizer: Any) -> None:
    recipe = recipe_of(memorizer.checkpoint, memorizer.data, None)
    assert recipe.is_recorded
    assert recipe.settings.optimizer.learning_rate == 6e-2
    assert recipe.passes == 20  # one micro-batch holds all
    plan, planned = recipe.settings_for(memorizer.data, 7, None, 3.0)
    assert (plan.seed, plan.max_steps, plan.max_seconds, planned) == (7, 20, 3.0, 20)
    assert plan.evaluate_every > 20  # nothing is selected
    assert recipe.settings_for(memorizer.data, 7, 5, None)[0].max_steps == 5
    assert recipe.settings_for(memorizer.data, 7, 500, None)[0].max_steps == 20


def test_a_checkpoint_that_records_nothing_has_the_usual_settings(memorizer: Any) -> None:
    silent = replace(memorizer.checkpoint, run_config={})
    recipe = recipe_of(silent, memorizer.data, None)
    assert not recipe.is_recorded
    assert recipe.settings == ld.TrainSettings()
    wrong = replace(memorizer.checkpoint, run_config={"training": {"batch_nodes": -1}})
    with pytest.raises(CheckpointError, match="batch_nodes"):
        recipe_of(wrong, memorizer.data, None)


def test_the_start_must_be_the_checkpoints_own(memorizer: Any) -> None:
    checkpoint = memorizer.checkpoint
    with pytest.raises(UsageError, match="started from random weights"):
        recipe_of(checkpoint, memorizer.data, "base")
    tuned = started_from(checkpoint, "base", checkpoint.path)
    with pytest.raises(UsageError, match=r"started from the checkpoint 'base'.*--init"):
        recipe_of(tuned, memorizer.data, None)
    recipe = recipe_of(tuned, memorizer.data, checkpoint.path)
    spec, start = recipe.start_for(memorizer.data, 0)
    assert start is not None
    assert spec.arguments["width"] == 32
    with pytest.raises(UsageError, match="is not the checkpoint that"):
        recipe_of(started_from(checkpoint, "pretrained", checkpoint.path), memorizer.data, None)
