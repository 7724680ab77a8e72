"""Numbers of nodes that are given, not sampled: those of first and of last nodes.

Shape letters: N nodes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class GivenNumbers:
    """The numbers of the given nodes of a sample.

    Attributes:
        first: Values of each numeric attribute of the first nodes, float64, NaN for absent.
        last: The same of the last nodes, which may be none.
    """

    first: Mapping[str, np.ndarray]
    last: Mapping[str, np.ndarray]

    @classmethod
    def of_first(cls, numbers: Mapping[str, np.ndarray]) -> "GivenNumbers":
        """Return the numbers of the first nodes, where no last ones are given."""
        return cls(numbers, {name: value_N[:0] for name, value_N in numbers.items()})

    def in_place_of(self, drawn: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the numbers of all nodes, of which ``drawn`` has too many."""
        return {
            name: np.concatenate(
                [value_N, drawn[name][len(value_N) : len(drawn[name]) - len(self.last[name])],
                 self.last[name]]
            )
            for name, value_N in self.first.items()
        }  # fmt: skip

    def rows(self, num_nodes: int) -> list[int]:
        """Return the places of the given nodes among all of a sample."""
        first, last = (len(next(iter(part.values()), ())) for part in (self.first, self.last))
        return [*range(first), *range(num_nodes - last, num_nodes)]
