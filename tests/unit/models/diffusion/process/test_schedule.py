import torch

from layerdag.models.diffusion.process import cosine_alpha_bar, strided_timesteps


def test_keeps_all_at_0_and_nothing_at_the_end():
    alpha_bar_S = cosine_alpha_bar(16)
    assert alpha_bar_S[0] == 1
    assert alpha_bar_S[-1] == 0
    assert torch.all(alpha_bar_S.diff() < 0)


def test_strided_times_run_from_the_last_step_to_0():
    assert strided_timesteps(8, None) == [8, 7, 6, 5, 4, 3, 2, 1, 0]
    assert strided_timesteps(8, 3) == [8, 5, 3, 0]
    assert strided_timesteps(8, 1) == [8, 0]
    assert strided_timesteps(4, 100) == [4, 3, 2, 1, 0]
