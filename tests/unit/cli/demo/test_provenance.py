from pathlib import Path

import pytest
from warm_starts import data_of, jobs

from layerdag.api import warm_start
from layerdag.cli.demo import DemoSettings, caveats, training
from layerdag.cli.demo._provenance import CAVEATS, provenance
from layerdag.training import TrainResult

SETTINGS = DemoSettings(Path("data"), Path("out"), train_steps=600, tuning_steps=40)


def result(reason: str, step: int) -> TrainResult:
    return TrainResult(reason, step, 487.0, {}, Path("best"), Path("last"))


def test_a_demo_that_did_all_its_steps_says_so() -> None:
    done = result("budget", 600)
    told = dict(training(SETTINGS, done, 500, None))
    assert told.pop("start").startswith("random weights")
    assert told == {
        "training": "600 of 600 steps",
        "weights": "those of step 500, the best on the validation jobs",
    }
    assert caveats(SETTINGS, done, None) == CAVEATS


def test_a_demo_that_was_cut_short_says_so_first() -> None:
    first = caveats(SETTINGS, result("SIGTERM", 494), None)[0]
    assert first.startswith("Training stopped after 494 of 600 steps (SIGTERM)")


def test_the_demo_trains_by_steps_without_a_hidden_limit_of_time() -> None:
    assert not [name for name in vars(SETTINGS) if "seconds" in name]


def test_a_demo_that_starts_from_the_shipped_weights_says_how_long_those_were_trained() -> None:
    warm = warm_start("pretrained", data_of(jobs()))
    told = dict(training(SETTINGS, result("budget", 40), 40, warm))
    assert told["training"] == "40 of 40 steps"
    assert (
        "shipped checkpoint, trained on the training jobs of the same split (3,500 steps in"
        in (told["start"])
    )
    first = caveats(SETTINGS, result("budget", 40), warm)[0]
    assert "not those of 40 steps alone" in first
    assert "3,500 steps in the last run" in first


@pytest.mark.parametrize(
    ("settings", "command"),
    [
        (DemoSettings(Path("data"), Path("out"), seed=3), "layerdag demo --seed 3"),
        (DemoSettings.short(Path("data"), Path("out"), 3), "layerdag demo --seed 3 --short"),
    ],
)
def test_the_command_that_makes_the_page_again_is_whole(
    settings: DemoSettings, command: str
) -> None:
    assert dict(provenance(settings, data_of(jobs()), {}))["command"] == command
