"""In-degrees as categories: one code for each in-degree that training graphs have.

Shape letters: K codes, N nodes.
"""

import torch
from jaxtyping import Int
from torch import Tensor, nn

from layerdag.graph import GraphStatistics


class DegreeCodes(nn.Module):
    """The table of in-degrees and the way there and back.

    A trace may have a node with hundreds of parents and yet few distinct in-degrees.

    Args:
        statistics: Of the training graphs.
    """

    value_K: Tensor

    def __init__(self, statistics: GraphStatistics) -> None:
        super().__init__()
        counts: dict[int, int] = {0: 0}
        for pairs in statistics.in_degrees:
            for degree, count in pairs:
                counts[degree] = counts.get(degree, 0) + count
        values = sorted(counts)
        self.counts = tuple(counts[value] for value in values)
        self.register_buffer("value_K", torch.tensor(values), persistent=False)

    def __len__(self) -> int:
        return len(self.counts)

    def encode(self, degree_N: Int[Tensor, " N"]) -> Int[Tensor, " N"]:
        """Return the code of the largest known in-degree that is at most ``degree_N``."""
        return torch.searchsorted(self.value_K, degree_N, right=True) - 1

    def decode(self, code_N: Int[Tensor, " N"]) -> Int[Tensor, " N"]:
        """Return the in-degree behind each code."""
        return self.value_K[code_N]
