"""Codes of attributes that training nodes have together.

Shape letters: B graphs, F feature columns, K codes.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from layerdag.dag.dag import GraphSizes
from layerdag.dag.statistics import GraphStatistics


class AllowedCodes(nn.Module):
    """The codes of later attributes that training nodes with a code have.

    Without statistics every code is allowed.
    """

    allowed_FF: Tensor

    def __init__(self, sizes: GraphSizes, statistics: GraphStatistics | None) -> None:
        super().__init__()
        self.sizes = sizes.attributes
        self.starts = [sum(self.sizes[:a]) for a in range(len(self.sizes))]
        count = sum(self.sizes)
        allowed_FF = torch.ones((count, count), dtype=torch.bool)
        for a, later in enumerate(statistics.allowed_codes if statistics else ()):
            for b, lists in enumerate(later, start=a + 1):
                columns = slice(self.starts[b], self.starts[b] + self.sizes[b])
                for code, codes in enumerate(lists):
                    if codes:
                        allowed_FF[self.starts[a] + code, columns] = False
                        allowed_FF[self.starts[a] + code, [self.starts[b] + c for c in codes]] = (
                            True
                        )
        self.register_buffer("allowed_FF", allowed_FF, persistent=False)

    def given(self, attribute: int, code_B: Int[Tensor, " B"]) -> Bool[Tensor, "B F"]:
        """Return what nodes with these codes of an attribute may have in all attributes."""
        return self.allowed_FF[self.starts[attribute] + code_B]

    def limit(
        self, logits_BK: Float[Tensor, "B K"], allowed_BF: Bool[Tensor, "B F"], attribute: int
    ) -> Float[Tensor, "B K"]:
        """Rule out codes of an attribute that the earlier ones do not allow.

        Where they allow none, or none that is possible otherwise, nothing is ruled out.
        """
        start = self.starts[attribute]
        fits_BK = allowed_BF[:, start : start + self.sizes[attribute]] & (logits_BK > -torch.inf)
        fits_BK = fits_BK | ~fits_BK.any(dim=1, keepdim=True)
        return logits_BK.masked_fill(~fits_BK, -torch.inf)
