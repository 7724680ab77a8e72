"""Which node of one program is which node of the other."""

import numpy as np
import pytest

from layerdag.workloads.differences import Alignment, align


def words(text: str) -> np.ndarray:
    return np.array([ord(letter) for letter in text], dtype=np.int64)


def aligned(a: str, b: str, color_a: str = "", color_b: str = "") -> Alignment:
    return align(words(a), words(b), words(color_a or a), words(color_b or b))


@pytest.mark.parametrize(
    ("a", "b", "pairs", "only_a", "only_b"),
    [
        ("abc", "abc", 3, [], []),
        ("abc", "abxc", 3, [], [2]),
        ("abxc", "abc", 3, [2], []),
        ("", "ab", 0, [], [0, 1]),
        ("ab", "", 0, [0, 1], []),
        ("", "", 0, [], []),
    ],
)
def test_what_was_put_in_or_taken_out_has_no_partner(
    a: str, b: str, pairs: int, only_a: list[int], only_b: list[int]
) -> None:
    found = aligned(a, b)
    assert found.in_order_2P.shape == (2, pairs)
    assert found.only_a.tolist() == only_a
    assert found.only_b.tolist() == only_b


def test_an_unique_neighborhood_is_an_anchor() -> None:
    """Of equal operators, those with the neighborhood that occurs once belong together."""
    found = aligned("xx", "x", color_a="12", color_b="2")
    assert found.in_order_2P.tolist() == [[1], [0]]


def test_a_node_that_moved_is_paired_by_its_neighborhood() -> None:
    found = aligned("abcd", "bcda")
    assert found.in_order_2P.shape[1] == 3
    assert found.moved_2M.tolist() == [[0], [3]]
    assert not found.only_a.size
    assert not found.only_b.size


def test_operators_of_another_neighborhood_are_not_said_to_have_moved() -> None:
    found = aligned("abcd", "bcda", color_a="1bcd", color_b="bcd2")
    assert found.moved_2M.shape == (2, 0)
    assert found.only_a.tolist() == [0]
    assert found.only_b.tolist() == [3]
