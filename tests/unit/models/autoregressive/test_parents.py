"""Candidate parents and what is known of them when the decision is made."""

import pytest
import torch

from layerdag.graph import DAG, DAGBatch
from layerdag.models.autoregressive import NEVER, CandidatePairs, log_code, stub_code, token_codes
from layerdag.models.autoregressive._layout import Blocks, Edges, Layout
from layerdag.models.autoregressive._parents import (
    BLOCK_CODES,
    TOKEN_CODES,
    Decisions,
    ParentHistory,
    no_token_codes,
    split_ranges,
)
from tests.unit.models.autoregressive.small_models import collated, small_dags


def diamond() -> DAG:
    """0 -> 2, 1 -> 2, 0 -> 3, 2 -> 4, 1 -> 4; layers {0, 1}, {2, 3}, {4}."""
    return DAG.build(
        torch.zeros(5, 1, dtype=torch.int64), torch.tensor([[0, 1, 0, 1, 2], [2, 2, 3, 4, 4]])
    )


def decided(batch: DAGBatch) -> tuple[Layout, Edges, Decisions]:
    layout = Layout.of(batch)
    edges = Edges.of(batch, layout)
    return layout, edges, Decisions.of(layout, edges)


def test_decisions_of_a_small_graph():
    _, edges, decisions = decided(collated([diamond()]))
    assert edges.parent_E.tolist() == [2, 1, 1, 3, 2]
    assert decisions.child_Q.tolist() == [3, 3, 4, 5, 5]
    # A first parent lies in the layer before; a second one before the first, at least at token 1.
    assert decisions.low_Q.tolist() == [1, 1, 1, 3, 1]
    assert decisions.high_Q.tolist() == [3, 2, 3, 5, 3]
    # Offsets count from the parent chosen before, or from the sibling's first parent.
    assert decisions.reference_Q.tolist() == [NEVER, 2, 2, NEVER, 3]


def test_the_true_parent_is_always_a_candidate_and_enough_of_them_remain():
    layout, edges, decisions = decided(collated(small_dags(6)))
    assert (decisions.low_Q <= edges.parent_E).all()
    assert (edges.parent_E < decisions.high_Q).all()
    assert (layout.graph_T[decisions.low_Q] == layout.graph_T[decisions.child_Q]).all()
    still = edges.degree_E - edges.rank_E - 1
    # The lowest token a further parent may be leaves as many below it as are still needed.
    further = edges.rank_E > 0
    below = decisions.low_Q - layout.start_B[layout.graph_T[edges.child_E]] - 1
    assert torch.equal(below[further], still[further])
    assert still[further].max() > 0
    before = edges.parent_E - layout.start_B[layout.graph_T[edges.child_E]] - 1
    assert (before >= still).all()


def test_ranges_pair_each_decision_with_every_integer_of_its_range():
    pairs = CandidatePairs.ranges(torch.tensor([3, 5, 0, 7]), torch.tensor([6, 5, 2, 4]))
    assert pairs.decision_P.tolist() == [0, 0, 0, 2, 2]
    assert pairs.candidate_P.tolist() == [3, 4, 5, 0, 1]


@pytest.mark.parametrize("block", [1, 2, 4, 64])
def test_the_window_and_the_older_blocks_hold_every_earlier_token_once(block: int):
    layout, _, decisions = decided(collated(small_dags(3)))
    blocks = Blocks.of(layout, block)
    window_Q, far_Q = split_ranges(decisions, layout, blocks)
    for child, window, far in zip(
        decisions.child_Q.tolist(), window_Q.tolist(), far_Q.tolist(), strict=True
    ):
        start = int(layout.start_B[layout.graph_T[child]])
        first = int(blocks.of_T[start])
        older = [t for t in range(start, child) if first <= blocks.of_T[t] < far]
        assert older + list(range(window, child)) == list(range(start, child))
        assert child - window <= 2 * block


def test_uses_count_what_came_before_the_child_and_the_last_of_them():
    parent, child = torch.tensor([1, 1, 2, 1]), torch.tensor([2, 3, 3, 5])
    history = ParentHistory(parent, child, num_groups=4, num_tokens=6)
    asked = [(1, 2), (1, 3), (1, 5), (1, 6 - 1), (2, 3), (2, 4), (3, 5), (0, 5)]
    group, when = torch.tensor(asked).T
    used, last = history.before(group, when)
    assert used.tolist() == [0, 1, 2, 2, 0, 1, 0, 0]
    assert last.tolist() == [NEVER, 2, 3, 3, NEVER, 3, NEVER, NEVER]


def test_uses_equal_those_counted_one_by_one(generator: torch.Generator):
    _, edges, decisions = decided(collated(small_dags(5)))
    tokens = int(edges.child_E.max()) + 1
    history = ParentHistory(edges.parent_E, edges.child_E, tokens, tokens)
    group = torch.randint(tokens, (200,), generator=generator)
    when = decisions.child_Q[torch.randint(len(decisions.child_Q), (200,), generator=generator)]
    used, last = history.before(group, when)
    for g, w, count, latest in zip(*(x.tolist() for x in (group, when, used, last)), strict=True):
        earlier = edges.child_E[(edges.parent_E == g) & (edges.child_E < w)].tolist()
        assert count == len(earlier)
        assert latest == max(earlier, default=NEVER)


def test_without_edges_nothing_was_ever_used():
    none = torch.zeros(0, dtype=torch.int64)
    used, last = ParentHistory(none, none, 3, 5).before(torch.tensor([0, 2]), torch.tensor([4, 4]))
    assert used.tolist() == [0, 0]
    assert last.tolist() == [NEVER, NEVER]


def test_log_codes_are_exact_up_to_4_and_then_ever_wider():
    borders = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 5, 7: 6, 9: 6, 10: 7, 16: 7, 17: 8, 32: 8}
    counts = torch.tensor([*borders, 33, 10**6])
    assert log_code(counts).tolist() == [*borders.values(), 9, 9]
    assert int(log_code(counts).max()) == BLOCK_CODES - 1


def test_stub_codes_tell_children_so_far_from_pending_ones():
    used = torch.tensor([0, 0, 2, 3, 9, 4, 1])
    out_degree = torch.tensor([0, 9, 3, 3, 10, 1, 3])
    assert stub_code(used, out_degree).tolist() == [0, 3, 9, 12, 13, 12, 6]


def test_all_stub_codes_occur_and_none_beyond():
    used, pending = torch.meshgrid(torch.arange(6), torch.arange(-2, 6), indexing="ij")
    codes = stub_code(used.flatten(), (used + pending).flatten())
    assert codes.unique().tolist() == list(range(TOKEN_CODES[0]))


def test_token_codes_clamp_the_offset_and_mark_a_missing_reference():
    found = token_codes(
        stub_P=torch.tensor([5, 5, 5, 5]),
        offset_P=torch.tensor([-9, 0, 3, 77]),
        has_reference_P=torch.tensor([True, True, True, False]),
        gap_P=torch.tensor([0, 1, 8, 100]),
        layers_P=torch.tensor([1, 2, 5, 40]),
    )
    assert found.tolist() == [[5, 0, 0, 1], [5, 4, 1, 2], [5, 7, 6, 5], [5, 9, 9, 9]]
    assert (found < torch.tensor(TOKEN_CODES)).all()


def test_without_parent_features_all_candidates_look_alike(generator: torch.Generator):
    five = [torch.randint(9, (6,), generator=generator) for _ in range(4)]
    found = no_token_codes(five[0], five[1], five[2] > 3, five[2], five[3])
    assert found.shape == (6, len(TOKEN_CODES))
    assert not found.any()
