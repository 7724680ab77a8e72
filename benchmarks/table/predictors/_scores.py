"""Errors of predictions with intervals over test graphs.

Shape letters: B graphs, R resamples.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from layerdag.runtime.rng import numpy_generator
from layerdag.statistics import bootstrap_weights

REDRAWS = 1000
SCORED = ("rmse", "within_5", "within_10", "r2")
MEAN = "mean"
"""Of the parts of a kind, each with the same weight, as the benchmark's code has it."""

Estimate = Sequence[float]
"""A score with the ends of its 95 % interval."""


def scored(
    parts: Mapping[str, tuple[str, np.ndarray, np.ndarray]],
) -> dict[str, dict[str, dict[str, Estimate]]]:
    """Return scores by kind and part, and the mean over the parts of a kind.

    Args:
        parts: By name the kind, targets and predictions.
    """
    drawn: dict[str, dict[str, dict[str, np.ndarray]]] = {}
    for name, (kind, target_B, predicted_B) in parts.items():
        drawn.setdefault(kind, {})[name] = _drawn(name, target_B, predicted_B)
    for found in drawn.values():
        if len(found) > 1:
            found[MEAN] = {
                score: np.mean([one[score] for one in found.values()], axis=0) for score in SCORED
            }
    return {
        kind: {
            name: {score: _estimate(value_R) for score, value_R in one.items()}
            for name, one in found.items()
        }
        for kind, found in drawn.items()
    }


def _drawn(name: str, target_B: np.ndarray, predicted_B: np.ndarray) -> dict[str, np.ndarray]:
    """Return each score of all graphs, then of each resample."""
    rng = numpy_generator(0, "test graphs", name)
    weight_RB = np.concatenate(
        [np.ones((1, target_B.size)), bootstrap_weights(rng, REDRAWS, target_B.size)]
    )
    weight_RB /= weight_RB.sum(axis=1, keepdims=True)
    square_R = weight_RB @ np.square(predicted_B - target_B)
    relative_B = np.abs(predicted_B / target_B - 1)
    spread_R = weight_RB @ np.square(target_B) - np.square(weight_RB @ target_B)
    return {
        "rmse": np.sqrt(square_R),
        "within_5": weight_RB @ (relative_B < 0.05),
        "within_10": weight_RB @ (relative_B < 0.10),
        "r2": 1 - square_R / np.maximum(spread_R, 1e-300),
    }


def _estimate(value_R: np.ndarray) -> Estimate:
    low, high = np.quantile(value_R[1:], (0.025, 0.975))
    return [float(f"{value:.4g}") for value in (float(value_R[0]), float(low), float(high))]


def count(figures: Mapping[str, Any]) -> int:
    """Return the number of test graphs of a run."""
    return int(sum(figures["test"].values()))
