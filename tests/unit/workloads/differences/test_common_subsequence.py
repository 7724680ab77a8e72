"""A longest common subsequence, against the textbook table and by hand."""

import numpy as np
import pytest

from layerdag.workloads.differences._common_subsequence import common_subsequence


def longest(a: np.ndarray, b: np.ndarray) -> int:
    """The textbook table."""
    table = np.zeros((len(a) + 1, len(b) + 1), dtype=int)
    for i, x in enumerate(a, 1):
        for j, y in enumerate(b, 1):
            same = table[i - 1, j - 1] + 1
            table[i, j] = same if x == y else max(table[i - 1, j], table[i, j - 1])
    return int(table[-1, -1])


def letters(text: str) -> np.ndarray:
    return np.array([ord(letter) for letter in text], dtype=np.int64)


def common(a: str, b: str) -> str:
    """The common subsequence as text."""
    found_2P, _ = common_subsequence(letters(a), letters(b))
    return "".join(a[place] for place in found_2P[0].tolist())


def test_the_common_subsequence_is_one_and_none_is_longer() -> None:
    rng = np.random.default_rng(0)
    for _ in range(150):
        a, b = (rng.integers(0, rng.integers(1, 6), rng.integers(0, 13)) for _ in range(2))
        found_2P, exact = common_subsequence(a, b)
        assert exact
        assert (a[found_2P[0]] == b[found_2P[1]]).all()
        assert (np.diff(found_2P) > 0).all()
        assert found_2P.shape[1] == longest(a, b), (a, b)


def test_sequences_too_different_are_compared_half_by_half() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 9, 300), rng.integers(0, 9, 290)
    found_2P, exact = common_subsequence(a, b, 40)
    assert not exact
    assert (a[found_2P[0]] == b[found_2P[1]]).all()
    assert (np.diff(found_2P) > 0).all()
    assert found_2P.shape[1] > 0.6 * longest(a, b)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("kitten", "sitting", "ittn"),
        ("abcde", "ace", "ace"),
        ("ace", "abcde", "ace"),
        ("abc", "xyz", ""),
        ("", "abc", ""),
        ("a", "a", "a"),
        ("aaaa", "aa", "aa"),
        ("abab", "baba", "aba"),  # or "bab"; the first is found from the start
    ],
)
def test_texts_by_hand(a: str, b: str, expected: str) -> None:
    assert common(a, b) in (expected, expected.translate({97: 98, 98: 97}))


def test_of_two_equal_sequences_every_element_is_paired_with_itself() -> None:
    same = np.arange(50) % 3
    found_2P, exact = common_subsequence(same, same)
    assert exact
    assert found_2P.tolist() == [list(range(50))] * 2


def test_equal_starts_and_ends_stay_together_around_a_replaced_middle() -> None:
    found_2P, _ = common_subsequence(letters("startXYend"), letters("startPQRend"))
    assert found_2P.tolist() == [[0, 1, 2, 3, 4, 7, 8, 9], [0, 1, 2, 3, 4, 8, 9, 10]]


def test_swapping_the_sequences_swaps_the_places_and_keeps_the_length() -> None:
    rng = np.random.default_rng(3)
    for _ in range(8):
        a, b = rng.integers(0, 4, 25), rng.integers(0, 4, 30)
        forth, back = common_subsequence(a, b)[0], common_subsequence(b, a)[0]
        assert forth.shape == back.shape


def test_reversing_both_keeps_the_length() -> None:
    rng = np.random.default_rng(4)
    for _ in range(8):
        a, b = rng.integers(0, 4, 25), rng.integers(0, 4, 30)
        reverse = common_subsequence(a[::-1], b[::-1])[0]
        assert reverse.shape == common_subsequence(a, b)[0].shape


def test_as_many_edits_as_are_allowed_are_exact_and_one_more_is_not() -> None:
    """Two elements have no partner: the first of one sequence and the last of the other."""
    a, b = letters("ab" * 4), letters("ba" * 4)
    assert common_subsequence(a, b, most=2)[1]
    assert not common_subsequence(a, b, most=1)[1]


def test_elements_of_one_side_alone_are_no_edits() -> None:
    """They are left out before the search, however many they are."""
    a = np.concatenate([np.arange(100, 200), [1, 2, 3]])
    b = np.concatenate([[1, 2, 3], np.arange(300, 400)])
    found_2P, exact = common_subsequence(a, b, most=1)
    assert exact
    assert found_2P.tolist() == [[100, 101, 102], [0, 1, 2]]


def test_large_and_negative_numbers_are_told_apart() -> None:
    a = np.array([-1, 2**62, 0, -(2**62)], dtype=np.int64)
    b = np.array([2**62, -1, -(2**62), 0], dtype=np.int64)
    found_2P, _ = common_subsequence(a, b)
    assert found_2P.shape[1] == 2
    assert (a[found_2P[0]] == b[found_2P[1]]).all()
