"""Guidance while sampling: pairs of conditional and unconditional rows, and their logits.

Under guidance every graph has two rows of the encoder, the first half of all rows conditional and
the second half unconditional, which share the discrete decisions.

Shape letters: K codes, R rows (of the encoder: X or 2 X), X selected graphs (or candidates).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from layerdag.models.draws import guided


@dataclass(frozen=True)
class Guidance:
    """Classifier-free guidance and temperature of one request.

    Attributes:
        weight: Of guidance; with 1 there are no unconditional rows.
        temperature: Divides the logits.
    """

    weight: float
    temperature: float

    @property
    def has_pairs(self) -> bool:
        """Whether there are unconditional rows."""
        return self.weight != 1.0

    def duplicate(self, value_X: Shaped[Tensor, "X ..."]) -> Shaped[Tensor, "R ..."]:
        """Repeat the values for both rows of each pair."""
        return torch.cat([value_X, value_X]) if self.has_pairs else value_X

    def rows(self, index_X: Int[Tensor, " X"], count: int) -> Int[Tensor, " R"]:
        """Return the rows of the graphs (or candidates) ``index_X`` of ``count``."""
        return torch.cat([index_X, index_X + count]) if self.has_pairs else index_X

    def merge(self, logits_RK: Float[Tensor, "R K"]) -> Float[Tensor, "X K"]:
        """Merge the logits of both rows of each pair, and divide by the temperature."""
        if not self.has_pairs:
            return logits_RK / self.temperature
        conditional, unconditional = torch.log_softmax(logits_RK, dim=1).chunk(2)
        return guided(conditional, unconditional, self.weight) / self.temperature
