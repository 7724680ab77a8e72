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
