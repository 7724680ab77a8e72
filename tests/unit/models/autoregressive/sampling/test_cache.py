"""What sampling keeps is found again, wherever it lies and whatever rows were let go."""

import pytest
import torch

from layerdag.models.autoregressive import EncoderBlock, alibi_slopes
from layerdag.models.autoregressive.sampling._cache import (
    EncoderBlockCache,
    EncoderCache,
    PagedBuffer,
    ParentList,
    PositionBuffer,
    VisibleWindow,
    visible_range,
)
from tests.unit.models.autoregressive.small_models import collated, context_of, small_dags

ROWS, POSITIONS, BLOCK, WIDTH = 5, 23, 4, 3


def written(cache: PositionBuffer | PagedBuffer) -> torch.Tensor:
    """Fill a cache position by position; return what was written, (rows, positions, width)."""
    value = torch.arange(ROWS * POSITIONS * WIDTH, dtype=torch.float32)
    value = value.view(ROWS, POSITIONS, WIDTH)
    for position in range(POSITIONS):
        cache.write(position, value[:, position])
    return value


def test_pages_and_columns_give_back_what_was_written_as_they_grow():
    pages = PagedBuffer(ROWS, BLOCK, torch.zeros(1, WIDTH))
    columns = PositionBuffer(ROWS, (WIDTH,), torch.float32, torch.device("cpu"))
    row, position = torch.meshgrid(torch.arange(ROWS), torch.arange(POSITIONS), indexing="ij")
    for cache in (pages, columns):
        value = written(cache)
        found = cache.at(row.flatten(), position.flatten())
        assert torch.equal(found.view_as(value), value)


def test_rows_that_are_kept_keep_their_vectors():
    pages = PagedBuffer(ROWS, BLOCK, torch.zeros(1, WIDTH))
    value = written(pages)
    pages.select(torch.tensor([4, 1]))
    found = pages.at(torch.tensor([0, 1, 0]), torch.tensor([22, 3, 4]))
    assert torch.equal(found, torch.stack([value[4, 22], value[1, 3], value[4, 4]]))


def test_a_page_is_contiguous_over_its_rows_and_empty_where_nothing_is_written():
    pages = PagedBuffer(ROWS, BLOCK, torch.zeros(1, WIDTH))
    value = written(pages)
    last = POSITIONS // BLOCK
    assert pages.data[last].is_contiguous()
    assert torch.equal(pages.data[last, :, : POSITIONS % BLOCK], value[:, last * BLOCK :])
    assert not pages.data[last, :, POSITIONS % BLOCK :].any()


def test_a_token_sees_its_own_block_and_the_one_before_one_by_one_and_no_later_token():
    visible = VisibleWindow.of(position=10, block=BLOCK, slope_H=torch.tensor([0.5, 0.0]))
    assert (visible.pages, visible.num_pooled) == (range(1, 3), 1)
    near, pooled = visible.bias_H1w[:, 0].split([2 * BLOCK, 1], dim=1)
    distance = 10.0 - torch.arange(4, 11)
    assert torch.equal(near[:, :7], torch.stack([-0.5 * distance, torch.zeros(7)]))
    assert near[:, 7:].eq(-torch.inf).all()
    assert not pooled.any()


def test_the_first_token_sees_itself_alone():
    visible = VisibleWindow.of(position=0, block=BLOCK, slope_H=torch.ones(1))
    assert (visible.pages, visible.num_pooled) == (range(0, 1), 0)
    assert visible.bias_H1w.flatten().tolist() == [0.0, *[-torch.inf] * (BLOCK - 1)]


@pytest.mark.parametrize("block", [1, 2, 3, 64])
def test_one_token_at_a_time_gives_the_encodings_of_the_whole_graph(block: int):
    """Keys, values and pooled blocks from the cache, against one pass over all tokens."""
    dags = small_dags(2)
    layout, context = context_of(collated(dags[:1]), block)
    torch.manual_seed(0)
    encoder = [EncoderBlock(8, 2).eval() for _ in range(2)]
    x_TD = torch.randn(layout.num_tokens, 8)
    with torch.no_grad():
        wanted = encoder[1](encoder[0](x_TD, context), context)
        cache = EncoderCache(encoder, block, 8, x_TD[:1])
        found = []
        for position in range(layout.num_tokens):
            parents = context.parent_E[context.child_E == position]
            listed = ParentList(torch.zeros_like(parents), parents, torch.tensor([len(parents)]))
            found.append(cache.encode(x_TD[position : position + 1], position, listed))
            cache.append(position, found[-1], found[-1])
    torch.testing.assert_close(torch.cat(found), wanted)


def test_a_complete_block_is_known_by_its_mean_key():
    cache = EncoderCache([EncoderBlock(8, 2)], BLOCK, WIDTH, torch.zeros(2, 8))
    keys = torch.randn(2, 2 * BLOCK, WIDTH, generator=torch.Generator().manual_seed(0))
    for position in range(2 * BLOCK):
        cache.append(position, torch.zeros(2, 8), keys[:, position])
    for page in range(2):
        wanted = keys[:, page * BLOCK : (page + 1) * BLOCK].mean(1)
        torch.testing.assert_close(cache.block_key.data[:, page], wanted)


def test_letting_a_row_go_keeps_the_attention_of_the_others():
    generator = torch.Generator().manual_seed(0)
    slope = alibi_slopes(2, torch.device("cpu"))
    whole, kept = (EncoderBlockCache(3, 2, BLOCK, torch.zeros(3, 8)) for _ in range(2))
    rows = torch.tensor([2, 0])
    for position in range(9):
        key, value, query = torch.randn(3, 3, 8, generator=generator)
        whole.write(position, key, value)
        if position == 5:
            kept.select(rows)
        kept.write(position, *((key, value) if position < 5 else (key[rows], value[rows])))
    visible = VisibleWindow.of(8, BLOCK, slope)
    torch.testing.assert_close(
        kept.attend(query[rows], visible), whole.attend(query, visible)[rows]
    )


def test_the_window_is_the_own_page_and_the_one_before():
    for position, low, pooled in ((0, 0, 0), (3, 0, 0), (4, 0, 0), (8, 4, 1), (13, 8, 2)):
        assert visible_range(position, BLOCK) == (low, pooled)
        visible = VisibleWindow.of(position, BLOCK, torch.ones(1))
        assert visible.pages.start * BLOCK == low
        seen = visible.bias_H1w.isfinite().sum()
        assert seen == position - low + 1 + pooled


def test_a_node_without_parents_gets_no_message():
    none = torch.zeros(0, dtype=torch.int64)
    parents = ParentList(none, none, torch.tensor([0, 0]))
    assert parents.mean(torch.zeros(0, 3)).tolist() == [[0.0] * 3] * 2
    one = ParentList(torch.tensor([1, 1]), torch.tensor([0, 2]), torch.tensor([0, 2]))
    assert one.mean(torch.tensor([[1.0], [4.0]])).tolist() == [[0.0], [2.5]]


@pytest.mark.parametrize("positions", [64, 65, 200])
def test_a_buffer_of_numbers_grows_and_new_positions_are_zero(positions: int):
    buffer = PositionBuffer(2, (), torch.int64, torch.device("cpu"))
    for position in range(positions):
        buffer.write(position, position + 1)
    assert buffer.data[:, :positions].tolist() == [list(range(1, positions + 1))] * 2
    assert not buffer.data[:, positions:].any()
