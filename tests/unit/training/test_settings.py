import importlib

import pytest

from layerdag._runtime import RenamedWarning
from layerdag.errors import ConfigError
from layerdag.training import LearningRateSchedule, OptimizerConfig, TrainSettings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_graphs", 0),
        ("ema_decay", 1.0),
        ("precision", "float16"),
        ("max_steps", 0),
        ("max_seconds", -1.0),
    ],
)
def test_a_value_out_of_bounds_is_named(name: str, value: object):
    with pytest.raises(ConfigError, match=f"training.{name} must be"):
        TrainSettings(**{name: value})


def test_a_run_needs_some_budget():
    with pytest.raises(ConfigError, match="max_seconds"):
        TrainSettings(max_steps=None)


@pytest.mark.parametrize(
    ("group", "name", "value"),
    [
        (OptimizerConfig, "learning_rate", 0.0),
        (OptimizerConfig, "weight_decay", -0.1),
        (OptimizerConfig, "gradient_clip", -1.0),
        (LearningRateSchedule, "shape", "linear"),
        (LearningRateSchedule, "warmup_steps", -1),
    ],
)
def test_a_value_out_of_bounds_in_a_group_is_named(group: type, name: str, value: object):
    with pytest.raises(ConfigError, match=rf"training\.\w+\.{name} must be"):
        group(**{name: value})


def test_old_keywords_are_taken_and_told():
    with pytest.warns(RenamedWarning, match="'learning_rate' and 'schedule' are now called"):
        settings = TrainSettings(learning_rate=0.1, schedule="cosine")
    assert settings.optimizer.learning_rate == 0.1
    assert settings.lr_schedule == LearningRateSchedule("cosine")
    with pytest.warns(
        RenamedWarning, match="'weight_decay' is now called 'optimizer.weight_decay'"
    ):
        assert settings.weight_decay == 0.01


@pytest.mark.parametrize(
    ("package", "old", "new"),
    [
        ("layerdag.training", "Track", "ParameterGroup"),
        ("layerdag.training", "Observation", "CallbackResult"),
        ("layerdag.training", "Hook", "Callback"),
        ("layerdag.training.monitoring", "Window", "Meter"),
        ("layerdag.training.optimization", "WeightAverage", "ExponentialMovingAverage"),
    ],
)
def test_classes_are_found_by_their_old_names(package: str, old: str, new: str):
    room = importlib.import_module(package)
    with pytest.warns(RenamedWarning, match=f"'{package}.{old}' is now called '{new}'"):
        assert getattr(room, old) is getattr(room, new)
