"""Counts and ranks in words."""

from layerdag.runtime.terminal import counted, group_equal_rows


def test_one_thing_is_no_plural():
    assert [counted(n, "rank") for n in (0, 1, 1024)] == ["0 ranks", "1 rank", "1,024 ranks"]
    assert counted(2, "class") == "2 classes"


def test_ranks_that_are_alike_are_told_once():
    assert group_equal_rows([(1, 2)] * 3) == [("0-2", (1, 2))]
    assert group_equal_rows([[1], [2], [1], [1], [2], [1]]) == [("0,2-3,...", (1,)), ("1,4", (2,))]
