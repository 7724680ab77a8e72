"""Conditions that are products of others in every training graph: ranks are so many replicas.

Letters: G graphs, C conditions.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from layerdag.graph import Condition

_MOST_TERMS = 4
_EQUAL = 1e-6


@dataclass(frozen=True)
class Relation:
    """A product of conditions that equals another: ``world_size = tensor x pipeline x data``.

    Attributes:
        left: Names of the factors on one side.
        right: Names of the factors on the other.
    """

    left: tuple[str, ...]
    right: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All conditions that it relates."""
        return (*self.left, *self.right)

    def solved(self, name: str, values: Mapping[str, Condition]) -> float | None:
        """Return what a condition must be, given the others; None if one of them is unknown."""
        own, other = (self.left, self.right) if name in self.left else (self.right, self.left)
        logs = [log_of(values.get(n)) for n in (*other, *(n for n in own if n != name))]
        if any(math.isnan(log) for log in logs):
            return None
        found = math.exp(sum(logs[: len(other)]) - sum(logs[len(other) :]))
        return float(round(found)) if abs(found - round(found)) < _EQUAL * found else found

    def holds(self, values: Mapping[str, Condition]) -> bool | None:
        """Return whether conditions are so related; None if one of them is unknown."""
        found = self.solved(self.left[0], values)
        given = log_of(values.get(self.left[0]))
        if found is None or math.isnan(given):
            return None
        return abs(math.log(found) - given) < _EQUAL

    def __str__(self) -> str:
        """Return it as an equation."""
        return " = ".join(" x ".join(side) for side in (self.left, self.right))


def log_of(value: Condition | None) -> float:
    """Return the logarithm of a condition, also of a word that is a number; NaN where it is none.

    The same for what is not positive.
    """
    try:
        number = math.nan if value is None else float(value)
    except ValueError:
        return math.nan
    return math.log(number) if 0 < number < math.inf else math.nan


def find_relations(names: Sequence[str], log_GC: np.ndarray) -> tuple[Relation, ...]:
    """Return the relations of two to four conditions that hold in every graph.

    Args:
        names: Of the conditions, each of which differs among graphs.
        log_GC: Their logarithms.
    """
    found: list[Relation] = []
    for terms in range(2, _MOST_TERMS + 1):
        for chosen in itertools.combinations(range(len(names)), terms):
            if any({names[c] for c in chosen} > set(known.names) for known in found):
                continue
            found.extend(_relation(names, chosen, log_GC))
    return tuple(found)


def _relation(
    names: Sequence[str], chosen: tuple[int, ...], log_GC: np.ndarray
) -> Iterator[Relation]:
    """Yield the relation of exactly these conditions, if there is one."""
    for signs in itertools.product((1, -1), repeat=len(chosen) - 1):
        sign_C = np.array((1, *signs))
        if (sign_C > 0).all():
            continue
        if np.abs(log_GC[:, chosen] @ sign_C).max() < _EQUAL:
            sides = [tuple(names[c] for c, s in zip(chosen, sign_C, strict=True) if s == side)
                     for side in (1, -1)]  # fmt: skip
            yield Relation(*sorted(sides, key=len))
            return
