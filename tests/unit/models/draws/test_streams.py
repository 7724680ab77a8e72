import numpy as np
import torch
from random_words import splitmix_finalizer

from layerdag._runtime import derive_seed
from layerdag.models.draws import SampleStreams, slot_uniforms

GAMMA = 0x9E3779B97F4A7C15


def splitmix(seed: int, count: int) -> list[int]:
    """Return the outputs of SplitMix64, straight from its definition."""
    return [splitmix_finalizer(seed + (k + 1) * GAMMA) for k in range(count)]


def test_stream_is_splitmix64():
    drawn = SampleStreams([5]).uniforms(torch.tensor([50]))
    wanted = [((w >> 11) + 0.5) * 2.0**-53 for w in splitmix(derive_seed(5, "sample"), 50)]
    assert drawn.tolist() == wanted


def test_a_sample_draws_the_same_whatever_its_batch_mates():
    together = SampleStreams([1, 2, 3])
    first = together.uniforms(torch.tensor([4, 2, 1]))
    second = together.uniforms(torch.tensor([0, 3, 5]))
    alone = SampleStreams([2]).uniforms(torch.tensor([5]))
    assert torch.equal(alone, torch.cat([first[4:6], second[:3]]))


def test_uniforms_are_uniform_and_never_0_or_1():
    drawn = SampleStreams(range(100)).uniforms(torch.full((100,), 1000)).numpy()
    assert drawn.min() > 0
    assert drawn.max() < 1
    counts = np.histogram(drawn, bins=50, range=(0, 1))[0]
    chi_square = ((counts - 2000) ** 2 / 2000).sum()
    assert chi_square < 90  # 49 degrees of freedom: the chance of more is 3e-4


def drawn(seeds: list[int], position: int, slots: range) -> torch.Tensor:
    return slot_uniforms(np.array(seeds, np.uint64), np.full(len(seeds), position), slots)


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
    u_BU = drawn(list(range(400)), 1, range(50))
    assert (u_BU >= 0).all()
    assert (u_BU < 1).all()
    assert abs(u_BU.mean() - 0.5) < 0.01
    assert abs(u_BU.var() - 1 / 12) < 0.003
    neighbors = torch.corrcoef(torch.stack([u_BU[:-1].flatten(), u_BU[1:].flatten()]))
    assert abs(neighbors[0, 1]) < 0.03
