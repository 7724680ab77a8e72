"""Graph-level conditions: numbers standardized with their inverse, categories with their codes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from layerdag._runtime import did_you_mean
from layerdag.datasets.schema._categorical import words_of
from layerdag.errors import VocabularyError
from layerdag.graph import SHARED_BY, Condition

LABEL = "label"
"""Name of the condition that surrogates predict where nothing else is asked: a time or a cost."""

# exp of more is no float.
_LARGEST_LOG = 700.0
# Standard deviations within which the scale of a checkpoint must give numbers.
_ROOM = 40.0
# Positive values spread over more than this ratio are standardized on a log scale.
LOG_SPREAD = 20.0
MOST_QUANTILES = 21


@dataclass(frozen=True)
class NumericCondition:
    """A graph-level number, standardized by the training data.

    Attributes:
        name: Condition name.
        mean: Mean of the training values (logarithms if ``log``), to a hundredth of ``std``.
        std: Standard deviation of the same to 3 digits, at least a tiny positive number.
        log: Whether the natural logarithm is taken first.
        quantiles: At most 21 evenly spaced quantiles of the training values, to 3 significant
            digits. ``SHARED_BY`` graphs lie below the first and above the last, and as many between
            neighbors; the median alone where there are too few.
    """

    name: str
    mean: float
    std: float
    log: bool
    quantiles: tuple[float, ...]

    def draw_range(self) -> tuple[float, float]:
        """Return the smallest and largest value that several training graphs reach."""
        return self.quantiles[0], self.quantiles[-1]

    @classmethod
    def fit(cls, name: str, values: Sequence[float]) -> "NumericCondition":
        """Learn the scale from training values; those that are not finite are unknown."""
        value_B = np.asarray(values, dtype=np.float64)
        value_B = value_B[np.isfinite(value_B)]
        if not value_B.size:
            return cls(name, mean=0.0, std=1.0, log=False, quantiles=(0.0,))
        log = bool(value_B.min() > 0 and value_B.max() / value_B.min() > LOG_SPREAD)
        scaled_B = np.log(value_B) if log else value_B
        std = float(f"{max(float(scaled_B.std()), 1e-6):.3g}")
        unit = 10.0 ** (math.floor(math.log10(std)) - 2)
        mean = round(float(scaled_B.mean()) / unit) * unit
        return cls(name, mean, std, log, _shared_quantiles(value_B))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "NumericCondition":
        """Rebuild from ``asdict``. Raises KeyError, TypeError or ValueError if malformed."""
        quantiles = tuple(float(q) for q in data["quantiles"])
        mean, std = float(data["mean"]), float(data["std"])
        if not quantiles or not np.isfinite([mean, std, *quantiles]).all() or std <= 0:
            raise ValueError("mean, std and quantiles must be finite, and std positive")
        if abs(mean) + _ROOM * std > (_LARGEST_LOG if data["log"] else 1e300):
            raise ValueError(f"values of {_ROOM:g} deviations from the mean must be numbers")
        return cls(str(data["name"]), mean, std, bool(data["log"]), quantiles)

    def encode(self, value: Condition | None) -> float:
        """Return the standardized value, NaN for None.

        Raises:
            VocabularyError: If the value is no finite number, or not positive on a log scale.
        """
        if value is None:
            return math.nan
        try:
            number = float(value)
            scaled = ((math.log(number) if self.log else number) - self.mean) / self.std
            if math.isinf(scaled):
                raise ValueError("not finite")
            return scaled
        except (ValueError, TypeError, OverflowError):
            wanted = "a positive number" if self.log else "a number"
            raise VocabularyError(
                f"Condition '{self.name}' must be {wanted}, found {value!r}; most training "
                f"graphs have {self.quantiles[0]:.4g} to {self.quantiles[-1]:.4g}."
            ) from None

    def decode(self, scaled: float) -> float:
        """Return the value in its own unit for a standardized one."""
        number = scaled * self.std + self.mean
        return math.exp(min(number, _LARGEST_LOG)) if self.log else number


def _shared_quantiles(value_B: np.ndarray) -> tuple[float, ...]:
    """Return rounded quantiles with ``SHARED_BY`` values below, above and between them."""
    outside = min(SHARED_BY, (value_B.size + 1) // 2) - 1
    count = max(1, min(MOST_QUANTILES, value_B.size // SHARED_BY))
    positions = np.linspace(outside, value_B.size - 1 - outside, count)
    levels = positions / max(value_B.size - 1, 1) if count > 1 else 0.5
    return tuple(float(f"{q:.3g}") for q in np.atleast_1d(np.quantile(value_B, levels)))


@dataclass(frozen=True)
class CategoryCondition:
    """A graph-level category.

    Attributes:
        name: Condition name.
        values: Known categories, code by position.
    """

    name: str
    values: tuple[str, ...]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "CategoryCondition":
        """Rebuild from ``asdict``. Raises KeyError, TypeError or ValueError if malformed."""
        return cls(str(data["name"]), words_of(data["values"]))

    def encode(self, value: Condition | None) -> int:
        """Return the code, -1 for None.

        Raises:
            VocabularyError: If the category is unknown; names the nearest.
        """
        if value is None:
            return -1
        word = str(value)
        if word not in self.values:
            raise VocabularyError(
                f"Condition '{self.name}' has no value '{word}'.{did_you_mean(word, self.values)} "
                f"Known: {', '.join(self.values)}."
            )
        return self.values.index(word)


def fit_conditions(
    rows: Sequence[Mapping[str, Condition]],
) -> tuple[tuple[NumericCondition, ...], tuple[CategoryCondition, ...]]:
    """Return the conditions of training graphs; one that any graph gives in words is a category."""
    names = dict.fromkeys(name for row in rows for name in row)
    found = {name: [row[name] for row in rows if name in row] for name in names}
    texts = {name for name, values in found.items() if any(isinstance(v, str) for v in values)}
    numeric = tuple(
        NumericCondition.fit(name, [float(v) for v in values])
        for name, values in found.items()
        if name not in texts
    )
    category = tuple(
        CategoryCondition(name, tuple(sorted({str(v) for v in values})))
        for name, values in found.items()
        if name in texts
    )
    return numeric, category
