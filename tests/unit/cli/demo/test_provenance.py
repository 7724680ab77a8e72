from pathlib import Path

from layerdag.cli.demo import DemoSettings, caveats, training
from layerdag.cli.demo._provenance import CAVEATS
from layerdag.training import TrainResult

SETTINGS = DemoSettings(Path("data"), Path("out"), train_steps=600)


def result(reason: str, step: int) -> TrainResult:
    return TrainResult(reason, step, 487.0, {}, Path("best"), Path("last"))


def test_a_demo_that_did_all_its_steps_says_so() -> None:
    done = result("budget", 600)
    assert dict(training(SETTINGS, done, 500)) == {
        "training": "600 of 600 steps",
        "weights": "those of step 500, the best on the validation jobs",
    }
    assert caveats(SETTINGS, done) == CAVEATS


def test_a_demo_that_was_cut_short_says_so_first() -> None:
    first = caveats(SETTINGS, result("SIGTERM", 494))[0]
    assert first.startswith("Training stopped after 494 of 600 steps (SIGTERM)")


def test_the_demo_trains_by_steps_without_a_hidden_limit_of_time() -> None:
    assert not [name for name in vars(SETTINGS) if "seconds" in name]
