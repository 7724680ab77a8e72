"""Repeated blocks of small graphs, counted by hand."""

import numpy as np
import pytest
from letters import layered, path, values

from layerdag.evaluation import GraphSet
from layerdag.evaluation.metrics.local import Block, repeated_blocks
from layerdag.graph import DAG


def blocks(dag: DAG) -> list[tuple[int, int, int]]:
    """First layer, length and count of each block."""
    return [(one.first, one.length, one.count) for one in repeated_blocks(GraphSet.of([dag]))]


def test_a_stack_of_four_equal_layers_is_one_block_of_four_copies() -> None:
    assert blocks(path("e" + "nmg" * 4 + "h")) == [(1, 3, 4)]


def test_layers_may_be_wider_than_a_node_and_their_nodes_in_any_order() -> None:
    assert blocks(layered("x", "ab", "c", "ba", "c", "ab", "c", "y")) == [(1, 2, 3)]
    assert blocks(layered("ab", "c", "abb", "c", "y")) == []


def test_a_copy_that_is_cut_off_belongs_to_the_repetition_but_is_not_counted() -> None:
    found = repeated_blocks(GraphSet.of([path("abcabcab")]))
    assert found == [Block(graph=0, first=0, end=8, length=3)]
    assert found[0].count == 2


def test_one_operator_after_another_like_it_is_no_block() -> None:
    assert blocks(path("aaaaaaaa")) == []


def test_of_nested_repetitions_the_longest_counts() -> None:
    assert blocks(path("x" + "aabab" * 3 + "y")) == [(1, 5, 3)]


def test_blocks_beside_each_other_are_both_found() -> None:
    assert blocks(path("ababab" + "x" + "cdecde")) == [(0, 2, 3), (7, 3, 2)]
    # The b between both belongs to the longer one.
    assert blocks(path("abab" + "cbcbcb")) == [(3, 2, 3)]


def test_nothing_repeats_across_two_graphs() -> None:
    assert repeated_blocks(GraphSet.of([path("abc"), path("abc")])) == []


def test_figures_are_means_over_graphs_and_length_and_count_over_those_with_blocks() -> None:
    made = [path("e" + "nmg" * 4 + "h"), path("abab"), path("xyz")]
    found = values(made, "repeated_blocks")
    assert found["number"] == pytest.approx(2 / 3)
    assert found["length"] == pytest.approx((3 + 2) / 2)
    assert found["count"] == pytest.approx((4 + 2) / 2)
    assert found["nodes"] == pytest.approx((12 / 14 + 1 + 0) / 3)


def test_without_blocks_there_is_no_length_and_the_row_says_so() -> None:
    found = values([path("xyz")], "repeated_blocks")
    assert (found["number"], found["nodes"]) == (0.0, 0.0)
    assert found["length"] is None
    assert found["count"] is None


@pytest.mark.parametrize("seed", range(8))
def test_the_longest_repetition_of_a_plain_search_is_found_and_all_found_repeat(seed: int) -> None:
    word = "".join(np.random.default_rng(seed).choice(list("ab"), 14))
    found = blocks(path(word))
    first, end, period = max(repetitions(word), key=lambda run: (run[1] - run[0], -run[2], -run[0]))
    if period > 1:
        assert (first, period, (end - first) // period) in found
    else:
        assert all(at + length * count <= first or at >= end for at, length, count in found)
    for at, length, count in found:
        assert {word[i : i + length] for i in range(at, at + length * count, length)} == {
            word[at : at + length]
        }


def repetitions(word: str) -> list[tuple[int, int, int]]:
    """First, end and period of each stretch that repeats."""
    return [
        (first, end, period)
        for first in range(len(word))
        for end in range(first + 2, len(word) + 1)
        for period in range(1, (end - first) // 2 + 1)
        if all(word[i] == word[i + period] for i in range(first, end - period))
    ]
