from itertools import pairwise

import numpy as np
from hypothesis import given, strategies as st
from laws import tried

from layerdag.codec._program_order import missing_order


def test_communication_that_is_ordered_already_needs_no_edge():
    assert missing_order([[], [0], [1]], [True] * 3, [True, False, True]) == []


def test_independent_communication_is_chained_in_topological_order():
    added = missing_order([[], [], []], [True] * 3, [True, True, True])
    assert added == [(0, 1), (1, 2)]


def test_an_order_that_leads_through_another_class_does_not_count():
    # 0 -> 1 -> 2, but node 1 is run by another class of ranks.
    assert missing_order([[], [0], [1]], [True, False, True], [True, True, True]) == [(0, 2)]


def reaches(parents: list[list[int]], mine: list[bool]) -> list[set[int]]:
    """Return the ancestors of each node among the nodes of a class, by definition."""
    above: list[set[int]] = []
    for node, found in enumerate(parents):
        kept = [parent for parent in found if mine[parent]] if mine[node] else []
        above.append({*kept, *(far for parent in kept for far in above[parent])})
    return above


@tried(80)
@given(st.integers(1, 10), st.integers(0, 2**32 - 1))
def test_with_the_added_edges_every_two_blocking_nodes_are_in_order(size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    parents = [[p for p in range(node) if rng.random() < 0.3] for node in range(size)]
    mine, blocks = ((rng.random(size) < share).tolist() for share in (0.7, 0.6))
    added = missing_order(parents, mine, blocks)
    chain = [node for node in range(size) if mine[node] and blocks[node]]
    assert set(added) <= set(pairwise(chain))  # from one blocking node to the next
    before = reaches(parents, mine)
    ordered = [[*found, *(a for a, b in added if b == node)] for node, found in enumerate(parents)]
    after = reaches(ordered, mine)
    for first, second in pairwise(chain):
        assert first in after[second]
        # An edge is added only where the order was not there before, earlier additions included.
        if (first, second) in added:
            assert first not in before[second]


def test_nothing_of_other_classes_is_chained() -> None:
    assert missing_order([[], [], []], [False] * 3, [True] * 3) == []
    assert missing_order([[], [], []], [True] * 3, [False] * 3) == []
    assert missing_order([], [], []) == []
