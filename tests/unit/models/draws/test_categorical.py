import torch

from layerdag.models.draws import sample_categorical, sample_from_logits


def test_draw_never_takes_a_code_of_weight_0():
    weights = torch.tensor([0.0, 2.0, 0.0, 6.0, 0.0]).expand(1000, 5)
    uniform = (torch.arange(1000) + 0.5) / 1000
    codes = sample_categorical(weights, uniform)
    assert codes.bincount(minlength=5).tolist() == [0, 250, 0, 750, 0]


def test_draw_stays_in_range_at_the_ends():
    weights = torch.tensor([[0.2, 0.8], [0.2, 0.8]])
    assert sample_categorical(
        weights, torch.tensor([1e-300, 1 - 2.0**-53], dtype=torch.float64)
    ).tolist() == [
        0,
        1,
    ]


def test_logits_invert_the_distribution_function():
    logits = torch.tensor([0.2, 0.3, 0.5]).log().expand(5, 3)
    u = torch.tensor([0.0, 0.19, 0.21, 0.49, 0.51], dtype=torch.float64)
    assert sample_from_logits(logits, u).tolist() == [0, 0, 1, 1, 2]


def test_logits_never_give_an_impossible_category():
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]]).expand(3, 5)
    assert sample_from_logits(logits, torch.tensor([0.0, 0.5, 1 - 2**-53]).double()).tolist() == [
        1,
        3,
        3,
    ]


def test_any_number_of_leading_dimensions_is_drawn_at_once(generator: torch.Generator):
    weights = torch.rand(4, 3, 5, generator=generator)
    uniform = torch.rand(4, 3, generator=generator)
    found = sample_categorical(weights, uniform)
    one_by_one = [
        int(sample_categorical(weights[i, j], uniform[i, j])) for i in range(4) for j in range(3)
    ]
    assert found.flatten().tolist() == one_by_one


def test_draws_follow_the_weights(generator: torch.Generator):
    weights, draws = torch.tensor([3.0, 0.0, 1.0, 4.0]), 8000
    found = sample_categorical(
        weights.expand(draws, 4), torch.rand(draws, generator=generator)
    ).bincount(minlength=4)
    expected = draws * weights / 8
    assert found[1] == 0
    kept = weights > 0
    assert ((found - expected)[kept] ** 2 / expected[kept]).sum() < 18.4  # 2 degrees: 1e-4


def test_the_scale_of_weights_and_a_shift_of_logits_change_no_draw(generator: torch.Generator):
    weights = torch.rand(50, 6, generator=generator, dtype=torch.float64)
    u = torch.rand(50, generator=generator, dtype=torch.float64)
    plain = sample_categorical(weights, u)
    assert torch.equal(sample_categorical(1024 * weights, u), plain)
    assert torch.equal(sample_from_logits(weights.log(), u), plain)
    assert torch.equal(sample_from_logits(weights.log() + 40, u), plain)


def test_a_single_code_is_always_drawn():
    assert sample_categorical(torch.tensor([[0.0, 1e-30]]), torch.tensor([0.5])).tolist() == [1]
    assert sample_from_logits(torch.tensor([[7.0]]), torch.tensor([0.99])).tolist() == [0]


def test_of_no_rows_nothing_is_drawn():
    assert sample_categorical(torch.zeros(0, 3), torch.zeros(0)).tolist() == []
