import numpy as np

from layerdag.training.private import scores

RNG = np.random.default_rng(0)
GRADIENTS = RNG.standard_normal((12, 40)) + 3 * RNG.standard_normal(40)
OTHERS = RNG.standard_normal((2, 40))
COINS = np.arange(12) % 3 == 0


def test_who_took_part_is_seen_in_a_change_without_noise():
    change = -GRADIENTS[COINS].sum(0)
    score = scores(GRADIENTS, change, OTHERS)
    assert score[COINS].min() > score[~COINS].max()


def test_what_others_do_in_known_directions_hides_nobody():
    change = -GRADIENTS[COINS].sum(0)
    shifted = change + np.array([200.0, -300.0]) @ OTHERS
    assert np.allclose(scores(GRADIENTS, shifted, OTHERS), scores(GRADIENTS, change, OTHERS))


def test_noise_hides_who_took_part():
    change = -GRADIENTS[COINS].sum(0) + 1000 * RNG.standard_normal(40)
    score = scores(GRADIENTS, change, OTHERS)
    assert score[COINS].min() < score[~COINS].max()
