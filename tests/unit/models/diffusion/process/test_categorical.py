import itertools

import pytest
import torch

from layerdag.models.diffusion.process import (
    add_noise,
    cosine_alpha_bar,
    forward_distribution,
    reverse_distribution,
    strided_timesteps,
)
from layerdag.models.draws import sample_categorical

MARGINAL = torch.tensor([0.1, 0.25, 0.6, 0.05], dtype=torch.float64)
KEEP = cosine_alpha_bar(16)
CODES = torch.arange(4)


def step_matrix(now: int, then: int) -> torch.Tensor:
    """Return Q of the step between two times."""
    share = KEEP[then] / KEEP[now]
    return share * torch.eye(4, dtype=torch.float64) + (1 - share) * MARGINAL.expand(4, 4)


def test_closed_form_equals_product_of_steps():
    product = torch.eye(4, dtype=torch.float64)
    for t in range(1, 17):
        product = product @ step_matrix(t - 1, t)
        closed = forward_distribution(CODES, KEEP[t].expand(4), MARGINAL)
        torch.testing.assert_close(closed, product)


def test_last_noisy_code_is_the_marginal_whatever_the_clean_one():
    last = forward_distribution(CODES, KEEP[16].expand(4), MARGINAL)
    divergence = (last * (last / MARGINAL).log()).sum(-1)
    assert divergence.abs().max() < 1e-12


@pytest.mark.parametrize(("now", "then"), [(16, 15), (16, 4), (9, 2), (5, 0), (16, 0)])
def test_reverse_distribution_is_bayes(now: int, then: int):
    predicted = torch.tensor([0.5, 0.2, 0.2, 0.1], dtype=torch.float64)
    for noisy in range(4):
        found = reverse_distribution(
            predicted, torch.tensor(noisy), MARGINAL, KEEP[now], KEEP[then]
        )
        to_then = forward_distribution(CODES, KEEP[then].expand(4), MARGINAL)
        to_now = forward_distribution(CODES, KEEP[now].expand(4), MARGINAL)[:, noisy]
        likelihood = step_matrix(then, now)[:, noisy]
        posterior = to_then * likelihood / to_now[:, None]
        torch.testing.assert_close(found, predicted @ posterior)


@pytest.mark.parametrize(("now", "then"), [(15, 14), (9, 2), (5, 0)])
def test_a_code_that_noise_never_makes_was_there_from_the_start(now: int, then: int):
    marginal = torch.tensor([0.4, 0.6, 0.0], dtype=torch.float64)
    predicted = torch.tensor([0.3, 0.3, 0.4], dtype=torch.float64)
    found = reverse_distribution(predicted, torch.tensor(2), marginal, KEEP[now], KEEP[then])
    torch.testing.assert_close(found / found.sum(), torch.tensor([0, 0, 1], dtype=torch.float64))


def test_no_noise_is_left_at_the_last_step():
    predicted = torch.tensor([0.0, 0.3, 0.7, 0.0], dtype=torch.float64)
    found = reverse_distribution(predicted, torch.tensor(3), MARGINAL, KEEP[7], KEEP[0])
    torch.testing.assert_close(found, predicted)


@pytest.mark.parametrize("steps", [1, 3, 16])
def test_oracle_that_knows_the_clean_code_returns_it(generator: torch.Generator, steps: int):
    clean = torch.randint(4, (500,), generator=generator)
    oracle = torch.nn.functional.one_hot(clean, 4).double()
    assert torch.equal(run_chain(oracle, steps, generator), clean)


@pytest.mark.parametrize("steps", [1, 4, 16])
def test_oracle_that_predicts_the_marginal_returns_the_marginal(
    generator: torch.Generator, steps: int
):
    count = 20_000
    found = run_chain(MARGINAL.expand(count, 4), steps, generator).bincount(minlength=4)
    chi_square = ((found - count * MARGINAL) ** 2 / (count * MARGINAL)).sum()
    assert chi_square < 21  # 3 degrees of freedom: the chance of more is 1e-4


def test_add_noise_follows_its_distribution(generator: torch.Generator):
    count = 20_000
    clean = torch.ones(count, dtype=torch.int64)
    uniform = torch.rand(count, 2, generator=generator)
    noisy = add_noise(clean, KEEP[8], MARGINAL, uniform)
    wanted = count * forward_distribution(torch.tensor(1), KEEP[8], MARGINAL)
    chi_square = ((noisy.bincount(minlength=4) - wanted) ** 2 / wanted).sum()
    assert chi_square < 21


def run_chain(predicted: torch.Tensor, steps: int, generator: torch.Generator) -> torch.Tensor:
    """Denoise from the marginal with a fixed prediction."""
    count = predicted.shape[0]
    code = sample_categorical(MARGINAL.expand(count, 4), torch.rand(count, generator=generator))
    times = strided_timesteps(16, steps)
    for now, then in itertools.pairwise(times):
        weights = reverse_distribution(predicted, code, MARGINAL, KEEP[now], KEEP[then])
        code = sample_categorical(weights, torch.rand(count, generator=generator))
    return code
