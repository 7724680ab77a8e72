"""What sampling keeps is found again, wherever it lies and whatever rows were let go."""

import torch

from layerdag.models.autoregressive.sampling._cache import (
    PagedBuffer,
    PositionBuffer,
    VisibleWindow,
)

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
