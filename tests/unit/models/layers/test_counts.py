import itertools

import pytest
import torch

from layerdag.models.layers import CountCode, Counter


def test_counts_up_to_the_exact_limit_are_their_own_codes():
    counter = Counter(CountCode(exact=8, largest=100))
    count = torch.arange(9)
    assert torch.equal(counter.encode(count), count)


@pytest.mark.parametrize("largest", [0, 3, 24, 270, 5000])
def test_decoding_any_position_of_a_code_gives_a_count_of_that_code(largest):
    counter = Counter(CountCode(exact=8, largest=largest))
    code = torch.arange(counter.num_codes)
    for u in (0.0, 0.5, 1 - 2**-53):
        count = counter.decode(code, torch.full((counter.num_codes,), u, dtype=torch.float64))
        assert torch.equal(counter.encode(count), code)


def test_a_count_beyond_training_keeps_a_code_of_its_own():
    counter = Counter(CountCode(exact=8, largest=50))
    assert counter.encode(torch.tensor([51])) > counter.encode(torch.tensor([50]))
    assert counter.encode(torch.tensor([10**6])) == counter.num_codes - 1


def test_the_log_width_counts_the_counts_of_a_bin():
    counter = Counter(CountCode(exact=4, largest=20))
    every = torch.arange(int(counter.lows_K1[-1]))
    members = torch.bincount(counter.encode(every), minlength=counter.num_codes)
    assert torch.allclose(counter.log_width().exp(), members.float())


@pytest.mark.parametrize(("exact", "largest"), [(1, 0), (4, 20), (8, 4096), (24, 1)])
def test_bins_leave_no_count_out_and_grow(exact: int, largest: int):
    lows = CountCode(exact, largest).lows
    assert lows[: exact + 1] == tuple(range(exact + 1))
    widths = [high - low for low, high in itertools.pairwise(lows)]
    assert min(widths) >= 1
    assert lows[-1] > largest + 1
    # A bin is at most a quarter as wide as it starts, but for the last one, which is half.
    for low, width in list(zip(lows, widths, strict=False))[exact:-1]:
        assert width <= max(1, low // 4)
    assert widths[-1] == max(1, lows[-2] // 2)


def test_codes_are_monotone_and_all_of_them_occur():
    counter = Counter(CountCode(exact=8, largest=300))
    codes = counter.encode(torch.arange(1000))
    assert (codes.diff() >= 0).all()
    assert codes.unique().tolist() == list(range(counter.num_codes))


def test_positions_in_a_bin_are_spread_evenly_over_its_counts():
    counter = Counter(CountCode(exact=4, largest=40))
    code = int(counter.encode(torch.tensor([30])))
    low, high = counter.lows_K1[code : code + 2].tolist()
    u = (torch.arange(1200, dtype=torch.float64) + 0.5) / 1200
    found = counter.decode(torch.full((1200,), code), u)
    shares = torch.bincount(found - low)
    assert shares.numel() == high - low
    assert shares.max() - shares.min() <= 1


def test_counts_of_any_shape_are_encoded_at_once():
    counter = Counter(CountCode(exact=4, largest=40))
    counts = torch.arange(24).view(2, 3, 4).transpose(0, 2)
    assert torch.equal(counter.encode(counts), counter.encode(counts.flatten()).view(4, 3, 2))


def test_borders_move_with_the_model_and_are_no_weight():
    counter = Counter(CountCode(exact=4, largest=40))
    assert not counter.state_dict()
    assert "lows_K1" in dict(counter.named_buffers())
