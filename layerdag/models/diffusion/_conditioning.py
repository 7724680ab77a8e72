"""Graph-level conditions as one vector: several at once, each of which may be unknown."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from layerdag.graph import GraphSizes


@dataclass(frozen=True, eq=False)
class Conditions:
    """Encoded conditions of B graphs.

    Attributes:
        numeric_BC: Standardized numbers; NaN is unknown.
        category_BM: int64 codes; -1 is unknown.
    """

    numeric_BC: Tensor
    category_BM: Tensor

    def unknown(self) -> "Conditions":
        """Return conditions of the same shape of which nothing is known."""
        return Conditions(
            torch.full_like(self.numeric_BC, float("nan")), torch.full_like(self.category_BM, -1)
        )

    def dropped(self, share: float, generator: torch.Generator) -> "Conditions":
        """Make conditions unknown at random: each with probability ``share``, and all together.

        The two kinds of dropping allow requests for any subset of conditions, and for none,
        which classifier-free guidance needs (Ho and Salimans, arXiv 2207.12598).
        """
        numeric_BC, category_BM = self.numeric_BC, self.category_BM
        device, graphs = numeric_BC.device, numeric_BC.shape[0]
        all_B1 = torch.rand(graphs, 1, generator=generator, device=device) < share
        each_BC = torch.rand(numeric_BC.shape, generator=generator, device=device) < share
        each_BM = torch.rand(category_BM.shape, generator=generator, device=device) < share
        return Conditions(
            numeric_BC.masked_fill(all_B1 | each_BC, float("nan")),
            category_BM.masked_fill(all_B1 | each_BM, -1),
        )

    def of(self, graphs_G: Tensor) -> "Conditions":
        """Return the rows of the graphs ``graphs_G``."""
        return Conditions(self.numeric_BC[graphs_G], self.category_BM[graphs_G])


class ConditionEncoder(nn.Module):
    """Sum of one embedding per condition; an unknown one has an embedding of its own.

    Numeric conditions arrive standardized; each passes through a small network of its value, so
    that the whole range of labels varies the embedding.

    Args:
        sizes: Numbers of conditions and categories.
        width: F of the result.
    """

    def __init__(self, sizes: GraphSizes, width: int) -> None:
        super().__init__()
        numeric, categories = sizes.numeric_conditions, sizes.category_conditions
        self.base = nn.Parameter(torch.zeros(width))
        self.numeric = nn.Sequential(
            nn.Linear(2 * numeric, width), nn.GELU(), nn.Linear(width, width)
        ) if numeric else None  # fmt: skip
        self.categories = nn.ModuleList([nn.Embedding(count + 1, width) for count in categories])

    def forward(self, conditions: Conditions) -> Tensor:
        """Return the vectors, shape (B, F)."""
        numeric_BC, category_BM = conditions.numeric_BC, conditions.category_BM
        out_BF = self.base.expand(numeric_BC.shape[0], -1)
        if self.numeric is not None:
            known_BC = ~numeric_BC.isnan()
            value_BC = torch.where(known_BC, numeric_BC, 0.0)
            out_BF = out_BF + self.numeric(torch.cat([value_BC, known_BC.to(value_BC)], dim=1))
        for column, table in enumerate(self.categories):
            out_BF = out_BF + table(category_BM[:, column] + 1)
        return out_BF
