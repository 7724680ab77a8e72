from itertools import pairwise

import numpy as np
from hypothesis import given, strategies as st
from laws import tried

from layerdag.codec._program_order import missing_order

NONE_3, ALL_3 = [False] * 3, [True] * 3


def test_communication_that_is_ordered_already_needs_no_edge():
    assert missing_order([[], [0], [1]], ALL_3, [True, False, True], NONE_3) == []


def test_independent_communication_is_chained_in_topological_order():
    assert missing_order([[], [], []], ALL_3, ALL_3, NONE_3) == [(0, 1), (1, 2)]


def test_an_order_that_leads_through_another_class_does_not_count():
    # 0 -> 1 -> 2, but node 1 is run by another class of ranks.
    assert missing_order([[], [0], [1]], [True, False, True], ALL_3, NONE_3) == [(0, 2)]


def test_prompt_sends_have_an_order_with_all_but_each_other():
    # Two sends that are received from the start, a collective, and another such send.
    parents, prompt = [[], [], [], []], [True, True, False, True]
    added = missing_order(parents, [True] * 4, [True] * 4, prompt)
    assert added == [(1, 2), (0, 2), (2, 3)]


def test_an_edge_that_follows_from_others_is_not_added():
    # Of two prompt sends one depends on the other, so that the collective needs one edge.
    assert missing_order([[], [0], []], ALL_3, ALL_3, [True, True, False]) == [(1, 2)]


def reaches(parents: list[list[int]], mine: list[bool]) -> list[set[int]]:
    """Return the ancestors of each node among the nodes of a class, by definition."""
    above: list[set[int]] = []
    for node, found in enumerate(parents):
        kept = [parent for parent in found if mine[parent]] if mine[node] else []
        above.append({*kept, *(far for parent in kept for far in above[parent])})
    return above


@tried(80)
@given(st.integers(1, 10), st.integers(0, 2**32 - 1))
def test_with_the_added_edges_all_that_hold_the_slot_are_in_order_but_prompt_pairs(
    size: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    parents = [[p for p in range(node) if rng.random() < 0.3] for node in range(size)]
    mine, holds, prompt = ((rng.random(size) < share).tolist() for share in (0.7, 0.6, 0.5))
    added = missing_order(parents, mine, holds, prompt)
    holding = [node for node in range(size) if mine[node] and holds[node]]
    wanted = {(a, b) for a in holding for b in holding if a < b and not (prompt[a] and prompt[b])}

    def ordered(edges: list[tuple[int, int]]) -> list[set[int]]:
        found = [[*p, *(a for a, b in edges if b == node)] for node, p in enumerate(parents)]
        return reaches(found, mine)

    assert set(added) <= wanted
    after = ordered(added)
    assert all(a in after[b] for a, b in wanted)
    # No edge follows from the others.
    for a, b in added:
        assert a not in ordered([edge for edge in added if edge != (a, b)])[b]


@tried(40)
@given(st.integers(1, 10), st.integers(0, 2**32 - 1))
def test_where_no_send_is_prompt_each_edge_leads_to_the_next_in_order(size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    parents = [[p for p in range(node) if rng.random() < 0.3] for node in range(size)]
    mine, holds = ((rng.random(size) < share).tolist() for share in (0.7, 0.6))
    chain = [node for node in range(size) if mine[node] and holds[node]]
    assert set(missing_order(parents, mine, holds, [False] * size)) <= set(pairwise(chain))


def test_nothing_of_other_classes_is_chained() -> None:
    assert missing_order([[], [], []], NONE_3, ALL_3, NONE_3) == []
    assert missing_order([[], [], []], ALL_3, NONE_3, NONE_3) == []
    assert missing_order([], [], [], []) == []
