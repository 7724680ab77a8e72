"""Explicit randomness: named streams for training, one stream per sample for sampling.

Nothing below the command line touches a global generator. A stream is derived from an integer seed
and a name, so that adding a consumer never shifts the numbers of another one.
"""

import hashlib
from typing import Any, TypeVar

import numpy as np

Words = TypeVar("Words", bound=Any)
"""An int64 array of numpy or tensor of torch, whose products wrap."""

GOLDEN_GAMMA = 0x9E3779B97F4A7C15 - 2**64
"""Step of SplitMix64: word k of a stream is ``scrambled(state + k * GOLDEN_GAMMA)``."""


def scrambled(word: Words) -> Words:
    """Return 64-bit words mixed by the finalizer of SplitMix64 (Steele et al., OOPSLA 2014).

    Args:
        word: int64 of any shape; neighboring words give unrelated ones.
    """
    word = (word ^ shifted_right(word, 30)) * (0xBF58476D1CE4E5B9 - 2**64)
    word = (word ^ shifted_right(word, 27)) * (0x94D049BB133111EB - 2**64)
    return word ^ shifted_right(word, 31)


def shifted_right(word: Words, bits: int) -> Words:
    """Return int64 words shifted right without their sign, ``bits`` from 1 to 63."""
    return (word >> bits) & ((1 << (64 - bits)) - 1)


def position_words(seed: Words, position: Words) -> Words:
    """Return hashes of seeds and positions, the first part of a uniform's word.

    Args:
        seed: int64; seeds of 2^63 and more less 2^64.
        position: int64, of a node in its graph.
    """
    return scrambled(seed + (position + 1) * GOLDEN_GAMMA)


def slot_words(slot: Words) -> Words:
    """Return hashes of the slots of decisions, the second part, which is mixed in by xor."""
    return scrambled((slot + 1) * GOLDEN_GAMMA)


def derive_seed(seed: int, *names: str | int) -> int:
    """Return a 63-bit seed that depends on ``seed`` and on every name, in order.

    The derivation is a hash, so that streams of neighboring seeds or names are unrelated.
    """
    text = "/".join([str(int(seed)), *map(str, names)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def numpy_generator(seed: int, *names: str | int) -> np.random.Generator:
    """Return a numpy generator for the stream ``names`` of ``seed``."""
    return np.random.default_rng(derive_seed(seed, *names))
