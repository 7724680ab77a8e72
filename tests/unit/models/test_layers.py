import torch
import torch.nn.functional as F

from layerdag.models import (
    CodeEmbedding,
    SegmentAttention,
    Segments,
    segment_ranges,
    sinusoids,
    to_float32,
)


def test_code_embedding_adds_one_row_per_column():
    embedding = CodeEmbedding((3, 2), 4)
    found = embedding(torch.tensor([[2, 1], [0, 0]]))
    torch.testing.assert_close(found[0], embedding.table[2] + embedding.table[3 + 1])
    torch.testing.assert_close(found[1], embedding.table[0] + embedding.table[3])


def test_long_sums_of_half_precision_numbers_are_made_in_single_precision():
    ones = torch.ones(1000, 1, dtype=torch.bfloat16)
    total = (
        to_float32(ones).new_zeros(1, 1).index_add(0, torch.zeros(1000).long(), to_float32(ones))
    )
    assert total.item() == 1000
    assert to_float32(torch.ones(1, dtype=torch.float64)).dtype == torch.float64


def test_sinusoids_tell_all_times_apart():
    vectors = sinusoids(torch.arange(1001.0), 16)
    assert (torch.cdist(vectors, vectors) + torch.eye(1001)).min() > 1e-3


def test_attention_stays_inside_each_segment(generator: torch.Generator):
    attention = SegmentAttention(8, 2)
    rows = torch.randn(26, 8, generator=generator)
    lengths = torch.tensor([1, 0, 3, 9, 2, 4, 1, 6])
    ptr = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    found = attention(rows, Segments.of(ptr))
    for start, end in zip(ptr[:-1].tolist(), ptr[1:].tolist(), strict=True):
        torch.testing.assert_close(found[start:end], direct(attention, rows[start:end]))


def direct(attention: SegmentAttention, rows: torch.Tensor) -> torch.Tensor:
    """Return attention over one segment, written out."""
    query, key, value = attention.project(rows).unflatten(-1, (3, 2, 4)).unbind(1)
    mixed = F.scaled_dot_product_attention(
        query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1)
    )
    return attention.output(mixed.transpose(0, 1).flatten(1))


def test_ranges_are_laid_end_to_end():
    segment, value = segment_ranges(torch.tensor([5, 0, 7]), torch.tensor([2, 0, 3]))
    assert segment.tolist() == [0, 0, 2, 2, 2]
    assert value.tolist() == [5, 6, 7, 8, 9]
