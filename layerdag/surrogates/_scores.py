"""How good predictions are: correlations and errors, with weights for the bootstrap."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.stats import rankdata

from layerdag.evaluation.metrics import Declaration, Goal

ScoreOf = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""From targets, predictions and weights to one score for each row of weights."""


@final
@dataclass(frozen=True, kw_only=True)
class PredictionScore(Declaration):
    """How good predictions of B graphs are.

    Attributes:
        compute: Returns the score of targets and predictions, (B,) each, for each row of weights,
            (R, B); shape (R,).
    """

    compute: ScoreOf


def scores(
    target_B: np.ndarray,
    predicted_B: np.ndarray,
    weights_RB: np.ndarray | None = None,
    named: Sequence[PredictionScore] | None = None,
) -> dict[str, np.ndarray]:
    """Return every score for each row of weights, shape (R,); one row of ones by default.

    Weights say how often each graph is counted. Ranks are those of the whole set, so that the
    Spearman score of a resample is exact only for equal weights. A correlation with a constant is
    NaN, and so is that of the logarithms where a number is not positive; MAPE leaves out targets
    of 0. Where targets span decades, the plain Pearson score hangs on the few largest.

    Args:
        target_B: What was measured.
        predicted_B: What was predicted.
        weights_RB: How often each graph is counted.
        named: Which scores; ``SCORES`` by default.
    """
    if weights_RB is None:
        weights_RB = np.ones((1, target_B.size))
    return {
        score.name: score.compute(target_B, predicted_B, weights_RB)
        for score in (SCORES if named is None else named)
    }


def _pearson_log(
    target_B: np.ndarray, predicted_B: np.ndarray, weights_RB: np.ndarray
) -> np.ndarray:
    """Return weighted Pearson correlations of the logarithms."""
    return _pearson(_log(target_B), _log(predicted_B), weights_RB)


def _spearman(target_B: np.ndarray, predicted_B: np.ndarray, weights_RB: np.ndarray) -> np.ndarray:
    """Return weighted Pearson correlations of the ranks."""
    return _pearson(rankdata(target_B), rankdata(predicted_B), weights_RB)


def _mae(target_B: np.ndarray, predicted_B: np.ndarray, weights_RB: np.ndarray) -> np.ndarray:
    """Return weighted mean absolute errors."""
    return _mean(np.abs(predicted_B - target_B), weights_RB)


def _mape(target_B: np.ndarray, predicted_B: np.ndarray, weights_RB: np.ndarray) -> np.ndarray:
    """Return weighted mean absolute errors relative to targets that are not 0."""
    nonzero_B = target_B != 0
    error_B = np.abs(predicted_B - target_B)[nonzero_B]
    return _mean(error_B / np.abs(target_B[nonzero_B]), weights_RB[:, nonzero_B])


def _within_tenth(
    target_B: np.ndarray, predicted_B: np.ndarray, weights_RB: np.ndarray
) -> np.ndarray:
    """Return weighted fractions of predictions at most a tenth of the target away from it."""
    close_B = np.abs(predicted_B - target_B) <= 0.1 * np.abs(target_B)
    return _mean(close_B.astype(float), weights_RB)


def _log(value_B: np.ndarray) -> np.ndarray:
    """Return logarithms, all NaN where one number is not positive."""
    return np.log(value_B) if (value_B > 0).all() else np.full(value_B.size, np.nan)


def _mean(value_B: np.ndarray, weights_RB: np.ndarray) -> np.ndarray:
    """Return weighted means, NaN where there is no weight."""
    total_R = weights_RB.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((weights_RB @ value_B) / total_R)


def _pearson(x_B: np.ndarray, y_B: np.ndarray, weights_RB: np.ndarray) -> np.ndarray:
    """Return weighted Pearson correlations."""
    x_RB = x_B - _mean(x_B, weights_RB)[:, None]
    y_RB = y_B - _mean(y_B, weights_RB)[:, None]
    cross_R = (weights_RB * x_RB * y_RB).sum(axis=1)
    norm_R = np.sqrt((weights_RB * x_RB**2).sum(axis=1) * (weights_RB * y_RB**2).sum(axis=1))
    # What rounding leaves of a constant is no spread, whatever the unit of the numbers.
    rounding = 1e-12 * x_B.size * float(np.abs(x_B).max() * np.abs(y_B).max())
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(norm_R > rounding, cross_R / norm_R, np.nan))


def _kendall(x_B: np.ndarray, y_B: np.ndarray, weights_RB: np.ndarray) -> np.ndarray:
    """Return weighted Kendall tau-b: sign agreement over pairs, corrected for ties."""
    x_BB = np.sign(x_B[:, None] - x_B[None, :])
    y_BB = np.sign(y_B[:, None] - y_B[None, :])

    def pairs(matrix_BB: np.ndarray) -> np.ndarray:
        return np.einsum("rb,rb->r", weights_RB @ matrix_BB, weights_RB)

    norm_R = np.sqrt(pairs(np.abs(x_BB)) * pairs(np.abs(y_BB)))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(norm_R > 0, pairs(x_BB * y_BB) / norm_R, np.nan))


def _correlation(
    name: str,
    description: str,
    compute: ScoreOf,
) -> PredictionScore:
    return PredictionScore(name, description, Goal.MAXIMIZE, -1.0, 1.0, compute=compute)


def _error(
    name: str,
    description: str,
    compute: ScoreOf,
) -> PredictionScore:
    return PredictionScore(name, description, Goal.MINIMIZE, compute=compute)


SCORES = (
    _correlation("pearson", "linear correlation of prediction and target", _pearson),
    _correlation("pearson_log", "linear correlation of the logarithms", _pearson_log),
    _correlation("spearman", "rank correlation of prediction and target", _spearman),
    _correlation("kendall", "Kendall's tau-b of prediction and target", _kendall),
    _error("mae", "mean absolute error in the unit of the target", _mae),
    _error("mape", "mean absolute error relative to the target", _mape),
)

WITHIN_TENTH = PredictionScore(
    "within_10_percent",
    "fraction of predictions within 10 % of the target",
    Goal.MAXIMIZE,
    0.0,
    1.0,
    compute=_within_tenth,
)
EVALUATED = (*SCORES, WITHIN_TENTH)
"""What ``Surrogate.evaluate`` reports: ``SCORES``, the scores of reports, and ``WITHIN_TENTH``."""
