from itertools import pairwise

from hypothesis import given, strategies as st
from laws import tried

from layerdag.traces.pytorch._alignment import WINDOW, align


def test_equal_sequences_pair_up():
    assert align("abcab", "abcab") == [(n, n) for n in range(5)]


def test_what_is_extra_on_one_side_is_skipped():
    assert align(["a", "b", "c", "d"], ["x", "a", "b", "y", "c", "d"])[-1] == (3, 5)
    assert align(["z", "z", "a", "b", "c"], ["a", "b", "c"]) == [(2, 0), (3, 1), (4, 2)]


def test_unrelated_sequences_do_not_pair_and_end():
    assert align(["a"] * 500, ["b"] * 500) == []


def test_a_gap_larger_than_the_window_loses_only_a_stretch():
    left = [str(n) for n in range(1000)]
    right = left[:300] + ["x"] * WINDOW * 3 + left[300 + WINDOW * 3 :]
    pairs = align(left, right)
    assert len(pairs) > 700
    assert all(left[i] == right[j] for i, j in pairs)


@tried(60)
@given(st.lists(st.sampled_from("abcd"), max_size=40), st.lists(st.sampled_from("abcd")))
def test_pairs_have_equal_names_and_ascend_on_both_sides(left, right):
    pairs = align(left, right)
    assert all(left[i] == right[j] for i, j in pairs)
    assert all(a < c and b < d for (a, b), (c, d) in pairwise(pairs))


@tried(30)
@given(st.sets(st.integers(0, 9)), st.booleans())
def test_isolated_extra_operators_cost_no_other_pair(extra, on_the_left):
    """Names are unique, so that only one pairing is right; runs of four names lie between."""
    names = [f"op{n}" for n in range(40)]
    more = list(names)
    for at in sorted(extra, reverse=True):
        more.insert(4 * at, f"extra{at}")
    left, right = (more, names) if on_the_left else (names, more)
    pairs = align(left, right)
    assert [(left[i], right[j]) for i, j in pairs] == [(name, name) for name in names]


def test_nothing_pairs_with_nothing():
    assert align([], ["a"]) == []
    assert align(["a"], []) == []
