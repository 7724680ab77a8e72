import math

import numpy as np
import pytest

from layerdag.training.private import guess_half, lower_bound


def test_all_guesses_right_give_the_bound_of_the_binomial_tail():
    """Without delta the bound solves q ** 32 = .05 for q = e^epsilon / (1 + e^epsilon)."""
    chance = 0.05 ** (1 / 32)
    found = lower_bound(64, 32, 32, 0.0)
    assert found.epsilon == pytest.approx(math.log(chance / (1 - chance)), abs=1e-6)


@pytest.mark.parametrize("right", [0, 10, 16, 20])
def test_guesses_like_a_coin_s_give_nothing(right: int):
    assert lower_bound(64, 32, right, 1e-3).epsilon == 0.0


def test_delta_costs_a_little():
    assert 0 < lower_bound(64, 32, 31, 1e-3).epsilon < lower_bound(64, 32, 31, 0.0).epsilon
    assert lower_bound(64, 32, 32, 0.5).epsilon == 0.0


def test_half_of_the_coins_are_guessed_by_the_scores():
    score_M = np.array([5.0, -3.0, 1.0, 0.0, 4.0, -4.0, 0.5, 0.6])
    coins_M = np.array([True, False, False, True, False, False, True, True])
    assert guess_half(score_M, coins_M) == (4, 3)


def test_randomized_response_is_never_bounded_above_its_epsilon():
    """Each coin is told truly with probability e/(1+e): the mechanism has epsilon 1 exactly."""
    rng, above = np.random.default_rng(0), 0
    for _ in range(60):
        coins_M = rng.random(64) < 0.5
        told_M = np.where(rng.random(64) < math.e / (1 + math.e), coins_M, ~coins_M)
        score_M = told_M + 0.01 * rng.random(64)
        above += lower_bound(64, *guess_half(score_M, coins_M), 0.0).epsilon > 1.0
    assert above <= 0.1 * 60
