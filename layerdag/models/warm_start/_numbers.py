"""Numeric conditions by value: the old scale of a number as a function of the new one.

A condition is standardized by the data it was learned from, so the same number enters two models
as two values. What enters the new model is expressed by what entered the old one: exactly where
both are linear in the number (or both in its logarithm), else by least squares.

Shape letters: V values, F features.
"""

import math
from collections.abc import Callable
from typing import Final

import numpy as np
from jaxtyping import Float
from torch import Tensor

from layerdag.datasets.schema import GraphSchema, NumericCondition
from layerdag.errors import VocabularyError
from layerdag.models.warm_start._sources import BY_VALUE, Source

Features = Callable[[np.ndarray], np.ndarray]
"""From standardized values (V,) to what a model is given of them (V, F)."""

# Standard deviations of the new data over which features are fitted, and the number of values.
_RANGE, _VALUES = 3.0, 121
# Standard deviations of the old data beyond which the old model has seen nothing.
_SEEN = 3.0
_RIDGE: Final = 1e-6


def numeric_pair(
    index: int, here: GraphSchema, there: GraphSchema
) -> tuple[NumericCondition, NumericCondition] | None:
    """Return a numeric condition of the new schema and that of the same name of the old one."""
    new = here.numeric_conditions[index]
    old = next((c for c in there.numeric_conditions if c.name == new.name), None)
    return None if old is None else (new, old)


def same_scale(new: NumericCondition, old: NumericCondition) -> bool:
    """Return whether a number has the same standardized value in both."""
    return (new.mean, new.std, new.log) == (old.mean, old.std, old.log)


def feature_source(new: NumericCondition, old: NumericCondition, features: Features) -> Source:
    """Return how weights on features of the new value are mixed from those on the old value's.

    Over the values of the new data, weighted as if they were normal, the old model's features are
    fitted by linear combinations of the new model's.
    """
    if same_scale(new, old):
        width = features(np.zeros(1)).shape[1]
        return Source.of(np.eye(width), [BY_VALUE] * width)
    new_V = np.linspace(-_RANGE, _RANGE, _VALUES)
    old_V = np.clip(np.array([_restandardized(z, new, old) for z in new_V]), -_SEEN, _SEEN)
    known_V = np.isfinite(old_V)
    weight_V1 = np.exp(-0.25 * new_V[known_V, None] ** 2)
    given_VF = features(new_V[known_V]) * weight_V1
    wanted_VF = features(old_V[known_V]) * weight_V1
    gram_FF = given_VF.T @ given_VF + _RIDGE * np.eye(given_VF.shape[1])
    matrix_FF = np.linalg.solve(gram_FF, given_VF.T @ wanted_VF)
    return Source.of(matrix_FF, [BY_VALUE] * len(matrix_FF))


def affine(new: NumericCondition, old: NumericCondition) -> tuple[float, float] | None:
    """Return (a, b) with old value = a * new value + b, None if one is a logarithm."""
    if new.log != old.log:
        return None
    return new.std / old.std, (new.mean - old.mean) / old.std


def radial(center_F: Float[Tensor, " F"]) -> Features:
    """Return the features of the fast model: value, radial basis functions, one."""
    center = center_F.double().numpy()

    def features(value_V: np.ndarray) -> np.ndarray:
        bumps_VF = np.exp(-0.5 * (value_V[:, None] - center) ** 2)
        return np.column_stack([value_V, bumps_VF, np.ones_like(value_V)])

    return features


def value_and_one(value_V: np.ndarray) -> np.ndarray:
    """Return the features of the reference model: value, one."""
    return np.column_stack([value_V, np.ones_like(value_V)])


def _restandardized(value: float, new: NumericCondition, old: NumericCondition) -> float:
    """Return the old model's value of a number, NaN if it can have none."""
    try:
        return old.encode(new.decode(value))
    except VocabularyError:
        return math.nan
