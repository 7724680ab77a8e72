"""A linear layer as one rank holds it, and what an operator takes."""

from dataclasses import dataclass

Cost = tuple[int, int]
"""Operations, and bytes read and written."""


@dataclass(frozen=True)
class Linear:
    """A linear layer as one rank holds it.

    Attributes:
        inputs: Columns of its input here.
        outputs: Columns of its output here.
        copies: How many of them (experts of this rank) share the tokens.
    """

    inputs: int
    outputs: int
    copies: int = 1
