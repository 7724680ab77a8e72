import numpy as np
import torch
from random_words import splitmix_finalizer

from layerdag.models.autoregressive.sampling._draws import sample_categorical, uniforms


def drawn(seeds: list[int], position: int, slots: range) -> torch.Tensor:
    return uniforms(np.array(seeds, np.uint64), np.full(len(seeds), position), slots)


def test_a_uniform_depends_on_its_own_seed_position_and_slot_alone():
    together = drawn([3, 4, 5], 7, range(10))
    assert torch.equal(drawn([4], 7, range(2, 4))[0], together[1, 2:4])
    assert not torch.equal(drawn([4], 8, range(10))[0], together[1])


def test_uniforms_are_splitmix_of_seed_position_and_slot():
    seed, position, gamma = 2**64 - 3, 7, 0x9E3779B97F4A7C15
    node = splitmix_finalizer(seed + (position + 1) * gamma)
    words = [splitmix_finalizer(node ^ splitmix_finalizer((k + 1) * gamma)) for k in range(2, 6)]
    expected = [(word >> 11) * 2.0**-53 for word in words]
    assert drawn([seed], position, range(2, 6))[0].tolist() == expected


def test_uniforms_are_uniform_and_unrelated_across_neighboring_seeds():
    u_BS = drawn(list(range(400)), 1, range(50))
    assert (u_BS >= 0).all()
    assert (u_BS < 1).all()
    assert abs(u_BS.mean() - 0.5) < 0.01
    assert abs(u_BS.var() - 1 / 12) < 0.003
    neighbors = torch.corrcoef(torch.stack([u_BS[:-1].flatten(), u_BS[1:].flatten()]))
    assert abs(neighbors[0, 1]) < 0.03


def test_pick_inverts_the_distribution_function():
    logits = torch.tensor([0.2, 0.3, 0.5]).log().expand(5, 3)
    u = torch.tensor([0.0, 0.19, 0.21, 0.49, 0.51], dtype=torch.float64)
    assert sample_categorical(logits, u).tolist() == [0, 0, 1, 1, 2]


def test_pick_never_takes_an_impossible_category():
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]]).expand(3, 5)
    assert sample_categorical(logits, torch.tensor([0.0, 0.5, 1 - 2**-53]).double()).tolist() == [
        1,
        3,
        3,
    ]
