"""Which rows of the old model a row of the new model starts from: by word, by kind, by value.

A *source* is a matrix (new codes x old codes): row i says how the row of code i is mixed from old
rows. A row of zeros has nothing to start from and keeps its fresh initialization.

Shape letters: K codes of the new schema, J codes of the old one, V values, F features.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from layerdag.codec import is_communication
from layerdag.datasets.schema import (
    CategoryAttribute,
    CategoryCondition,
    GraphSchema,
    NumericAttribute,
)

BY_NAME: Final = "by name"
BY_KIND: Final = "from their kind"
BY_VALUE: Final = "by value"
FRESH: Final = "fresh"

# Values inside a bin that vote for the old bins that hold them.
_VALUES_PER_BIN = 16


@dataclass(frozen=True, eq=False)
class Source:
    """Where the rows of some codes come from.

    Attributes:
        matrix_KJ: float64; row i mixes the old rows into the row of code i.
        offset_K: float64, added to the entries of a bias.
        how: For each code, one of the constants of this module.
    """

    matrix_KJ: np.ndarray
    offset_K: np.ndarray
    how: tuple[str, ...]

    @classmethod
    def of(cls, matrix_KJ: np.ndarray, how: Sequence[str]) -> "Source":
        """Return a source without offsets."""
        return cls(matrix_KJ, np.zeros(len(matrix_KJ)), tuple(how))

    @classmethod
    def none(cls, new: int, old: int) -> "Source":
        """Return the source of codes that nothing is known of."""
        return cls.of(np.zeros((new, old)), [FRESH] * new)


def word_kind(word: str) -> str:
    """Return what kind of operator or other value a word names, to judge by its name.

    Returns:
        "message" (c10d::send, c10d::recv), "collective" (other c10d operators), "optimizer"
        (operators over lists of tensors, fused steps), "backward", "compute" (other operators) or
        "value" (what is no operator).
    """
    if is_communication(word):
        return "message" if word.endswith(("::send", "::recv")) else "collective"
    space, colons, name = word.partition("::")
    if not colons or not space:
        return "value"
    if "_foreach_" in name or name.startswith("_fused_"):
        return "optimizer"
    return "backward" if "backward" in name else "compute"


def by_word(new: Sequence[str], old: Sequence[str]) -> Source:
    """Map words: the same word, else the mean of the old words of its kind, else of all words."""
    index_of = {word: index for index, word in enumerate(old)}
    kinds = np.array([word_kind(word) for word in old])
    matrix_KJ, how = np.zeros((len(new), len(old))), []
    for row_J, word in zip(matrix_KJ, new, strict=True):
        if word in index_of:
            row_J[index_of[word]] = 1.0
            how.append(BY_NAME)
            continue
        alike_J = kinds == word_kind(word)
        alike_J = alike_J if alike_J.any() else np.ones_like(alike_J)
        row_J[alike_J] = 1.0 / alike_J.sum()
        how.append(BY_KIND)
    return Source.of(matrix_KJ, how)


def by_same_name(new: Sequence[str], old: Sequence[str]) -> Source:
    """Map words to the same word; others have nothing to start from."""
    matrix_KJ = np.array([[float(a == b) for b in old] for a in new]).reshape(len(new), len(old))
    return Source.of(matrix_KJ, [BY_NAME if row.any() else FRESH for row in matrix_KJ])


def by_bin(new: NumericAttribute, old: NumericAttribute) -> Source:
    """Map bins: the same bin, else the mean of the old bins over the values of the new one.

    A value outside of all old bins counts for the nearest one. Code 0 is "absent" in both.
    """
    matrix_KJ = np.zeros((new.num_codes, old.num_codes))
    matrix_KJ[0, 0] = 1.0
    index_of = {row: index for index, row in enumerate(old.bins, start=1)}
    position_V = (np.arange(_VALUES_PER_BIN) + 0.5) / _VALUES_PER_BIN
    for code, row in enumerate(new.bins, start=1):
        if row in index_of:
            matrix_KJ[code, index_of[row]] = 1.0
        elif old.bins:
            value_V = new.decode(np.full(_VALUES_PER_BIN, code), position_V)
            matrix_KJ[code] = np.bincount(old.encode(value_V)[0], minlength=old.num_codes)
            matrix_KJ[code] /= _VALUES_PER_BIN
    return Source.of(matrix_KJ, [BY_VALUE if row.any() else FRESH for row in matrix_KJ])


def by_count(new_lows: Sequence[int], old_lows: Sequence[int]) -> Source:
    """Map bins of whole numbers by the numbers that they share.

    Args:
        new_lows: Smallest number of each bin, followed by one past the last bin's largest.
        old_lows: The same of the old bins; what lies beyond them counts for the last one.
    """
    low_J, high_J = np.array(old_lows[:-1]), np.array(old_lows[1:], dtype=float)
    high_J[-1] = np.inf
    rows = []
    for low, high in pairwise(new_lows):
        shared_J = np.clip(np.minimum(high, high_J) - np.maximum(low, low_J), 0, None)
        rows.append(shared_J / shared_J.sum())
    return Source.of(np.array(rows), [BY_VALUE] * len(rows))


def by_largest_below(new: Sequence[int], old: Sequence[int]) -> Source:
    """Map numbers to the largest old number that is not larger; both ascend from 0."""
    matrix_KJ = np.zeros((len(new), len(old)))
    matrix_KJ[np.arange(len(new)), np.searchsorted(old, new, side="right") - 1] = 1.0
    return Source.of(matrix_KJ, [BY_VALUE] * len(new))


def attribute_source(column: int, here: GraphSchema, there: GraphSchema) -> Source | None:
    """Return the source of an attribute's codes, None if the old schema has no such attribute.

    Args:
        column: Of the attribute in the new schema.
        here: The new schema.
        there: The old schema.
    """
    new = here.attributes[column]
    old = next((a for a in there.attributes if a.name == new.name), None)
    if isinstance(new, CategoryAttribute) and isinstance(old, CategoryAttribute):
        return by_word(new.values, old.values)
    if isinstance(new, NumericAttribute) and isinstance(old, NumericAttribute):
        return by_bin(new, old)
    return None


def category_source(new: CategoryCondition, there: GraphSchema) -> Source | None:
    """Return the source of a condition's words, None if the old schema has no such condition."""
    old = next((c for c in there.category_conditions if c.name == new.name), None)
    return None if old is None else by_word(new.values, old.values)
