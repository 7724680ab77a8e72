import numpy as np
import torch
from random_words import splitmix_finalizer

from layerdag.runtime.rng import derive_seed, scrambled

WORDS = [0, 1, -1, 2**63 - 1, -(2**63), 0x123456789ABCDEF]


def test_arrays_and_tensors_are_scrambled_as_splitmix_does():
    expected = [splitmix_finalizer(word) for word in WORDS]
    found = scrambled(np.array(WORDS)).view(np.uint64)
    assert found.tolist() == expected
    assert scrambled(torch.tensor(WORDS)).numpy().view(np.uint64).tolist() == expected


def test_streams_of_different_names_differ():
    assert len({derive_seed(0, "node"), derive_seed(0, "edge"), derive_seed(1, "node")}) == 3
