"""Every earlier node in reach can be drawn as a parent, unless it has children enough."""

import pytest
import torch
from torch import Tensor

from layerdag.models.autoregressive import NEVER, EncoderBlock, Pointer
from layerdag.models.autoregressive.sampling._cache import EncoderCache
from layerdag.models.autoregressive.sampling._parent_scorer import ParentDecisions, ParentScorer
from layerdag.models.autoregressive.sampling._state import SamplerState

WIDTH, KEY, NODES = 8, 4, 9
CPU = torch.device("cpu")


def scorer(block: int, full: tuple[int, ...] = ()) -> ParentScorer:
    """The scorer of node 10 of two equal graphs; positions ``full`` may have no more children."""
    torch.manual_seed(0)
    cache = EncoderCache([EncoderBlock(WIDTH, 2)], block, KEY, torch.zeros(2, WIDTH))
    state, row = SamplerState.start(2, CPU), torch.arange(2)
    zero = torch.zeros(2, WIDTH)
    cache.append(0, zero, zero[:, :KEY])
    for position in range(1, NODES + 1):
        state.start_node(position, torch.tensor([1, 1]))
        capacity = torch.full((2,), 0 if position in full else 5)
        state.set_out_degree(position, torch.tensor([3, 3]), capacity)
        cache.append(position, zero, torch.randn(1, KEY).expand(2, -1))
    state.start_node(NODES + 1, torch.tensor([1, 1]))
    assert (state.structure.layer_T[row] == NODES).all()
    return ParentScorer(Pointer(WIDTH, KEY), cache, state, NODES + 1)


def decisions(low: int, high: int, rows: int = 1) -> ParentDecisions:
    every = torch.arange(rows)
    return ParentDecisions(
        every,
        every,
        torch.full((rows,), low),
        torch.full((rows,), high),
        torch.full((rows,), NEVER),
    )


def hidden(rows: int = 1) -> Tensor:
    return torch.randn(1, WIDTH, generator=torch.Generator().manual_seed(1)).expand(rows, -1)


def probabilities(found: ParentScorer, low: int, high: int) -> dict[int, float]:
    """Return the probability of each parent: of the token, or of its block and of it inside."""
    decision = decisions(low, high)
    visible = found.score_visible(hidden(), decision)
    shares = visible.logits_QO.softmax(1)[0].tolist()
    first = int(visible.first_token_Q)
    result = {first + i: share for i, share in enumerate(shares[: visible.tokens])}
    for i, share in enumerate(shares[visible.tokens :]):
        block = visible.first_block_Q + i
        inside = found.score_inside(hidden(), decision, block)
        for j, part in enumerate(inside.logits_QO.softmax(1)[0].tolist()):
            result[int(inside.first_token_Q) + j] = share * part
    return result


@pytest.mark.parametrize("block", [1, 2, 3, 64])
@pytest.mark.parametrize(("low", "high"), [(1, 10), (3, 4), (2, 7), (9, 10)])
def test_exactly_the_tokens_of_the_range_can_be_parents(block: int, low: int, high: int):
    found = probabilities(scorer(block), low, high)
    assert {position for position, share in found.items() if share > 0} == set(range(low, high))
    assert sum(found.values()) == pytest.approx(1)


def test_candidates_of_the_window_are_scored_by_the_pointer():
    found = scorer(64)
    scores = found.score_visible(hidden(), decisions(1, 10))
    state, pointer = found.state, found.pointer
    for column, position in enumerate(range(1, 10)):
        # No child yet and three pending, no reference, never used, so many layers away.
        codes = [3, 9, 0, [0, 1, 2, 3, 4, 5, 5, 6, 6, 6][NODES + 1 - position]]
        terms = pointer.code_scores(hidden())[0][pointer.offset_F + torch.tensor(codes)]
        key = found.cache.pointer_key.data[0, position]
        wanted = pointer.query(hidden())[0] @ key / KEY**0.5 + terms.sum()
        torch.testing.assert_close(scores.logits_QO[0, column], wanted)
    assert state.used.data.sum() == 0


@pytest.mark.parametrize("block", [1, 2, 64])
def test_a_token_with_children_enough_is_ruled_out_if_there_is_another(block: int):
    found = probabilities(scorer(block, full=(8, 9)), 7, 10)
    assert found[7] == pytest.approx(1)
    assert found[8] == found[9] == 0


def test_where_all_have_children_enough_none_is_ruled_out():
    found = probabilities(scorer(64, full=(7, 8, 9)), 7, 10)
    assert all(found[position] > 0 for position in (7, 8, 9))


def test_a_pooled_block_counts_as_another_candidate():
    """The window (8, 9) is full, so the parent comes from an older block."""
    found = probabilities(scorer(2, full=(8, 9)), 5, 10)
    assert found[8] == found[9] == 0
    assert found[5] > 0
    inside = scorer(2, full=(4, 5)).score_inside(hidden(), decisions(4, 10), torch.tensor([2]))
    assert inside.logits_QO.isfinite().all()
    half = scorer(2, full=(5,)).score_inside(hidden(), decisions(4, 10), torch.tensor([2]))
    assert half.logits_QO.isfinite().tolist() == [[True, False]]


def test_uses_so_far_change_the_scores_of_the_parent_and_of_its_block():
    plain = scorer(2).score_visible(hidden(2), decisions(1, 10, rows=2))
    used = scorer(2)
    # In the second graph nodes 2, 3 and 9 have a child each.
    for position in (2, 3, 9):
        used.state.connect(torch.tensor([1]), torch.tensor([position]))
    after = used.score_visible(hidden(2), decisions(1, 10, rows=2))
    assert torch.equal(after.logits_QO[0], plain.logits_QO[0])
    changed = after.logits_QO[1] != plain.logits_QO[1]
    tokens = changed[: after.tokens].nonzero()[:, 0] + int(after.first_token_Q[1])
    blocks = changed[after.tokens :].nonzero()[:, 0] + int(after.first_block_Q[1])
    assert tokens.tolist() == [9]
    assert blocks.tolist() == [1]


def test_decisions_with_ranges_of_different_lengths_are_padded_with_impossible_ones():
    every = torch.arange(2)
    asked = ParentDecisions(
        every, every, torch.tensor([1, 8]), torch.tensor([5, 9]), torch.full((2,), NEVER)
    )
    scores = scorer(64).score_visible(hidden(2), asked)
    assert scores.logits_QO.isfinite().tolist() == [[True] * 4, [True] + [False] * 3]
    assert scores.first_token_Q.tolist() == [1, 8]
    alone = scorer(64).score_visible(hidden(), decisions(8, 9))
    torch.testing.assert_close(scores.logits_QO[1, :1], alone.logits_QO[0])
    assert asked.at(torch.tensor([1])).high_Q.tolist() == [9]
