"""Settings and sizes from a file are bounded before anything is built."""

import math
from dataclasses import dataclass, replace
from typing import Literal

import pytest

from layerdag.errors import ConfigError
from layerdag.graph import GraphSizes
from layerdag.models import require_between, require_choices
from layerdag.models._bounds import MAX_CODES, MAX_COLUMNS, require_few

SIZES = GraphSizes((4, 2), edge_types=2, numeric_conditions=1, category_conditions=(3,))


@dataclass(frozen=True)
class Choice:
    """One word out of two, and a number of any size."""

    word: Literal["yes", "no"] = "yes"
    number: int = 1
    open: Literal["left", "right"] | None = None


@pytest.mark.parametrize("value", [0, 1, 0.5])
def test_both_ends_are_included(value: float):
    require_between("fast", 0, 1, rate=value)


@pytest.mark.parametrize("value", [-1e-9, 1.000001, math.inf, -math.inf, math.nan])
def test_what_lies_outside_is_refused(value: float):
    with pytest.raises(ConfigError, match=r"model 'fast': 'rate' must be from 0 to 1, found"):
        require_between("fast", 0, 1, rate=value)


def test_the_first_setting_out_of_bounds_is_named():
    with pytest.raises(ConfigError, match=r"'b' must be from 1 to 10, found 11"):
        require_between("fast", 1, 10, a=3, b=11, c=12)


def test_a_huge_value_does_not_fill_the_message():
    with pytest.raises(ConfigError) as told:
        require_between("fast", 0, 1, rate=10**400)
    assert len(str(told.value)) < 120


def test_a_word_among_the_choices_is_taken_and_numbers_are_left_alone():
    require_choices("fast", "", Choice("no", number=-7))


def test_another_word_is_refused_with_its_place_and_the_choices():
    with pytest.raises(ConfigError, match=r"'part\.word' must be 'yes' or 'no', found 'maybe'"):
        require_choices("fast", "part", Choice("maybe"))
    with pytest.raises(ConfigError, match=r"model 'fast': 'word' must be"):
        require_choices("fast", "", Choice("maybe"))


def test_a_word_that_may_be_left_out_is_one_of_the_choices_otherwise():
    require_choices("fast", "part", Choice(open=None))
    require_choices("fast", "part", Choice(open="left"))
    with pytest.raises(ConfigError, match=r"'part\.open' must be 'left' or 'right', found 'up'"):
        require_choices("fast", "part", Choice(open="up"))


def test_sizes_of_a_data_set_pass():
    require_few(SIZES)
    require_few(GraphSizes((1,)))


@pytest.mark.parametrize(
    "changes",
    [
        {"attributes": ()},
        {"attributes": (4, 0)},
        {"edge_types": 0},
        {"numeric_conditions": -1},
        {"category_conditions": (3, 0)},
    ],
)
def test_no_attribute_or_no_code_is_refused(changes: dict[str, object]):
    with pytest.raises(ConfigError, match="at least one attribute, and positive numbers of codes"):
        require_few(replace(SIZES, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"attributes": (2,) * (MAX_COLUMNS + 1)},
        {"numeric_conditions": MAX_COLUMNS + 1},
        {"category_conditions": (2,) * (MAX_COLUMNS + 1)},
    ],
)
def test_too_many_columns_are_refused(changes: dict[str, object]):
    with pytest.raises(ConfigError, match=rf"{MAX_COLUMNS + 1} columns is refused; 1000 is the"):
        require_few(replace(SIZES, **changes))


@pytest.mark.parametrize("name", ["attributes", "category_conditions", "edge_types"])
def test_too_many_codes_are_refused_and_the_most_are_not(name: str):
    def sized(codes: int) -> GraphSizes:
        return replace(SIZES, **{name: codes if name == "edge_types" else (codes,)})

    require_few(sized(MAX_CODES))
    with pytest.raises(ConfigError, match=rf"column of {MAX_CODES + 1} codes is refused; 100000"):
        require_few(sized(MAX_CODES + 1))
