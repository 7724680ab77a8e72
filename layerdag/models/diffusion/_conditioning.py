"""Graph-level conditions as one vector: several at once, each of which may be unknown.

Shape letters: B graphs, C numeric conditions, D width of a state, M categorical conditions.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from layerdag.graph import GraphSizes
from layerdag.models import Conditions


def drop_conditions(conditions: Conditions, rate: float, generator: torch.Generator) -> Conditions:
    """Drop conditions as ``Conditions.dropped``; first one number per graph is drawn for all."""
    numeric_BC, category_BM = conditions.numeric_BC, conditions.category_BM
    device = numeric_BC.device
    all_B1 = torch.rand(numeric_BC.shape[0], 1, generator=generator, device=device)
    each_BC = torch.rand(numeric_BC.shape, generator=generator, device=device)
    each_BM = torch.rand(category_BM.shape, generator=generator, device=device)
    return conditions.dropped(torch.cat([each_BC, each_BM, all_B1], dim=1), rate)


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

    def forward(self, conditions: Conditions) -> Float[Tensor, "B D"]:
        """Return the vectors, shape (B, F)."""
        numeric_BC, category_BM = conditions.numeric_BC, conditions.category_BM
        out_BD = self.base.expand(numeric_BC.shape[0], -1)
        if self.numeric is not None:
            known_BC = ~numeric_BC.isnan()
            value_BC = torch.where(known_BC, numeric_BC, 0.0)
            out_BD = out_BD + self.numeric(torch.cat([value_BC, known_BC.to(value_BC)], dim=1))
        for column, table in enumerate(self.categories):
            out_BD = out_BD + table(category_BM[:, column] + 1)
        return out_BD
