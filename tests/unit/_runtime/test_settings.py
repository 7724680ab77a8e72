from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import pytest

from layerdag._runtime import (
    RenamedWarning,
    build_settings,
    flattened,
    grouped,
    takes_old_names,
    with_new_names,
)
from layerdag.errors import ConfigError


@dataclass(frozen=True)
class Optimizer:
    rate: float = 0.1
    kind: Literal["adam", "sgd"] = "adam"


@takes_old_names(learning_rate="optimizer.rate", seeds="draws")
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


def test_an_old_name_moves_into_its_group() -> None:
    renamed = {"learning_rate": "optimizer.rate", "kind": "optimizer.kind"}
    values = {"learning_rate": 0.5, "kind": "sgd"}
    with pytest.warns(
        RenamedWarning, match="'a.learning_rate' and 'a.kind' are now called"
    ) as told:
        made = build_settings(Run, values, "a", renamed)
    assert made == Run(Optimizer(0.5, "sgd"))
    assert len(told) == 1


def test_an_old_name_wins_over_the_usual_value_and_contradicts_another_one() -> None:
    renamed = {"learning_rate": "optimizer.rate"}
    with pytest.warns(RenamedWarning):
        made = build_settings(Run, {"learning_rate": 5.0, "optimizer": {"rate": 0.1}}, "", renamed)
    assert made.optimizer.rate == 5.0
    with pytest.warns(RenamedWarning), pytest.raises(ConfigError, match="both are given"):
        build_settings(Run, {"learning_rate": 5.0, "optimizer": {"rate": 0.2}}, "", renamed)


def test_old_keywords_and_attributes_of_groups_still_work() -> None:
    with pytest.warns(RenamedWarning, match="'learning_rate' is now called 'optimizer.rate'"):
        made = Run(learning_rate=0.5)
    assert made == Run(Optimizer(0.5))
    with pytest.warns(RenamedWarning):
        assert replace(made, learning_rate=0.7).optimizer == Optimizer(0.7)
    with pytest.warns(RenamedWarning, match="'learning_rate' is now called 'optimizer.rate'"):
        assert made.learning_rate == 0.5
    with pytest.warns(RenamedWarning):
        assert made.seeds == ()


def test_groups_are_flattened_and_made_again() -> None:
    nested = {"a": {"b": 1, "c": {"d": [2]}}, "e": None}
    assert flattened(nested) == {"a.b": 1, "a.c.d": [2], "e": None}
    assert grouped(flattened(nested)) == nested


def test_several_old_names_at_the_top_are_one_sentence() -> None:
    with pytest.warns(
        RenamedWarning, match="'x', 'y' and 'z' are now called 'u', 'v' and 'w'"
    ) as t:
        with_new_names({"x": 1, "y": 2, "z": 3}, {"x": "u", "y": "v", "z": "w"})
    assert len(t) == 1
