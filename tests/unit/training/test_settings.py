import pytest

from layerdag.errors import ConfigError
from layerdag.training.settings import LearningRateSchedule, OptimizerConfig, TrainSettings


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
