import itertools

import pytest
import torch
import torch.nn.functional as F

from layerdag.models.fused import rounded_size
from layerdag.models.layers import (
    CountEncoder,
    Linear,
    MessagePassingLayer,
    SegmentAttention,
    Segments,
    SumEmbedding,
    count_bins,
    dropout,
    row_dropout,
    segment_log_sum_exp,
    segment_max,
    segment_mean,
    segment_pointers,
    segment_ranges,
    sinusoids,
    to_float32,
)


def test_attention_stays_inside_each_segment(generator):
    attention = SegmentAttention(8, 2)
    rows = torch.randn(26, 8, generator=generator)
    lengths = torch.tensor([1, 0, 3, 9, 2, 4, 1, 6])
    ptr = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    found = attention(rows, Segments.from_ptr(ptr))
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
    buckets = Segments.from_ptr(ptr).buckets
    assert [rows.shape for rows, _ in buckets] == [(1, 2), (2, 4), (2, 8), (1, 16)]
    assert [valid.sum(1).tolist() for _, valid in buckets] == [[2], [3, 4], [5, 8], [9]]
    # Padding repeats the first row of its segment, which is masked.
    rows, valid = buckets[1]
    assert rows.tolist() == [[3, 4, 5, 3], [6, 7, 8, 9]]
    assert valid[0].tolist() == [True, True, True, False]


def test_segments_may_be_empty_and_give_a_value_to_each_of_their_rows():
    for ptr in (torch.tensor([0]), torch.tensor([0, 0, 0])):
        segments = Segments.from_ptr(ptr)
        assert segments.buckets == ()
        assert SegmentAttention(8, 2)(torch.zeros(0, 8), segments).shape == (0, 8)
    segments = Segments.from_ptr(torch.tensor([0, 2, 2, 3]))
    found = segments.broadcast(torch.tensor([[1.0], [2.0], [3.0]]))
    assert found.tolist() == [[1.0], [1.0], [3.0]]


def test_counts_are_their_own_codes_up_to_the_exact_limit_and_one_beyond_training():
    counter = CountEncoder(exact=8, largest=100)
    count = torch.arange(9)
    assert torch.equal(counter.encode(count), count)
    counter = CountEncoder(exact=8, largest=50)
    assert counter.encode(torch.tensor([51])) > counter.encode(torch.tensor([50]))
    assert counter.encode(torch.tensor([10**6])) == counter.num_codes - 1


@pytest.mark.parametrize("largest", [0, 3, 24, 270, 5000])
def test_decoding_any_position_of_a_code_gives_a_count_of_that_code(largest):
    counter = CountEncoder(exact=8, largest=largest)
    code = torch.arange(counter.num_codes)
    for u in (0.0, 0.5, 1 - 2**-53):
        count = counter.decode(code, torch.full((counter.num_codes,), u, dtype=torch.float64))
        assert torch.equal(counter.encode(count), code)


def test_a_count_is_one_of_those_of_its_bin():
    counter = CountEncoder(exact=4, largest=20)
    every = torch.arange(int(counter.lows_K1[-1]))
    members = torch.bincount(counter.encode(every), minlength=counter.num_codes)
    for count in every:
        assert counter.inside(count).exp() == pytest.approx(members[counter.encode(count)].item())


@pytest.mark.parametrize(("exact", "largest"), [(1, 0), (4, 20), (8, 4096), (24, 1)])
def test_bins_leave_no_count_out_and_grow(exact, largest):
    lows = count_bins(exact, largest)
    assert lows[: exact + 1] == tuple(range(exact + 1))
    widths = [high - low for low, high in itertools.pairwise(lows)]
    assert min(widths) >= 1
    assert lows[-1] > largest + 1
    # A bin is at most a quarter as wide as it starts, but for the last one, which is half.
    for low, width in list(zip(lows, widths, strict=False))[exact:-1]:
        assert width <= max(1, low // 4)
    assert widths[-1] == max(1, lows[-2] // 2)


def test_positions_in_a_bin_are_spread_evenly_over_its_counts():
    counter = CountEncoder(exact=4, largest=40)
    code = int(counter.encode(torch.tensor([30])))
    low, high = counter.lows_K1[code : code + 2].tolist()
    u = (torch.arange(1200, dtype=torch.float64) + 0.5) / 1200
    found = counter.decode(torch.full((1200,), code), u)
    shares = torch.bincount(found - low)
    assert shares.numel() == high - low
    assert shares.max() - shares.min() <= 1


def test_borders_move_with_the_model_and_are_no_weight():
    counter = CountEncoder(exact=4, largest=40)
    assert not counter.state_dict()
    assert "lows_K1" in dict(counter.named_buffers())


def test_dropout_drops_whole_rows_or_numbers_and_keeps_the_mean():
    hidden = row_dropout(torch.ones(2000, 3), 0.2, torch.Generator().manual_seed(0))
    assert (hidden.sum(1) == 0).float().mean() == pytest.approx(0.2, abs=0.03)
    assert set(hidden.sum(1).tolist()) == {0.0, 3.0}
    dropped = dropout(torch.ones(200, 50), 0.25, torch.Generator().manual_seed(0))
    assert float(dropped.mean()) == pytest.approx(1.0, abs=0.02)
    torch.testing.assert_close(dropped.unique(), torch.tensor([0.0, 4 / 3]))


@pytest.mark.parametrize(("rate", "generator"), [(0.3, None), (0.0, torch.Generator())])
def test_dropout_without_noise_returns_its_input(rate, generator):
    rows = torch.ones(3, 2)
    assert dropout(rows, rate, generator) is rows
    assert row_dropout(rows, rate, generator) is rows


def test_the_reference_name_of_the_weights_changes_nothing_else():
    embedding = SumEmbedding((3, 2), 4, std=0.5, name="table")
    found = embedding(torch.tensor([[2, 1], [0, 0]]))
    torch.testing.assert_close(found[0], embedding.table[2] + embedding.table[3 + 1])
    torch.testing.assert_close(found[1], embedding.table[0] + embedding.table[3])
    assert list(embedding.state_dict()) == ["table"]


def test_a_sum_of_initial_embeddings_has_the_asked_spread(generator):
    torch.manual_seed(0)
    codes = torch.randint(50, (400, 9), generator=generator)
    with torch.no_grad():
        nine, one = SumEmbedding([50] * 9, 64), SumEmbedding([50], 64, std=0.5)
        assert float(nine(codes).std()) == pytest.approx(1.0, rel=0.1)
        assert float(one(codes[:, :1]).std()) == pytest.approx(0.5, rel=0.1)


def test_sinusoids_tell_all_times_apart():
    vectors = sinusoids(torch.arange(1001.0), 16)
    assert (torch.cdist(vectors, vectors) + torch.eye(1001)).min() > 1e-3


EDGES = torch.tensor([[0, 1], [1, 2]])
KINDS = torch.tensor([0, 1])


def test_a_layer_follows_a_permutation_of_the_nodes(generator):
    layer = MessagePassingLayer(8, 2)
    rows = torch.randn(4, 8, generator=generator)
    order = torch.tensor([2, 0, 3, 1])
    rank = torch.argsort(order)
    torch.testing.assert_close(
        layer(rows[order], rank[EDGES], KINDS), layer(rows, EDGES, KINDS)[order]
    )


def test_messages_pass_both_ways_and_one_edge_far(generator):
    layer = MessagePassingLayer(8, 1)
    rows = torch.randn(4, 8, generator=generator)
    changed = rows.clone()
    changed[1] += 1
    moved = (layer(changed, EDGES, KINDS) - layer(rows, EDGES, KINDS)).abs().amax(1) > 0
    assert moved.tolist() == [True, True, True, False]


def test_direction_and_kind_of_an_edge_matter(generator):
    layer = MessagePassingLayer(8, 2)
    rows = torch.randn(3, 8, generator=generator)
    plain = layer(rows, EDGES, KINDS)
    assert not torch.allclose(layer(rows, EDGES.flip(0), KINDS), plain)
    assert not torch.allclose(layer(rows, EDGES, 1 - KINDS), plain)


def test_with_one_kind_there_is_no_embedding_of_kinds():
    assert "kinds.weight" not in MessagePassingLayer(8, 1).state_dict()


def test_long_sums_of_half_precision_numbers_are_made_in_single_precision():
    ones = torch.ones(1000, 1, dtype=torch.bfloat16)
    total = (
        to_float32(ones).new_zeros(1, 1).index_add(0, torch.zeros(1000).long(), to_float32(ones))
    )
    assert total.item() == 1000
    assert to_float32(torch.ones(1, dtype=torch.float64)).dtype == torch.float64


def test_ranges_are_laid_end_to_end():
    segment, value = segment_ranges(torch.tensor([5, 0, 7]), torch.tensor([2, 0, 3]))
    assert segment.tolist() == [0, 0, 2, 2, 2]
    assert value.tolist() == [5, 6, 7, 8, 9]


VALUES = torch.tensor([[1.0, -2.0], [3.0, 4.0], [5.0, 0.5]])
GROUPS = torch.tensor([0, 0, 2])


def test_means_and_maxima_of_groups_and_of_empty_ones():
    found = segment_mean(VALUES, GROUPS, torch.tensor([2, 0, 1]))
    assert found.tolist() == [[2.0, 1.0], [0.0, 0.0], [5.0, 0.5]]
    rows = torch.ones(1000, 1, dtype=torch.bfloat16)
    found = segment_mean(rows, torch.zeros(1000, dtype=torch.int64), torch.tensor([1000]))
    assert found.item() == 1.0
    found = segment_max(VALUES, GROUPS, 3)
    assert found.tolist() == [[3.0, 4.0], [-torch.inf, -torch.inf], [5.0, 0.5]]


def test_log_sum_exp_adds_in_the_log_domain_and_has_the_softmax_as_gradient():
    rows = torch.log(torch.tensor([[1.0], [2.0], [5.0]])) + 500
    group = torch.tensor([0, 0, 1])
    found = segment_log_sum_exp(rows, group, segment_max(rows, group, 2))
    torch.testing.assert_close((found - 500).exp(), torch.tensor([[3.0], [5.0]]), rtol=1e-4, atol=0)
    rows = VALUES.clone().requires_grad_()
    group = torch.tensor([0, 0, 1])
    segment_log_sum_exp(rows, group, segment_max(rows, group, 2)).sum().backward()
    wanted = torch.cat([VALUES[:2].softmax(0), torch.ones(1, 2)])
    torch.testing.assert_close(rows.grad, wanted)


def test_pointers_start_with_zero_and_end_with_the_number_of_rows():
    assert segment_pointers(torch.tensor([2, 0, 3])).tolist() == [0, 2, 2, 5]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(0,), (1,), (37,), (100,), (3, 5)])
def test_a_linear_map_of_rounded_rows_is_that_of_pytorch(generator, shape, bias):
    linear, plain = Linear(6, 4, bias=bias), torch.nn.Linear(6, 4, bias=bias)
    plain.load_state_dict(linear.state_dict())
    x = torch.randn(*shape, 6, generator=generator, requires_grad=True)
    towards = torch.randn(*shape, 4, generator=generator)
    found = []
    for module in (linear, plain):
        with torch.autocast("cpu", torch.bfloat16):
            out = module(x)
        assert out.dtype == torch.bfloat16
        loss = (out.float() * towards).sum()
        found.append([out, *torch.autograd.grad(loss, [x, *module.parameters()])])
    torch.testing.assert_close(*found, rtol=0.02, atol=0.03)
    assert torch.equal(linear(x), plain(x))


def test_doubles_and_vectors_are_left_to_pytorch(generator):
    linear, vector = Linear(6, 4), torch.randn(6, generator=generator)
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(vector).shape == (4,)
        assert linear.double()(vector.double()).dtype == torch.float64


def test_products_have_eight_numbers_of_rows_between_two_powers_of_two():
    sizes = [rounded_size(size) for size in range(1, 4097)]
    assert all(size <= of < 1.13 * size + 32 for size, of in enumerate(sizes, 1))
    assert len({size for size in sizes if 1024 < size <= 2048}) == 8
    assert len(set(sizes)) < 50
