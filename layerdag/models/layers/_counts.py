"""Counts without an upper bound as categories: exact while small, then ever wider bins.

Shape letters: K codes (K1: their borders, one more).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

_GROWTH = 1.25


@dataclass(frozen=True)
class CountCode:
    """A code for non-negative integers: one category each up to ``exact``, wider bins above.

    The last bin lies beyond the largest count of the training data, so that unseen counts have a
    positive probability. It starts one past the largest count and ends at 1.5 times its start.

    Attributes:
        exact: Counts 0 ... ``exact`` are categories of their own.
        largest: Largest count of the training data.
    """

    exact: int
    largest: int

    @property
    def lows(self) -> tuple[int, ...]:
        """Smallest count of each bin, followed by the end of the last bin."""
        lows = list(range(self.exact + 1))
        while lows[-1] < self.largest + 1:
            lows.append(min(max(lows[-1] + 1, int(lows[-1] * _GROWTH)), self.largest + 1))
        return (*lows, max(lows[-1] + 1, lows[-1] * 3 // 2))

    @property
    def num_codes(self) -> int:
        """Number of categories."""
        return len(self.lows) - 1


class Counter(nn.Module):
    """``CountCode`` on tensors; holds the bin borders on the device of the model."""

    lows_K1: Tensor

    def __init__(self, code: CountCode) -> None:
        super().__init__()
        self.num_codes = code.num_codes
        self.register_buffer("lows_K1", torch.tensor(code.lows), persistent=False)

    def encode(self, count: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
        """Return the code of each count; counts beyond the last bin get the last code."""
        code = torch.searchsorted(self.lows_K1, count.contiguous(), right=True) - 1
        return code.clamp(0, self.num_codes - 1)

    def decode(
        self, code: Int[Tensor, "*shape"], u: Float[Tensor, "*shape"]
    ) -> Int[Tensor, "*shape"]:
        """Return the count at position ``u`` in [0, 1) of the bin ``code``."""
        low = self.lows_K1[code]
        width = self.lows_K1[code + 1] - low
        return low + (u * width).to(torch.int64).clamp(max=width - 1)

    def log_width(self) -> Float[Tensor, " K"]:
        """Return the log of the number of counts in each bin."""
        return self.lows_K1.diff().log()
