"""``SharedTable``: values that several training programs share, to draw those of a sample from.

A value that fewer than ``needed`` programs have is left out; the others come with the number of
programs, rounded up to a multiple of ``needed``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

MAX_COUNT = 1 << 40
"""Largest value and number of programs that a file may hold."""

Column = TypeVar("Column")
Value = TypeVar("Value")


@dataclass(frozen=True)
class SharedTable(Generic[Column]):
    """Columns of values, one for each entry or setting of the programs of each family."""

    columns: tuple[Column, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.columns)

    def to_dict(self) -> list[dict[str, Any]]:
        """Return the table as JSON-serializable data."""
        return [
            {name: list(v) if isinstance(v, tuple) else v for name, v in vars(column).items()}
            for column in self.columns
        ]


def draw_value(values: Sequence[Value], programs: Sequence[int], rng: np.random.Generator) -> Value:
    """Return a value with the chance of its number of programs."""
    weight_K = np.array(programs, dtype=np.float64)
    return values[int(rng.choice(len(values), p=weight_K / weight_K.sum()))]


def rounded_up(programs: int, needed: int) -> int:
    """Return a number of programs, rounded up to a multiple of ``needed``."""
    return -(-programs // needed) * needed


def are_counts(numbers: Sequence[Any]) -> bool:
    """Return whether there are numbers, all of them whole and from 1 to ``MAX_COUNT``."""
    return len(numbers) > 0 and all(type(n) is int and 0 < n <= MAX_COUNT for n in numbers)
