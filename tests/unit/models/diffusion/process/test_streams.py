import numpy as np
import torch
from random_words import splitmix_finalizer

from layerdag._runtime import derive_seed
from layerdag.models.diffusion.process import SampleStreams

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
