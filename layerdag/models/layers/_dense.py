"""Maps and dropout that act on every row by itself.

Shape letters: D width of a state, R rows.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class MLP(nn.Sequential):
    """Two linear maps with GELU between."""

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__(nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, outputs))


def dropout(
    x: Float[Tensor, "*shape"], rate: float, generator: torch.Generator | None
) -> Float[Tensor, "*shape"]:
    """Zero a fraction ``rate`` of ``x`` and scale up the rest; without a generator, do nothing."""
    if generator is None or rate == 0.0:
        return x
    keep = torch.rand(x.shape, generator=generator, device=x.device, dtype=x.dtype).ge_(rate)
    return x * keep.div_(1.0 - rate)


def row_dropout(
    x_RD: Float[Tensor, "R D"], rate: float, generator: torch.Generator | None
) -> Float[Tensor, "R D"]:
    """Zero whole rows with probability ``rate``; without a generator, do nothing."""
    if generator is None or rate == 0.0:
        return x_RD
    draw_R1 = torch.rand(x_RD.shape[0], 1, generator=generator, device=x_RD.device)
    return x_RD * (draw_R1 >= rate)
