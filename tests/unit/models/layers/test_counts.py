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
