"""Embeddings of codes and of positions.

Shape letters: D width of a state, F feature columns, R rows.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


class SumEmbedding(nn.Module):
    """Sum of one embedding per column: a linear layer on one-hot codes, computed as one lookup.

    Args:
        cardinalities: Number of codes of each column.
        width: D of the result.
        std: Standard deviation of an initial weight; None makes that of the sum 1.
        name: Name of the weights in checkpoints; "table" in the reference model's.
    """

    weight: nn.Parameter
    offset_F: Tensor

    def __init__(
        self,
        cardinalities: Sequence[int],
        width: int,
        *,
        std: float | None = None,
        name: str = "weight",
    ) -> None:
        super().__init__()
        std = len(cardinalities) ** -0.5 if std is None else std
        self.name = name
        self.register_parameter(name, nn.Parameter(torch.randn(sum(cardinalities), width) * std))
        ends_F = torch.tensor(cardinalities).cumsum(0)
        self.register_buffer("offset_F", ends_F - torch.tensor(cardinalities), persistent=False)

    def forward(self, codes_RF: Int[Tensor, "R F"]) -> Float[Tensor, "R D"]:
        """Return the summed embeddings."""
        table: Tensor = getattr(self, self.name)
        return nn.functional.embedding_bag(codes_RF + self.offset_F, table, mode="sum")


def sinusoids(value_R: Float[Tensor, " R"], width: int) -> Float[Tensor, "R {width//2*2}"]:
    """Return sines and cosines of ``value_R`` at geometric frequencies, shape (R, width).

    Frequencies run from 1 to 1/1000 (Vaswani et al., arXiv 1706.03762, section 3.5).
    """
    half = width // 2
    frequency = torch.exp(
        torch.arange(half, device=value_R.device, dtype=value_R.dtype) * (-math.log(1000) / half)
    )
    angle = value_R.unsqueeze(-1) * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=-1)
