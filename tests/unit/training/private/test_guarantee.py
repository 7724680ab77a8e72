import json
from dataclasses import replace

import pytest

from layerdag.training.private import Guarantee

USUAL = Guarantee(
    epsilon=3.0,
    delta=1e-3,
    unit="run",
    neighbors="one run replaced by an empty one",
    accountant="a library",
    noise_multiplier=1.5,
    sampling_rate=0.25,
    steps=40,
    clip=0.5,
    trained_parameters=2884,
    noise="a secret key",
)


@pytest.mark.parametrize("given", [USUAL, replace(USUAL, epsilon=None, lower_bound=0.4)])
def test_it_survives_json(given: Guarantee):
    assert Guarantee.from_dict(json.loads(json.dumps(given.to_dict(), allow_nan=False))) == given


def test_nothing_is_nothing():
    assert Guarantee.from_dict(None) is None


@pytest.mark.parametrize(
    "damage", [{"epsilon": "3"}, {"delta": True}, {"steps": float("nan")}, {"clip": None}]
)
def test_another_type_is_refused(damage: dict[str, object]):
    with pytest.raises((TypeError, ValueError)):
        Guarantee.from_dict({**USUAL.to_dict(), **damage})
    with pytest.raises(TypeError):
        Guarantee.from_dict("private")


def test_it_says_what_is_promised_and_that_without_noise_nothing_is():
    assert str(USUAL).startswith("(epsilon = 3, delta = 0.001) differential privacy of each run")
    assert "nothing is promised" in str(replace(USUAL, epsilon=None))
