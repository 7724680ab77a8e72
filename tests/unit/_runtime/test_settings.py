from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from layerdag._runtime import build_settings, flattened, grouped
from layerdag.errors import ConfigError


@dataclass(frozen=True)
class Optimizer:
    rate: float = 0.1
    kind: Literal["adam", "sgd"] = "adam"


@dataclass(frozen=True)
class Run:
    optimizer: Optimizer = field(default_factory=Optimizer)
    draws: tuple[int, ...] = ()
    place: Path | None = None
    label: str | int | None = None


def test_a_nested_mapping_fills_the_tree_and_the_rest_has_its_default() -> None:
    made = build_settings(Run, {"optimizer": {"rate": 2}, "draws": [1, 2], "place": "x"})
    assert made == Run(Optimizer(2.0), (1, 2), Path("x"))
    assert isinstance(made.optimizer.rate, float)
    assert build_settings(Run, made) is made
    assert build_settings(Run, {"optimizer": Optimizer(3.0), "label": 4}).label == 4


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"optimzer": {}}, r"Unknown setting 'run\.optimzer'\. Did you mean 'run\.optimizer"),
        ({"rate": 1.0}, r"Unknown setting 'run\.rate'\. Did you mean 'run\.optimizer\.rate'"),
        ({"xyz": 1}, r"Unknown setting 'run\.xyz'\. Known: optimizer\.rate, optimizer\.kind, draw"),
        ({"optimizer": 3}, r"'run\.optimizer' must be a group of settings, found 3"),
        ({"optimizer": {"rate": "x"}}, r"'run\.optimizer\.rate' must be a number, found 'x'"),
        ({"optimizer": {"rate": True}}, r"'run\.optimizer\.rate' must be a number, found True"),
        ({"optimizer": {"kind": "adm"}}, r"'run\.optimizer\.kind' must be 'adam' or 'sgd', found"),
        ({"draws": [1, "x"]}, r"'run\.draws' must be a whole number, found 'x'"),
        ({"draws": 1}, r"'run\.draws' must be a list, each entry a whole number, found 1"),
        ({"label": 1.5}, r"'run\.label' must be a text or a whole number or null, found 1\.5"),
        ([1], r"'run' must be a group of settings, found \[1\]"),
    ],
)
def test_what_does_not_fit_is_one_sentence_with_its_place(values: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_settings(Run, values, "run")


def test_a_missing_setting_without_default_is_told() -> None:
    @dataclass(frozen=True)
    class Needy:
        folder: Path

    with pytest.raises(ConfigError, match=r"'data' is incomplete: .*folder"):
        build_settings(Needy, {}, "data")


def test_groups_are_flattened_and_made_again() -> None:
    nested = {"a": {"b": 1, "c": {"d": [2]}}, "e": None}
    assert flattened(nested) == {"a.b": 1, "a.c.d": [2], "e": None}
    assert grouped(flattened(nested)) == nested
