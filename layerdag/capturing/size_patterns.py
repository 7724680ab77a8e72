"""Results of operators by how sizes are related, not by their values.

Of a matrix product [n, k] x [k, m] PyTorch has to be asked once: the sizes of its result are among
those of its arguments, whichever these are. So it is of operators on each element, of sums over
dimensions, and of permutations. A pattern tells which sizes are equal, which are 1, and in which
order dimensions are in memory, which decides the strides of results.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

import torch

from layerdag.hardware.operators import OperatorKind, Trait, find_operator

_KEEPS = Trait.SIZES_OF_ARGUMENTS


@lru_cache(maxsize=4096)
def keeps_sizes(func: Any) -> bool:
    """Return whether each size of a result is one of the arguments, or 1, whatever they are."""
    row = find_operator(func._schema.name)
    if row is not None and (row.kind is OperatorKind.OPTIMIZER or _KEEPS in row.traits):
        return True
    return torch.Tag.pointwise in func.tags


@final
@dataclass(frozen=True)
class Layout:
    """Sizes and their order in memory, without numbers."""

    sizes: tuple[int, ...]  # of each dimension 1, or 2 + i for the number i of the pattern
    # Dimensions from the outermost one in memory; those of stride 0 are left out
    order: tuple[int, ...]
    dense: bool  # whether there are no gaps

    @classmethod
    def of(
        cls, shape: Sequence[int], stride: Sequence[int], numbers: dict[int, int]
    ) -> "Layout | None":
        """Return the layout of a tensor; None if it would not determine all.

        ``numbers`` has 2 + i for the pattern's number i; sizes that are new are added.
        """
        if 0 in shape:
            return None
        order = sorted((at for at, step in enumerate(stride) if step), key=lambda at: -stride[at])
        dense, expected = True, 1
        for at in reversed(order):
            dense &= stride[at] == expected
            expected *= shape[at]
        # Beside gaps, equal strides and those of sizes of 1 may decide those of results.
        if not dense and (1 in shape or len({stride[at] for at in order}) < len(order)):
            return None
        sizes = (1 if n == 1 else numbers.setdefault(n, len(numbers) + 2) for n in shape)
        return cls(tuple(sizes), tuple(order), dense)

    def with_numbers(self, numbers: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shape and the strides, without gaps, with the pattern's numbers."""
        shape = tuple(1 if size == 1 else numbers[size - 2] for size in self.sizes)
        stride, expected = [0] * len(shape), 1
        for at in reversed(self.order):
            stride[at] = expected
            expected *= shape[at]
        return shape, tuple(stride)


@final
class Pattern:
    """How the sizes of a call's tensors are related.

    Args:
        key: What the call's results depend on: after each ``torch.Size`` strides and offset.

    Attributes:
        key: The same with a ``Layout`` in place of these; None where it would not decide results.
        numbers: The sizes other than 1, in order.
    """

    def __init__(self, key: Sequence[Any]) -> None:
        numbers: dict[int, int] = {}
        found: list[Any] = []
        parts = iter(key)
        self.key: tuple[Any, ...] | None = None
        self.numbers: tuple[int, ...] = ()
        for part in parts:
            if type(part) is not torch.Size:
                found.append(part)
                continue
            layout = Layout.of(part, next(parts), numbers)
            if layout is None:
                return
            found.append(layout)
            next(parts)  # the offset
        self.key, self.numbers = tuple(found), tuple(numbers)

    def layout(self, shape: Sequence[int], stride: Sequence[int]) -> Layout | None:
        """Return the layout of a result; None if it has gaps, or sizes that are no argument's."""
        known = dict(zip(self.numbers, range(2, 2 + len(self.numbers)), strict=True))
        if any(size != 1 and size not in known for size in shape):
            return None
        found = Layout.of(shape, stride, known)
        return found if found is not None and found.dense else None
