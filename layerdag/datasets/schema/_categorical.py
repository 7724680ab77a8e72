"""Categorical node attributes: words and their codes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from layerdag._runtime import did_you_mean
from layerdag.codec import OTHER, AttributedGraph
from layerdag.errors import VocabularyError

MAX_WORD = 4096
"""Characters of a word of a vocabulary that comes from outside."""


@dataclass(frozen=True)
class CategoryAttribute:
    """A categorical node attribute.

    Attributes:
        name: Attribute name.
        values: Code by position; if ``<other>`` is among them, unknown words map there.
    """

    name: str
    values: tuple[str, ...]

    @classmethod
    def fit(cls, name: str, categories: set[str], *, open_ended: bool) -> "CategoryAttribute":
        """Return the attribute with the words of the training graphs in alphabetical order.

        Args:
            name: Attribute name.
            categories: All words of the training graphs.
            open_ended: Whether words that no training graph has are allowed, as ``<other>``.
        """
        closed = sorted(categories - {OTHER})
        return cls(name, (*closed, OTHER) if open_ended or OTHER in categories else tuple(closed))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "CategoryAttribute":
        """Rebuild from ``asdict``. Raises KeyError, TypeError or ValueError if malformed."""
        return cls(str(data["name"]), words_of(data["values"]))

    @property
    def num_codes(self) -> int:
        """Number of codes."""
        return len(self.values)

    def encode(self, categories: Sequence[str]) -> np.ndarray:
        """Return the code of each word, int64 (N,).

        Raises:
            VocabularyError: If a word is unknown and the vocabulary has no ``<other>``.
        """
        code_of = {category: code for code, category in enumerate(self.values)}
        fallback = code_of.get(OTHER)
        codes = [code_of.get(category, fallback) for category in categories]
        if None in codes:
            node = codes.index(None)
            raise VocabularyError(
                f"Node {node} has {self.name} '{categories[node]}', which no training graph has."
                f"{did_you_mean(categories[node], self.values)} "
                "Fit the schema on data that contains it."
            )
        return np.array(codes, dtype=np.int64)

    def decode(self, code_N: np.ndarray) -> list[str]:
        """Return the word of each code.

        Raises:
            VocabularyError: If a code is not one of ``num_codes``.
        """
        if code_N.size and not 0 <= code_N.min() <= code_N.max() < self.num_codes:
            raise VocabularyError(
                f"Attribute '{self.name}' has codes 0 to {self.num_codes - 1}, found "
                f"{int(code_N.min())} to {int(code_N.max())}; decode with the schema of the model."
            )
        return [self.values[code] for code in code_N.tolist()]


def fit_category(name: str, graphs: Sequence[AttributedGraph]) -> CategoryAttribute:
    """Return the attribute with every word of the training graphs and of fixed vocabularies."""
    categories = {category for graph in graphs for category in graph.categories[name]}
    categories.update(category for graph in graphs for category in graph.vocabularies.get(name, ()))
    open_ended = any(name in graph.open_vocabularies for graph in graphs)
    return CategoryAttribute.fit(name, categories, open_ended=open_ended)


def words_of(values: Any) -> tuple[str, ...]:
    """Return a list of distinct strings as a tuple. Raises TypeError or ValueError otherwise."""
    if not isinstance(values, list | tuple) or not all(isinstance(v, str) for v in values):
        raise TypeError(f"a list of strings is needed, found {values!r:.60}")
    if len(set(values)) != len(values):
        raise ValueError("a word occurs twice")
    if max(map(len, values), default=0) > MAX_WORD or any(map(_is_unwritable, values)):
        raise ValueError(f"a word is longer than {MAX_WORD} or cannot be written to a file")
    return tuple(values)


def _is_unwritable(category: str) -> bool:
    """Return whether a word has control characters or halves of characters, which XML forbids."""
    return any(
        char < " " or "\ud800" <= char <= "\udfff" for char in category if char not in "\t\n\r"
    )
