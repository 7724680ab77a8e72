"""Conditions of graphs, each of which may be unknown.

Shape letters: B graphs, C numeric conditions, M categorical conditions, R rows.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Conditions:
    """Encoded conditions of B graphs."""

    numeric_BC: Float[Tensor, "B C"]  # standardized numbers; NaN is unknown
    category_BM: Int[Tensor, "B M"]  # int64 codes; -1 is unknown
    # numbers of nodes and of layers asked for; NaN is unknown, None is unknown for all
    sizes_B2: Float[Tensor, "B 2"] | None = None

    def unknown(self) -> "Conditions":
        """Return conditions of the same shape of which nothing is known."""
        return Conditions(
            torch.full_like(self.numeric_BC, torch.nan), torch.full_like(self.category_BM, -1)
        )

    @property
    def known_sizes_B2(self) -> Float[Tensor, "B 2"]:
        """Numbers of nodes and of layers asked for, NaN where they are unknown, shape (B, 2)."""
        if self.sizes_B2 is not None:
            return self.sizes_B2
        return torch.full((len(self.category_BM), 2), torch.nan, device=self.category_BM.device)

    def dropped(self, uniform: Float[Tensor, "B _"], rate: float) -> "Conditions":
        """Make conditions unknown at random: each with probability ``rate``, and all together.

        The two kinds of dropping allow requests for any subset of conditions, and for none, which
        classifier-free guidance needs (Ho and Salimans, arXiv 2207.12598). There is one uniform in
        [0, 1) per number, one per category, one for each of the two sizes if they are asked for,
        and one for all of a graph.
        """
        drop = (uniform[:, :-1] < rate) | (uniform[:, -1:] < rate)
        count = self.numeric_BC.shape[1]
        stop = count + self.category_BM.shape[1]
        sizes_B2 = self.sizes_B2
        return Conditions(
            self.numeric_BC.masked_fill(drop[:, :count], torch.nan),
            self.category_BM.masked_fill(drop[:, count:stop], -1),
            None if sizes_B2 is None else sizes_B2.masked_fill(drop[:, stop:], torch.nan),
        )

    def of(self, row_R: Shaped[Tensor, " R"]) -> "Conditions":
        """Return the conditions of the graphs ``row_R``."""
        sizes_R2 = None if self.sizes_B2 is None else self.sizes_B2[row_R]
        return Conditions(self.numeric_BC[row_R], self.category_BM[row_R], sizes_R2)

    def followed_by(self, other: "Conditions") -> "Conditions":
        """Return these conditions, then those of ``other``."""
        return Conditions(
            torch.cat([self.numeric_BC, other.numeric_BC]),
            torch.cat([self.category_BM, other.category_BM]),
            torch.cat([self.known_sizes_B2, other.known_sizes_B2]),
        )
