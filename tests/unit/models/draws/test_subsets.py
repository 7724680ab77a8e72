import pytest
import torch

from layerdag.models.draws import choose_in_groups, choose_with_one_of, gumbel

GROUP = torch.tensor([0, 0, 0, 1, 1, 3])
KEY = torch.tensor([0.1, 0.9, 0.5, -1.0, -2.0, 7.0])


def test_takes_the_largest_keys_of_each_group():
    chosen = choose_in_groups(KEY, GROUP, torch.tensor([2, 1, 5, 4]))
    assert chosen.tolist() == [False, True, True, True, False, True]


def test_one_of_the_eligible_is_always_taken():
    eligible = torch.tensor([True, False, False, False, True, True])
    chosen = choose_with_one_of(KEY, GROUP, torch.tensor([2, 1, 1, 1]), eligible)
    assert chosen.tolist() == [True, True, False, False, True, True]


def test_gumbel_keys_draw_in_proportion_to_weights(generator: torch.Generator):
    weights = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)
    draws = 8000
    uniform = torch.rand(draws * 3, generator=generator, dtype=torch.float64)
    key = weights.log().repeat(draws) + gumbel(uniform)
    group = torch.arange(draws).repeat_interleave(3)
    chosen = choose_in_groups(key, group, torch.ones(draws, dtype=torch.int64))
    counts = chosen.view(draws, 3).sum(0)
    wanted = draws * weights / 8
    assert ((counts - wanted) ** 2 / wanted).sum() < 18.4  # 2 degrees of freedom: chance 1e-4


def test_a_group_without_an_eligible_candidate_is_chosen_by_key_alone():
    eligible = torch.tensor([False, False, False, False, True, True])
    chosen = choose_with_one_of(KEY, GROUP, torch.tensor([1, 1, 1, 1]), eligible)
    assert chosen.tolist() == [False, True, False, False, True, True]


def test_nothing_is_chosen_of_nothing():
    none = torch.zeros(0, dtype=torch.int64)
    assert choose_in_groups(torch.zeros(0), none, torch.tensor([2, 3])).tolist() == []


def test_pairs_are_drawn_without_replacement_in_proportion(generator: torch.Generator):
    """P(i then j) = w_i / W * w_j / (W - w_i), over both orders (Plackett-Luce)."""
    weights, draws = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64), 8000
    uniform = torch.rand(draws * 3, generator=generator, dtype=torch.float64)
    key = weights.log().repeat(draws) + gumbel(uniform)
    group = torch.arange(draws).repeat_interleave(3)
    chosen = choose_in_groups(key, group, torch.full((draws,), 2)).view(draws, 3)
    assert (chosen.sum(1) == 2).all()
    left_out = (~chosen).sum(0)
    wanted = []
    for out in range(3):
        i, j = (k for k in range(3) if k != out)
        pair = weights[i] * weights[j] / 8
        wanted.append(draws * (pair / (8 - weights[i]) + pair / (8 - weights[j])))
    expected = torch.stack(wanted)
    assert expected.sum() == pytest.approx(draws)
    assert ((left_out - expected) ** 2 / expected).sum() < 18.4  # chance 1e-4


def test_the_first_is_drawn_among_the_eligible_in_proportion(generator: torch.Generator):
    """One of candidates 0 and 2 comes first, so the only one drawn is one of them."""
    weights, draws = torch.tensor([1.0, 50.0, 3.0], dtype=torch.float64), 4000
    uniform = torch.rand(draws * 3, generator=generator, dtype=torch.float64)
    key = weights.log().repeat(draws) + gumbel(uniform)
    group = torch.arange(draws).repeat_interleave(3)
    eligible = torch.tensor([True, False, True]).repeat(draws)
    ones = torch.ones(draws, dtype=torch.int64)
    found = choose_with_one_of(key, group, ones, eligible).view(draws, 3).sum(0)
    assert found[1] == 0
    expected = draws * torch.tensor([0.25, 0.75])
    assert ((found[[0, 2]] - expected) ** 2 / expected).sum() < 15.1  # 1 degree: chance 1e-4


def test_gumbel_noise_has_its_distribution_function():
    uniform = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    torch.testing.assert_close((-(-gumbel(uniform)).exp()).exp(), uniform)
