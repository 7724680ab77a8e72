import torch
import torch.nn.functional as F

from layerdag.models.layers import SegmentAttention, Segments


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


def test_segments_are_in_the_bucket_of_their_length():
    lengths = torch.tensor([1, 2, 3, 4, 5, 8, 9, 0])
    ptr = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    buckets = Segments.of(ptr).buckets
    assert [rows.shape for rows, _ in buckets] == [(1, 2), (2, 4), (2, 8), (1, 16)]
    assert [valid.sum(1).tolist() for _, valid in buckets] == [[2], [3, 4], [5, 8], [9]]
    # Padding repeats the first row of its segment, which is masked.
    rows, valid = buckets[1]
    assert rows.tolist() == [[3, 4, 5, 3], [6, 7, 8, 9]]
    assert valid[0].tolist() == [True, True, True, False]


def test_without_rows_there_is_no_bucket_and_nothing_to_attend_to():
    for ptr in (torch.tensor([0]), torch.tensor([0, 0, 0])):
        segments = Segments.of(ptr)
        assert segments.buckets == ()
        assert SegmentAttention(8, 2)(torch.zeros(0, 8), segments).shape == (0, 8)


def test_a_row_alone_gets_its_own_value(generator: torch.Generator):
    attention, rows = SegmentAttention(8, 2), torch.randn(3, 8, generator=generator)
    found = attention(rows, Segments.of(torch.tensor([0, 1, 2, 3])))
    torch.testing.assert_close(found, attention.output(attention.project(rows).chunk(3, dim=1)[2]))


def test_attention_follows_the_order_of_the_rows_of_a_segment(generator: torch.Generator):
    attention, rows = SegmentAttention(8, 2), torch.randn(5, 8, generator=generator)
    segments, order = Segments.of(torch.tensor([0, 4, 5])), torch.tensor([3, 1, 0, 2, 4])
    torch.testing.assert_close(attention(rows[order], segments), attention(rows, segments)[order])


def test_padding_gets_no_gradient(generator: torch.Generator):
    attention = SegmentAttention(8, 2)
    rows = torch.randn(7, 8, generator=generator).requires_grad_()
    segments = Segments.of(torch.tensor([0, 3, 7]))
    attention(rows, segments)[3:].sum().backward()
    assert rows.grad is not None
    assert not rows.grad[:3].any()
    assert rows.grad[3:].any(1).all()


def test_a_value_of_each_segment_is_given_to_its_rows():
    segments = Segments.of(torch.tensor([0, 2, 2, 3]))
    found = segments.broadcast(torch.tensor([[1.0], [2.0], [3.0]]))
    assert found.tolist() == [[1.0], [1.0], [3.0]]
