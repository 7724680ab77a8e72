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
