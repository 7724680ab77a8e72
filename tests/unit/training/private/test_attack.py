import numpy as np

from layerdag.training.private import scores

RNG = np.random.default_rng(0)
GRADIENTS = RNG.standard_normal((12, 40)) + 3 * RNG.standard_normal(40)
OTHERS = RNG.standard_normal((2, 40))
EVEN = 0.01 * np.eye(40)
COINS = np.arange(12) % 3 == 0


def test_who_took_part_is_seen_in_a_change_without_noise():
    change = -GRADIENTS[COINS].sum(0)
    score = scores(GRADIENTS, change, OTHERS, EVEN)
    assert score[COINS].min() > score[~COINS].max()


def test_what_others_do_in_known_directions_hides_nobody():
    change = -GRADIENTS[COINS].sum(0)
    shifted = change + np.array([200.0, -300.0]) @ OTHERS
    assert np.allclose(
        scores(GRADIENTS, shifted, OTHERS, EVEN), scores(GRADIENTS, change, OTHERS, EVEN)
    )


def test_noise_hides_who_took_part():
    change = -GRADIENTS[COINS].sum(0) + 1000 * RNG.standard_normal(40)
    score = scores(GRADIENTS, change, OTHERS, EVEN)
    assert score[COINS].min() < score[~COINS].max()


def test_directions_that_others_move_by_chance_count_less():
    """Loud noise in some parameters hides nobody whose gradient lies in others, too."""
    loud_P = np.where(np.arange(40) < 20, 30.0, 0.01)
    change = -GRADIENTS[COINS].sum(0) + loud_P * RNG.standard_normal(40)
    aware = scores(GRADIENTS, change, OTHERS, np.diag(loud_P**2))
    unaware = scores(GRADIENTS, change, OTHERS, EVEN)
    assert aware[COINS].min() > aware[~COINS].max()
    assert unaware[COINS].min() < unaware[~COINS].max()


def test_parameters_that_never_vary_do_no_harm():
    still_PP = np.diag(np.r_[np.ones(39), 0.0])
    change = -GRADIENTS[COINS].sum(0)
    assert np.isfinite(scores(GRADIENTS, change, OTHERS, still_PP)).all()
