"""One token at a time gives the encodings of the whole graph, whatever rows were let go."""

import pytest
import torch
from small_models import collated, small_dags, tokens_of
from torch import Tensor

from layerdag.models.config import EncoderConfig
from layerdag.models.fast.encoder import NewestTokens, ParentList, WindowEncoder
from layerdag.models.fast.window_memory import WindowMemory

NONE = torch.zeros(0, dtype=torch.int64)


def encoder_of(block: int) -> WindowEncoder:
    torch.manual_seed(0)
    return WindowEncoder(64, 2, EncoderConfig(block=block)).eval()


def token(position: int, rows: int) -> NewestTokens:
    """Return where a token without parents stands."""
    return NewestTokens(position, ParentList(NONE, NONE, torch.zeros(rows, dtype=torch.int64)))


@pytest.mark.parametrize("block", [1, 2, 3, 64])
def test_one_token_at_a_time_gives_the_encodings_of_the_whole_graph(block):
    """Rings, pooled blocks and values of parents, against one pass over all tokens."""
    layout, tokens = tokens_of(collated(small_dags(2)[:1]), block)
    encoder, x_TD = encoder_of(block), torch.randn(layout.num_tokens, 64)
    with torch.no_grad():
        wanted, memory, found = encoder.full(x_TD, tokens), encoder.start(x_TD[:1]), []
        for position in range(layout.num_tokens):
            parents = tokens.parent_E[tokens.child_E == position]
            listed = ParentList(torch.zeros_like(parents), parents, torch.tensor([len(parents)]))
            newest = NewestTokens(position, listed)
            state, memory = encoder.step(x_TD[position : position + 1], newest, memory)
            found.append(state)
    torch.testing.assert_close(torch.cat(found), wanted)


@pytest.mark.parametrize("block", [1, 2, 5])
def test_rows_go_on_at_positions_of_their_own(block):
    """The second row stands still now and then, and takes the same step again."""
    encoder, x_RTD = encoder_of(block), torch.randn(2, 20, 64)
    memory = encoder.memory(x_RTD[:, 0], 20)
    alone, found, position_R = [], [], torch.tensor([0, 0])
    with torch.no_grad():
        single = encoder.start(x_RTD[1:, 0])
        for position in range(10):
            state, single = encoder.step(x_RTD[1:, position], token(position, 1), single)
            alone.append(state)
        for step in range(20):
            x_RD = x_RTD[torch.arange(2), position_R]
            none_Rp = torch.zeros((2, 1), dtype=torch.int64)
            found.append(encoder.step_rows(x_RD, position_R, none_Rp, memory)[1:])
            memory.pool(position_R)
            position_R = position_R + torch.tensor([1, step % 2])
    torch.testing.assert_close(torch.cat(found[1::2]), torch.cat(alone))


def steps(
    encoder: WindowEncoder, x_RTD: Tensor, memory: WindowMemory, positions: range
) -> tuple[Tensor, WindowMemory]:
    """Return the last of some steps, and the memory after them."""
    state = torch.zeros(0)
    with torch.no_grad():
        for position in positions:
            newest = token(position, x_RTD.shape[0])
            state, memory = encoder.step(x_RTD[:, position], newest, memory)
    return state, memory


@pytest.mark.parametrize("moved_at", [3, 5, 9, 14])
def test_letting_a_row_go_keeps_what_the_others_read(moved_at):
    encoder, x_RTD, kept = encoder_of(4), torch.randn(3, 20, 64), torch.tensor([2, 0])
    whole, _ = steps(encoder, x_RTD, encoder.start(x_RTD[:, 0]), range(20))
    _, memory = steps(encoder, x_RTD, encoder.start(x_RTD[:, 0]), range(moved_at))
    fewer, _ = steps(encoder, x_RTD[kept], encoder.select(memory, kept), range(moved_at, 20))
    torch.testing.assert_close(fewer, whole[kept])


def test_a_row_goes_on_as_a_copy_of_another():
    encoder, x_RTD = encoder_of(2), torch.randn(3, 12, 64)
    _, memory = steps(encoder, x_RTD, encoder.memory(x_RTD[:, 0], 12), range(7))
    memory.copy_rows(torch.tensor([1]), torch.tensor([2]))
    x_RTD[1] = x_RTD[2]
    state, _ = steps(encoder, x_RTD, memory, range(7, 12))
    torch.testing.assert_close(state[1], state[2])
    assert not torch.allclose(state[0], state[2])


def test_the_window_is_the_own_block_and_the_one_before():
    memory = encoder_of(4).memory(torch.zeros(1, 64), 16)
    for position, low, pooled in ((0, 0, 0), (3, 0, 0), (4, 0, 0), (8, 4, 1), (13, 8, 2)):
        seen_v = memory.biases(torch.tensor([position]))[0, 0].isfinite()
        assert set(seen_v[:8].nonzero()[:, 0].tolist()) == {t % 8 for t in range(low, position + 1)}
        assert seen_v[8:].tolist() == [number < pooled for number in range(4)]


def test_a_node_without_parents_gets_no_message():
    parents = ParentList(NONE, NONE, torch.tensor([0, 0]))
    assert parents.mean(torch.zeros(0, 3)).tolist() == [[0.0] * 3] * 2
    assert parents.padded().tolist() == [[0], [0]]
    two = ParentList(torch.tensor([1, 1]), torch.tensor([5, 2]), torch.tensor([0, 2]))
    assert two.mean(torch.tensor([[1.0], [4.0]])).tolist() == [[0.0], [2.5]]
    assert two.padded().tolist() == [[0, 0], [5, 2]]


def test_parents_in_any_order_are_put_into_the_rows_of_their_nodes():
    rows, positions = torch.tensor([2, 0, 2, 0, 2]), torch.tensor([7, 3, 6, 1, 5])
    listed = ParentList(rows, positions, torch.tensor([2, 0, 3]))
    assert listed.padded().tolist() == [[3, 1, 0], [0, 0, 0], [7, 6, 5]]
