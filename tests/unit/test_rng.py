import numpy as np

from layerdag.rng import derive_seed, sample_uniforms


def test_streams_of_different_names_differ() -> None:
    assert len({derive_seed(0, "node"), derive_seed(0, "edge"), derive_seed(1, "node")}) == 3


def test_a_sample_has_the_same_numbers_whatever_its_batch_mates() -> None:
    together = sample_uniforms([5, 6, 7], "node", 3, count=4)
    alone = sample_uniforms([6], "node", 3, count=4)
    assert np.array_equal(together[1:2], alone)
