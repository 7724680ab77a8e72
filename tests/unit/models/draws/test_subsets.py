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
