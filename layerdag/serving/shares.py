"""Fitted shares of devices and engines: what ``serving_shares.json`` holds."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from typing import Any

from layerdag.errors import ConfigError
from layerdag.runtime.settings import did_you_mean
from layerdag.serving.iteration_time import ServingShares
from layerdag.simulator.data_sheets import DataSheet

KIN = {
    "blackwell-ultra": "blackwell",
    "blackwell-rtx": "blackwell",
    "ampere": "hopper",
    "ada": "hopper",
}
"""The generation that stands for one without fits of its own."""
_USUAL = "hopper"


@dataclass(frozen=True)
class FoundShares:
    """Shares, and from where they are.

    Attributes:
        shares: The numbers.
        note: What is to be known of them; "" where they were fitted to this generation.
        tpot_error: Median relative error of the time per output token on the loads that they were
            fitted to.
        ttft_error: The same of the time to the first token.
    """

    shares: ServingShares
    note: str
    tpot_error: float
    ttft_error: float


@cache
def _shipped() -> Mapping[str, Any]:
    file = resources.files("layerdag.serving").joinpath("serving_shares.json")
    return dict(json.loads(file.read_text("utf-8")))


def engines() -> tuple[str, ...]:
    """Return the engines whose host times are fitted."""
    return tuple(_shipped()["engines"])


def shares_for(sheet: DataSheet, engine: str) -> FoundShares:
    """Return the shares of a device's generation, and of an engine on it.

    Raises:
        ConfigError: If there is no such engine.
    """
    shipped = _shipped()
    if engine not in shipped["engines"]:
        raise ConfigError(
            f"serving: no host times of the engine '{engine}'."
            f"{did_you_mean(engine, shipped['engines'])} Known are {', '.join(engines())}."
        )
    generation = sheet.generation
    known = generation if generation in shipped["generations"] else KIN.get(generation, _USUAL)
    numbers = {**shipped["generations"][known], **shipped["engines"][engine]}
    numbers["launch_us"] = numbers["launch_us"][known]
    note = "" if known == generation else (
        f"no load of {sheet.name} was measured; it gets the shares of {known} devices of its "
        "data sheet"
    )  # fmt: skip
    names = [field.name for field in fields(ServingShares)]
    shares = ServingShares(**{name: float(numbers[name]) for name in names})
    errors = shipped["median_errors"]
    return FoundShares(shares, note, float(errors["tpot"]), float(errors["ttft"]))


def layer_shares() -> ServingShares:
    """Return what is added to layers that were timed one by one: host times alone."""
    names = [field.name for field in fields(ServingShares)]
    given = _shipped()["layers"]
    return ServingShares(**{name: float(given.get(name, 0.0)) for name in names})
