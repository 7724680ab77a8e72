"""Attributes of nodes as columns: what is a number and what a word."""

import math

import numpy as np
import pytest

from layerdag.datasets.files._columns import columns_of, is_number


@pytest.mark.parametrize("text", ["0", "-1.5", "1e30", " 7 ", ".5", "1_000"])
def test_finite_numbers(text: str) -> None:
    assert is_number(text)


@pytest.mark.parametrize("text", ["", "nan", "inf", "-Infinity", "1e999", "0x10", "1,5", "one"])
def test_what_is_no_finite_number(text: str) -> None:
    assert not is_number(text)


def test_a_column_is_numeric_if_every_value_is_and_nan_where_a_node_lacks_it() -> None:
    categories, numbers = columns_of([{"op": "add", "cost": "2"}, {"op": "mul"}, {"cost": "-3"}])
    assert categories == {"op": ["add", "mul", ""]}
    np.testing.assert_array_equal(numbers["cost"], [2.0, math.nan, -3.0])


def test_one_word_makes_a_column_a_category() -> None:
    categories, numbers = columns_of([{"size": "1"}, {"size": "large"}])
    assert categories == {"size": ["1", "large"]}
    assert numbers == {}


def test_known_kinds_keep_digits_as_words_but_make_no_words_numbers() -> None:
    rows = [{"id": "1", "name": "a"}, {"id": "2", "name": "b"}]
    categories, numbers = columns_of(rows, {"id": False, "name": True})
    assert categories == {"id": ["1", "2"], "name": ["a", "b"]}
    assert numbers == {}


def test_columns_stand_in_the_order_of_their_first_node() -> None:
    categories, numbers = columns_of([{"b": "x", "n": "1"}, {"a": "y", "m": "2", "b": "z"}])
    assert list(categories) == ["b", "a"]
    assert list(numbers) == ["n", "m"]


@pytest.mark.parametrize("rows", [[{}, {}], [{"cost": "1"}, {"cost": "2"}]])
def test_nodes_without_a_category_are_of_one_kind(rows: list[dict[str, str]]) -> None:
    assert columns_of(rows)[0] == {"kind": ["node", "node"]}
