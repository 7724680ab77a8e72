import numpy as np

from layerdag.training.private import SecretGenerator


def test_a_key_repeats_noise_and_coins_and_says_that_it_is_no_secret():
    first, second = SecretGenerator(7), SecretGenerator(7)
    assert first.coins(50, 0.3).tolist() == second.coins(50, 0.3).tolist()
    assert first.normal(5).tolist() == second.normal(5).tolist()
    assert "whoever knows it can subtract the noise" in first.description


def test_without_a_key_nobody_can_repeat_it():
    first, second = SecretGenerator(), SecretGenerator()
    assert first.normal(5).tolist() != second.normal(5).tolist()
    assert "secret key of the operating system" in first.description


def test_noise_is_standard_normal_and_coins_have_their_rate():
    generator = SecretGenerator(1)
    noise = generator.normal(20_000).numpy()
    assert abs(noise.mean()) < 0.03
    assert abs(noise.std() - 1) < 0.03
    assert abs(generator.coins(20_000, 0.25).mean() - 0.25) < 0.02
    assert generator.coins(4, 1.0).all()
    assert noise.dtype == np.float64
