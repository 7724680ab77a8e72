"""One stream of uniforms per sample, evaluated for all samples at once.

The stream of a sample is SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): number k is a mix of
``state + k * gamma``, so any position of any stream is a few integer operations on a tensor. The
uniforms of a sample therefore depend only on its own seed and how many it has used.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from layerdag._runtime import GOLDEN_GAMMA, derive_seed, scrambled, shifted_right


class SampleStreams:
    """A stream for each of B samples.

    Args:
        seeds: Seed of each sample.
        device: Where the numbers are needed.
    """

    def __init__(self, seeds: Sequence[int], device: torch.device | str = "cpu") -> None:
        states = [derive_seed(seed, "sample") for seed in seeds]
        self._state_B = torch.tensor(states, dtype=torch.int64, device=device)
        self._used_B = torch.zeros_like(self._state_B)

    def uniforms(self, counts_B: Tensor) -> Tensor:
        """Return the next ``counts_B[b]`` uniforms of each stream, end to end.

        Args:
            counts_B: int64, how many each sample needs now.

        Returns:
            float64 in (0, 1), shape (counts_B.sum(),).
        """
        total = int(counts_B.sum())
        start_B = self._used_B - (counts_B.cumsum(0) - counts_B)
        start_R = torch.repeat_interleave(start_B, counts_B, output_size=total)
        state_R = torch.repeat_interleave(self._state_B, counts_B, output_size=total)
        position_R = start_R + torch.arange(1, total + 1, device=counts_B.device)
        self._used_B = self._used_B + counts_B
        return _to_unit(scrambled(state_R + position_R * GOLDEN_GAMMA))


def _to_unit(word_R: Tensor) -> Tensor:
    """Turn the upper 53 bits into a number strictly between 0 and 1."""
    return (shifted_right(word_R, 11).double() + 0.5) * 2.0**-53
