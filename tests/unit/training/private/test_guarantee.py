import json
from dataclasses import replace

import pytest
from private_jobs import GUARANTEE

from layerdag.training.private import Guarantee


@pytest.mark.parametrize("given", [GUARANTEE, replace(GUARANTEE, epsilon=None, lower_bound=0.4)])
def test_it_survives_json(given: Guarantee):
    assert Guarantee.from_dict(json.loads(json.dumps(given.to_dict(), allow_nan=False))) == given


def test_nothing_is_nothing():
    assert Guarantee.from_dict(None) is None


@pytest.mark.parametrize(
    "damage", [{"epsilon": "3"}, {"delta": True}, {"steps": float("nan")}, {"clip": None}]
)
def test_another_type_is_refused(damage: dict[str, object]):
    with pytest.raises((TypeError, ValueError)):
        Guarantee.from_dict({**GUARANTEE.to_dict(), **damage})
    with pytest.raises(TypeError):
        Guarantee.from_dict("private")


def test_it_says_what_is_promised_and_that_without_noise_nothing_is():
    assert str(GUARANTEE).startswith(
        "(epsilon = 3, delta = 0.001) differential privacy of each run"
    )
    assert "nothing is promised" in str(replace(GUARANTEE, epsilon=None))
