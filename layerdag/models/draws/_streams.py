"""Uniforms that depend on a sample's own seed alone, computed for all samples at once.

Both kinds are SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): number k of a stream is a mix of
``state + k * gamma``, so any position of any stream is a few integer operations on an array. A
graph therefore does not depend on the other graphs of its batch. ``SampleStreams`` are read one
after another, for models whose draws follow each other; ``slot_uniforms`` are addressed by position
and slot, for models that make the same decisions about every node.

Shape letters: B graphs, R rows, U uniforms.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float64, Int, UInt64
from torch import Tensor

from layerdag._runtime import GOLDEN_GAMMA, derive_seed, scrambled, shifted_right

_UNIT = 2.0**-53


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

    def uniforms(self, counts_B: Int[Tensor, " B"]) -> Float64[Tensor, " R"]:
        """Return the next ``counts_B[b]`` uniforms of each stream, end to end.

        Args:
            counts_B: int64, how many each sample needs now.

        Returns:
            In (0, 1), shape (counts_B.sum(),).
        """
        total = int(counts_B.sum())
        start_B = self._used_B - (counts_B.cumsum(0) - counts_B)
        start_R = torch.repeat_interleave(start_B, counts_B, output_size=total)
        state_R = torch.repeat_interleave(self._state_B, counts_B, output_size=total)
        position_R = start_R + torch.arange(1, total + 1, device=counts_B.device)
        self._used_B = self._used_B + counts_B
        word_R = scrambled(state_R + position_R * GOLDEN_GAMMA)
        return (shifted_right(word_R, 11).double() + 0.5) * _UNIT


def slot_uniforms(
    seed_B: UInt64[np.ndarray, " B"], position_B: Int[np.ndarray, " B"], slots: range
) -> Float64[Tensor, "B U"]:
    """Return uniforms in [0, 1), one for each slot of each sample.

    Args:
        seed_B: Seed of each sample.
        position_B: Position of the node in its graph.
        slots: Slots of the decisions about that node.
    """
    step_B = (position_B.astype(np.int64) + 1) * GOLDEN_GAMMA
    word_B1 = scrambled(seed_B.astype(np.int64) + step_B)[:, None]
    slot_U = np.arange(slots.start, slots.stop, dtype=np.int64)
    word_BU = scrambled(word_B1 ^ scrambled((slot_U + 1) * GOLDEN_GAMMA))
    return torch.from_numpy(shifted_right(word_BU, 11).astype(np.float64) * _UNIT)
