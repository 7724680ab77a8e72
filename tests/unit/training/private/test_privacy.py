import math
from pathlib import Path
from typing import Any

import pytest

from layerdag._runtime import build_settings
from layerdag.errors import ConfigError
from layerdag.training.private import Privacy


def test_it_is_off_unless_epsilon_is_given():
    assert not Privacy().is_on
    assert Privacy(epsilon=3.0).is_on
    assert Privacy(epsilon=math.inf).is_on


@pytest.mark.parametrize(
    ("units", "delta"), [(700, 7e-4), (499, 1e-3), (5, 0.1), (1, 0.2), (10_000, 5e-5)]
)
def test_automatic_delta_is_at_most_half_of_one_over_the_units(units: int, delta: float):
    found = Privacy(epsilon=1.0).delta_for(units)
    assert found == pytest.approx(delta)
    assert found <= 1 / (2 * max(units, 2)) + 1e-12


def test_delta_may_be_given_as_a_number_or_as_the_word_auto():
    assert Privacy(delta=1e-3).delta_for(5) == 1e-3
    assert build_settings(Privacy, {"delta": "auto"}).delta == "auto"
    with pytest.raises(ConfigError, match=r"'delta' must be a number or 'auto'"):
        build_settings(Privacy, {"delta": "small"})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epsilon": 0.0}, r"privacy\.epsilon must be above 0, found 0\.0"),
        ({"epsilon": math.nan}, r"privacy\.epsilon must be above 0, found nan"),
        ({"delta": 1.0}, r"privacy\.delta must be between 0 and 1, or auto"),
        ({"clip": math.inf}, r"privacy\.clip must be above 0"),
        ({"sampling_rate": 1.5}, r"privacy\.sampling_rate must be in \(0, 1\]"),
        ({"canaries": 3}, r"privacy\.canaries must be an even number"),
        ({"steps": 0}, r"privacy\.steps must be at least 1"),
        ({"unit": "owner"}, r"privacy\.owners must be a CSV file with privacy\.unit=owner"),
        ({"owners": Path("x.csv")}, r"nothing with privacy\.unit=run"),
    ],
)
def test_values_out_of_bounds_are_one_sentence(values: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        Privacy(**values)
