"""Noise, samples and coins of private tuning."""

import secrets

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


class SecretGenerator:
    """numpy's Philox with a secret key of the operating system, which is written nowhere.

    Who knows the key can subtract the noise, so that the seed of a run has no part in it. Philox is
    made for statistics and not for cryptography, and its normal variates are numbers of double
    precision, not reals (docs/how-to/differential-privacy.md).

    Args:
        key: For tests and benchmarks; None draws a secret one.
    """

    def __init__(self, key: int | None = None) -> None:
        self.is_secret = key is None
        self._numpy = np.random.Generator(
            np.random.Philox(key=secrets.randbits(128) if key is None else key)
        )

    def coins(self, count: int, rate: float) -> np.ndarray:
        """Return independent events of probability ``rate``, bool (count,)."""
        return np.asarray(self._numpy.random(count) < rate)

    def normal(self, count: int) -> Float[Tensor, " P"]:
        """Return standard normal noise of double precision, shape (count,)."""
        return torch.from_numpy(self._numpy.standard_normal(count))

    @property
    def description(self) -> str:
        """The generator, and where its key comes from."""
        source = (
            "a secret key of the operating system"
            if self.is_secret
            else "a key that was given, so that whoever knows it can subtract the noise"
        )
        return f"numpy Philox4x64, {source}"
