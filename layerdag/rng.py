"""Explicit randomness: named streams for training, one stream per sample for sampling.

Nothing below the command line touches a global generator. A stream is derived from an integer seed
and a name, so that adding a consumer never shifts the numbers of another one.
"""

import hashlib

import numpy as np


def derive_seed(seed: int, *names: str | int) -> int:
    """Return a 63-bit seed that depends on ``seed`` and on every name, in order.

    The derivation is a hash, so that streams of neighbouring seeds or names are unrelated.
    """
    text = "/".join([str(int(seed)), *map(str, names)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def numpy_generator(seed: int, *names: str | int) -> np.random.Generator:
    """Return a numpy generator for the stream ``names`` of ``seed``."""
    return np.random.default_rng(derive_seed(seed, *names))


def sample_uniforms(sample_seeds: list[int], *names: str | int, count: int) -> np.ndarray:
    """Return uniforms in [0, 1) of shape (samples, count), one independent stream per sample.

    Row ``i`` depends on ``sample_seeds[i]`` and ``names`` alone, never on its batch mates: this is
    what makes a sampled graph the same whatever the batch size.
    """
    rows = [numpy_generator(seed, *names).random(count) for seed in sample_seeds]
    return np.stack(rows) if rows else np.zeros((0, count))
