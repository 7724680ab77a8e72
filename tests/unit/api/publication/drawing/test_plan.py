"""How samples are drawn, with weights and without."""

from dataclasses import replace
from pathlib import Path

import pytest

from layerdag.api.publication import ReleaseSettings
from layerdag.api.publication.drawing import drawing_plan


@pytest.fixture
def settings(tmp_path: Path) -> ReleaseSettings:
    (tmp_path / "traces").mkdir()
    return ReleaseSettings(tmp_path / "traces", tmp_path / "out", max_nodes=77, init=None)


def test_without_weights_what_is_open_is_left_to_the_model(settings: ReleaseSettings) -> None:
    plan = drawing_plan(settings, 12, 3)
    assert (plan.num, plan.seed, plan.max_nodes) == (12, 3, 77)
    assert (plan.best_of, plan.temperature) == (None, None)


def test_with_weights_each_sample_is_one_plain_draw(settings: ReleaseSettings) -> None:
    plan = drawing_plan(replace(settings, with_weights=True), 12, 3)
    assert (plan.best_of, plan.temperature) == (1, 1.0)


@pytest.mark.parametrize("with_weights", [False, True])
def test_what_is_asked_for_counts(settings: ReleaseSettings, with_weights: bool) -> None:
    asked = replace(settings, with_weights=with_weights, best_of=4, temperature=0.7)
    plan = drawing_plan(asked, 12, 3)
    assert (plan.best_of, plan.temperature) == (4, 0.7)
